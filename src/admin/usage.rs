//! What accounts, keys, models and tags have used, from the daily sums.

use std::ops::RangeInclusive;

use futures_util::stream::{self, StreamExt, TryStreamExt};

use super::{Admin, accounts, ask::Answered, author::Author};
use crate::{
    api::{
        error::AdminError,
        log::Day,
        usage::{CostsByDay, ShowUsage, UsageLine, UsagePage},
    },
    domain::ledger::{
        consumption::RETENTION_DAYS,
        daily_costs::DailyCosts,
        daily_sums::{DailySum, Subject, SumsOf},
        usage_report::{SplitBy, UsageReport, day},
    },
    store::StoreError,
};

/// How many days a report has, unless asked otherwise.
const DAYS_DEFAULT: i64 = 30;
/// Accounts in one answer where none is named, all asked about together. Others are for the next one.
const ACCOUNTS_AT_ONCE: usize = 32;
/// The names whose cost is told day by day; that of the others is told together.
pub(super) const DAILY_MAX: usize = 6;
const DAY_MS: i64 = 24 * 3_600_000;

impl Answered for ShowUsage {
    async fn answer(self, admin: &Admin, _: Author) -> Result<UsagePage, AdminError> {
        let days = self.days(admin.ledger.now_ms().await?)?;
        let by = self.by.unwrap_or(SplitBy::Day);
        let of = self.sums(by)?;
        let (accounts, next) = self.accounts(admin).await?;
        let most = self.most.unwrap_or(usize::MAX);
        let mut report = UsageReport::default();
        let mut costs = DailyCosts::new(days.clone());
        // A picture of days shows their models.
        let split = if by == SplitBy::Day { SplitBy::Model } else { by };
        // A request with two tags is in the sums of both, one without any in none: what all of them come to, the account knows.
        let whole = (of == SumsOf::Tags).then_some(SumsOf::One(Subject::Account));
        let (ledger, asked, of, whole) = (&*admin.ledger, &days, &of, &whole);
        let reads = accounts.iter().map(|account| async move {
            let sums = ledger.sums(account, asked.clone(), of).await?;
            let all = match whole {
                Some(whole) => Some(ledger.sums(account, asked.clone(), whole).await?),
                None => None,
            };
            Ok::<_, StoreError>((sums, all))
        });
        let mut reads = stream::iter(reads.collect::<Vec<_>>()).buffered(ACCOUNTS_AT_ONCE);
        let takes = |sum: &&DailySum| self.model.as_ref().is_none_or(|model| *model == sum.model);
        while let Some((sums, all)) = reads.try_next().await? {
            report.add_lines(sums.iter().filter(takes), by);
            report.add_total(all.as_ref().unwrap_or(&sums).iter().filter(takes));
            costs.add(sums.iter().filter(takes), split);
        }
        Ok(UsagePage {
            costs: CostsByDay::of(&costs, DAILY_MAX),
            by,
            usage: UsageLine::all(by, report.lines(by, most)),
            left_out: report.left_out(most),
            total: report.total().into(),
            next,
        })
    }
}

impl ShowUsage {
    /// Which sums answer the question.
    fn sums(&self, by: SplitBy) -> Result<SumsOf, AdminError> {
        let refused = |message: &str| Err(AdminError::of_field("tag", message));
        match (&self.key, &self.tag, by) {
            (Some(_), Some(_), _) | (Some(_), None, SplitBy::Tag) | (None, Some(_), SplitBy::Key) => {
                refused("sums are kept of keys and of tags, not of the tags of a key")
            }
            (Some(key), None, _) => Ok(SumsOf::One(Subject::Key(key.clone()))),
            (None, Some(tag), _) if tag.is_summed() => Ok(SumsOf::One(Subject::Tag(tag.clone()))),
            (None, Some(_), _) => refused("no sums are kept of sessions; `weir log query --tag` finds their rows"),
            (None, None, SplitBy::Key) => Ok(SumsOf::Keys),
            (None, None, SplitBy::Tag) => Ok(SumsOf::Tags),
            (None, None, SplitBy::Day | SplitBy::Model) => Ok(SumsOf::One(Subject::Account)),
        }
    }

    /// The account that is named, or the key's; else some, and where to go on.
    async fn accounts(&self, admin: &Admin) -> Result<(Vec<String>, Option<String>), AdminError> {
        if let Some(account) = &self.account {
            return Ok((vec![accounts::existing(admin, account.as_str()).await?.id], None));
        }
        if let Some(key) = &self.key {
            let view = admin.store.by_id(key).await?;
            let view = view.ok_or_else(|| {
                AdminError::not_found(format!(
                    "there is no key {key}; what a deleted one has used is told with its account"
                ))
            })?;
            return Ok((vec![view.record.account.into()], None));
        }
        let page = admin.ledger.accounts(self.after.as_deref(), ACCOUNTS_AT_ONCE).await?;
        let names: Vec<String> = page.into_iter().map(|account| account.id).collect();
        let next = names.last().filter(|_| names.len() == ACCOUNTS_AT_ONCE).cloned();
        Ok((names, next))
    }

    /// The days, as far as they are kept.
    fn days(&self, now_ms: i64) -> Result<RangeInclusive<i64>, AdminError> {
        let today = now_ms.div_euclid(DAY_MS);
        let oldest = today - i64::from(RETENTION_DAYS);
        let number = |date: Option<Day>| date.map(|Day(date)| day(date));
        let (from, until) = (number(self.from), number(self.until));
        if from.zip(until).is_some_and(|(from, until)| from >= until) {
            return Err(AdminError::of_field(
                "until",
                "it is not after --from, so no day is left",
            ));
        }
        let last = until.map_or(today, |until| until - 1).min(today);
        let first = from.unwrap_or(last + 1 - DAYS_DEFAULT).max(oldest);
        Ok(first..=last)
    }
}
