//! A store that goes from one process to the next.

use std::path::Path;

use tokio::net::UnixStream;

use super::*;
use crate::domain::{
    ledger::{Admit, AdmitReply, Change, NodeId, Step},
    money::NanoUsd,
};
use crate::store::{
    KeyStore, StoreOpenError,
    contract::until,
    ledger::{
        LedgerStore,
        contract::{START_MS, TestClock, node, record},
    },
};

fn open(folder: &Path, carried: Carried) -> Result<HandoverStore, StoreOpenError> {
    HandoverStore::open(folder, TestClock::new().source(), carried)
}

async fn with_account(folder: &Path) -> HandoverStore {
    let store = open(folder, Vec::new()).unwrap();
    let change = Change::Open {
        balance: NanoUsd::from_nanos(1_000),
        at: START_MS / 1000,
        operation: None,
    };
    assert_eq!(store.apply(&node(1), ACCOUNT, &[Step { seq: 1, change }]).await, Ok(1));
    store
}

const ACCOUNT: &str = "acme";

fn ask(of: &NodeId, request: &str) -> Admit {
    Admit {
        node: of.clone(),
        request: request.into(),
        key: Arc::new(record(1)),
        estimate: NanoUsd::from_nanos(600),
        tokens: 1,
        ended_key: 0,
        ended_account: 0,
    }
}

async fn held(store: &HandoverStore) -> (NanoUsd, u64) {
    let account = store.account(ACCOUNT).await.unwrap().unwrap();
    (account.held, account.running)
}

#[tokio::test]
async fn what_is_held_goes_on_with_the_store_and_the_last_requests_reach_it_there() {
    let folder = tempfile::tempdir().unwrap();
    let old = with_account(folder.path()).await;
    assert!(matches!(
        old.admit(&ask(&node(1), "r1")).await,
        Ok(AdmitReply::Granted(_))
    ));
    let (closed, carried) = old.close().await.unwrap();
    let text = serde_json::to_string(&carried).unwrap();
    let new = Arc::new(open(folder.path(), serde_json::from_str(&text).unwrap()).unwrap());
    assert_eq!(held(&new).await, (NanoUsd::from_nanos(600), 1));

    let (here, there) = UnixStream::pair().unwrap();
    let serving = tokio::spawn(Arc::clone(&new).serve_predecessor(there));
    closed.give_to(Successor::on(here));
    let Ok(AdmitReply::Granted(second)) = old.admit(&ask(&node(1), "r2")).await else {
        panic!("not admitted")
    };
    assert_eq!(second.hold, NanoUsd::from_nanos(400));
    assert_eq!(held(&new).await, (NanoUsd::from_nanos(1_000), 2));
    assert_eq!(old.watermark(&node(1), ACCOUNT).await, Ok(1));
    let credit = Step {
        seq: 2,
        change: Change::Credit {
            amount: NanoUsd::from_nanos(50),
            at: 0,
            operation: None,
        },
    };
    assert_eq!(old.apply(&node(1), ACCOUNT, &[credit]).await, Ok(2));
    assert_eq!(
        new.account(ACCOUNT).await.unwrap().unwrap().balance,
        NanoUsd::from_nanos(1_050)
    );
    let unknown = record(9);
    let refused = old.by_id(&unknown.id).await;
    assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
    drop(old);
    serving.await.unwrap();
}

#[tokio::test]
async fn a_store_whose_successor_fails_is_taken_back_with_what_it_held_and_looked_through() {
    let folder = tempfile::tempdir().unwrap();
    let store = with_account(folder.path()).await;
    let epochs = LedgerStore::epochs(&store);
    assert!(matches!(
        store.admit(&ask(&node(1), "r1")).await,
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
        async move { store.watermark(&node(1), ACCOUNT).await }
    });
    tokio::task::yield_now().await;
    assert!(!waiting.is_finished());
    let (here, there) = UnixStream::pair().unwrap();
    drop(there);
    closed.give_to(Successor::on(here));
    assert!(matches!(waiting.await.unwrap(), Err(StoreError::Unavailable(_))));
    assert!(store.flush().await.is_ok(), "nothing is to be written here any more");
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
    let applied = |ledger: &EmbeddedLedger| {
        let (applied, told) = (ledger.applied(&node(1), ACCOUNT), Arc::clone(&told));
        // What the disk holds at this moment is what a process killed now leaves behind.
        let (file, image) = (folder.path().join("ledger.redb"), tempfile::tempdir().unwrap());
        move || {
            std::fs::copy(file, image.path().join("ledger.redb")).unwrap();
            let left = EmbeddedLedger::open(image.path(), TestClock::new().source()).unwrap();
            told.lock().unwrap().push((applied, left.applied(&node(1), ACCOUNT)));
        }
    };
    let stop = async {
        until("the first turn is over", async || !told.lock().unwrap().is_empty()).await;
        shutdown.send_replace(true);
    };
    tokio::join!(store.run(ended, applied), stop);
    assert_eq!(*told.lock().unwrap(), [(1, 1)], "once an hour");
}

#[tokio::test]
async fn every_change_of_a_key_is_nudged_until_another_process_has_the_files() {
    let folder = tempfile::tempdir().unwrap();
    let store = with_account(folder.path()).await;
    let mut nudges = store.nudges();
    assert!(store.nudges_all());
    let (closed, _) = store.close().await.unwrap();
    assert!(!store.nudges_all(), "it is not decided yet");
    assert!(!nudges.has_changed().unwrap());
    let (here, _there) = UnixStream::pair().unwrap();
    closed.give_to(Successor::on(here));
    assert!(nudges.has_changed().unwrap() && !store.nudges_all());
    nudges.mark_unchanged();

    let folder = tempfile::tempdir().unwrap();
    let store = with_account(folder.path()).await;
    let mut nudges = store.nudges();
    let (closed, _) = store.close().await.unwrap();
    closed.take_back().unwrap();
    assert!(nudges.has_changed().unwrap() && store.nudges_all());
    nudges.mark_unchanged();
    drop(store.close().await.unwrap());
    assert!(nudges.has_changed().unwrap() && !store.nudges_all(), "nobody has them");
}
