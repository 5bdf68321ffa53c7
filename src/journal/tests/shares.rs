//! What is counted for the stability record is what the journal holds, whatever becomes of the process.

use std::collections::BTreeMap;

use super::*;
use crate::domain::faults::stability::{Hour, ModelCounters, StabilityCounters};

const HOUR_MS: i64 = 3_600_000;

/// A settlement whose row ended at `time_ms` under `model`; `None`: it is not billed.
fn settlement(request: &str, billed: Option<(i64, &str)>) -> AccountChange {
    let mut settlement = crate::domain::ledger::settlement_after_crash(admitted(request), None);
    settlement.row = settlement.row.zip(billed).map(|(row, (time_ms, model))| {
        let model = model.into();
        let row = Arc::unwrap_or_clone(row);
        Arc::new(Row { time_ms, model, ..row })
    });
    AccountChange::Settle(Box::new(settlement))
}

fn hours(shares: &[NodeHourCounters]) -> BTreeMap<Hour, ModelCounters> {
    shares.iter().map(|share| (share.hour, share.bucket.clone())).collect()
}

/// What the rows of all records count.
fn by_hand(journal: &Journal) -> BTreeMap<Hour, ModelCounters> {
    let mut hours: BTreeMap<Hour, ModelCounters> = BTreeMap::new();
    for (_, record) in records(journal) {
        let Record::Step { step, .. } = record else { continue };
        let AccountChange::Settle(settlement) = step.change else {
            continue;
        };
        let Some(row) = settlement.row else { continue };
        let Some(counters) = StabilityCounters::from_row(&row) else {
            continue;
        };
        let bucket = hours.entry(Hour::from_unix_ms(row.time_ms)).or_default();
        bucket.entry(row.model.to_string()).or_default().add(&counters);
    }
    hours
}

#[test]
fn shares_are_the_sums_of_the_rows_and_told_whole_when_they_grow() {
    let folder = scratch();
    let journal = open(folder.path()).journal;
    assert_eq!(journal.take_changed_shares(), (vec![], Position::START));
    for (request, billed) in [
        ("a", Some((HOUR_MS - 1, "m"))),
        ("b", Some((HOUR_MS, "m"))),
        ("c", Some((HOUR_MS, "n"))),
        ("d", None),
    ] {
        step(&journal, "acme", settlement(request, billed));
    }
    step(&journal, "acme", AccountChange::nothing());
    let (shares, position) = journal.take_changed_shares();
    let all = records(&journal);
    assert_eq!(position, all[2].0, "the last row's");
    assert_eq!(hours(&shares), by_hand(&journal));
    let watermarks: Vec<_> = shares
        .iter()
        .map(|share| (share.hour.number(), share.watermark()))
        .collect();
    assert_eq!(watermarks, [(0, 1), (1, 2)]);
    assert_eq!(journal.take_changed_shares(), (vec![], position), "nothing has grown");

    step(&journal, "acme", settlement("e", Some((HOUR_MS + 5, "m"))));
    let (grown, _) = journal.take_changed_shares();
    assert_eq!(grown.len(), 1);
    assert_eq!(grown[0].watermark(), 3, "the whole hour");
    journal.mark_unpublished(&[Hour::from_number(0), Hour::from_number(7)]);
    let (again, _) = journal.take_changed_shares();
    assert_eq!(again, shares[..1]);
    assert_eq!(hours(&journal.shares()), by_hand(&journal));
}

#[tokio::test]
async fn the_position_given_with_shares_is_one_that_can_be_waited_for() {
    let folder = scratch();
    let journal = open(folder.path()).journal;
    let (_, position) = journal.take_changed_shares();
    journal.wait_until_synced(position).await.unwrap();
    step(&journal, "acme", settlement("a", Some((0, "m"))));
    let (_, position) = journal.take_changed_shares();
    journal.wait_until_synced(position).await.unwrap();
}

#[test]
fn every_hour_counts_as_grown_after_a_start_also_where_segments_are_not_read() {
    let folder = scratch();
    let journal = open(folder.path()).journal;
    let mut last = 0;
    for number in 0..1000 {
        let billed = Some((
            number * HOUR_MS / 100,
            ["m", "n", "o"][usize::try_from(number % 3).unwrap()],
        ));
        last = step(&journal, "acme", settlement("r", billed));
    }
    assert!(journal.end().segment > 3);
    let before = hours(&journal.shares());
    assert_eq!(before.len(), 10);
    journal.acknowledge("acme", last);
    tell(&journal);
    drop(journal);
    for _ in 0..2 {
        let journal = open(folder.path()).journal;
        let (shares, position) = journal.take_changed_shares();
        assert_eq!(hours(&shares), before);
        assert!(position > Position::START);
    }
}

#[test]
fn hours_are_forgotten_with_their_segments_but_not_the_recent_ones() {
    let folder = scratch();
    let journal = open(folder.path()).journal;
    let now = clock::unix_millis();
    let mut last = 0;
    while journal.end().segment < 3 {
        for time_ms in [now - 50 * HOUR_MS, now - 47 * HOUR_MS] {
            last = step(&journal, "acme", settlement("r", Some((time_ms, "m"))));
        }
    }
    last = last.max(step(&journal, "acme", settlement("r", Some((now, "m")))));
    journal.acknowledge("acme", last);
    tell(&journal);
    let kept = |journal: &Journal| journal.shares().iter().map(|share| share.hour).collect::<Vec<_>>();
    let hour = |hours: i64| Hour::from_unix_ms(now - hours * HOUR_MS);
    assert_eq!(kept(&journal), [hour(50), hour(47), hour(0)]);
    // Everything in front of the current segment is as old as can be.
    let mut state = journal.engine.lock();
    let number = state.tail.current.number;
    for segment in state.contents.segments.range_mut(..number) {
        segment.1.last_ms = 0;
    }
    drop(state);
    journal.engine.remove_old(now);
    let rest = by_hand(&journal);
    assert!(kept(&journal).contains(&hour(47)) && kept(&journal).contains(&hour(0)));
    assert_eq!(kept(&journal).contains(&hour(50)), rest.contains_key(&hour(50)));
}
