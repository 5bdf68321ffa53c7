//! `weir usage`: what accounts, keys, models and tags have used, by day, model, key or tag.

use std::{collections::BTreeMap, io::Write};

use clap::Args;

use super::{
    admin_client::{AdminClient, AdminClientError, ClientArgs},
    limits::one_of,
    log::filter::tag,
};
use crate::{
    api::{
        log::Day,
        names::AccountId,
        usage::{LineOf, ShowUsage, UsageLine, UsageSums},
    },
    domain::{
        keys::key::KeyId,
        ledger::{daily_sums::Sums, tag::Tag, usage_report::SplitBy},
    },
};

/// `weir usage`
#[derive(Args, Clone, Debug)]
pub struct UsageArgs {
    /// Only what this account has used
    #[arg(long)]
    pub(crate) account: Option<AccountId>,
    /// Only what the key with this id has used
    #[arg(long, value_name = "ID")]
    pub(crate) key: Option<KeyId>,
    /// Only of this model, by the name in the catalogue
    #[arg(long)]
    pub(crate) model: Option<String>,
    /// Only of requests with this tag
    #[arg(long, value_name = "NAME=VALUE", value_parser = tag)]
    pub(crate) tag: Option<Tag>,
    /// A line for each: a day on which requests ended (UTC), a model that served, a key, or a tag, with `other` for those beyond
    /// the limit of a day
    #[arg(long, default_value = "day", value_parser = one_of::<SplitBy>(&["day", "model", "key", "tag"]))]
    pub(crate) by: SplitBy,
    /// The first day, in UTC; without it the last 30 days
    #[arg(long, value_name = "DATE")]
    pub(crate) from: Option<Day>,
    /// Only days before this one
    #[arg(long, value_name = "DATE")]
    pub(crate) until: Option<Day>,
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub client: ClientArgs,
}

/// Runs the command against the admin API and prints the result.
pub(crate) async fn run(args: &UsageArgs, client: &AdminClient, out: &mut impl Write) -> Result<(), AdminClientError> {
    let by = args.by;
    let mut asked = ShowUsage {
        account: args.account.clone(),
        key: args.key.clone(),
        model: args.model.clone(),
        tag: args.tag.clone(),
        by: Some(by),
        from: args.from,
        until: args.until,
        after: None,
        most: None,
    };
    // An answer has some of the accounts; its lines are added to those of the others.
    let mut lines: BTreeMap<String, UsageSums> = BTreeMap::new();
    let mut total = UsageSums::from(&Sums::default());
    loop {
        let page = client.ask(&asked).await?.read()?;
        for UsageLine { of, sums } in page.usage {
            let all = lines
                .get(of.name())
                .map_or_else(|| sums.clone(), |before| before.plus(&sums));
            lines.insert(of.name().to_owned(), all);
        }
        total = total.plus(&page.total);
        if page.next.is_none() {
            break;
        }
        asked.after = page.next;
    }
    if args.client.json {
        for (name, sums) in lines {
            let of = LineOf::new(by, name);
            let line = serde_json::to_string(&UsageLine { of, sums }).map_err(std::io::Error::other)?;
            writeln!(out, "{line}")?;
        }
        return Ok(());
    }
    writeln!(
        out,
        "{:<32}  {:>10}  {:>8}  {:>14}  {:>14}  {:>16}",
        by.as_str().to_uppercase(),
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
    if lines.len() > 1 || by == SplitBy::Tag {
        writeln!(out, "{}", shown("total", &total))?;
    }
    Ok(())
}

fn shown(name: &str, sums: &UsageSums) -> String {
    format!(
        "{name:<32}  {:>10}  {:>8}  {:>14}  {:>14}  {:>16}",
        sums.requests,
        sums.errors,
        sums.usage.input_total(),
        sums.usage.output_total(),
        sums.cost_usd.to_string(),
    )
}
