//! Tests of `billing`: a real journal, and a ledger that can be away.

use std::{
    sync::{Arc, LazyLock},
    time::Duration,
};

use smol_str::SmolStr;
use tempfile::TempDir;
use tokio::sync::watch;

use super::*;
use crate::money::billing::tests::fixture::*;
use crate::money::billing::tests::ledger::{Ledger, Way};
use crate::{
    config::{
        JournalConfig,
        money::{MoneyConfig, QueueLimits},
    },
    domain::{
        catalogue::models::{PricedEndpoint, PricedRoute},
        faults::{End, refusal::Refusal},
        keys::{KeyRecord, secret::KeyDigest},
        ledger::{
            AccountChange, AccountView, Denial, Record, Settlement, Step,
            calibration::{Estimate, InputEstimate},
            consumption::{PriceModifiers, RequestTransport, Row, RowTranslation, UsageSource},
        },
        money::{NanoUsd, price::PriceList},
        wire::{operation::Operation, usage::Usage},
    },
    edges::{clock, limiter::RateAllowance},
    journal::{Journal, Position, REQUEST_BYTES, tests::scratch},
    money::billing::engine::NotAdmitted,
    store::{
        KeyStore,
        contract::{digest, model::ModelStore, until},
        key_cache::{KeyCache, KeyCacheSettings, UnknownKeySettings},
        ledger::{
            LedgerStore,
            contract::{node, record},
        },
    },
};

mod admission;
mod clocks;
mod denials;
mod early;
mod fixture;
mod grace;
mod growth;
mod leases;
mod ledger;
mod parts;
mod presented;
mod queue;
mod unconfirmed;

#[tokio::test]
async fn a_request_is_admitted_and_closed_with_one_record_each() {
    let fixture = fixture(10_000).await;
    let key = record(1);
    let bill = fixture.admit(&key, "r1").await.unwrap();
    assert_eq!(
        (fixture.view().await.held, fixture.view().await.running),
        (nanos(1_000), 1)
    );
    assert_eq!(fixture.billing.running(), 1);
    bill.close(&End::Complete, SERVED, consumed(tokens(300, 500)), clock::instant());
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
    drop(fixture.admit(&key, "r1").await.unwrap());
    let refused = fixture.admit(&key, "r2").await.unwrap();
    let status = RequestProgress { status: 404, ..SERVED };
    refused.close(
        &End::ProviderError,
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
    let denied = fixture.admit(&key, "r1").await.unwrap_err();
    assert_eq!(denied, NotAdmitted::Denied(Denial::BalanceExhausted));
    assert!(fixture.records().is_empty() && fixture.billing.running() == 0);
}

#[tokio::test]
async fn a_key_that_was_changed_is_stale() {
    let fixture = fixture(10_000).await;
    let (old, mut new) = (record(1), record(1));
    new.revision += 1;
    drop(fixture.admit(&new, "r1").await.unwrap());
    let stale = fixture.admit(&old, "r2").await.unwrap_err();
    assert_eq!(stale, NotAdmitted::StaleKey);
    assert_eq!(fixture.billing.running(), 0);
}

#[tokio::test]
async fn a_key_has_its_grace_while_the_ledger_is_away_and_a_new_one_after_it() {
    let fixture = fixture(100_000).await;
    let (key, other) = (record(1), record(2));
    drop(fixture.admit(&key, "r0").await.unwrap());
    fixture.ledger.is(Way::Away);
    let mut bills = Vec::new();
    for request in ["r1", "r2", "r3"] {
        bills.push(fixture.admit(&key, request).await.unwrap());
    }
    // 1000, 1000, and the last 500.
    assert_eq!(fixture.billing.grace_committed(), nanos(GRACE));
    let refused = fixture.admit(&key, "r4").await.unwrap_err();
    assert_eq!(refused, NotAdmitted::Refused(Refusal::StoreUnavailable));
    bills.push(fixture.admit(&other, "r5").await.unwrap());
    assert_eq!(fixture.billing.grace_admissions(), 4);
    for bill in bills {
        bill.close(&End::Complete, SERVED, consumed(tokens(400, 600)), clock::instant());
    }
    // What it exceeded its grace by.
    assert_eq!(fixture.billing.excess_max(), nanos(500));
    fixture.ledger.is(Way::There);
    fixture.send().await;
    assert_eq!(fixture.view().await.spent, nanos(4_000));
    assert_eq!(fixture.billing.grace_committed(), nanos(4_000), "as they cost");
    drop(fixture.admit(&key, "r6").await.unwrap());
    assert_eq!(fixture.billing.grace_committed(), nanos(0), "the store has counted it");
}

#[tokio::test]
async fn a_hold_whose_answer_was_lost_ends_with_the_next_renewal() {
    let fixture = fixture(100_000).await;
    let key = record(1);
    drop(fixture.admit(&key, "seen").await.unwrap());
    fixture.send().await;
    fixture.ledger.is(Way::AnswerLost);
    let mut served = Vec::new();
    while let Ok(bill) = fixture.admit(&key, &format!("r{}", served.len())).await {
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
    let mut asked = Box::pin(fixture.admit(&key, "r1"));
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
    let bill = fixture.admit(&key, "r1").await.unwrap();
    let (stop, shutdown) = watch::channel(false);
    let running = tokio::spawn(fixture.billing.clone().run(shutdown));
    for output in [10, 20] {
        bill.sample(clock::instant(), SERVED, consumed(tokens(400, output)), (output, 0));
    }
    stop.send(true).unwrap();
    running.await.unwrap();
    let last = fixture.records().into_iter().rev().find_map(|record| match record {
        Record::Checkpoints(checkpoints) => checkpoints.into_iter().next(),
        _ => None,
    });
    assert_eq!(last.unwrap().cost, nanos(420));
    assert_eq!(fixture.billing.failures(), 0);
}

#[tokio::test]
async fn what_was_consumed_is_written_in_a_moment_and_once() {
    let fixture = fixture(10_000).await;
    let key = record(1);
    let bills = [
        fixture.admit(&key, "r1").await.unwrap(),
        fixture.admit(&key, "r2").await.unwrap(),
    ];
    let (stop, shutdown) = watch::channel(false);
    let running = tokio::spawn(fixture.billing.clone().run(shutdown));
    let written = || {
        let records = fixture.records().into_iter();
        let costs = records.filter_map(|record| match record {
            Record::Checkpoints(checkpoints) => Some(checkpoints.len()),
            _ => None,
        });
        costs.collect::<Vec<_>>()
    };
    for (round, output) in [10, 20].into_iter().enumerate() {
        for bill in &bills {
            bill.sample(clock::instant(), SERVED, consumed(tokens(400, output)), (output, 0));
        }
        while written().len() == round {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    stop.send(true).unwrap();
    running.await.unwrap();
    assert_eq!(written(), [2, 2], "all of them in one record");
}

#[tokio::test]
async fn a_row_says_how_its_request_came_and_what_its_translation_lost() {
    let fixture = fixture(10_000).await;
    let key = Arc::new(record(1));
    let found = FoundKey {
        digest: &digest(1),
        record: &key,
    };
    let request_id = SmolStr::from("r1");
    let request = AdmissionRequest {
        transport: RequestTransport::WebSocket,
        ..request(found, &request_id)
    };
    let mut bill = fixture.billing.try_admit(&key, &request).await.unwrap();
    bill.set_translation(RowTranslation::new("messages->chat", ["dropped top_k".to_owned()], 0));
    bill.close(&End::Complete, SERVED, consumed(tokens(300, 500)), clock::instant());
    let bill = fixture.admit(&key, "r2").await.unwrap();
    bill.close(&End::Complete, SERVED, consumed(tokens(300, 500)), clock::instant());
    let rows: Vec<_> = fixture.settlements().into_iter().filter_map(|one| one.row).collect();
    let told = |row: &Arc<Row>| (row.transport, row.translated.clone(), row.losses.clone());
    assert_eq!(
        rows.iter().map(told).collect::<Vec<_>>(),
        [
            (
                RequestTransport::WebSocket,
                Some("messages->chat".into()),
                vec!["dropped top_k".into()]
            ),
            (RequestTransport::Http, None, Vec::new()),
        ]
    );
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
    fixture.journal.wait_until_synced(written).await.unwrap();
    drop(room);
    // No file of the journal can be made any more.
    std::fs::remove_dir_all(fixture.folder.path()).unwrap();
    let mut rooms = Vec::new();
    while let Ok(room) = fixture.journal.reserve(REQUEST_BYTES) {
        rooms.push(room);
    }
    let refused = fixture.admit(&key, "r1").await.unwrap_err();
    assert_eq!(refused, NotAdmitted::Refused(Refusal::JournalFull));
    assert_eq!(fixture.view().await.running, 0);
    drop(rooms);
    assert!(fixture.admit(&key, "r2").await.is_ok());
}
