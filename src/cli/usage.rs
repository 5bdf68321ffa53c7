//! `weir usage`: prints the usage of accounts, keys, models and tags, by day, model, key or tag.

use std::{collections::BTreeMap, io::Write};

use clap::Args;

use super::admin_client::{AdminClient, AdminClientError, ClientArgs};
use crate::cli::{
    self,
    log::tag,
    one_of,
    output::{CommandProgress, ProgressArgs, ProgressUnit},
};
use crate::{
    api::{
        log::UtcDay,
        usage::{ShowUsage, UsageLine, UsageSubject, UsageSums},
        values::AccountId,
    },
    domain::{
        keys::KeyId,
        ledger::{daily_sums::Sums, ids::Tag, reports::SplitBy},
    },
};

/// The arguments of `weir usage`.
#[derive(Args, Clone, Debug)]
pub struct UsageArgs {
    /// Print only the usage of this account
    #[arg(long)]
    pub(crate) account: Option<AccountId>,
    /// Print only the usage of the key with this id
    #[arg(long, value_name = "ID")]
    pub(crate) key: Option<KeyId>,
    /// Print only the usage of this model, by its name in the catalogue
    #[arg(long)]
    pub(crate) model: Option<String>,
    /// Print only the usage of requests with this tag
    #[arg(long, value_name = "NAME=VALUE", value_parser = tag)]
    pub(crate) tag: Option<Tag>,
    /// What each line of the report is about: a day on which requests ended (UTC), a model that served requests, a key, or a tag.
    /// The line `other` contains the usage of all tags beyond the daily limit on tags
    #[arg(long, default_value = "day", value_parser = one_of::<SplitBy>(&["day", "model", "key", "tag"]))]
    pub(crate) by: SplitBy,
    /// The first day, in UTC. Without this option, the report covers the last 30 days
    #[arg(long, value_name = "DATE")]
    pub(crate) from: Option<UtcDay>,
    /// The day after the last day, in UTC
    #[arg(long, value_name = "DATE")]
    pub(crate) until: Option<UtcDay>,
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub progress: ProgressArgs,
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub client: ClientArgs,
}

/// The progress of a report, measured in accounts.
struct ReportProgress {
    line: CommandProgress,
    /// The ids of all accounts, in alphabetical order. Empty if the progress is not displayed.
    accounts: Vec<String>,
}

impl ReportProgress {
    async fn start(args: ProgressArgs, client: &AdminClient) -> Self {
        let line = CommandProgress::start(args, "Adding up", ProgressUnit::Accounts, None);
        let mut accounts = Vec::new();
        if line.is_shown() {
            // If the accounts cannot be read, the progress has no total. The report does not change.
            accounts = cli::read_account_names(client).await.unwrap_or_default();
        }
        if !accounts.is_empty() {
            line.set_total(accounts.len() as u64);
        }
        Self { line, accounts }
    }

    /// Sets the progress to this account: the report now includes it and all accounts before it.
    fn reach(&self, account: &str) {
        let position = self.accounts.partition_point(|name| name.as_str() <= account);
        self.line.set_position(position as u64);
        self.line.show(account);
    }
}

/// Calls the admin API and prints the result.
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
    // A page covers some of the accounts. The lines of a page are added to the lines of previous pages.
    let mut lines: BTreeMap<String, UsageSums> = BTreeMap::new();
    let mut total = UsageSums::from(&Sums::default());
    let mut progress = None;
    loop {
        let page = client.request(&asked).await?.read()?;
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
            let of = UsageSubject::new(by, name);
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
        writeln!(out, "{}", usage_line(name, sums))?;
    }
    // A request with tags counts once for each tag and once in the total. A request without tags counts only in the total.
    if lines.len() > 1 || by == SplitBy::Tag {
        writeln!(out, "{}", usage_line("total", &total))?;
    }
    Ok(())
}

fn usage_line(name: &str, sums: &UsageSums) -> String {
    format!(
        "{name:<32}  {:>10}  {:>8}  {:>14}  {:>14}  {:>16}",
        sums.requests,
        sums.errors,
        sums.usage.input_total(),
        sums.usage.output_total(),
        sums.cost_usd.to_string(),
    )
}
