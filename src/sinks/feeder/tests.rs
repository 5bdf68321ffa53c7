//! Feeders over a real journal and a sink in memory.

use std::path::Path;

use super::*;
use crate::{
    config::{JournalConfig, JournalSink},
    domain::ledger::{AccountChange, Settlement, consumption::Row, log_query::LogFilter},
    edges::clock,
    journal::{
        JournalError, STEP_BYTES_MAX,
        tests::{grow_old, scratch, sinks::open_on_a_short_disk, tell},
    },
    sinks::{
        BatchLimits, Linger,
        contract::{BEGIN_MS, row},
        memory::{Fault, Memory},
        tail::LogTails,
    },
};

const SOON: BatchLimits = BatchLimits {
    rows_max: 100,
    linger: Linger::For(Duration::from_millis(1)),
};

fn settings(folder: &Path, required: bool) -> JournalConfig {
    JournalConfig {
        path: folder.to_owned(),
        segment_bytes: 1 << 16,
        keep: Duration::from_secs(86_400),
        sync: Duration::from_millis(1),
        sinks: vec![JournalSink {
            name: "memory",
            required,
        }],
    }
}

/// The journal of a folder, as soon as nobody has it any more: a read that was begun goes on although nobody waits for it.
fn open(folder: &Path) -> Arc<Journal> {
    let settings = settings(folder, true);
    let begun = clock::instant();
    loop {
        match Journal::open(&settings) {
            Err(JournalError::InUse(_)) if begun.elapsed() < Duration::from_secs(60) => {
                std::thread::sleep(Duration::from_millis(1));
            }
            opened => return opened.unwrap().journal,
        }
    }
}

fn settle(journal: &Journal, row: &Row) {
    let mut room = journal.reserve(STEP_BYTES_MAX).unwrap();
    let change = AccountChange::Settle(Box::new(Settlement::of(row.clone(), 0)));
    journal.append_step(&row.account, change, 0, &mut room).unwrap();
    journal
        .append_step(&row.account, AccountChange::nothing(), 0, &mut room)
        .unwrap();
}

fn some_rows(from: u64, count: u64) -> Vec<Row> {
    (from..from + count).map(|seed| row(seed, BEGIN_MS)).collect()
}

/// Feeds the sink until it has so many rows of the journal; answers with them.
async fn fed(journal: &Arc<Journal>, memory: &Arc<Memory>, count: usize) -> Vec<Arc<NumberedRow>> {
    let stop = watch::Sender::new(false);
    let feeder = Feeder::new(Arc::clone(journal), Arc::clone(memory) as _, Arc::default());
    let task = tokio::spawn(feeder.run(stop.subscribe()));
    let there = async {
        while memory.of(journal.node()).len() < count || journal.sink_lag_bytes("memory") > 0 {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(60), there).await.expect("the rows arrive");
    stop.send_replace(true);
    task.await.unwrap();
    memory.of(journal.node())
}

fn only_rows(numbered: &[Arc<NumberedRow>]) -> Vec<Row> {
    assert!(numbered.is_sorted_by(|one, next| one.number < next.number));
    numbered.iter().map(|numbered| numbered.row.clone()).collect()
}

#[tokio::test]
async fn every_row_comes_once_whatever_fails_and_however_often_the_process_starts() {
    let folder = scratch();
    let memory = Memory::new(SOON);
    let mut sent = Vec::new();
    for (start, fault) in (0_u64..).zip([Fault::Before, Fault::Behind, Fault::Behind, Fault::Before]) {
        let journal = open(folder.path());
        let rows = some_rows(start * 1000, 250);
        for row in &rows {
            settle(&journal, row);
        }
        sent.extend(rows);
        memory.fail(fault);
        let there = fed(&journal, &memory, sent.len()).await;
        assert_eq!(only_rows(&there), sent, "start {start}");
    }
}

#[tokio::test]
async fn a_sink_that_has_lost_rows_gets_them_again() {
    let folder = scratch();
    let memory = Memory::new(SOON);
    let journal = open(folder.path());
    let rows = some_rows(0, 300);
    rows.iter().for_each(|row| settle(&journal, row));
    memory.fail(Fault::Before);
    memory.fail(Fault::Forgets);
    let before = fed(&journal, &memory, rows.len()).await;
    assert_eq!(only_rows(&before), rows);
    let more = some_rows(5000, 10);
    more.iter().for_each(|row| settle(&journal, row));
    memory.fail(Fault::Forgets);
    let after = fed(&journal, &memory, rows.len() + more.len()).await;
    assert_eq!(only_rows(&after), [rows, more].concat());
    assert_eq!(after[..300], before, "numbers stay");
}

#[tokio::test]
async fn batches_are_no_larger_than_asked_for_and_end_with_their_hour() {
    let folder = scratch();
    let journal = open(folder.path());
    let hour = 3_600_000;
    let times = [0, 1, 2, 3, hour, hour + 1, hour - 1, 2 * hour];
    for (seed, time) in (0..).zip(times) {
        settle(&journal, &row(seed, BEGIN_MS + time));
    }
    // What is on disk is read: all of it from the first batch on.
    journal.wait_until_decided(journal.end().number() - 1).await;
    let batching = BatchLimits {
        rows_max: 3,
        linger: Linger::HourOr(Duration::from_secs(3600)),
    };
    let feeder = Feeder::new(Arc::clone(&journal), Memory::new(batching), Arc::default());
    let tail = Arc::clone(feeder.tail());
    tail.reset(0, None);
    let reading = tokio::spawn(async move { feeder.read_from(0).await });
    let mut sizes = Vec::new();
    let mut after = 0;
    for _ in 0..4 {
        let batch = tail.next_batch().await;
        tail.acknowledge(batch.upto);
        assert_eq!(batch.after, after);
        assert!(batch.rows.iter().all(|row| (after..batch.upto).contains(&row.number)));
        sizes.push(batch.rows.len());
        after = batch.upto;
    }
    assert_eq!(sizes, [3, 1, 3, 1]);
    reading.abort();
}

/// The rows of a tail, when all that is on disk has been read; `None`: it has not.
async fn on_their_way(tail: &Arc<LogTail>, filter: &LogFilter, wait: Duration) -> Option<usize> {
    let tails = LogTails::waiting(wait);
    tails.add(tail);
    tails.snapshot(filter).await.ok().map(|rows| rows.len())
}

const LONG: Duration = Duration::from_secs(60);

#[tokio::test]
async fn what_is_gathered_when_the_lane_is_left_is_handed_over() {
    let folder = scratch();
    let journal = open(folder.path());
    let memory = Memory::new(BatchLimits {
        rows_max: 100,
        linger: Linger::For(Duration::from_secs(3600)),
    });
    let stop = watch::Sender::new(false);
    let feeder = Feeder::new(Arc::clone(&journal), Arc::clone(&memory) as _, Arc::default());
    let tail = Arc::clone(feeder.tail());
    let task = tokio::spawn(feeder.run(stop.subscribe()));
    let rows = some_rows(0, 5);
    rows.iter().for_each(|row| settle(&journal, row));
    journal.wait_until_decided(journal.end().number() - 1).await;
    let all = LogFilter::between(BEGIN_MS, BEGIN_MS + 1);
    assert_eq!(on_their_way(&tail, &all, LONG).await, Some(5));
    assert!(memory.of(journal.node()).is_empty(), "they wait for others");
    stop.send_replace(true);
    task.await.unwrap();
    assert_eq!(only_rows(&memory.of(journal.node())), rows);
}

#[tokio::test]
async fn rows_are_handed_over_soon_when_another_process_is_read() {
    let folder = scratch();
    let journal = open(folder.path());
    let memory = Memory::new(BatchLimits {
        rows_max: 100,
        linger: Linger::For(Duration::from_secs(3600)),
    });
    let (stop, tails) = (watch::Sender::new(false), LogTails::default());
    let feeder = Feeder::new(Arc::clone(&journal), Arc::clone(&memory) as _, Arc::default());
    tails.add(feeder.tail());
    let task = tokio::spawn(feeder.run(stop.subscribe()));
    let rows = some_rows(0, 5);
    let wait = async |count: usize| {
        let there = async {
            while memory.of(journal.node()).len() < count {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(LONG, there).await.expect("the rows arrive");
    };
    rows[..3].iter().for_each(|row| settle(&journal, row));
    tails.hurry();
    wait(3).await;
    rows[3..].iter().for_each(|row| settle(&journal, row));
    wait(5).await;
    stop.send_replace(true);
    task.await.unwrap();
}

#[tokio::test]
async fn a_sink_that_refuses_has_few_rows_in_memory_and_readers_are_told() {
    let folder = scratch();
    let journal = open(folder.path());
    let memory = Memory::new(BatchLimits {
        rows_max: 3,
        linger: Linger::For(Duration::from_millis(1)),
    });
    memory.set_refusing(true);
    let hour = 3_600_000;
    let times = (0..20).map(|number| if number < 2 { BEGIN_MS } else { BEGIN_MS + 5 * hour });
    let rows: Vec<Row> = std::iter::zip(0.., times)
        .map(|(seed, time_ms)| row(seed, time_ms))
        .collect();
    rows.iter().for_each(|row| settle(&journal, row));
    journal.wait_until_decided(journal.end().number() - 1).await;
    let (stop, figures) = (watch::Sender::new(false), Arc::<SinkStats>::default());
    let feeder = Feeder::new(Arc::clone(&journal), Arc::clone(&memory) as _, Arc::clone(&figures));
    let tail = Arc::clone(feeder.tail());
    let task = tokio::spawn(feeder.run(stop.subscribe()));
    let early = LogFilter::between(BEGIN_MS, BEGIN_MS + 4 * hour);
    assert_eq!(
        on_their_way(&tail, &early, LONG).await,
        Some(2),
        "no unread row is as old"
    );
    timeout(LONG, async {
        while figures.failures() == 0 || tail.room() > 0 {
            sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .expect("the bound is reached");
    let all = LogFilter::between(BEGIN_MS, BEGIN_MS + 24 * hour);
    assert_eq!(on_their_way(&tail, &all, Duration::from_millis(100)).await, None);
    assert_eq!(on_their_way(&tail, &early, Duration::ZERO).await, Some(2));
    memory.set_refusing(false);
    let found = timeout(LONG, async {
        while on_their_way(&tail, &all, Duration::from_millis(100)).await != Some(0) {
            sleep(Duration::from_millis(5)).await;
        }
    });
    found.await.expect("all rows arrive");
    assert_eq!(only_rows(&memory.of(journal.node())), rows);
    stop.send_replace(true);
    task.await.unwrap();
}

#[tokio::test]
async fn a_journal_behind_its_sink_goes_on_behind_the_rows_that_it_has_lost() {
    let (lost, folder) = (scratch(), scratch());
    let memory = Memory::new(SOON);
    let journal = open(folder.path());
    let rows = some_rows(0, 200);
    rows[..10].iter().for_each(|row| settle(&journal, row));
    let node = journal.node().clone();
    drop(journal);
    let copied = |from: &Path, to: &Path| {
        for entry in std::fs::read_dir(from).unwrap() {
            let entry = entry.unwrap();
            std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    };
    copied(folder.path(), lost.path());
    let journal = open(folder.path());
    rows[10..].iter().for_each(|row| settle(&journal, row));
    fed(&journal, &memory, rows.len()).await;
    drop(journal);
    // What an operator does who puts an old copy of the folder in its place.
    std::fs::remove_file(lost.path().join("place")).unwrap();
    let journal = open(lost.path());
    assert_eq!(*journal.node(), node);
    let more = some_rows(1000, 1);
    fed(&journal, &memory, rows.len()).await;
    settle(&journal, &more[0]);
    let there = fed(&journal, &memory, rows.len() + 1).await;
    assert_eq!(only_rows(&there), [rows, more].concat());
}

#[tokio::test]
async fn a_sink_that_is_away_since_the_start_is_as_far_behind_as_the_oldest_row_of_the_journal() {
    let folder = scratch();
    let memory = Memory::new(SOON);
    let journal = open(folder.path());
    memory.set_away(true);
    let (stop, figures) = (watch::Sender::new(false), Arc::<SinkStats>::default());
    let feeder = Feeder::new(Arc::clone(&journal), Arc::clone(&memory) as _, Arc::clone(&figures));
    let task = tokio::spawn(feeder.run(stop.subscribe()));
    let behind = async |wanted: u64| {
        while figures.behind_ms(BEGIN_MS + 10_000) != wanted {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(60), async {
        // The first row comes when the sink has been found to be away.
        while figures.failures() == 0 {
            sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(figures.behind_ms(BEGIN_MS + 10_000), 0, "there is no row");
        settle(&journal, &row(1, BEGIN_MS));
        settle(&journal, &row(2, BEGIN_MS + 5000));
        behind(10_000).await;
        assert_eq!(figures.complete_before(BEGIN_MS + 10_000), i64::MIN);
        memory.set_away(false);
        behind(0).await;
    })
    .await
    .expect("what is said of the sink follows");
    assert_eq!(memory.of(journal.node()).len(), 2);
    stop.send_replace(true);
    task.await.unwrap();
}

#[tokio::test]
async fn an_optional_sink_that_was_given_up_goes_on_behind_the_gap() {
    let folder = scratch();
    let memory = Memory::new(SOON);
    let journal = open_on_a_short_disk(&settings(folder.path(), false));
    let rows: Vec<Row> = some_rows(0, 600)
        .into_iter()
        .map(|row| Row {
            account: "acme".into(),
            ..row
        })
        .collect();
    rows[..50].iter().for_each(|row| settle(&journal, row));
    let before = fed(&journal, &memory, 50).await;
    memory.set_away(true);
    rows[50..].iter().for_each(|row| settle(&journal, row));
    journal.wait_until_decided(journal.end().number() - 1).await;
    journal.acknowledge("acme", u64::MAX / 2);
    tell(&journal);
    grow_old(&journal);
    let dropped = usize::try_from(journal.sink_dropped_rows("memory")).unwrap();
    assert!((1..550).contains(&dropped), "{dropped}");
    memory.set_away(false);
    let there = fed(&journal, &memory, rows.len() - dropped).await;
    assert_eq!(there[..50], before);
    assert_eq!(only_rows(&there), [&rows[..50], &rows[50 + dropped..]].concat());
    let more = some_rows(5000, 1);
    settle(&journal, &more[0]);
    let there = fed(&journal, &memory, rows.len() - dropped + 1).await;
    assert_eq!(only_rows(&there[there.len() - 1..]), more);
}
