//! A store that goes from one process to the next.

use std::path::Path;

use tokio::{net::UnixStream, sync::watch};

use super::*;
use crate::domain::{
    ledger::{
        AccountChange, AdmitCall, AdmitReply, NodeId, OperationId, Step, TopUp, TopUpReply,
        daily_sums::{DailySums, SumSelector, SumSubject},
    },
    money::NanoUsd,
    wire::{provider_state::StateKey, session_hint::ServedBy},
};
use crate::store::{
    KeyStore, StoreOpenError,
    contract::{digest, until},
    ledger::{
        LedgerStore, StabilityStore,
        contract::{START_MS, TestClock, node, record},
        stability_contract::{share, this_hour},
    },
    sessions::{SessionDigest, SessionStore, SignInStore, WebSessionStore},
};

fn open(folder: &Path, carried: HandoverState) -> Result<EmbeddedFiles, StoreOpenError> {
    EmbeddedFiles::open(folder, TestClock::new().source(), carried)
}

async fn with_account(folder: &Path) -> EmbeddedFiles {
    let store = open(folder, Vec::new()).unwrap();
    let change = AccountChange::Open {
        balance: NanoUsd::from_nanos(1_000),
        at: START_MS / 1000,
        operation: None,
    };
    assert_eq!(
        store
            .ledger
            .apply(&node(1), ACCOUNT, &[Step { seq: 1, change }], 0)
            .await,
        Ok(1)
    );
    store
}

const ACCOUNT: &str = "acme";

fn ask(of: &NodeId, request: &str) -> AdmitCall {
    AdmitCall {
        node: of.clone(),
        request: request.into(),
        key: Arc::new(record(1)),
        estimate: NanoUsd::from_nanos(600),
        tokens: 1,
        ended_key: 0,
        ended_account: 0,
    }
}

async fn held(store: &EmbeddedFiles) -> (NanoUsd, u64) {
    let account = store.ledger.account(ACCOUNT).await.unwrap().unwrap();
    (account.held, account.running)
}

#[tokio::test]
async fn what_is_held_goes_on_with_the_store_and_the_last_requests_reach_it_there() {
    let folder = tempfile::tempdir().unwrap();
    let old = with_account(folder.path()).await;
    assert!(matches!(
        old.ledger.admit(&ask(&node(1), "r1")).await,
        Ok(AdmitReply::Granted(_))
    ));
    let (closed, carried) = old.close().await.unwrap();
    let text = serde_json::to_string(&carried).unwrap();
    let new = Arc::new(open(folder.path(), serde_json::from_str(&text).unwrap()).unwrap());
    assert_eq!(held(&new).await, (NanoUsd::from_nanos(600), 1));

    let (here, there) = UnixStream::pair().unwrap();
    let serving = tokio::spawn(Arc::clone(&new).serve_predecessor(there));
    closed.give_to(Successor::new(here));
    let Ok(AdmitReply::Granted(second)) = old.ledger.admit(&ask(&node(1), "r2")).await else {
        panic!("not admitted")
    };
    assert_eq!(second.hold, NanoUsd::from_nanos(400));
    assert_eq!(held(&new).await, (NanoUsd::from_nanos(1_000), 2));
    assert_eq!(old.ledger.watermark(&node(1), ACCOUNT).await, Ok(1));
    let credit = Step {
        seq: 2,
        change: AccountChange::Credit {
            amount: NanoUsd::from_nanos(50),
            at: 0,
            operation: None,
        },
    };
    assert_eq!(old.ledger.apply(&node(1), ACCOUNT, &[credit], 0).await, Ok(2));
    assert_eq!(
        new.ledger.account(ACCOUNT).await.unwrap().unwrap().balance,
        NanoUsd::from_nanos(1_050)
    );
    let unknown = record(9);
    let refused = old.keys.by_id(&unknown.id).await;
    assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
    drop(old);
    serving.await.unwrap();
}

/// A store that has been handed over, and the one that has it.
async fn handed_over(folder: &Path) -> (EmbeddedFiles, Arc<EmbeddedFiles>) {
    let old = with_account(folder).await;
    let (closed, carried) = old.close().await.unwrap();
    let new = Arc::new(open(folder, carried).unwrap());
    let (here, there) = UnixStream::pair().unwrap();
    tokio::spawn(Arc::clone(&new).serve_predecessor(there));
    closed.give_to(Successor::new(here));
    (old, new)
}

#[tokio::test]
async fn each_call_that_a_request_needs_to_its_end_is_answered_by_the_successor() {
    let folder = tempfile::tempdir().unwrap();
    let (old, new) = handed_over(folder.path()).await;
    let (of, key) = (node(1), record(1));
    new.keys.create(&digest(1), &key).await.unwrap();

    let found = old.keys.find(&digest(1)).await.unwrap();
    assert_eq!(found.record.as_ref(), Some(&key));
    assert_eq!(old.keys.changes_since(0).await, new.keys.changes_since(0).await);
    old.keys.record_uses(&[(key.id.clone(), 700)]).await.unwrap();
    assert_eq!(new.keys.by_id(&key.id).await.unwrap().unwrap().last_used, Some(700));
    let (state, now) = (StateKey([1; 16]), crate::edges::clock::unix_seconds());
    let served_by = ServedBy {
        provider: "p".to_owned(),
        credential: "c".to_owned(),
    };
    old.keys.remember(&[(state, served_by.clone())], now).await.unwrap();
    assert_eq!(old.keys.recall(&[state]).await, Ok(vec![Some(served_by)]));

    let Ok(AdmitReply::Granted(granted)) = old.ledger.admit(&ask(&of, "r1")).await else {
        panic!("not admitted")
    };
    assert!(
        old.ledger.admit_now(&ask(&of, "r2")).is_none(),
        "it has to be asked for"
    );
    let more = TopUp {
        node: of.clone(),
        request: "r1".into(),
        account: ACCOUNT.into(),
        key: key.id.clone(),
        at_ms: granted.at_ms,
        more: NanoUsd::from_nanos(100),
    };
    let topped_up = old.ledger.top_up(&more).await;
    assert_eq!(topped_up, Ok(TopUpReply::Granted(NanoUsd::from_nanos(100))));
    old.ledger.renew(&of, &[ACCOUNT.to_owned()]).await.unwrap();
    assert_eq!(held(&new).await, (NanoUsd::from_nanos(700), 1));
    old.ledger.release(&of, ACCOUNT).await.unwrap();
    assert_eq!(held(&new).await, (NanoUsd::ZERO, 0));
    let order = OperationId::parse("order-7").unwrap();
    let change = AccountChange::Credit {
        amount: NanoUsd::from_nanos(50),
        at: 0,
        operation: Some(order.clone()),
    };
    assert_eq!(
        old.ledger.apply(&of, ACCOUNT, &[Step { seq: 2, change }], 0).await,
        Ok(2)
    );
    assert_eq!(old.ledger.watermark(&of, ACCOUNT).await, Ok(2));
    assert_eq!(
        old.ledger.operation_amount(ACCOUNT, &order).await,
        Ok(Some(NanoUsd::from_nanos(50)))
    );
    let hour = this_hour();
    old.ledger.put_shares(&of, &[share(hour, &[("a", 3)])]).await.unwrap();
    let told = old.ledger.buckets(hour, hour).await.unwrap();
    assert_eq!(told.len(), 1);
    assert_eq!(new.ledger.buckets(hour, hour).await.unwrap(), told);
}

#[tokio::test]
async fn nothing_else_is_asked_of_the_successor() {
    let folder = tempfile::tempdir().unwrap();
    let (old, _new) = handed_over(folder.path()).await;
    let (keys, ledger, key) = (&old.keys, &old.ledger, record(1));
    let session = SessionDigest::of("test", "text");
    let refused = [
        keys.create(&digest(1), &key).await.err(),
        keys.by_id(&key.id).await.err(),
        keys.list(None, 1).await.err(),
        keys.document(&digest(1)).await.err(),
        keys.visit(&session).await.err(),
        ledger.account(ACCOUNT).await.err(),
        ledger.accounts(None, 1).await.err(),
        ledger
            .sums(ACCOUNT, 0..=0, &SumSelector::One(SumSubject::Account))
            .await
            .err(),
        ledger.summed_up_to(ACCOUNT).await.err(),
        ledger.put_sums(ACCOUNT, 0, &DailySums::default(), 0).await.err(),
        ledger.take_notices(ACCOUNT, 0).await.err(),
        old.is_empty().await.err(),
        old.dump(mpsc::channel(1).0).await.err(),
    ];
    for error in refused {
        assert_eq!(error, Some(not_owner_error()));
    }
    assert_eq!(ledger.now_ms().await, Ok(START_MS));
}

#[tokio::test]
async fn a_store_whose_successor_fails_is_taken_back_with_what_it_held_and_looked_through() {
    let folder = tempfile::tempdir().unwrap();
    let store = with_account(folder.path()).await;
    let epochs = LedgerStore::epochs(&*store.ledger);
    assert!(matches!(
        store.ledger.admit(&ask(&node(1), "r1")).await,
        Ok(AdmitReply::Granted(_))
    ));
    let (closed, carried) = store.close().await.unwrap();
    let failed = open(folder.path(), carried).unwrap();
    drop(failed);
    closed.take_back().unwrap();
    assert!(epochs.has_changed().unwrap());
    assert_eq!(held(&store).await, (NanoUsd::from_nanos(600), 1));
    assert!(store.close().await.is_ok(), "it can be handed over again");
}

#[tokio::test]
async fn calls_wait_while_it_is_on_its_way_and_fail_when_the_successor_has_gone() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(with_account(folder.path()).await);
    let (closed, _carried) = store.close().await.unwrap();
    let waiting = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.ledger.watermark(&node(1), ACCOUNT).await }
    });
    tokio::task::yield_now().await;
    assert!(!waiting.is_finished());
    let (here, there) = UnixStream::pair().unwrap();
    drop(there);
    closed.give_to(Successor::new(here));
    assert!(matches!(waiting.await.unwrap(), Err(StoreError::Unavailable(_))));
    assert!(
        store.ledger.flush().await.is_ok(),
        "nothing is to be written here any more"
    );
    let second = store.close().await;
    assert!(matches!(second.err(), Some(StoreError::Unavailable(_))));
}

#[tokio::test]
async fn a_backup_is_not_cut_off() {
    let folder = tempfile::tempdir().unwrap();
    let store = with_account(folder.path()).await;
    let backup = store.backup.lock().await;
    assert!(matches!(store.close().await.err(), Some(StoreError::Busy(_))));
    drop(backup);
    assert!(store.close().await.is_ok());
}

#[tokio::test]
async fn who_keeps_steps_is_told_when_those_that_it_knew_as_applied_are_in_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let store = with_account(folder.path()).await;
    let (shutdown, ended) = watch::channel(false);
    let told = Arc::new(std::sync::Mutex::new(Vec::new()));
    let applied = |books: &AccountTable| {
        let (applied, told) = (books.watermark(&node(1), ACCOUNT), Arc::clone(&told));
        // What the disk holds at this moment is what a process killed now leaves behind.
        let (file, image) = (folder.path().join("ledger.redb"), tempfile::tempdir().unwrap());
        move || {
            std::fs::copy(file, image.path().join("ledger.redb")).unwrap();
            let left = EmbeddedLedger::open(image.path(), TestClock::new().source()).unwrap();
            told.lock()
                .unwrap()
                .push((applied, left.books().watermark(&node(1), ACCOUNT)));
        }
    };
    let stop = async {
        until("the first turn is over", async || !told.lock().unwrap().is_empty()).await;
        shutdown.send_replace(true);
    };
    tokio::join!(store.ledger.run(ended, applied), stop);
    assert_eq!(*told.lock().unwrap(), [(1, 1)], "once an hour");
}

#[tokio::test]
async fn every_change_of_a_key_is_nudged_until_another_process_has_the_files() {
    let folder = tempfile::tempdir().unwrap();
    let store = with_account(folder.path()).await;
    let mut nudges = store.keys.nudges();
    assert!(store.keys.nudges_all());
    let (closed, _) = store.close().await.unwrap();
    assert!(!store.keys.nudges_all(), "it is not decided yet");
    assert!(!nudges.has_changed().unwrap());
    let (here, _there) = UnixStream::pair().unwrap();
    closed.give_to(Successor::new(here));
    assert!(nudges.has_changed().unwrap() && !store.keys.nudges_all());
    nudges.mark_unchanged();

    let folder = tempfile::tempdir().unwrap();
    let store = with_account(folder.path()).await;
    let mut nudges = store.keys.nudges();
    let (closed, _) = store.close().await.unwrap();
    closed.take_back().unwrap();
    assert!(nudges.has_changed().unwrap() && store.keys.nudges_all());
    nudges.mark_unchanged();
    drop(store.close().await.unwrap());
    assert!(
        nudges.has_changed().unwrap() && !store.keys.nudges_all(),
        "nobody has them"
    );
}
