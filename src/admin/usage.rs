//! Calls of the admin API that report the usage of accounts, keys, models and tags, and the totals of all accounts for the
//! console's first page. The figures are read from the daily sums.

use std::ops::RangeInclusive;

use futures_util::{
    TryFutureExt,
    stream::{self, StreamExt, TryStreamExt},
};

use crate::{
    admin::{Admin, AdminHandler, accounts, audit::Author},
    api::{
        AdminError,
        accounts::AccountDetails,
        log::UtcDay,
        usage::{CostsByDay, Overview, ShowOverview, ShowUsage, TopCosts, UsageLine, UsagePage, WeekCostLine},
    },
    domain::{
        ledger::{
            AccountView,
            consumption::RETENTION_DAYS,
            daily_sums::{DailySum, SumSelector, SumSubject, Sums},
            reports::{DailyCosts, SplitBy, UsageReport, WEEK, date_of_day, day_of_date, most_expensive_weeks},
        },
        money::NanoUsd,
    },
    store::{
        StoreError,
        ledger::{LIST_ACCOUNTS_MAX, LedgerStore},
    },
};

/// The default number of days of a report.
const DAYS_DEFAULT: i64 = 30;
/// The number of accounts on a page if the call does not name an account. Their sums are read concurrently.
const ACCOUNTS_AT_ONCE: usize = 32;
/// The maximum number of models, keys or tags whose costs are listed by day. The costs of all others are added up in one further
/// entry.
const DAILY_MAX: usize = 6;
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
        // In a report by day, the costs of each day are split by model.
        let split = if by == SplitBy::Day { SplitBy::Model } else { by };
        // The sums of tags do not add up to the total: a request with two tags is in two sums, and a request without tags is in
        // none. Therefore the total is read from the account's sums.
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
    /// Returns the selector of the sums that answer the call.
    fn sums(&self, by: SplitBy) -> Result<SumSelector, AdminError> {
        let refused = |message: &str| Err(AdminError::of_field("tag", message));
        match (&self.key, &self.tag, by) {
            (Some(_), Some(_), _) | (Some(_), None, SplitBy::Tag) | (None, Some(_), SplitBy::Key) => {
                refused("sums are stored by key and by tag, but not by both together: give only one of them")
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

    /// Returns the account that the call names, or the account of the key that the call names. If the call names neither, returns
    /// the next accounts, and the name after which the next page continues.
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
                    "key {key} does not exist; the usage of a deleted key is included in the usage of its account"
                ))
            })?;
            return Ok((vec![view.record.account.into()], None));
        }
        let page = admin.ledger.accounts(self.after.as_deref(), ACCOUNTS_AT_ONCE).await?;
        let names: Vec<String> = page.into_iter().map(|account| account.id).collect();
        let next = names.last().filter(|_| names.len() == ACCOUNTS_AT_ONCE).cloned();
        Ok((names, next))
    }

    /// Returns the days of the report, without days whose sums are no longer stored.
    fn days(&self, now_ms: i64) -> Result<RangeInclusive<i64>, AdminError> {
        let today = now_ms.div_euclid(DAY_MS);
        let oldest = today - i64::from(RETENTION_DAYS);
        let number = |date: Option<UtcDay>| date.map(|UtcDay(date)| day_of_date(date));
        let (from, until) = (number(self.from), number(self.until));
        if from.zip(until).is_some_and(|(from, until)| from >= until) {
            return Err(AdminError::of_field("until", "the time must be after `from`"));
        }
        let last = until.map_or(today, |until| until - 1).min(today);
        let first = from.unwrap_or(last + 1 - DAYS_DEFAULT).max(oldest);
        Ok(first..=last)
    }
}

/// The maximum number of accounts that are included in the totals. Each account requires two calls to the store.
const ACCOUNTS_MAX: usize = 10_000;
/// The maximum number of accounts whose sums are read concurrently.
const AT_ONCE: usize = 16;
/// The maximum number of accounts that are listed because of a low balance.
const LOW_MAX: usize = 20;
/// The number of days whose costs are listed.
const DAYS_SHOWN: i64 = 30;
/// The number of accounts that are listed as those with the highest costs in the last week. The same number applies to keys and
/// to models.
const DEAREST_MAX: usize = 5;
/// The maximum number of accounts whose keys are read to find the keys with the highest costs. These are the accounts with the
/// highest costs.
const KEYS_OF_ACCOUNTS_MAX: usize = 32;

impl AdminHandler for ShowOverview {
    /// Returns the totals of the first [`ACCOUNTS_MAX`] accounts.
    async fn answer(self, admin: &Admin, _: Author) -> Result<Overview, AdminError> {
        Ok(count_first(&*admin.ledger, ACCOUNTS_MAX).await?.into_overview())
    }
}

/// Computes the totals of the first `accounts_max` accounts, in the order of their names.
async fn count_first(ledger: &dyn LedgerStore, accounts_max: usize) -> Result<OverviewTotals, StoreError> {
    let today = ledger.now_ms().await?.div_euclid(DAY_MS);
    let month = day_of_date(date_of_day(today).first_of_month());
    let mut all = OverviewTotals::new(today);
    let mut after: Option<String> = None;
    loop {
        // After `accounts_max` accounts, one more account is read to find out whether there are further accounts.
        let asked = (accounts_max - all.accounts).clamp(1, LIST_ACCOUNTS_MAX);
        let page = ledger.accounts(after.as_deref(), asked).await?;
        if all.accounts == accounts_max {
            all.is_whole = page.is_empty();
            break;
        }
        all.add_sums(ledger, &page, month).await?;
        page.iter().for_each(|account| all.add_account(account));
        if page.len() < asked {
            all.is_whole = true;
            break;
        }
        after = page.last().map(|account| account.id.clone());
    }
    all.add_most_expensive_keys(ledger).await?;
    Ok(all)
}

/// The totals of the accounts that were added so far.
struct OverviewTotals {
    accounts: usize,
    /// Whether all accounts were added.
    is_whole: bool,
    suspended: usize,
    balance: NanoUsd,
    held: NanoUsd,
    spent: NanoUsd,
    paid_today: NanoUsd,
    paid_month: NanoUsd,
    low_count: u64,
    /// The accounts with the lowest balances among those with a low balance, in ascending order of balance.
    low: Vec<(NanoUsd, AccountDetails)>,
    today: Sums,
    month: Sums,
    /// The costs of models by day.
    models: DailyCosts,
    /// The costs of accounts in the last two weeks.
    account_weeks: DailyCosts,
    /// The costs of the keys of the most expensive accounts, in the last two weeks.
    key_weeks: DailyCosts,
}

impl OverviewTotals {
    /// Creates totals without any account. `today` is in days since the Unix epoch.
    fn new(today: i64) -> Self {
        let weeks = DailyCosts::new(today - 2 * WEEK as i64 + 1..=today);
        Self {
            accounts: 0,
            is_whole: false,
            suspended: 0,
            balance: NanoUsd::ZERO,
            held: NanoUsd::ZERO,
            spent: NanoUsd::ZERO,
            paid_today: NanoUsd::ZERO,
            paid_month: NanoUsd::ZERO,
            low_count: 0,
            low: Vec::new(),
            today: Sums::default(),
            month: Sums::default(),
            models: DailyCosts::new(today - DAYS_SHOWN + 1..=today),
            account_weeks: weeks.clone(),
            key_weeks: weeks,
        }
    }

    /// Adds the daily sums of accounts. `month` is the first day of the month, in days since the Unix epoch.
    async fn add_sums(
        &mut self,
        ledger: &dyn LedgerStore,
        accounts: &[AccountView],
        month: i64,
    ) -> Result<(), StoreError> {
        let days = self.models.days();
        let (today, asked) = (*days.end(), month.min(*days.start())..=*days.end());
        let whole = SumSelector::One(SumSubject::Account);
        let reads = accounts.iter().map(|account| {
            ledger
                .sums(&account.id, asked.clone(), &whole)
                .map_ok(|sums| (&account.id, sums))
        });
        let mut reads = stream::iter(reads.collect::<Vec<_>>()).buffer_unordered(AT_ONCE);
        while let Some((account, sums)) = reads.try_next().await? {
            self.models.add(&sums, SplitBy::Model);
            for sum in &sums {
                self.account_weeks.add_cost(account, sum.day, sum.sums.cost_nano_usd);
                if sum.day >= month {
                    self.month = self.month.plus(&sum.sums);
                }
                if sum.day == today {
                    self.today = self.today.plus(&sum.sums);
                }
            }
        }
        Ok(())
    }

    /// Adds the costs of the keys of the accounts with the highest costs. A key never costs more than its account. Therefore the
    /// search stops when no key of the remaining accounts can be among the keys with the highest costs.
    async fn add_most_expensive_keys(&mut self, ledger: &dyn LedgerStore) -> Result<(), StoreError> {
        for account in most_expensive_weeks(self.account_weeks.weeks(), KEYS_OF_ACCOUNTS_MAX) {
            let found = most_expensive_weeks(self.key_weeks.weeks(), DEAREST_MAX);
            if found.len() == DEAREST_MAX && found.last().is_some_and(|last| last.cost >= account.cost) {
                break;
            }
            let sums = ledger
                .sums(&account.name, self.key_weeks.days(), &SumSelector::Keys)
                .await?;
            self.key_weeks.add(&sums, SplitBy::Key);
        }
        Ok(())
    }

    fn add_account(&mut self, account: &AccountView) {
        self.accounts += 1;
        self.suspended += usize::from(account.record.suspended);
        self.balance = self.balance.saturating_add(account.balance);
        self.held = self.held.saturating_add(account.held);
        self.spent = self.spent.saturating_add(account.spent);
        self.paid_today = self.paid_today.saturating_add(account.paid_today);
        self.paid_month = self.paid_month.saturating_add(account.paid_this_month);
        if account.is_low() {
            self.low_count += 1;
            let place = self.low.partition_point(|(balance, _)| *balance <= account.balance);
            if place < LOW_MAX {
                self.low.truncate(LOW_MAX - 1);
                self.low.insert(place, (account.balance, AccountDetails::from(account)));
            }
        }
    }

    fn into_overview(self) -> Overview {
        Overview {
            accounts: self.accounts,
            is_whole: self.is_whole,
            suspended: self.suspended,
            // Each charge lowers the balance and increases the total spending by the same amount, so the sum of both is the
            // amount that was paid in.
            paid_in_nano_usd: self.balance.saturating_add(self.spent),
            paid_today_nano_usd: self.paid_today,
            paid_month_nano_usd: self.paid_month,
            balance_nano_usd: self.balance,
            held_nano_usd: self.held,
            spent_nano_usd: self.spent,
            today: (&self.today).into(),
            month: (&self.month).into(),
            spent: CostsByDay::from_costs(&self.models, DAILY_MAX),
            dearest: TopCosts {
                accounts: WeekCostLine::most_expensive(&self.account_weeks, DEAREST_MAX),
                keys: WeekCostLine::most_expensive(&self.key_weeks, DEAREST_MAX),
                models: WeekCostLine::most_expensive(&self.models, DEAREST_MAX),
            },
            low_count: self.low_count,
            low: self.low.into_iter().map(|(_, account)| account).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        domain::ledger::{AccountChange, AccountRecord, AccountTerms, AdmitCall, AdmitReply, Step},
        store::ledger::contract::{change_record, memory, node, record},
    };
    use std::sync::Arc;

    /// Creates a ledger with this number of accounts, each with a balance of 100 nano-USD, which is low. The first account has a
    /// request that holds 30; the last one is suspended.
    async fn ledger(accounts: usize) -> Arc<dyn LedgerStore> {
        let ledger = memory::ledger();
        for number in 0..accounts {
            let balance = NanoUsd::from_nanos(100);
            let open = AccountChange::Open {
                balance,
                at: 1,
                operation: None,
            };
            let terms = AccountTerms {
                low_balance: Some(balance),
                ..AccountTerms::default()
            };
            let name = name(number);
            ledger
                .apply(&node(1), &name, &[Step { seq: 1, change: open }], 0)
                .await
                .unwrap();
            change_record(&*ledger, &name, |record| {
                record.with_terms(terms, number + 1 == accounts)
            })
            .await;
        }
        let mut key = record(1);
        key.account = name(0).into();
        let ask = AdmitCall {
            node: node(1),
            request: "runs".into(),
            key: Arc::new(key),
            estimate: NanoUsd::from_nanos(30),
            tokens: 0,
            ended_key: 0,
            ended_account: 0,
        };
        assert!(matches!(ledger.admit(&ask).await, Ok(AdmitReply::Granted(_))));
        ledger
    }

    fn name(number: usize) -> String {
        format!("account-{number:05}")
    }

    #[tokio::test]
    async fn accounts_behind_the_first_page_of_the_store_are_counted_too() {
        let accounts = LIST_ACCOUNTS_MAX + 5;
        let all = count_first(&*ledger(accounts).await, ACCOUNTS_MAX)
            .await
            .unwrap()
            .into_overview();
        assert_eq!((all.accounts, all.is_whole), (accounts, true));
        assert_eq!((all.suspended, all.held_nano_usd.nanos()), (1, 30));
        let count = i64::try_from(accounts).unwrap();
        assert_eq!(all.balance_nano_usd.nanos(), 100 * count);
        assert_eq!(
            all.low_count,
            count.unsigned_abs(),
            "those that are not named are counted"
        );
        assert_eq!((all.low.len(), &all.low[0].id), (LOW_MAX, &name(0)));
    }

    #[test]
    fn of_those_that_are_low_the_lowest_are_named_first() {
        let account = |number: i64, low_balance| AccountView {
            id: format!("a{number}"),
            balance: NanoUsd::from_nanos(number),
            record: AccountRecord {
                terms: AccountTerms {
                    low_balance,
                    ..AccountTerms::default()
                },
                ..AccountRecord::default()
            },
            spent: NanoUsd::ZERO,
            held: NanoUsd::ZERO,
            running: 0,
            paid_today: NanoUsd::ZERO,
            paid_this_month: NanoUsd::ZERO,
            created_at: 0,
        };
        let mut all = OverviewTotals::new(0);
        let most = i64::try_from(LOW_MAX).unwrap();
        // The numbers alternate between low and high, because accounts that are added late must be listed, too.
        for step in 0..2 * most {
            let number = if step % 2 == 0 { step } else { -step };
            all.add_account(&account(number, Some(NanoUsd::from_nanos(i64::MAX))));
        }
        let all = all.into_overview();
        let named: Vec<&str> = all.low.iter().map(|account| account.id.as_str()).collect();
        let mut lowest: Vec<i64> = (0..2 * most)
            .map(|step| if step % 2 == 0 { step } else { -step })
            .collect();
        lowest.sort_unstable();
        let lowest: Vec<String> = lowest.iter().take(LOW_MAX).map(|number| format!("a{number}")).collect();
        assert_eq!(
            (named, all.low_count),
            (lowest.iter().map(String::as_str).collect(), 2 * LOW_MAX as u64)
        );
        // Without a configured limit, a balance is low when it is used up.
        let mut all = OverviewTotals::new(0);
        for (number, low_balance) in [(-1, None), (0, None), (0, Some(NanoUsd::from_nanos(-5))), (1, None)] {
            all.add_account(&account(number, low_balance));
        }
        assert_eq!(all.low_count, 3);
    }

    #[tokio::test]
    async fn it_is_whole_if_no_account_was_left_out() {
        let ledger = ledger(3).await;
        for (most, counted, is_whole, suspended) in [(2, 2, false, 0), (3, 3, true, 1), (4, 3, true, 1)] {
            let all = count_first(&*ledger, most).await.unwrap().into_overview();
            assert_eq!(
                (all.accounts, all.is_whole, all.suspended),
                (counted, is_whole, suspended),
                "at most {most}"
            );
        }
    }

    #[tokio::test]
    async fn without_accounts_it_is_whole() {
        let all = count_first(&*memory::ledger(), 2).await.unwrap().into_overview();
        assert_eq!((all.accounts, all.is_whole), (0, true));
    }
}
