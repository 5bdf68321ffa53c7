//! A journal beside the log's files.

use std::{collections::BTreeSet, path::Path, time::Duration};

use super::*;
use crate::{
    config::{JournalConfig, JournalSink},
    domain::ledger::{
        AccountChange, Settlement, Step,
        daily_sums::{SumSelector, SumSubject},
    },
    journal::{NumberedRow, STEP_BYTES_MAX, tests::scratch},
    sinks::{
        Batch, FedLog, LogPageQuery, Sink, backfill,
        contract::{BEGIN_MS, pages::of_day, row},
        files::LogFiles,
        store_log::StoreLog,
    },
    store::ledger::{
        LogLists,
        contract::memory::{self, MemoryLedger},
    },
};

const DAY: i64 = BEGIN_MS / 86_400_000;

fn settings(folder: &Path) -> JournalConfig {
    JournalConfig {
        path: folder.to_owned(),
        segment_bytes: 1 << 16,
        keep: Duration::from_secs(86_400),
        sync: Duration::from_millis(1),
        sinks: Vec::new(),
    }
}

fn open(folder: &Path) -> Arc<Journal> {
    Journal::open(&settings(folder)).unwrap().journal
}

/// Files as the home of the log.
fn home_of(files: &LogFiles) -> OpenLogBackend {
    OpenLogBackend::Fed(FedLog::new(Arc::new(files.clone())))
}

/// A store as the home of the log.
fn store_home(ledger: &Arc<MemoryLedger>) -> OpenLogBackend {
    let store = StoreLog::new(Arc::clone(ledger) as _, Arc::clone(ledger) as _);
    OpenLogBackend::Store(Arc::new(store))
}

/// A home alone.
fn log_of<'l>(home: &'l OpenLogBackend, ledger: &'l dyn LedgerStore, fills: bool) -> ComparedLog<'l> {
    ComparedLog {
        home,
        former: None,
        ledger,
        fills,
    }
}

/// The rows of a journal that has these, with their numbers, when they are on its disk.
async fn settled(journal: &Arc<Journal>, rows: &[Row]) -> Vec<Arc<NumberedRow>> {
    for row in rows {
        let mut room = journal.reserve(STEP_BYTES_MAX).unwrap();
        let change = AccountChange::Settle(Box::new(Settlement::of(row.clone(), 0)));
        journal.append_step(&row.account, change, 0, &mut room).unwrap();
    }
    let (mut numbered, mut reading) = (Vec::new(), journal.rows(0));
    while numbered.len() < rows.len() {
        match reading.read().unwrap() {
            Some(row) => numbered.push(Arc::new(row)),
            None => journal.wait_until_decided(reading.next_number()).await,
        }
    }
    numbered
}

/// Compares all, some rows at a time.
async fn all(log: ComparedLog<'_>, lanes: &OpenLanes, wanted: &RowSelection) -> (JournalDayFindings, usize) {
    let (mut found, mut next, mut portions) = (JournalDayFindings::default(), None, 0);
    loop {
        let portion = compare(log, lanes, wanted, next.as_ref(), 1000).await.unwrap();
        portions += 1;
        for (place, day) in portion.days {
            assert_eq!(place, ("acme".into(), DAY));
            found.rows += day.rows;
            found.missing += day.missing;
            found.differing += day.differing;
            found.brought += day.brought;
            found.named.extend(day.named);
        }
        next = portion.next.map(|place| place.to_string().parse().unwrap());
        if next.is_none() {
            return (found, portions);
        }
    }
}

#[tokio::test]
async fn what_the_home_has_lost_is_named_and_brought_from_the_journal_and_what_is_on_its_way_is_not() {
    let (folder, files) = (scratch(), scratch());
    let journal = open(folder.path());
    let home = LogFiles::open(files.path(), Duration::from_secs(3600), 50_000).unwrap();
    let rows: Vec<Row> = (0..10_000)
        .map(|seed| Row {
            account: if seed % 10 == 3 { "other" } else { "acme" }.into(),
            ..row(seed, BEGIN_MS + i64::try_from(seed).unwrap())
        })
        .collect();
    let numbered = settled(&journal, &rows).await;
    let lost = [7, 4321, 8888];
    let kept = numbered.iter().enumerate().take(9_000);
    let kept = kept.filter(|(place, _)| !lost.contains(place));
    let kept = kept.map(|(place, numbered)| {
        let mut numbered = NumberedRow::clone(numbered);
        if place == 500 {
            numbered.row.cost_nano_usd = numbered.row.cost_nano_usd.saturating_add(NanoUsd::from_nanos(1));
        }
        numbered
    });
    let batch = Batch {
        node: journal.node().clone(),
        after: 0,
        upto: numbered[9_000].number,
        rows: kept.map(Arc::new).collect(),
    };
    home.append(&batch).await.unwrap();
    let lanes = OpenLanes::default();
    lanes.add(&journal);
    let wanted = RowSelection {
        days: DAY..DAY + 1,
        account: Some("acme".to_owned()),
    };
    let (fed, ledger) = (home_of(&home), memory::ledger());
    let (looked, filling) = (log_of(&fed, &*ledger, false), log_of(&fed, &*ledger, true));
    let (found, portions) = all(looked, &lanes, &wanted).await;
    let named: Vec<String> = lost.iter().map(|place| rows[*place].request_id.to_string()).collect();
    let expected = JournalDayFindings {
        rows: 8_100,
        missing: 3,
        differing: 1,
        brought: 0,
        named,
    };
    assert_eq!(found, expected);
    assert!(portions >= 3, "some at a time: {portions}");
    let (filled, _) = all(filling, &lanes, &wanted).await;
    assert_eq!((filled.missing, filled.brought), (3, 3));
    let (found, _) = all(filling, &lanes, &wanted).await;
    assert_eq!(
        (found.rows, found.missing, found.brought, found.differing),
        (8_100, 0, 0, 1)
    );
    let there = of_day(&home, "acme", DAY, 4096).await;
    let once: BTreeSet<&str> = there.iter().map(|row| &*row.request_id).collect();
    assert_eq!((there.len(), once.len()), (8_100, 8_100));
    let days = RowSelection {
        days: DAY + 1..DAY + 9,
        account: None,
    };
    assert_eq!(all(filling, &lanes, &days).await, (JournalDayFindings::default(), 1));
}

#[tokio::test]
async fn a_home_that_has_lost_all_of_a_lane_gets_it_again_in_its_own_lane_and_the_feeder_goes_on() {
    let (folder, files) = (scratch(), scratch());
    let settings = JournalConfig {
        sinks: vec![JournalSink {
            name: "files",
            required: true,
        }],
        ..settings(folder.path())
    };
    let journal = Journal::open(&settings).unwrap().journal;
    let home = LogFiles::open(files.path(), Duration::from_secs(3600), 50_000).unwrap();
    // Of three hours.
    let rows: Vec<Row> = (0..300)
        .map(|seed| Row {
            account: "acme".into(),
            ..row(seed, BEGIN_MS + i64::try_from(seed).unwrap() / 100 * 3_600_000)
        })
        .collect();
    let numbered = settled(&journal, &rows).await;
    let fed = Batch {
        node: journal.node().clone(),
        after: 0,
        upto: numbered[250].number,
        rows: numbered[..250].to_vec(),
    };
    home.append(&fed).await.unwrap();
    journal.set_sink_position("files", fed.upto);
    for folder in std::fs::read_dir(files.path()).unwrap() {
        let folder = folder.unwrap().path();
        if folder.is_dir() {
            std::fs::remove_dir_all(folder).unwrap();
        }
    }
    assert_eq!(
        home.watermark(journal.node()).await,
        Ok(0),
        "none of its files is there"
    );
    let lanes = OpenLanes::default();
    lanes.add(&journal);
    let wanted = RowSelection {
        days: DAY..DAY + 1,
        account: None,
    };
    let (open_home, ledger) = (home_of(&home), memory::ledger());
    let log = |fills| log_of(&open_home, &*ledger, fills);
    let (found, _) = all(log(false), &lanes, &wanted).await;
    assert_eq!((found.rows, found.missing, found.brought), (250, 250, 0));
    let (filled, _) = all(log(true), &lanes, &wanted).await;
    assert_eq!((filled.rows, filled.missing, filled.brought), (250, 250, 250));
    assert_eq!(home.watermark(journal.node()).await, Ok(fed.upto));
    let next = Batch {
        after: fed.upto,
        upto: numbered[299].number + 1,
        rows: numbered[250..].to_vec(),
        ..fed
    };
    home.append(&next).await.unwrap();
    let page = home.page(&LogPageQuery::for_day("acme", DAY, 4096)).await.unwrap();
    assert_eq!(page.rows.len(), 300);
    for ((lane, number), row) in page.numbers.iter().zip(&page.rows) {
        assert_eq!(lane, journal.node());
        let is_there = |numbered: &Arc<NumberedRow>| numbered.number == *number && numbered.row == *row;
        assert!(numbered.iter().any(is_there));
    }
    let (found, _) = all(log(true), &lanes, &wanted).await;
    assert_eq!((found.rows, found.missing, found.brought), (300, 0, 0));
}

#[tokio::test]
async fn a_lane_that_is_closed_is_passed_over() {
    let (folder, files) = (scratch(), scratch());
    let home = LogFiles::open(files.path(), Duration::from_secs(3600), 50_000).unwrap();
    let journal = open(folder.path());
    let lanes = OpenLanes::default();
    lanes.add(&journal);
    let place = LanePosition {
        node: journal.node().clone(),
        number: 5,
    };
    assert_eq!(place.to_string().parse(), Ok(place));
    drop(journal);
    let wanted = RowSelection {
        days: 0..i64::MAX,
        account: None,
    };
    let (home, ledger) = (home_of(&home), memory::ledger());
    let log = log_of(&home, &*ledger, false);
    let portion = compare(log, &lanes, &wanted, None, 10).await.unwrap();
    assert!(portion.days.is_empty() && portion.next.is_none());
}

/// A store that has lost some of the rows that it has acknowledged.
struct Lossy {
    ledger: Arc<MemoryLedger>,
    home: OpenLogBackend,
    /// What is found of it.
    expected: JournalDayFindings,
}

impl Lossy {
    /// It has acknowledged ninety of a hundred rows of a journal, has lost two of these, and of one it has another charge.
    async fn new(journal: &Arc<Journal>) -> Self {
        let ledger = memory::ledger();
        let rows: Vec<Row> = (0..100)
            .map(|seed| Row {
                account: "acme".into(),
                ..row(seed, BEGIN_MS + i64::try_from(seed).unwrap())
            })
            .collect();
        settled(journal, &rows).await;
        let mut applied: Vec<Row> = rows[..90].to_vec();
        let cost = &mut applied[30].cost_nano_usd;
        *cost = cost.saturating_add(NanoUsd::from_nanos(1));
        let steps = std::iter::zip(1.., &applied).map(|(seq, row)| Step {
            seq,
            change: AccountChange::Settle(Box::new(Settlement::of(row.clone(), 0))),
        });
        let steps: Vec<Step> = steps.collect();
        ledger.apply(journal.node(), "acme", &steps, 0).await.unwrap();
        assert!(journal.acknowledge("acme", 90));
        let day = ledger.log_days("acme", DAY..=DAY).await.unwrap().pop().unwrap();
        assert!(ledger.remove("acme", &day).await.unwrap());
        let lost = [7, 50].map(|place: usize| applied[place].request_id.clone());
        applied.retain(|row| !lost.contains(&row.request_id));
        assert!(ledger.put_rows("acme", DAY, &applied).await.unwrap());
        Self {
            home: store_home(&ledger),
            ledger,
            expected: JournalDayFindings {
                rows: 90,
                missing: 2,
                differing: 1,
                brought: 0,
                named: lost.map(String::from).into(),
            },
        }
    }

    fn log<'l>(&'l self, former: Option<&'l dyn LogBackend>, fills: bool) -> ComparedLog<'l> {
        ComparedLog {
            former,
            ..log_of(&self.home, &*self.ledger, fills)
        }
    }
}

const ALL: RowSelection = RowSelection {
    days: DAY..DAY + 1,
    account: None,
};

#[tokio::test]
async fn where_the_store_is_the_home_it_has_the_rows_that_it_has_acknowledged() {
    let folder = scratch();
    let journal = open(folder.path());
    let store = Lossy::new(&journal).await;
    let lanes = OpenLanes::default();
    lanes.add(&journal);
    assert_eq!(all(store.log(None, false), &lanes, &ALL).await.0, store.expected);
    // The home before may have them.
    let files = scratch();
    let home = LogFiles::open(files.path(), Duration::from_secs(3600), 50_000).unwrap();
    let former = StoreLog::new(Arc::clone(&store.ledger) as _, Arc::clone(&store.ledger) as _);
    let moved = backfill::fill(&home, &former, ("acme", DAY), i64::MAX).await;
    assert_eq!(moved.unwrap(), 88);
    let day = store.ledger.log_days("acme", DAY..=DAY).await.unwrap().pop().unwrap();
    assert!(store.ledger.remove("acme", &day).await.unwrap());
    let with_former = store.log(Some(&home), false);
    assert_eq!(all(with_former, &lanes, &ALL).await.0, store.expected);
    let (alone, _) = all(store.log(None, false), &lanes, &ALL).await;
    assert_eq!((alone.rows, alone.missing), (90, 90));
    // What the store has forgotten is told again, and is not looked for meanwhile.
    assert!(!journal.acknowledge("acme", 5));
    assert_eq!(all(with_former, &lanes, &ALL).await.0, JournalDayFindings::default());
}

#[tokio::test]
async fn what_the_store_has_lost_is_put_back_unless_it_is_told_again() {
    let folder = scratch();
    let journal = open(folder.path());
    let store = Lossy::new(&journal).await;
    let lanes = OpenLanes::default();
    lanes.add(&journal);
    let sums = async || {
        let sums = store
            .ledger
            .sums("acme", DAY..=DAY, &SumSelector::One(SumSubject::Account))
            .await;
        (sums.unwrap(), store.ledger.account("acme").await.unwrap())
    };
    let before = sums().await;
    let (filled, _) = all(store.log(None, true), &lanes, &ALL).await;
    assert_eq!((filled.missing, filled.brought), (2, 2));
    assert_eq!(sums().await, before, "nothing is charged or summed again");
    let (found, _) = all(store.log(None, true), &lanes, &ALL).await;
    assert_eq!((found.rows, found.missing, found.brought), (90, 0, 0));
    let there = store.ledger.rows("acme", DAY, 0, 1000).await.unwrap();
    assert_eq!(there.len(), 90);
    // While the store has forgotten steps as well, these bring their rows.
    let emptied = memory::ledger();
    let home = store_home(&emptied);
    let (filled, _) = all(log_of(&home, &*emptied, true), &lanes, &ALL).await;
    assert_eq!((filled.missing, filled.brought), (90, 0));
}
