//! Days that are proven while rows come and go over.

use std::sync::{Arc, atomic::Ordering};

use super::*;
use crate::{
    domain::ledger::{AccountChange, Settlement, Step},
    journal::NumberedRow,
    sinks::{
        BatchLimits, Linger,
        contract::{BEGIN_MS, node, row},
        tail::LogTail,
    },
    store::ledger::{
        LogLists as _,
        contract::memory::{self, MemoryLedger},
    },
};

mod places;

use crate::sinks::proof::tests::places::{GrowingLists, Shelf};

const DAY: i64 = BEGIN_MS / 86_400_000;
const PLACE: (&str, i64) = ("acme", DAY);
/// The distance of two numbers.
const APART: u64 = 10;

/// The row of a lane at a place, with its number.
fn numbered(lane: u32, place: u64) -> NumberedRow {
    NumberedRow {
        number: place * APART,
        row: Row {
            account: "acme".into(),
            ..row(u64::from(lane) * 1000 + place, BEGIN_MS + i64::try_from(place).unwrap())
        },
    }
}

fn settlement(seq: u64, row: &Row) -> Step {
    Step {
        seq,
        change: AccountChange::Settle(Box::new(Settlement::of(row.clone(), 0))),
    }
}

/// Has a ledger count the first rows of a lane.
async fn sum(ledger: &dyn LedgerStore, lane: u32, rows: u64) {
    let steps = (1..=rows).map(|place| settlement(place, &numbered(lane, place).row));
    let steps: Vec<Step> = steps.collect();
    let applied = ledger.apply(&node(lane), "acme", &steps, rows * APART).await;
    assert_eq!(applied, Ok(rows));
}

/// A ledger that counts five rows of a lane, and a home that is fed.
struct FedDay {
    ledger: Arc<MemoryLedger>,
    shelf: Arc<Shelf>,
    home: FedLog,
}

impl FedDay {
    async fn new() -> Self {
        let (ledger, shelf) = (memory::ledger(), Arc::<Shelf>::default());
        sum(&*ledger, 2, 5).await;
        let home = FedLog::new(Arc::clone(&shelf) as _);
        Self { ledger, shelf, home }
    }

    /// What is found, with the requests of so many rows in memory.
    async fn prove(&self, at_once: usize) -> ProofFindings {
        let (home, lanes) = (OpenLogBackend::Fed(self.home.clone()), OpenLanes::default());
        let prover = Prover {
            ledger: &*self.ledger,
            home: &home,
            former: None,
            lanes: &lanes,
        };
        prover.prove_in_parts(at_once, PLACE).await.unwrap()
    }
}

/// The tail of a lane whose sink has the rows before `after`, with those up to `last`; `end` is on disk.
fn tail(lane: u32, (after, last, end): (u64, u64, u64)) -> Arc<LogTail> {
    let batching = BatchLimits {
        rows_max: 100,
        linger: Linger::HourOr(std::time::Duration::from_secs(3600)),
    };
    let end = end * APART + 5;
    let tail = LogTail::new(node(lane), batching, Box::new(move || Some(end)));
    tail.reset(after * APART, None);
    let rows = (after..=last).map(|place| numbered(lane, place));
    tail.push(rows.collect(), last * APART + 5, true);
    Arc::new(tail)
}

#[tokio::test]
async fn rows_on_their_way_count_once_with_those_at_home_and_no_lane_has_to_be_asked() {
    let fed = FedDay::new().await;
    // The third has just gone over, and the sixth is not in the sums yet.
    fed.shelf.bring((1..=3).map(|place| (node(2), numbered(2, place))), 31);
    let tail = tail(2, (3, 6, 6));
    fed.home.tails.add(&tail);
    let found = fed.prove(100).await;
    assert!(found.is_proven(), "{found:?}");
    assert_eq!((found.counts.stored, found.counts.pending), (3, 3));
    assert_eq!((found.requests, found.verdict.missing), (5, 0));
    assert_eq!(fed.shelf.asked.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn a_lane_that_brings_rows_while_they_are_read_does_not_make_a_day_wrong() {
    let fed = FedDay::new().await;
    fed.shelf.bring((1..=3).map(|place| (node(2), numbered(2, place))), 31);
    fed.shelf.happens(|shelf| {
        shelf.bring((4..=5).map(|place| (node(2), numbered(2, place))), 51);
    });
    let found = fed.prove(100).await;
    assert!(found.is_proven(), "{found:?}");
    assert_eq!((found.counts.stored, fed.shelf.asked.load(Ordering::Relaxed)), (5, 1));
}

#[tokio::test]
async fn a_day_is_open_while_a_lane_is_behind_and_then_a_row_that_is_gone_is_a_difference() {
    let fed = FedDay::new().await;
    fed.shelf.bring((1..=3).map(|place| (node(2), numbered(2, place))), 31);
    let found = fed.prove(100).await;
    assert_eq!((found.verdict.behind, found.verdict.missing), (vec![node(2)], 2));
    fed.shelf.bring([(node(2), numbered(2, 5))], 51);
    let found = fed.prove(100).await;
    assert_eq!((found.verdict.behind, found.verdict.missing), (Vec::new(), 1));
    assert!(!found.verdict.differences.is_empty() && found.verdict.sums_agree);
    // What was brought from elsewhere counts, and makes the day whole.
    fed.shelf.bring([(NodeId::none(), numbered(2, 4))], 41);
    assert!(fed.prove(100).await.is_proven());
}

#[tokio::test]
async fn a_lane_whose_rows_have_not_been_read_is_as_far_as_the_home_says() {
    let fed = FedDay::new().await;
    let tails = crate::sinks::tail::LogTails::waiting(std::time::Duration::ZERO);
    let tail = tail(2, (4, 4, 6));
    tails.add(&tail);
    let home = FedLog { tails, ..fed.home };
    let fed = FedDay { home, ..fed };
    fed.shelf.bring((1..=3).map(|place| (node(2), numbered(2, place))), 31);
    let found = fed.prove(100).await;
    assert_eq!((found.verdict.behind, found.verdict.missing), (vec![node(2)], 2));
}

#[tokio::test]
async fn rows_of_one_request_are_counted_however_few_requests_are_in_memory() {
    for at_once in [1, 2, 100] {
        let fed = FedDay::new().await;
        fed.shelf.bring((1..=5).map(|place| (node(2), numbered(2, place))), 51);
        let again = NumberedRow {
            number: 7,
            ..numbered(2, 2)
        };
        fed.shelf.bring([(NodeId::none(), again)], 8);
        let found = fed.prove(at_once).await;
        assert_eq!((found.counts.stored, found.counts.duplicates), (6, 1));
        assert!(!found.is_proven());
    }
}

#[tokio::test]
async fn the_lists_of_a_store_are_proven_while_rows_come() {
    for at_once in [1, 100] {
        let ledger = memory::ledger();
        sum(&*ledger, 2, 5).await;
        let further = (6..9).map(|place| settlement(place, &numbered(2, place).row));
        let lists = GrowingLists::new(Arc::clone(&ledger), (node(2), further.collect()));
        let store = StoreLog::new(Arc::new(lists), Arc::clone(&ledger) as _);
        let (home, lanes) = (OpenLogBackend::Store(Arc::new(store)), OpenLanes::default());
        let prover = Prover {
            ledger: &*ledger,
            home: &home,
            former: None,
            lanes: &lanes,
        };
        let found = prover.prove_in_parts(at_once, PLACE).await.unwrap();
        assert!(found.is_proven(), "{found:?}");
        assert_eq!((found.counts.stored, found.requests), (8, 8));
        // Nothing is open there.
        let seen = ledger.log_days("acme", DAY..=DAY).await.unwrap().pop().unwrap();
        assert!(ledger.remove("acme", &seen).await.unwrap());
        let found = prover.prove_in_parts(at_once, PLACE).await.unwrap();
        assert_eq!((found.verdict.behind, found.verdict.missing), (Vec::new(), 8));
        // Where the home before has them, they count.
        let former = Shelf::default();
        former.bring((1..9).map(|place| (node(2), numbered(2, place))), 81);
        let kept = [4, 5].map(|place| numbered(2, place).row);
        assert!(ledger.put_rows("acme", DAY, &kept).await.unwrap());
        let prover = Prover {
            former: Some(&former),
            ..prover
        };
        let found = prover.prove_in_parts(at_once, PLACE).await.unwrap();
        assert!(found.is_proven(), "{found:?}");
        assert_eq!(found.counts.stored, 8);
    }
}
