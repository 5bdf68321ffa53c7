//! Any program of rows that come, are summed, fed and read, with faults at the home.

mod counters;

use proptest::prelude::*;

use super::*;
use crate::domain::ledger::{consumption::row_json_tests::row, daily_sums::TAGS_A_DAY_MAX};

const DAY_MS: i64 = 24 * 3_600_000;
/// The distance of two numbers.
const APART: u64 = 10;

fn lane(index: usize) -> NodeId {
    NodeId::parse(&format!("node_{:016}", index + 1)).unwrap()
}

/// The number of the row at a place of its lane.
fn number(place: usize) -> u64 {
    (place as u64 + 1) * APART
}

/// A lane: how many of its rows are in the sums, at the home, known to be at the home, and read by the process that feeds it.
#[derive(Default)]
struct Lane {
    rows: Vec<Row>,
    summed: usize,
    fed: usize,
    acknowledged: usize,
    read: usize,
    /// This process feeds it.
    is_own: bool,
}

impl Lane {
    /// The places of the rows on their way.
    fn on_their_way(&self) -> Range<usize> {
        self.acknowledged..self.read.max(self.acknowledged)
    }
}

/// Two lanes of one account, and the sums of both days.
#[derive(Default)]
struct World {
    lanes: [Lane; 2],
    kept: [(DailySums, DayTags); 2],
}

#[derive(Clone, Debug)]
enum Event {
    /// So many rows like this one end on a day, each with a tag of its own.
    Come(usize, Box<Row>, usize, usize),
    /// So many further rows of a lane are summed.
    Sum(usize, usize),
    /// So many come to the home.
    Feed(usize, usize),
    /// It is known how many the home has.
    Acknowledge(usize),
    /// So many are read by the process that feeds the lane.
    Read(usize, usize),
    /// That process is killed.
    Kill(usize),
}

fn any_event() -> impl Strategy<Value = Event> {
    let lane = || 0..2_usize;
    let count = || prop_oneof![3 => 1..6_usize, 1 => 1..200_usize];
    prop_oneof![
        4 => (lane(), row(), 0..2_usize, prop_oneof![5 => Just(1_usize), 1 => Just(70)])
            .prop_map(|(lane, row, day, count)| Event::Come(lane, Box::new(row), day, count)),
        4 => (lane(), count()).prop_map(|(lane, count)| Event::Sum(lane, count)),
        4 => (lane(), count()).prop_map(|(lane, count)| Event::Feed(lane, count)),
        2 => lane().prop_map(Event::Acknowledge),
        3 => (lane(), count()).prop_map(|(lane, count)| Event::Read(lane, count)),
        1 => lane().prop_map(Event::Kill),
    ]
}

impl World {
    fn happen(&mut self, event: Event) {
        match event {
            Event::Come(lane, row, day, count) => {
                let rows = &mut self.lanes[lane].rows;
                for _ in 0..count {
                    let tag = Tag::parse(&format!("n={lane}-{}", rows.len())).unwrap();
                    rows.push(Row {
                        time_ms: i64::try_from(day).unwrap() * DAY_MS + 5,
                        tags: vec![tag],
                        ..Row::clone(&row)
                    });
                }
            }
            Event::Sum(lane, count) => {
                let lane = &mut self.lanes[lane];
                let further = lane.rows.iter().skip(lane.summed).take(count);
                for row in further {
                    let (sums, tags) = &mut self.kept[usize::from(row.time_ms >= DAY_MS)];
                    sums.add(row, tags);
                    lane.summed += 1;
                }
            }
            Event::Feed(lane, count) => {
                let lane = &mut self.lanes[lane];
                lane.fed = lane.rows.len().min(lane.fed + count);
            }
            Event::Acknowledge(lane) => self.lanes[lane].acknowledged = self.lanes[lane].fed,
            Event::Read(lane, count) => {
                let lane = &mut self.lanes[lane];
                lane.read = lane.rows.len().min(lane.on_their_way().end + count);
                lane.is_own = true;
            }
            Event::Kill(lane) => {
                let lane = &mut self.lanes[lane];
                (lane.is_own, lane.read) = (false, 0);
            }
        }
    }

    /// The places of the first day's rows at the home that the sums count and that are not on their way.
    fn at_home_alone(&self) -> Vec<(usize, usize)> {
        let of_lane = |(index, lane): (usize, &Lane)| {
            let counts = |place: &usize| {
                let is_on_its_way = lane.is_own && lane.on_their_way().contains(place);
                lane.rows[*place].time_ms < DAY_MS && *place < lane.summed && !is_on_its_way
            };
            let places = (0..lane.fed).filter(counts);
            places.map(|place| (index, place)).collect::<Vec<_>>()
        };
        self.lanes.iter().enumerate().flat_map(of_lane).collect()
    }

    /// The lanes that have rows in the sums which are neither at the home nor on their way, and how many of these rows are of the
    /// first day.
    fn behind(&self) -> (Vec<NodeId>, usize) {
        let (mut behind, mut missing) = (Vec::new(), 0);
        for (index, of_lane) in self.lanes.iter().enumerate() {
            let there = if of_lane.is_own {
                of_lane.fed.max(of_lane.on_their_way().end)
            } else {
                of_lane.fed
            };
            if of_lane.summed > there {
                behind.push(lane(index));
                let lacking = of_lane.rows[there..of_lane.summed].iter();
                missing += lacking.filter(|row| row.time_ms < DAY_MS).count();
            }
        }
        (behind, missing)
    }

    /// The proof of the first day, where the home has `instead` at a place.
    fn verdict(&self, fault: Option<((usize, usize), Option<&Row>)>) -> ProofOutcome {
        let summed = self.lanes.iter().enumerate().filter(|(_, lane)| lane.summed > 0);
        let summed = summed.map(|(index, of_lane)| (lane(index), number(of_lane.summed - 1)));
        let mut proof = DayProof::new(self.kept[0].0.clone(), summed.collect());
        for (index, of_lane) in self.lanes.iter().enumerate().filter(|(_, lane)| lane.is_own) {
            for place in of_lane.on_their_way() {
                let row = &of_lane.rows[place];
                if row.time_ms < DAY_MS {
                    proof.add_pending(&lane(index), number(place), row);
                }
            }
            proof.set_reached(&lane(index), number(of_lane.on_their_way().end) - APART / 2);
        }
        for (index, of_lane) in self.lanes.iter().enumerate() {
            // In whatever order.
            for place in (0..of_lane.fed).rev() {
                let there = match fault {
                    Some((faulty, instead)) if faulty == (index, place) => instead,
                    _ => Some(&of_lane.rows[place]),
                };
                if let Some(row) = there.filter(|row| row.time_ms < DAY_MS) {
                    proof.add(&lane(index), number(place), row);
                }
            }
            proof.set_reached(&lane(index), number(of_lane.fed) - APART / 2);
        }
        proof.verdict()
    }
}

proptest! {
    /// It differs if and only if a row was deleted or changed and no lane is behind. Whatever a lane has yet to bring leaves the day
    /// open.
    #[test]
    fn a_day_differs_where_a_row_does_and_is_open_while_a_lane_is_behind(
        events in prop::collection::vec(any_event(), 0..40),
        fault in prop::option::of((any::<prop::sample::Index>(), any::<bool>())),
        other in row(),
    ) {
        let mut world = World::default();
        events.into_iter().for_each(|event| world.happen(event));
        let other = Row { time_ms: 7, ..other };
        let places = world.at_home_alone();
        let fault = fault.filter(|_| !places.is_empty()).map(|(at, is_changed)| {
            let place = places[at.index(places.len())];
            (place, is_changed.then_some(&other))
        });
        let (behind, missing) = world.behind();
        let verdict = world.verdict(fault);
        let is_wrong = fault.is_some() || missing > 0;
        prop_assert_eq!(verdict.differences.is_empty(), !is_wrong, "{:?}", verdict);
        let open = if is_wrong { behind.clone() } else { Vec::new() };
        prop_assert_eq!(&verdict.behind, &open);
        let differs = !verdict.differences.is_empty() && verdict.behind.is_empty();
        prop_assert_eq!(differs, fault.is_some() && behind.is_empty());
        let gone = fault.iter().filter(|(_, instead)| instead.is_none()).count();
        prop_assert_eq!(verdict.missing, (missing + gone) as u64);
        prop_assert!(verdict.sums_agree);
    }
}

fn plain_row() -> Row {
    serde_json::from_str(
        r#"{"time_ms":5,"admitted_ms":1,"request_id":"r","account":"acme","key_id":"key_0000000000000001",
        "protocol":"messages","model_asked":"m","model":"m","provider":"p","status":200,"outcome":"ok","stream":true,
        "usage_source":"reported","price_version":"1","cost_nano_usd":7,"latency_ms":12,"ttft_ms":null}"#,
    )
    .unwrap()
}

/// Rows with a tag each, more than have sums of their own.
fn tagged() -> Vec<Row> {
    let tag = |number| Tag::parse(&format!("n={number}")).unwrap();
    let rows = (0..TAGS_A_DAY_MAX + 20).map(|number| Row {
        tags: vec![tag(number)],
        ..plain_row()
    });
    rows.collect()
}

#[test]
fn rows_of_another_home_count_and_those_of_an_unknown_lane_do_not() {
    let row = plain_row();
    let mut proof = DayProof::new(DailySums::of_day([&row]), BTreeMap::new());
    proof.add(&lane(7), 1, &row);
    assert_eq!(proof.verdict().missing, 1);
    proof.add(&NodeId::none(), 1, &row);
    assert_eq!(proof.verdict().differences, []);
    assert_eq!(proof.into_sums(), DailySums::of_day([&row]));
}

#[test]
fn which_tags_have_sums_of_their_own_is_what_the_sums_say_in_whatever_order_the_rows_come() {
    let rows = tagged();
    let last = rows.len() as u64;
    let mut proof = DayProof::new(DailySums::of_day(&rows), BTreeMap::from([(lane(1), last)]));
    for (before, row) in rows.iter().enumerate().rev() {
        proof.add(&lane(1), before as u64 + 1, row);
    }
    proof.set_reached(&lane(1), last + 1);
    assert_eq!(proof.verdict().differences, []);
}

#[test]
fn rows_without_a_number_are_read_on_while_others_come() {
    let mut rows = tagged();
    let mut proof = DayProof::new(DailySums::of_day(&rows[..50]), BTreeMap::new());
    rows.iter().for_each(|row| proof.add_unnumbered(row));
    assert!(!proof.verdict().differences.is_empty());
    proof.replace_sums(DailySums::of_day(&rows));
    assert_eq!(proof.verdict().differences, []);
    // One that was lost and put back stands behind the others.
    let last = rows.len() - 1;
    rows.swap(3, last);
    let mut proof = DayProof::new(DailySums::of_day(&tagged()), BTreeMap::new());
    rows.iter().for_each(|row| proof.add_unnumbered(row));
    assert_eq!(proof.verdict().differences, []);
}

#[test]
fn sums_of_keys_that_do_not_add_up_to_the_accounts_are_told() {
    let mut kept = DailySums::of_day([&plain_row()]);
    kept.add_to(0, SumSubject::Account, "m".into(), &Sums::of(&plain_row()));
    let verdict = DayProof::new(kept, BTreeMap::new()).verdict();
    assert!(!verdict.sums_agree);
    assert_eq!(verdict.missing, 2);
}
