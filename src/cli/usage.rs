//! `weir usage`: what accounts, keys, models and tags have used, by day, model, key or tag.

use std::{collections::BTreeMap, io::Write};

use clap::Args;

use super::{
    account_names,
    admin_client::{AdminClient, AdminClientError, ClientArgs},
    limits::one_of,
    log::filter::tag,
    progress::{Progress, ProgressArgs, Unit},
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
    pub progress: ProgressArgs,
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub client: ClientArgs,
}

/// The line that shows how many accounts the report has.
struct ReportProgress {
    line: Progress,
    /// All accounts by their names, which only the line needs.
    accounts: Vec<String>,
}

impl ReportProgress {
    async fn start(args: ProgressArgs, client: &AdminClient) -> Self {
        let line = Progress::start(args, "Adding up", Unit::Accounts, None);
        let mut accounts = Vec::new();
        if line.is_shown() {
            // Without them the line has no total, and the report is the same.
            accounts = account_names::read(client).await.unwrap_or_default();
        }
        if !accounts.is_empty() {
            line.set_total(accounts.len() as u64);
        }
        Self { line, accounts }
    }

    /// The report has this account and all before it.
    fn reach(&self, account: &str) {
        let position = self.accounts.partition_point(|name| name.as_str() <= account);
        self.line.set_position(position as u64);
        self.line.show(account);
    }
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
    let mut progress = None;
    loop {
        let page = client.ask(&asked).await?.read()?;
        for UsageLine { of, sums } in page.usage {
            let all = lines
                .get(of.name())
                .map_or_else(|| sums.clone(), |before| before.plus(&sums));
            lines.insert(of.name().to_owned(), all);
        }
        total = total.plus(&page.total);
        let Some(next) = page.next else { break };
        if progress.is_none() {
            progress = Some(ReportProgress::start(args.progress, client).await);
        }
        if let Some(progress) = &progress {
            progress.reach(&next);
        }
        asked.after = Some(next);
    }
    drop(progress);
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
