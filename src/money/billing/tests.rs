//! Tests of `billing`: a real journal, and a ledger that can be away.

use std::{
    sync::{Arc, LazyLock},
    time::Duration,
};

use tempfile::TempDir;
use tokio::sync::watch;

use super::*;
use crate::{
    config::JournalConfig,
    domain::{
        faults::outcome::Outcome,
        keys::key::KeyRecord,
        ledger::{
            AccountView, Change, Denial, Record, Settlement, Step,
            calibration::{Estimate, InputEstimate},
            consumption::{Modifiers, Row, UsageSource},
        },
        money::{NanoUsd, price::PriceList},
        wire::{protocol::Protocol, usage::Usage},
    },
    edges::clock,
    journal::{Journal, Position, REQUEST_BYTES, tests::scratch},
    store::{
        contract::until,
        ledger::{
            LedgerStore,
            contract::{node, record},
        },
    },
};
use ledger::{Ledger, Way};

mod clocks;
mod grace;
mod growth;
mod leases;
mod ledger;
mod parts;
mod queue;
mod recheck;
mod unconfirmed;

/// A node with an account `acme` that has `balance`.
struct Fixture {
    billing: Billing,
    ledger: Arc<Ledger>,
    journal: Arc<Journal>,
    folder: TempDir,
}

const GRACE: i64 = 2_500;
const GRACE_ACCOUNT: i64 = 6_000;
const SEGMENT_BYTES: u64 = 1 << 20;

async fn fixture(balance: i64) -> Fixture {
    let folder = scratch();
    let settings = JournalConfig {
        path: folder.path().to_owned(),
        segment_bytes: SEGMENT_BYTES,
        keep: Duration::from_secs(60),
        sync: Duration::from_millis(1),
        sinks: Vec::new(),
    };
    let journal = Journal::open(&settings).unwrap().journal;
    let ledger = Arc::new(Ledger::default());
    let limits = GraceLimits {
        key: nanos(GRACE),
        account: nanos(GRACE_ACCOUNT),
    };
    let open = Step {
        seq: 1,
        change: Change::Open {
            balance: nanos(balance),
            at: 1,
            operation: None,
        },
    };
    ledger.apply(&node(9), "acme", &[open]).await.unwrap();
    Fixture {
        billing: Billing::new(ledger.clone(), Arc::clone(&journal), limits, None),
        ledger,
        journal,
        folder,
    }
}

fn nanos(amount: i64) -> NanoUsd {
    NanoUsd::from_nanos(amount)
}

/// A nano-USD for each token, read or written.
static ROUTE: LazyLock<Arc<PricedRoute>> = LazyLock::new(|| {
    let text = "version = \"v1\"\n[[price]]\nname = \"m\"\ntiers = [{ input = \"0.001\", output = \"0.001\" }]";
    let list = PriceList::read("p.toml", text).unwrap();
    Arc::new(PricedRoute {
        model: "m".into(),
        first: PricedLeg {
            provider: "p".into(),
            price: Arc::clone(list.find("m", "p").unwrap()),
        },
        others: Vec::new(),
    })
});

fn tokens(input: u64, output: u64) -> Usage {
    Usage {
        input_uncached: input,
        output_text: output,
        ..Usage::default()
    }
}

/// A request of 400 input tokens whose output is estimated at 600.
fn wanted(key: &KeyRecord, request_id: &str) -> Wanted<'static> {
    Wanted {
        key: Arc::new(key.clone()),
        request_id: request_id.into(),
        protocol: Protocol::Messages,
        model_asked: "m",
        stream: true,
        tags: &[],
        route: &ROUTE,
        estimate: Estimate {
            input: InputEstimate {
                uncached: 400,
                ..InputEstimate::default()
            },
            output: 600,
        },
        latency_ms: 20,
    }
}

fn consumed(usage: Usage) -> Consumed {
    Consumed {
        usage,
        source: UsageSource::Reported,
        modifiers: Modifiers::default(),
        runs: Vec::new(),
    }
}

const SERVED: Progress = Progress {
    leg: 0,
    status: 200,
    latency_ms: 5,
    ttft_ms: Some(1),
    attempts: 1,
};

impl Fixture {
    fn records(&self) -> Vec<Record> {
        let mut reader = self.journal.reader(Position::START);
        std::iter::from_fn(|| reader.read().unwrap().map(|(_, record)| record)).collect()
    }

    fn settlements(&self) -> Vec<Settlement> {
        let settlement = |record| match record {
            Record::Step { step, .. } => match step.change {
                Change::Settle(settlement) => Some(*settlement),
                other => panic!("{other:?}"),
            },
            _ => None,
        };
        self.records().into_iter().filter_map(settlement).collect()
    }

    /// What the settlement worker does: everything in the journal is sent.
    async fn send(&self) {
        let steps: Vec<Step> = self
            .records()
            .into_iter()
            .filter_map(|record| match record {
                Record::Step { step, .. } => Some(step),
                _ => None,
            })
            .collect();
        let watermark = self.ledger.apply(self.journal.node(), "acme", &steps).await.unwrap();
        self.journal.acknowledged("acme", watermark);
    }

    async fn view(&self) -> AccountView {
        self.ledger.account("acme").await.unwrap().unwrap()
    }
}

#[tokio::test]
async fn a_request_is_admitted_and_closed_with_one_record_each() {
    let fixture = fixture(10_000).await;
    let key = record(1);
    let bill = fixture.billing.admit(wanted(&key, "r1")).await.unwrap();
    assert_eq!(
        (fixture.view().await.held, fixture.view().await.running),
        (nanos(1_000), 1)
    );
    assert_eq!(fixture.billing.running(), 1);
    bill.close(Outcome::Ok, SERVED, consumed(tokens(300, 500)), clock::instant());
    let records = fixture.records();
    assert!(
        matches!(&records[..], [Record::Admit(_), Record::Step { .. }]),
        "{records:?}"
    );
    let [settlement] = &fixture.settlements()[..] else {
        panic!("one")
    };
    assert_eq!((settlement.cost, settlement.tokens_used), (nanos(800), 800));
    assert_eq!(settlement.tokens_estimated, 1_000);
    let row = settlement.row.as_ref().unwrap();
    assert_eq!((row.cost_nano_usd, row.status), (nanos(800), 200));
    assert_eq!((row.outcome.as_str(), row.price_version.as_str()), ("ok", "v1"));
    fixture.send().await;
    fixture.send().await;
    let view = fixture.view().await;
    assert_eq!((view.balance, view.spent), (nanos(9_200), nanos(800)));
    assert_eq!((view.held, view.running), (nanos(0), 0));
    assert_eq!((fixture.billing.running(), fixture.billing.charged()), (0, nanos(800)));
    assert_eq!(fixture.billing.excess_max(), nanos(0));
}

#[tokio::test]
async fn what_was_never_sent_ends_its_hold_without_a_charge() {
    let fixture = fixture(10_000).await;
    let key = record(1);
    drop(fixture.billing.admit(wanted(&key, "r1")).await.unwrap());
    let refused = fixture.billing.admit(wanted(&key, "r2")).await.unwrap();
    let status = Progress { status: 404, ..SERVED };
    refused.close(
        Outcome::ProviderError,
        status,
        consumed(Usage::default()),
        clock::instant(),
    );
    for settlement in fixture.settlements() {
        assert_eq!(
            (settlement.row, settlement.cost, settlement.tokens_used),
            (None, nanos(0), 0)
        );
    }
    fixture.send().await;
    let view = fixture.view().await;
    assert_eq!((view.balance, view.held, view.running), (nanos(10_000), nanos(0), 0));
}

#[tokio::test]
async fn what_is_refused_leaves_no_record() {
    let fixture = fixture(0).await;
    let key = record(1);
    let denied = fixture.billing.admit(wanted(&key, "r1")).await.unwrap_err();
    assert_eq!(denied, NotAdmitted::Denied(Denial::BalanceExhausted));
    assert!(fixture.records().is_empty() && fixture.billing.running() == 0);
}

#[tokio::test]
async fn a_key_that_was_changed_is_stale() {
    let fixture = fixture(10_000).await;
    let (old, mut new) = (record(1), record(1));
    new.revision += 1;
    drop(fixture.billing.admit(wanted(&new, "r1")).await.unwrap());
    let stale = fixture.billing.admit(wanted(&old, "r2")).await.unwrap_err();
    assert_eq!(stale, NotAdmitted::StaleKey);
    assert_eq!(fixture.billing.running(), 0);
}

#[tokio::test]
async fn a_key_has_its_grace_while_the_ledger_is_away_and_a_new_one_after_it() {
    let fixture = fixture(100_000).await;
    let (key, other) = (record(1), record(2));
    drop(fixture.billing.admit(wanted(&key, "r0")).await.unwrap());
    fixture.ledger.is(Way::Away);
    let mut bills = Vec::new();
    for request in ["r1", "r2", "r3"] {
        bills.push(fixture.billing.admit(wanted(&key, request)).await.unwrap());
    }
    // 1000, 1000, and the last 500.
    assert_eq!(fixture.billing.grace_committed(), nanos(GRACE));
    let refused = fixture.billing.admit(wanted(&key, "r4")).await.unwrap_err();
    assert_eq!(refused, NotAdmitted::StoreAway);
    bills.push(fixture.billing.admit(wanted(&other, "r5")).await.unwrap());
    assert_eq!(fixture.billing.offline(), 4);
    for bill in bills {
        bill.close(Outcome::Ok, SERVED, consumed(tokens(400, 600)), clock::instant());
    }
    // What it exceeded its grace by.
    assert_eq!(fixture.billing.excess_max(), nanos(500));
    fixture.ledger.is(Way::There);
    fixture.send().await;
    assert_eq!(fixture.view().await.spent, nanos(4_000));
    assert_eq!(fixture.billing.grace_committed(), nanos(4_000), "as they cost");
    drop(fixture.billing.admit(wanted(&key, "r6")).await.unwrap());
    assert_eq!(fixture.billing.grace_committed(), nanos(0), "the store has counted it");
}

#[tokio::test]
async fn a_hold_whose_answer_was_lost_ends_with_the_next_renewal() {
    let fixture = fixture(100_000).await;
    let key = record(1);
    drop(fixture.billing.admit(wanted(&key, "seen")).await.unwrap());
    fixture.send().await;
    fixture.ledger.is(Way::AnswerLost);
    let mut served = Vec::new();
    while let Ok(bill) = fixture.billing.admit(wanted(&key, &format!("r{}", served.len()))).await {
        served.push(bill);
    }
    // The one that was not served has a hold all the same, and nobody knows of it.
    assert_eq!((served.len(), fixture.view().await.running), (3, 4));
    drop(served);
    fixture.billing.engine.renew().await;
    assert_eq!(fixture.settlements().len(), 4, "the ledger is still away");
    fixture.ledger.is(Way::There);
    fixture.billing.engine.renew().await;
    fixture.billing.engine.renew().await;
    assert_eq!(fixture.settlements().len(), 5);
    fixture.send().await;
    let view = fixture.view().await;
    assert_eq!((view.held, view.running, view.spent), (nanos(0), 0, nanos(0)));
}

#[tokio::test]
async fn a_question_that_nobody_waits_for_any_more_leaves_no_hold() {
    let fixture = fixture(100_000).await;
    let key = record(1);
    let mut asked = Box::pin(fixture.billing.admit(wanted(&key, "r1")));
    // The ledger in memory answers at once: the client leaves when the hold is there, before anything else.
    let admitted = std::future::poll_fn(|context| std::task::Poll::Ready(asked.as_mut().poll(context))).await;
    drop((admitted, asked));
    fixture.billing.engine.renew().await;
    fixture.send().await;
    assert_eq!((fixture.view().await.running, fixture.billing.running()), (0, 0));
}

#[tokio::test]
async fn what_was_consumed_is_written_down_now_and_then() {
    let fixture = fixture(10_000).await;
    let key = record(1);
    let bill = fixture.billing.admit(wanted(&key, "r1")).await.unwrap();
    let (stop, shutdown) = watch::channel(false);
    let running = tokio::spawn(fixture.billing.clone().run(shutdown));
    for output in [10, 20] {
        bill.look(clock::instant(), SERVED, consumed(tokens(400, output)), output);
    }
    stop.send(true).unwrap();
    running.await.unwrap();
    let last = fixture.records().into_iter().rev().find_map(|record| match record {
        Record::Checkpoint(checkpoint) => Some(checkpoint),
        _ => None,
    });
    assert_eq!(last.unwrap().cost, nanos(420));
    assert_eq!(fixture.billing.failures(), 0);
}

#[tokio::test]
async fn a_full_journal_admits_nothing_and_asks_nobody() {
    let fixture = fixture(10_000).await;
    let key = record(1);
    // What its opening left to do in the folder is done with the first record.
    let mut room = fixture.journal.reserve(REQUEST_BYTES).unwrap();
    let gone = Record::KeyGone {
        id: key.id.clone(),
        revision: 1,
    };
    let written = fixture.journal.append(&gone, &mut room).unwrap();
    fixture.journal.synced(written).await.unwrap();
    drop(room);
    // No file of the journal can be made any more.
    std::fs::remove_dir_all(fixture.folder.path()).unwrap();
    let mut rooms = Vec::new();
    while let Ok(room) = fixture.journal.reserve(REQUEST_BYTES) {
        rooms.push(room);
    }
    let refused = fixture.billing.admit(wanted(&key, "r1")).await.unwrap_err();
    assert_eq!(refused, NotAdmitted::JournalFull);
    assert_eq!(fixture.view().await.running, 0);
    drop(rooms);
    assert!(fixture.billing.admit(wanted(&key, "r2")).await.is_ok());
}
