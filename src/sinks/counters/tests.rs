//! Counters over the reference model.

use super::*;
use crate::{
    domain::{
        ledger::{AccountChange, NodeId, Settlement, Step, consumption::Row},
        money::NanoUsd,
    },
    sinks::{contract::node, store_log::StoreLog},
    store::ledger::contract::{key_id, memory, row},
};

const HOUR_MS: i64 = 3_600_000;

struct Books {
    ledger: Arc<dyn LedgerStore>,
    log: Arc<LogReader>,
    node: NodeId,
    seq: u64,
    now_ms: i64,
}

impl Books {
    /// An account that was created so many days ago.
    async fn open(days_ago: i64) -> Self {
        let ledger = memory::ledger();
        let now_ms = ledger.now_ms().await.unwrap();
        let log = StoreLog::new(Arc::clone(&ledger) as _, Arc::clone(&ledger) as _);
        let log = Arc::new(LogReader::new(Arc::new(log), None));
        let mut books = Self {
            ledger,
            log,
            node: node(1),
            seq: 0,
            now_ms,
        };
        let at = (now_ms - days_ago * DAY_MS) / 1000;
        books
            .apply(AccountChange::Open {
                balance: NanoUsd::from_nanos(1_000_000),
                at,
                operation: None,
            })
            .await;
        books
    }

    async fn apply(&mut self, change: AccountChange) {
        self.seq += 1;
        let step = Step { seq: self.seq, change };
        self.ledger.apply(&self.node, "acme", &[step], 0).await.unwrap();
    }

    /// A request that ended and was admitted so many hours ago; `charged` is what the counters are told.
    async fn bill(&mut self, ended: i64, admitted: i64, (cost, charged): (i64, i64)) {
        let ended_ms = self.now_ms - ended * HOUR_MS;
        let id = format!("r{}", self.seq);
        let row = Row {
            admitted_ms: self.now_ms - admitted * HOUR_MS,
            ..row("acme", 1, &id, ended_ms, NanoUsd::from_nanos(cost))
        };
        let settlement = Settlement {
            cost: NanoUsd::from_nanos(charged),
            ..Settlement::of(row, 0)
        };
        self.apply(AccountChange::Settle(Box::new(settlement))).await;
    }

    async fn compare(&self) -> CounterComparison {
        let today = self.now_ms.div_euclid(DAY_MS);
        compare(&*self.ledger, &self.log, "acme", &(today - 3..today + 1))
            .await
            .unwrap()
    }
}

#[tokio::test]
async fn counters_are_the_sums_although_requests_end_on_the_day_after() {
    let mut books = Books::open(10).await;
    for number in 0..72 {
        // Each begins hours before it ends: some the day before, some the week before.
        books
            .bill(number, number + 5, (1 << (number % 40), 1 << (number % 40)))
            .await;
    }
    let counted = books.compare().await;
    assert_eq!(counted.differences, []);
    assert_eq!((counted.moving.len(), counted.older_than_sums), (0, false));
    // 2026-11-21 is a Saturday: four days, one week, one month, and all.
    assert_eq!(counted.compared.len(), 7, "{:?}", counted.compared);
}

#[tokio::test]
async fn a_nano_dollar_too_much_is_found_in_each_period_that_has_it() {
    let mut books = Books::open(10).await;
    books.bill(30, 31, (100, 100)).await;
    books.bill(2, 30, (50, 50)).await;
    books.bill(1, 2, (100, 101)).await;
    let counted = books.compare().await;
    let found: Vec<_> = counted
        .differences
        .iter()
        .map(|found| {
            (
                found.period.to_string(),
                found.key.clone(),
                found.counter.nanos(),
                found.expected.nanos(),
            )
        })
        .collect();
    let key = Some(key_id(1));
    assert_eq!(
        found,
        [
            ("m202611".to_owned(), key.clone(), 251, 250),
            ("w2026W47".to_owned(), key.clone(), 251, 250),
            ("d20261121".to_owned(), key.clone(), 101, 100),
            ("all".to_owned(), key, 251, 250),
            ("all".to_owned(), None, 251, 250),
        ]
    );
}

#[tokio::test]
async fn of_an_account_that_is_older_than_the_sums_the_keys_counters_are_compared() {
    let mut books = Books::open(200).await;
    // Its sums are gone for long.
    books.bill(190 * 24, 190 * 24, (100, 100)).await;
    books.bill(1, 1, (7, 7)).await;
    let counted = books.compare().await;
    assert_eq!((counted.differences, counted.older_than_sums), (Vec::new(), true));
}
