//! A journal beside the log's files.

use std::{path::Path, time::Duration};

use super::*;
use crate::{
    config::JournalConfig,
    domain::ledger::{Change, Settlement},
    journal::{NumberedRow, STEP_BYTES_MAX, tests::scratch},
    sinks::{
        contract::samples::{BEGIN_MS, row},
        files::LogFiles,
        sink::{Batch, Sink},
    },
};

const DAY: i64 = BEGIN_MS / 86_400_000;

fn open(folder: &Path) -> Arc<Journal> {
    let settings = JournalConfig {
        path: folder.to_owned(),
        segment_bytes: 1 << 16,
        keep: Duration::from_secs(86_400),
        sync: Duration::from_millis(1),
        sinks: Vec::new(),
    };
    Journal::open(&settings).unwrap().journal
}

/// The rows of a journal that has these, with their numbers, when they are on its disk.
async fn settled(journal: &Arc<Journal>, rows: &[Row]) -> Vec<NumberedRow> {
    for row in rows {
        let mut room = journal.reserve(STEP_BYTES_MAX).unwrap();
        let change = Change::Settle(Box::new(Settlement::of(row.clone(), 0)));
        journal.append_step(&row.account, change, 0, &mut room).unwrap();
    }
    let (mut numbered, mut reading) = (Vec::new(), journal.rows(0));
    while numbered.len() < rows.len() {
        match reading.read().unwrap() {
            Some(row) => numbered.push(row),
            None => journal.on_disk_beyond(reading.at()).await,
        }
    }
    numbered
}

/// Compares all, some rows at a time.
async fn all(home: &LogFiles, lanes: &FedLanes, wanted: &Wanted, fills: bool) -> (JournalDay, usize) {
    let (mut found, mut next, mut portions) = (JournalDay::default(), None, 0);
    loop {
        let portion = compare(home, lanes, wanted, next.as_ref(), (fills, 1000))
            .await
            .unwrap();
        portions += 1;
        for (place, day) in portion.days {
            assert_eq!(place, ("acme".to_owned(), DAY));
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
            account: if seed % 10 == 3 { "other" } else { "acme" }.to_owned(),
            ..row(seed, BEGIN_MS + i64::try_from(seed).unwrap())
        })
        .collect();
    let numbered = settled(&journal, &rows).await;
    let lost = [7, 4321, 8888];
    let kept = numbered.iter().enumerate().take(9_000);
    let kept = kept.filter(|(place, _)| !lost.contains(place));
    let kept = kept.map(|(place, numbered)| {
        let mut numbered = numbered.clone();
        if place == 500 {
            numbered.row.cost_nano_usd = numbered.row.cost_nano_usd.saturating_add(NanoUsd::from_nanos(1));
        }
        numbered
    });
    let batch = Batch {
        node: journal.node().clone(),
        after: 0,
        upto: numbered[9_000].number,
        rows: kept.collect(),
    };
    home.append(&batch).await.unwrap();
    let lanes = FedLanes::default();
    lanes.add(&journal);
    let wanted = Wanted {
        days: DAY..DAY + 1,
        account: Some("acme".to_owned()),
    };
    let (found, portions) = all(&home, &lanes, &wanted, false).await;
    let named: Vec<String> = lost.iter().map(|place| rows[*place].request_id.clone()).collect();
    let expected = JournalDay {
        rows: 8_100,
        missing: 3,
        differing: 1,
        brought: 0,
        named,
    };
    assert_eq!(found, expected);
    assert!(portions >= 3, "some at a time: {portions}");
    let (filled, _) = all(&home, &lanes, &wanted, true).await;
    assert_eq!((filled.missing, filled.brought), (3, 3));
    let (found, _) = all(&home, &lanes, &wanted, true).await;
    assert_eq!(
        (found.rows, found.missing, found.brought, found.differing),
        (8_100, 0, 0, 1)
    );
    let there = comparison::count(&home, ("acme", DAY), (9_000, 10_000), |_| {})
        .await
        .unwrap();
    assert_eq!((there.rows, there.again), (8_100, 0));
    let days = Wanted {
        days: DAY + 1..DAY + 9,
        account: None,
    };
    assert_eq!(all(&home, &lanes, &days, true).await, (JournalDay::default(), 1));
}

#[tokio::test]
async fn a_lane_that_is_closed_is_passed_over() {
    let (folder, files) = (scratch(), scratch());
    let home = LogFiles::open(files.path(), Duration::from_secs(3600), 50_000).unwrap();
    let journal = open(folder.path());
    let lanes = FedLanes::default();
    lanes.add(&journal);
    let place = JournalPlace {
        node: journal.node().clone(),
        number: 5,
    };
    assert_eq!(place.to_string().parse(), Ok(place));
    drop(journal);
    let wanted = Wanted {
        days: 0..i64::MAX,
        account: None,
    };
    let portion = compare(&home, &lanes, &wanted, None, (false, 10)).await.unwrap();
    assert!(portion.days.is_empty() && portion.next.is_none());
}
