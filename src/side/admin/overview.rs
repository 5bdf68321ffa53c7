//! What all accounts come to: balances now, what was used today and this month. For the console's first page.

use std::ops::RangeInclusive;

use axum::{Json, extract::State};
use futures_util::stream::{self, StreamExt, TryStreamExt};
use serde_json::{Map, Value, json};

use super::{
    reply::{JsonResult, account_body},
    state::AdminState,
};
use crate::{
    domain::{
        ledger::{
            AccountView,
            daily_sums::{Subject, Sums, SumsOf},
            usage_report::{date, day, fields_of},
        },
        money::NanoUsd,
    },
    store::{
        StoreError,
        ledger::{LIST_ACCOUNTS_MAX, LedgerStore},
    },
};

/// Accounts that are counted: each costs two questions to the store.
const ACCOUNTS_MAX: usize = 10_000;
/// Accounts whose sums are read at one time.
const AT_ONCE: usize = 16;
/// Accounts whose balance is low that are named.
const LOW_MAX: usize = 20;
const DAY_MS: i64 = 24 * 3_600_000;

/// `GET /v1/overview`. `is_whole` says whether there are no more accounts than [`ACCOUNTS_MAX`], the first of which are counted.
pub(super) async fn page(State(state): State<AdminState>) -> JsonResult {
    Ok(Json(of_first(&*state.ledger, ACCOUNTS_MAX).await?.body()))
}

/// What the first accounts come to, by name.
async fn of_first(ledger: &dyn LedgerStore, accounts_max: usize) -> Result<Overview, StoreError> {
    let today = ledger.now_ms().await?.div_euclid(DAY_MS);
    let month = day(date(today).first_of_month());
    let mut all = Overview::default();
    let mut after: Option<String> = None;
    loop {
        // One beyond the last tells whether there are others.
        let asked = (accounts_max - all.accounts).clamp(1, LIST_ACCOUNTS_MAX);
        let page = ledger.accounts(after.as_deref(), asked).await?;
        if all.accounts == accounts_max {
            all.is_whole = page.is_empty();
            return Ok(all);
        }
        let (of_today, of_month) = used(ledger, &page, month..=today).await?;
        (all.today, all.month) = (all.today.plus(&of_today), all.month.plus(&of_month));
        page.iter().for_each(|account| all.add(account));
        if page.len() < asked {
            all.is_whole = true;
            return Ok(all);
        }
        after = page.last().map(|account| account.id.clone());
    }
}

/// What accounts come to, as far as they were counted.
#[derive(Default)]
struct Overview {
    accounts: usize,
    /// There are no others.
    is_whole: bool,
    suspended: usize,
    balance: NanoUsd,
    held: NanoUsd,
    spent: NanoUsd,
    paid_today: NanoUsd,
    paid_month: NanoUsd,
    low_count: usize,
    /// Those with the lowest balances, the lowest first, of those whose balance is low.
    low: Vec<(NanoUsd, Map<String, Value>)>,
    today: Sums,
    month: Sums,
}

impl Overview {
    fn add(&mut self, account: &AccountView) {
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
                self.low.insert(place, (account.balance, account_body(account)));
            }
        }
    }

    fn body(&self) -> Value {
        json!({
            "accounts": self.accounts,
            "is_whole": self.is_whole,
            "suspended": self.suspended,
            // Each charge has lowered the balance by what it has added here.
            "paid_in_nano_usd": self.balance.saturating_add(self.spent),
            "paid_today_nano_usd": self.paid_today,
            "paid_month_nano_usd": self.paid_month,
            "balance_nano_usd": self.balance,
            "held_nano_usd": self.held,
            "spent_nano_usd": self.spent,
            "today": fields_of(&self.today),
            "month": fields_of(&self.month),
            "low_count": self.low_count,
            "low": self.low.iter().map(|(_, account)| account).collect::<Vec<_>>(),
        })
    }
}

/// What the accounts have used on the last of these days, and on all of them.
async fn used(
    ledger: &dyn LedgerStore,
    accounts: &[AccountView],
    days: RangeInclusive<i64>,
) -> Result<(Sums, Sums), StoreError> {
    let whole = SumsOf::One(Subject::Account);
    let last = *days.end();
    let reads = accounts
        .iter()
        .map(|account| ledger.sums(&account.id, days.clone(), &whole));
    stream::iter(reads.collect::<Vec<_>>())
        .buffer_unordered(AT_ONCE)
        .try_fold((Sums::default(), Sums::default()), |(today, all), sums| async move {
            let of = |only_last: bool| {
                let those = sums.iter().filter(|sum| !only_last || sum.day == last);
                those.fold(Sums::default(), |sum, one| sum.plus(&one.sums))
            };
            Ok((today.plus(&of(true)), all.plus(&of(false))))
        })
        .await
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        domain::ledger::{AccountTerms, Admit, AdmitReply, Change, Step},
        store::ledger::contract::{change_record, memory, node, record},
    };

    /// So many accounts of 100 nano-USD: all of them low, the first one with a request that holds 30, the last one suspended.
    async fn ledger(accounts: usize) -> Arc<dyn LedgerStore> {
        let ledger = memory::ledger();
        for number in 0..accounts {
            let balance = NanoUsd::from_nanos(100);
            let open = Change::Open {
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
                .apply(&node(1), &name, &[Step { seq: 1, change: open }])
                .await
                .unwrap();
            change_record(&*ledger, &name, |record| record.with(terms, number + 1 == accounts)).await;
        }
        let mut key = record(1);
        key.account = name(0).into();
        let ask = Admit {
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
        let all = of_first(&*ledger(accounts).await, ACCOUNTS_MAX).await.unwrap().body();
        assert_eq!((&all["accounts"], &all["is_whole"]), (&json!(accounts), &json!(true)));
        assert_eq!((&all["suspended"], &all["held_nano_usd"]), (&json!(1), &json!(30)));
        assert_eq!(all["balance_nano_usd"], json!(100 * accounts));
        assert_eq!(
            all["low_count"],
            json!(accounts),
            "those that are not named are counted"
        );
        let low = all["low"].as_array().unwrap();
        assert_eq!((low.len(), &low[0]["id"]), (LOW_MAX, &json!(name(0))));
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
        let mut all = Overview::default();
        let most = i64::try_from(LOW_MAX).unwrap();
        // Upwards and downwards in turn: what comes late is named, too.
        for step in 0..2 * most {
            let number = if step % 2 == 0 { step } else { -step };
            all.add(&account(number, Some(NanoUsd::from_nanos(i64::MAX))));
        }
        let body = all.body();
        let named: Vec<&str> = body["low"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|one| one["id"].as_str())
            .collect();
        let mut lowest: Vec<i64> = (0..2 * most)
            .map(|step| if step % 2 == 0 { step } else { -step })
            .collect();
        lowest.sort_unstable();
        let lowest: Vec<String> = lowest.iter().take(LOW_MAX).map(|number| format!("a{number}")).collect();
        assert_eq!(
            (named, &body["low_count"]),
            (lowest.iter().map(String::as_str).collect(), &json!(2 * most))
        );
        // Where nothing is said of it, nothing left is low.
        let mut all = Overview::default();
        for (number, low_balance) in [(-1, None), (0, None), (0, Some(NanoUsd::from_nanos(-5))), (1, None)] {
            all.add(&account(number, low_balance));
        }
        assert_eq!(all.low_count, 3);
    }

    #[tokio::test]
    async fn it_is_whole_if_no_account_was_left_out() {
        let ledger = ledger(3).await;
        for (most, counted, is_whole, suspended) in [(2, 2, false, 0), (3, 3, true, 1), (4, 3, true, 1)] {
            let all = of_first(&*ledger, most).await.unwrap().body();
            assert_eq!(
                (&all["accounts"], &all["is_whole"], &all["suspended"]),
                (&json!(counted), &json!(is_whole), &json!(suspended)),
                "at most {most}"
            );
        }
    }

    #[tokio::test]
    async fn without_accounts_it_is_whole() {
        let all = of_first(&*memory::ledger(), 2).await.unwrap().body();
        assert_eq!((&all["accounts"], &all["is_whole"]), (&json!(0), &json!(true)));
    }
}
