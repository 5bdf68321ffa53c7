//! `weir usage`: what accounts, keys, models and tags have used, by day, model, key or tag.

use std::{collections::BTreeMap, io::Write};

use clap::{Args, ValueEnum};
use http::Method;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value};

use super::admin_client::{AdminClient, AdminClientError, ClientArgs};
use crate::domain::{money::NanoUsd, wire::usage::Usage};

/// `weir usage`
#[derive(Args, Clone, Debug)]
pub struct UsageArgs {
    /// Only what this account has used
    #[arg(long)]
    pub account: Option<String>,
    /// Only what the key with this id has used
    #[arg(long, value_name = "ID")]
    pub key: Option<String>,
    /// Only of this model, by the name in the catalogue
    #[arg(long)]
    pub model: Option<String>,
    /// Only of requests with this tag
    #[arg(long, value_name = "NAME=VALUE")]
    pub tag: Option<String>,
    /// A line for each
    #[arg(long, value_enum, default_value = "day")]
    pub by: By,
    /// The first day, in UTC; without it the last 30 days
    #[arg(long, value_name = "DATE")]
    pub from: Option<String>,
    /// Only days before this one
    #[arg(long, value_name = "DATE")]
    pub until: Option<String>,
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub client: ClientArgs,
}

/// What each line is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum By {
    /// A day on which requests ended, in UTC.
    Day,
    /// A model that served.
    Model,
    /// A key.
    Key,
    /// A tag, and `other` for those beyond the limit of a day.
    Tag,
}

impl By {
    fn as_str(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Model => "model",
            Self::Key => "key",
            Self::Tag => "tag",
        }
    }
}

/// Runs the command against the admin API and prints the result.
pub(crate) async fn run(args: &UsageArgs, client: &AdminClient, out: &mut impl Write) -> Result<(), AdminClientError> {
    let by = args.by.as_str();
    // An answer has some of the accounts; its lines are added to those of the others.
    let mut lines: BTreeMap<String, Map<String, Value>> = BTreeMap::new();
    let mut total = Map::new();
    let mut after = None;
    loop {
        let page = client.call(Method::GET, &path(args, after.as_deref()), None).await?;
        for line in page.get("usage").and_then(Value::as_array).into_iter().flatten() {
            let name = line.get(by).and_then(Value::as_str).unwrap_or_default();
            add(lines.entry(name.to_owned()).or_default(), line);
        }
        if let Some(all) = page.get("total") {
            add(&mut total, all);
        }
        match page.get("next").and_then(Value::as_str) {
            Some(next) => after = Some(next.to_owned()),
            None => break,
        }
    }
    if args.client.json {
        for (name, sums) in lines {
            let mut line = Map::from_iter([(by.to_owned(), Value::from(name))]);
            line.extend(sums);
            writeln!(out, "{}", Value::Object(line))?;
        }
        return Ok(());
    }
    writeln!(
        out,
        "{:<32}  {:>10}  {:>8}  {:>14}  {:>14}  {:>16}",
        by.to_uppercase(),
        "REQUESTS",
        "ERRORS",
        "TOKENS IN",
        "TOKENS OUT",
        "COST USD"
    )?;
    for (name, sums) in &lines {
        writeln!(out, "{}", shown(name, sums))?;
    }
    // A request counts with each of its tags, and once in the total; those without a tag are in the total only.
    if lines.len() > 1 || args.by == By::Tag {
        writeln!(out, "{}", shown("total", &total))?;
    }
    Ok(())
}

fn path(args: &UsageArgs, after: Option<&str>) -> String {
    let asked = [
        ("account", args.account.as_deref()),
        ("key", args.key.as_deref()),
        ("model", args.model.as_deref()),
        ("tag", args.tag.as_deref()),
        ("from", args.from.as_deref()),
        ("until", args.until.as_deref()),
        ("after", after),
    ];
    let asked = asked.into_iter().filter_map(|(name, value)| Some((name, value?)));
    let asked = asked.map(|(name, value)| format!("&{name}={}", utf8_percent_encode(value, NON_ALPHANUMERIC)));
    format!("/v1/usage?by={}{}", args.by.as_str(), asked.collect::<String>())
}

/// Adds the numbers of a line to others.
fn add(sums: &mut Map<String, Value>, line: &Value) {
    for (name, more) in line.as_object().into_iter().flatten() {
        if let Some(more) = more.as_u64() {
            let before = number(sums, name);
            sums.insert(name.clone(), Value::from(before.saturating_add(more)));
        }
    }
    let cost = i64::try_from(number(sums, "cost_nano_usd")).unwrap_or(i64::MAX);
    sums.insert(
        "cost_usd".to_owned(),
        Value::from(NanoUsd::from_nanos(cost).to_string()),
    );
}

fn number(sums: &Map<String, Value>, name: &str) -> u64 {
    sums.get(name).and_then(Value::as_u64).unwrap_or(0)
}

fn shown(name: &str, sums: &Map<String, Value>) -> String {
    let together = |names: &[&str]| names.iter().map(|name| number(sums, name)).fold(0, u64::saturating_add);
    format!(
        "{name:<32}  {:>10}  {:>8}  {:>14}  {:>14}  {:>16}",
        number(sums, "requests"),
        number(sums, "errors"),
        together(&Usage::INPUT),
        together(&Usage::OUTPUT),
        sums.get("cost_usd").and_then(Value::as_str).unwrap_or_default(),
    )
}
