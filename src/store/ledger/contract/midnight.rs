//! Tests of the end of quota periods: a request belongs to the period in which it was admitted, whenever it ends.

use std::sync::Arc;

use jiff::Timestamp;

use super::{Fixture, key_id, node, record, row};
use crate::domain::{
    keys::KeyRecord,
    ledger::{
        AccountChange, AdmitCall, AdmitReply, Denial, Grant, KeySpend, KeyTerms, QuotaReset, QuotaUse, Settlement,
        Step, consumption::Row,
    },
    money::NanoUsd,
};
use crate::store::ledger::APPLY_STEPS_MAX;

const DAY_MS: i64 = 24 * 3600 * 1000;
/// The number of requests around each midnight: one in each millisecond, half of them before midnight.
const REQUESTS: i64 = 1_000;
const BEFORE: i64 = REQUESTS / 2;
/// The cost of each request, in nano-USD.
const COST: i64 = 10;

/// The midnights, in the order in which the clock reaches them, each with the period that ends.
const MIDNIGHTS: [(&str, QuotaReset); 7] = [
    ("2026-11-25T00:00:00Z", QuotaReset::Daily),
    ("2026-11-30T00:00:00Z", QuotaReset::Weekly),
    ("2026-12-01T00:00:00Z", QuotaReset::Monthly),
    ("2027-01-01T00:00:00Z", QuotaReset::Monthly),
    ("2027-01-04T00:00:00Z", QuotaReset::Weekly),
    ("2028-02-29T00:00:00Z", QuotaReset::Daily),
    ("2028-03-01T00:00:00Z", QuotaReset::Monthly),
];

/// Returns the key for one midnight. The key's quota is enough for exactly the requests before that midnight.
fn key(number: u8, reset: QuotaReset) -> KeyRecord {
    KeyRecord {
        terms: KeyTerms {
            quota: Some(nanos(BEFORE * COST)),
            reset,
            ..KeyTerms::default()
        },
        ..record(number)
    }
}

fn nanos(amount: i64) -> NanoUsd {
    NanoUsd::from_nanos(amount)
}

/// Returns the spending of the key in the period of its quota.
fn of(spend: &KeySpend, reset: QuotaReset) -> NanoUsd {
    match reset {
        QuotaReset::None => spend.all,
        QuotaReset::Daily => spend.day,
        QuotaReset::Weekly => spend.week,
        QuotaReset::Monthly => spend.month,
    }
}

struct Midnight<'a> {
    fixture: &'a Fixture,
    number: u8,
    key: KeyRecord,
    at_ms: i64,
    seq: u64,
    /// The requests that are not settled, each with the time of its admission.
    running: Vec<(String, i64)>,
}

impl Midnight<'_> {
    fn at(&self, ms: i64) {
        let clock = &self.fixture.clock;
        clock.advance(ms - clock.now_ms());
    }

    async fn admit(&self, request: &str) -> AdmitReply {
        let ask = AdmitCall {
            node: node(1),
            request: request.into(),
            key: Arc::new(self.key.clone()),
            estimate: nanos(COST),
            tokens: 0,
            ended_key: 0,
            ended_account: 0,
        };
        self.fixture.store.admit(&ask).await.unwrap()
    }

    async fn run(&mut self, offset: i64) {
        let at_ms = self.at_ms + offset;
        self.at(at_ms);
        let request = format!("r{}.{offset}", self.number);
        match self.admit(&request).await {
            AdmitReply::Granted(Grant { hold, at_ms: at, .. }) => assert_eq!((hold, at), (nanos(COST), at_ms)),
            other => panic!("{request}: {other:?}"),
        }
        self.running.push((request, at_ms));
    }

    /// Settles the first `count` of the running requests.
    async fn settle(&mut self, count: usize) {
        let end_ms = self.fixture.clock.now_ms();
        let ended: Vec<(String, i64)> = self.running.drain(..count).collect();
        for part in ended.chunks(APPLY_STEPS_MAX) {
            let mut steps = Vec::new();
            for (request, at_ms) in part {
                self.seq += 1;
                let row = Row {
                    admitted_ms: *at_ms,
                    ..row("acme", self.number, request, end_ms, nanos(COST))
                };
                let settlement = Settlement {
                    lease: None,
                    request: request.clone().into(),
                    key: key_id(self.number),
                    at_ms: *at_ms,
                    tokens_estimated: 0,
                    tokens_used: 0,
                    cost: nanos(COST),
                    row: Some(row.into()),
                };
                steps.push(Step {
                    seq: self.seq,
                    change: AccountChange::Settle(Box::new(settlement)),
                });
            }
            assert_eq!(
                self.fixture.store.apply(&node(1), "acme", &steps, 0).await,
                Ok(self.seq)
            );
        }
    }

    async fn spend(&self) -> KeySpend {
        self.fixture.store.key_spend("acme", &self.key.id).await.unwrap()
    }

    /// Returns all rows of this key whose requests ended on the day before the midnight or on the day after it; `None` if the
    /// engine keeps no rows.
    async fn rows(&self) -> Option<Vec<Row>> {
        let mut rows: Vec<Row> = Vec::new();
        for day in [self.at_ms / DAY_MS - 1, self.at_ms / DAY_MS] {
            rows.extend(self.fixture.rows("acme", day).await?);
        }
        rows.retain(|row| row.key_id == self.key.id);
        Some(rows)
    }
}

pub(crate) async fn a_request_counts_in_the_periods_of_its_admission(fixture: &Fixture) {
    let open = Step {
        seq: 1,
        change: AccountChange::Open {
            balance: nanos(1_000_000),
            at: 1,
            operation: None,
        },
    };
    assert_eq!(fixture.store.apply(&node(1), "acme", &[open], 0).await, Ok(1));
    let mut seq = 1;
    for ((midnight, reset), number) in MIDNIGHTS.into_iter().zip(1..) {
        seq = turn(fixture, midnight.parse().unwrap(), reset, number, seq).await;
    }
    let view = fixture.store.account("acme").await.unwrap().unwrap();
    let all = i64::try_from(MIDNIGHTS.len()).unwrap() * REQUESTS * COST;
    assert_eq!((view.spent, view.balance), (nanos(all), nanos(1_000_000 - all)));
    assert_eq!((view.held, view.running), (nanos(0), 0));
}

/// Runs the requests around one midnight, and returns the number of the last step.
async fn turn(fixture: &Fixture, midnight: Timestamp, reset: QuotaReset, number: u8, seq: u64) -> u64 {
    let mut turn = Midnight {
        fixture,
        number,
        key: key(number, reset),
        at_ms: midnight.as_millisecond(),
        seq,
        running: Vec::new(),
    };
    let half = usize::try_from(BEFORE / 2).unwrap();
    for offset in -BEFORE..0 {
        turn.run(offset).await;
        if offset == -BEFORE / 2 {
            turn.settle(half).await;
        }
    }
    // In the last millisecond of the period, the period's quota is exhausted by spending and holds.
    let denied = Denial::QuotaHeld(QuotaUse {
        quota: nanos(BEFORE * COST),
        spent: nanos(BEFORE / 2 * COST),
        resets_at: Some(midnight.as_second()),
    });
    assert_eq!(turn.admit("too late").await, AdmitReply::Refused(denied), "{midnight}");
    // The first millisecond of the next period has its own quota, although half of the earlier requests still run.
    for offset in 0..BEFORE {
        turn.run(offset).await;
        if offset == BEFORE / 2 {
            let left = usize::try_from(BEFORE).unwrap() - half;
            turn.settle(left).await;
        }
    }
    let AdmitReply::Refused(Denial::QuotaHeld(_)) = turn.admit("too much").await else {
        panic!("{midnight}: the next period has no more than its quota")
    };
    turn.settle(turn.running.len()).await;

    let after = turn.spend().await;
    turn.at(turn.at_ms - 1);
    let before = turn.spend().await;
    turn.at(turn.at_ms + BEFORE);
    let in_full = nanos(BEFORE * COST);
    assert_eq!(
        (of(&before, reset), of(&after, reset)),
        (in_full, in_full),
        "{midnight}"
    );
    assert_eq!((before.day, after.day), (in_full, in_full), "{midnight}");
    assert_eq!(after.all, nanos(REQUESTS * COST), "{midnight}");
    assert_eq!((after.held, after.running), (nanos(0), 0), "{midnight}");
    let Some(rows) = turn.rows().await else {
        return turn.seq;
    };
    let cost = |early: bool| -> i64 {
        let rows = rows.iter().filter(|row| (row.admitted_ms < turn.at_ms) == early);
        rows.map(|row| row.cost_nano_usd.nanos()).sum()
    };
    assert_eq!(
        (nanos(cost(true)), nanos(cost(false))),
        (of(&before, reset), of(&after, reset))
    );
    let mut requests: Vec<&str> = rows.iter().map(|row| row.request_id.as_str()).collect();
    requests.sort_unstable();
    requests.dedup();
    assert_eq!(requests.len(), rows.len(), "{midnight}: a request has two rows");
    turn.seq
}
