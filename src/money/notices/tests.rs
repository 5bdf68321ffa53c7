//! What is told has its line in the log, whatever is lost on the way.

use std::io;

use http::Uri;
use tempfile::TempDir;

use super::*;
use crate::{
    domain::{
        keys::secret::Secret,
        ledger::{AccountChange, AccountTerms, Settlement, Step},
    },
    store::{
        embedded::EmbeddedStore,
        ledger::contract::{key_id, limit, memory, node},
    },
};

const LINE: &str = "the balance of an account has become low";

/// What was logged.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Lines {
    /// How many of the lines are the notice's.
    fn count(&self) -> usize {
        String::from_utf8_lossy(&self.0.lock()).matches(LINE).count()
    }

    /// Catches what this thread logs.
    fn catch(&self) -> tracing::subscriber::DefaultGuard {
        let lines = self.clone();
        let subscriber = tracing_subscriber::fmt().with_writer(move || lines.clone()).finish();
        tracing::subscriber::set_default(subscriber)
    }
}

/// A ledger whose account `acme` has a low balance to tell of.
async fn ledger() -> Arc<dyn LedgerStore> {
    let ledger = memory::ledger();
    let open = AccountChange::Open {
        balance: NanoUsd::from_nanos(100),
        at: 1,
        operation: None,
    };
    let low_balance = Some(NanoUsd::from_nanos(50));
    let terms = AccountTerms {
        low_balance,
        ..AccountTerms::default()
    };
    let charged = AccountChange::Settle(Box::new(Settlement {
        lease: None,
        request: "r".into(),
        key: key_id(1),
        at_ms: 1,
        tokens_estimated: 0,
        tokens_used: 0,
        cost: NanoUsd::from_nanos(60),
        row: None,
    }));
    limit(&*ledger, "acme", terms).await;
    let steps = (1..).zip([open, charged]);
    let steps: Vec<Step> = steps.map(|(seq, change)| Step { seq, change }).collect();
    ledger.apply(&node(1), "acme", &steps, 0).await.unwrap();
    ledger
}

/// A process that tells, without a pause between attempts.
fn teller(ledger: &Arc<dyn LedgerStore>, folder: &TempDir, webhook: Option<Webhook>) -> Notifier {
    let keys = EmbeddedStore::open(&folder.path().join("store")).unwrap();
    let settings = NoticeSettings {
        quota_percent: Thresholds::default(),
        webhook,
        retry: Duration::ZERO,
    };
    Notifier::new(Arc::clone(ledger), Arc::new(keys), Arc::default(), settings)
}

#[tokio::test]
async fn a_notice_that_was_taken_and_whose_answer_was_lost_has_its_line() {
    let (lines, folder, ledger) = (Lines::default(), TempDir::new().unwrap(), ledger().await);
    let teller = teller(&ledger, &folder, None);
    let lost = ledger.take_notices("acme", 0).await.unwrap();
    assert_eq!(lost.notices.len(), 1, "nobody hears of it");
    let _caught = lines.catch();
    for _ in 0..2 {
        teller.notify_account("acme").await.unwrap();
        assert_eq!(lines.count(), 1, "and it is forgotten then");
    }
    assert_eq!(ledger.take_notices("acme", 0).await.unwrap().notices, []);
}

#[tokio::test]
async fn each_process_writes_the_line_once_however_often_it_sends() {
    let (lines, folder, ledger) = (Lines::default(), TempDir::new().unwrap(), ledger().await);
    let nobody = Uri::from_static("http://127.0.0.1:1/hook");
    let webhook = || Webhook::new(nobody.clone(), &Secret::new("secret-of-a-webhook"), PAUSE).unwrap();
    let _caught = lines.catch();
    for process in 1..=2 {
        let folder = TempDir::new_in(folder.path()).unwrap();
        let teller = teller(&ledger, &folder, Some(webhook()));
        for _ in 0..3 {
            teller.notify_account("acme").await.unwrap();
        }
        assert_eq!(lines.count(), process);
    }
}
