//! Tests of the embedded ledger and of its file.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use redb::ReadableTable;
use tempfile::TempDir;

use super::*;
use crate::domain::ledger::consumption::{RETENTION_DAYS, Row};
use crate::domain::ledger::daily_sums::RetentionProgress;
use crate::domain::ledger::daily_sums::SumSubject;
use crate::domain::ledger::{AccountChange, Denial, Settlement, ids::Tag};
use crate::store::contract::until;
use crate::store::embedded::ledger::HOUR_MS;
use crate::store::embedded::ledger::accounts::Upkeep;
use crate::store::ledger::contract::{Fixture, START_MS, TestClock, key_id, ledger_suite, node, record, row};

mod commits;
mod crashes;
mod evictions;
mod failures;
mod notices;
mod stability;
mod sums;

impl EmbeddedLedger {
    /// The accounts, as long as they are here.
    pub(crate) fn books(&self) -> Arc<AccountTable> {
        Arc::clone(&self.ownership.here_now().unwrap())
    }

    async fn remove_old(&self) -> Result<(), StoreError> {
        self.run_blocking(|books, now_ms| books.remove_old(now_ms)).await
    }

    /// Leaves all days to the file that it has as they are in memory.
    fn close_days(&self) {
        self.books().close_days(i64::MAX);
    }

    /// One turn of the upkeep, which is not the last one.
    async fn turn(&self, upkeep: &mut Upkeep) -> bool {
        upkeep.run_turn(&self.books(), (self.now_ms)(), false).await
    }

    /// The upkeep in turns that changes wait for at most for `most`, until `shutdown` turns true or its sender is gone; then once
    /// more. Each closes all days.
    async fn write_often(&self, most: Duration, mut shutdown: watch::Receiver<bool>) {
        let (mut upkeep, mut ended) = (Upkeep::default(), false);
        loop {
            upkeep.run_turn(&self.books(), (self.now_ms)(), ended).await;
            self.close_days();
            if ended {
                return;
            }
            ended = tokio::select! {
                _ = shutdown.wait_for(|ended| *ended) => true,
                () = self.signals.wait_until_due(most, (self.now_ms)()) => false,
            };
        }
    }
}

const DAY_MS: i64 = 24 * HOUR_MS;
const TODAY: i64 = START_MS / DAY_MS;
/// How long changes wait in most tests.
const OFTEN: Duration = Duration::from_millis(100);

/// A ledger with its writer at work, so that what the suite asks meets days in memory and on the disk.
fn at_work(most: Duration) -> Fixture {
    let (folder, clock) = (tempfile::tempdir().unwrap(), TestClock::new());
    let store = Arc::new(EmbeddedLedger::open(folder.path(), clock.source()).unwrap());
    let (shutdown, ended) = watch::channel(false);
    let writer = Arc::clone(&store);
    tokio::spawn(async move { writer.write_often(most, ended).await });
    Fixture {
        store,
        lists: None,
        clock,
        failover: None,
        kept: Box::new((folder, shutdown)),
    }
}

async fn open() -> Option<Fixture> {
    Some(at_work(OFTEN))
}

ledger_suite!(open);

fn opened(folder: &Path) -> EmbeddedLedger {
    EmbeddedLedger::open(folder, TestClock::new().source()).unwrap()
}

fn nanos(amount: i64) -> NanoUsd {
    NanoUsd::from_nanos(amount)
}

/// The row of a request, with a tag that some others have.
fn a_row(request: u64, cost: i64, day: i64) -> Row {
    let mut row = row("acme", 1, &format!("r{request}"), day * DAY_MS + 5, nanos(cost));
    row.tags.extend(Tag::parse(&format!("team={}", request % 4)));
    row
}

fn settled(request: u64, cost: i64, day: i64) -> AccountChange {
    let row = a_row(request, cost, day);
    AccountChange::Settle(Box::new(Settlement {
        lease: None,
        key: row.key_id.clone(),
        at_ms: row.time_ms,
        tokens_estimated: 0,
        tokens_used: 0,
        cost: nanos(cost),
        request: row.request_id.clone(),
        row: Some(row.into()),
    }))
}

/// A journal that opens an account with 1000 and settles, each request for its number.
fn journal(settlements: u64) -> Vec<Step> {
    let open = AccountChange::Open {
        balance: nanos(1_000),
        at: 7,
        operation: None,
    };
    let settled = (1..=settlements).map(|number| {
        let day = TODAY - i64::from(number % 3 == 0);
        settled(number, i64::try_from(number).unwrap(), day)
    });
    let changes = std::iter::once(open).chain(settled);
    changes.zip(1..).map(|(change, seq)| Step { seq, change }).collect()
}

fn ask(request: &str, revision: u64) -> AdmitCall {
    let mut key = record(1);
    key.revision = revision;
    AdmitCall {
        node: node(1),
        request: request.into(),
        key: Arc::new(key),
        estimate: nanos(10),
        tokens: 0,
        ended_key: 0,
        ended_account: 0,
    }
}

/// Everything that lasts.
async fn lasting(store: &EmbeddedLedger) -> (Vec<AccountView>, KeySpend, Vec<u64>, DailySums) {
    let mut watermarks = Vec::new();
    for number in 1..4 {
        watermarks.push(store.watermark(&node(number), "acme").await.unwrap());
    }
    let spend = store.key_spend("acme", &key_id(1)).await.unwrap();
    let views = store.accounts(None, 9).await.unwrap();
    (views, spend, watermarks, sums::all(store).await)
}

/// How many requests the sums of an account count, by day.
fn requests(sums: &DailySums) -> Vec<(i64, u64)> {
    let whole = sums.iter().filter(|sum| sum.subject == SumSubject::Account);
    whole.map(|sum| (sum.day, sum.sums.requests)).collect()
}

#[tokio::test]
async fn what_was_flushed_is_there_after_opening_again_and_holds_are_not() {
    let folder = tempfile::tempdir().unwrap();
    let store = opened(folder.path());
    store.apply(&node(1), "acme", &journal(30), 0).await.unwrap();
    store.apply(&node(2), "acme", &journal(3)[..2], 0).await.unwrap();
    store.apply(&node(1), "beta", &journal(0), 0).await.unwrap();
    let order = OperationId::parse("order-7").unwrap();
    let change = AccountChange::Credit {
        amount: nanos(5),
        at: 0,
        operation: Some(order.clone()),
    };
    let credit = Step { seq: 32, change };
    store.apply(&node(1), "acme", &[credit], 0).await.unwrap();
    let before = lasting(&store).await;
    assert!(matches!(store.admit(&ask("a", 5)).await, Ok(AdmitReply::Granted(_))));
    store.flush().await.unwrap();
    drop(store);
    let store = opened(folder.path());
    assert_eq!(lasting(&store).await, before);
    assert_eq!(requests(&before.3), [(TODAY - 1, 10), (TODAY, 21)]);
    assert_eq!(store.operation_amount("acme", &order).await, Ok(Some(nanos(5))));
    // The key's revision has lasted as well.
    assert_eq!(store.admit(&ask("b", 4)).await, Ok(AdmitReply::StaleKey));
    let mut revoked = ask("b", 6);
    Arc::make_mut(&mut revoked.key).state = crate::domain::keys::KeyState::Revoked { at: 1 };
    assert_eq!(store.admit(&revoked).await, Ok(AdmitReply::Refused(Denial::KeyRevoked)));
    store.flush().await.unwrap();
    drop(store);
    let store = opened(folder.path());
    assert_eq!(store.admit(&ask("c", 5)).await, Ok(AdmitReply::StaleKey));
}

#[tokio::test]
async fn sums_go_when_they_are_older_than_they_are_kept() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), TestClock::new());
    let store = EmbeddedLedger::open(folder.path(), clock.source()).unwrap();
    store.apply(&node(1), "acme", &journal(9), 0).await.unwrap();
    store.flush().await.unwrap();
    let keep_days = i64::from(RETENTION_DAYS);
    let kept = keep_days * DAY_MS;
    clock.advance(kept);
    // As it stood the day before.
    let before = RetentionProgress::forced_until(TODAY - 1, clock.now_ms() - DAY_MS, keep_days);
    store.books().file().put_retention(before).unwrap();
    store.remove_old().await.unwrap();
    assert_eq!(requests(&sums::all(&store).await), [(TODAY, 6)]);
    clock.advance(-kept);
    assert_eq!(requests(&sums::all(&store).await), [(TODAY, 6)]);
    let view = store.account("acme").await.unwrap().unwrap();
    assert_eq!(view.spent, nanos(45));
}

#[tokio::test]
async fn starts_far_ahead_keep_the_sums() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), TestClock::new());
    let start = || EmbeddedLedger::open(folder.path(), clock.source()).unwrap();
    let store = start();
    store.remove_old().await.unwrap();
    store.apply(&node(1), "acme", &journal(9), 0).await.unwrap();
    store.flush().await.unwrap();
    let before = lasting(&store).await;
    assert_eq!(requests(&before.3), [(TODAY - 1, 3), (TODAY, 6)]);
    drop(store);
    for ahead in [200, 201, 1_000] {
        clock.advance(ahead * DAY_MS);
        start().remove_old().await.unwrap();
        clock.advance(-ahead * DAY_MS);
        let store = start();
        store.remove_old().await.unwrap();
        assert_eq!(lasting(&store).await, before, "{ahead} days ahead");
    }
}

#[tokio::test]
async fn an_operators_word_removes_all_before_a_day_and_no_day_that_is_kept() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), TestClock::new());
    let store = EmbeddedLedger::open(folder.path(), clock.source()).unwrap();
    store.remove_old().await.unwrap();
    store.apply(&node(1), "acme", &journal(9), 0).await.unwrap();
    store.flush().await.unwrap();
    clock.advance(200 * DAY_MS);
    let first_kept = TODAY + 200 - i64::from(RETENTION_DAYS);
    assert_eq!(store.prune(first_kept + 1).await, Ok(None));
    // Of account, key and each tag that came on the day.
    assert_eq!(store.prune(TODAY).await, Ok(Some(2 + 3)));
    assert_eq!(store.prune(first_kept).await, Ok(Some(2 + 4)));
    // From there it goes on.
    store.remove_old().await.unwrap();
    assert_eq!(store.books().file().retention().unwrap().unwrap().kept_from, first_kept);
}

#[tokio::test]
async fn the_writer_writes_by_itself_and_at_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(opened(folder.path()));
    let (shutdown, ended) = watch::channel(false);
    let writer = Arc::clone(&store);
    let running = tokio::spawn(async move { writer.write_often(OFTEN, ended).await });
    let steps = journal(30);
    store.apply(&node(1), "acme", &steps[..20], 0).await.unwrap();
    until("all is written", async || {
        let sums = store
            .run_blocking(|books, _| books.file().day_sums("acme", TODAY))
            .await
            .unwrap();
        let whole = sums.iter().find(|sum| sum.subject == SumSubject::Account);
        whole.is_some_and(|sum| sum.sums.requests == 13)
    })
    .await;
    store.apply(&node(1), "acme", &steps, 0).await.unwrap();
    let before = lasting(&store).await;
    shutdown.send_replace(true);
    running.await.unwrap();
    drop(store);
    assert_eq!(lasting(&opened(folder.path())).await, before);
}

#[tokio::test]
async fn a_ledger_has_one_owner_and_others_may_not_read_it() {
    let folder = tempfile::tempdir().unwrap();
    let store = opened(folder.path());
    let second = EmbeddedLedger::open(folder.path(), TestClock::new().source())
        .err()
        .unwrap();
    assert!(matches!(second, StoreOpenError::InUse(_)), "{second}");
    let mode = std::fs::metadata(folder.path().join("ledger.redb"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    drop(store);
    opened(folder.path());
}

/// Changes the file of a ledger behind its back.
fn tamper(folder: &TempDir, table: &str, value: impl FnOnce(Vec<u8>) -> Vec<u8>) {
    let database = redb::Database::open(folder.path().join("ledger.redb")).unwrap();
    let transaction = database.begin_write().unwrap();
    let table: redb::TableDefinition<'_, &str, &[u8]> = redb::TableDefinition::new(table);
    {
        let mut table = transaction.open_table(table).unwrap();
        let before = table.get("acme").unwrap().unwrap().value().to_vec();
        table.insert("acme", value(before).as_slice()).unwrap();
    }
    transaction.commit().unwrap();
}

#[tokio::test]
async fn a_balance_that_was_changed_on_the_disk_is_refused_and_not_shown() {
    let folder = tempfile::tempdir().unwrap();
    let store = opened(folder.path());
    store.apply(&node(1), "acme", &journal(9), 0).await.unwrap();
    store.flush().await.unwrap();
    drop(store);
    tamper(&folder, "accounts", |before| {
        let text = String::from_utf8_lossy(&before[4..]).replace("955", "966");
        [&before[..4], text.as_bytes()].concat()
    });
    let refused = EmbeddedLedger::open(folder.path(), TestClock::new().source())
        .err()
        .unwrap();
    let said = refused.to_string();
    assert!(
        said.contains("account `acme` is unreadable") && !said.contains("966"),
        "{said}"
    );
}
