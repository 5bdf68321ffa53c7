//! Calls of the admin API that report the usage of accounts, keys, models and tags. The figures are read from the daily sums.

use std::ops::RangeInclusive;

use futures_util::stream::{self, StreamExt, TryStreamExt};

use super::{Admin, accounts};
use crate::admin::{audit::Author, errors::AdminHandler};
use crate::{
    api::{
        error::AdminError,
        log::UtcDay,
        usage::{CostsByDay, ShowUsage, UsageLine, UsagePage},
    },
    domain::ledger::{
        consumption::RETENTION_DAYS,
        daily_sums::{DailySum, SumSelector, SumSubject},
        reports::{DailyCosts, SplitBy, UsageReport, day_of_date},
    },
    store::StoreError,
};

/// The default number of days of a report.
const DAYS_DEFAULT: i64 = 30;
/// The number of accounts whose sums are read concurrently if no account is named. The next page has further accounts.
const ACCOUNTS_AT_ONCE: usize = 32;
/// The maximum number of names whose costs are listed by day. The costs of all others are added up.
pub(super) const DAILY_MAX: usize = 6;
const DAY_MS: i64 = 24 * 3_600_000;

impl AdminHandler for ShowUsage {
    async fn answer(self, admin: &Admin, _: Author) -> Result<UsagePage, AdminError> {
        let days = self.days(admin.ledger.now_ms().await?)?;
        let by = self.by.unwrap_or(SplitBy::Day);
        let of = self.sums(by)?;
        let (accounts, next) = self.accounts(admin).await?;
        let most = self.most.unwrap_or(usize::MAX);
        let mut report = UsageReport::default();
        let mut costs = DailyCosts::new(days.clone());
        // The costs by day are split by model.
        let split = if by == SplitBy::Day { SplitBy::Model } else { by };
        // A request with two tags is part of the sums of both, and one without tags of none. Therefore the total is read from the
        // account's sums.
        let whole = (of == SumSelector::Tags).then_some(SumSelector::One(SumSubject::Account));
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
            costs: CostsByDay::from_costs(&costs, DAILY_MAX),
            by,
            usage: UsageLine::from_report(by, report.lines(by, most)),
            left_out: report.omitted_lines(most),
            total: report.total().into(),
            next,
        })
    }
}

impl ShowUsage {
    /// Returns which sums answer the call.
    fn sums(&self, by: SplitBy) -> Result<SumSelector, AdminError> {
        let refused = |message: &str| Err(AdminError::of_field("tag", message));
        match (&self.key, &self.tag, by) {
            (Some(_), Some(_), _) | (Some(_), None, SplitBy::Tag) | (None, Some(_), SplitBy::Key) => {
                refused("sums are stored by key and by tag, but not by both together")
            }
            (Some(key), None, _) => Ok(SumSelector::One(SumSubject::Key(key.clone()))),
            (None, Some(tag), _) if tag.is_summed() => Ok(SumSelector::One(SumSubject::Tag(tag.clone()))),
            (None, Some(_), _) => {
                refused("sums are not kept for sessions; `weir log query --tag` lists the rows of a session")
            }
            (None, None, SplitBy::Key) => Ok(SumSelector::Keys),
            (None, None, SplitBy::Tag) => Ok(SumSelector::Tags),
            (None, None, SplitBy::Day | SplitBy::Model) => Ok(SumSelector::One(SumSubject::Account)),
        }
    }

    /// Returns the account that the call or its key names. If none is named, returns the next accounts, and the name after which
    /// the next page continues.
    async fn accounts(&self, admin: &Admin) -> Result<(Vec<String>, Option<String>), AdminError> {
        if let Some(account) = &self.account {
            return Ok((
                vec![accounts::existing_account(admin, account.as_str()).await?.id],
                None,
            ));
        }
        if let Some(key) = &self.key {
            let view = admin.store.by_id(key).await?;
            let view = view.ok_or_else(|| {
                AdminError::not_found(format!(
                    "key {key} does not exist; the usage of a deleted key is included in its account's"
                ))
            })?;
            return Ok((vec![view.record.account.into()], None));
        }
        let page = admin.ledger.accounts(self.after.as_deref(), ACCOUNTS_AT_ONCE).await?;
        let names: Vec<String> = page.into_iter().map(|account| account.id).collect();
        let next = names.last().filter(|_| names.len() == ACCOUNTS_AT_ONCE).cloned();
        Ok((names, next))
    }

    /// Returns the days of the report, without those whose sums are no longer stored.
    fn days(&self, now_ms: i64) -> Result<RangeInclusive<i64>, AdminError> {
        let today = now_ms.div_euclid(DAY_MS);
        let oldest = today - i64::from(RETENTION_DAYS);
        let number = |date: Option<UtcDay>| date.map(|UtcDay(date)| day_of_date(date));
        let (from, until) = (number(self.from), number(self.until));
        if from.zip(until).is_some_and(|(from, until)| from >= until) {
            return Err(AdminError::of_field("until", "the time must be after --from"));
        }
        let last = until.map_or(today, |until| until - 1).min(today);
        let first = from.unwrap_or(last + 1 - DAYS_DEFAULT).max(oldest);
        Ok(first..=last)
    }
}
