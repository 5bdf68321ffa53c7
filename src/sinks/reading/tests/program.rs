//! Any program of rows that come, are read, handed over and acknowledged, of starts anew, and of readers in between: each row that was
//! on disk when a reader began is read exactly once, or the reader is told that it cannot be.

use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::FutureExt;
use parking_lot::Mutex;

use super::*;
use crate::sinks::{Batch, NewestRowsQuery, time_key};

const BATCHING: BatchLimits = BatchLimits {
    rows_max: 3,
    linger: Linger::For(Duration::ZERO),
};
/// The distance of two numbers.
const APART: u64 = 10;

/// A lane with its disk, its tail, and the home that it is fed to.
struct World {
    disk: Mutex<Vec<Row>>,
    /// The end of the disk.
    end: Arc<AtomicU64>,
    tails: LogTails,
    home: Arc<HomeShelf>,
    state: Mutex<State>,
}

struct State {
    tail: Arc<LogTail>,
    /// How many rows of the disk have been read.
    read: usize,
    /// The home has the rows before this number.
    watermark: u64,
    /// A batch under way, and whether the home has it.
    batch: Option<(Batch, bool)>,
    has_begun: bool,
}

/// What happens.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// A row comes, which ended so much later than the last one, and earlier by something.
    Come(u64, i64, i64),
    /// So many rows are read, as far as there is room.
    Read(usize),
    /// A batch is cut.
    Cut,
    /// The home gets it.
    Hand,
    /// The home does not get it.
    Refuse,
    /// It is known that the home has it.
    Acknowledge,
    /// The process ends, and another one begins.
    Restart,
    /// The home says what it has.
    Begin,
}

fn any_event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (any::<u64>(), 0..HOUR_MS, 0..HOUR_MS / 2).prop_map(|(seed, later, earlier)| Event::Come(seed, later, earlier)),
        4 => (1..5_usize).prop_map(Event::Read),
        3 => Just(Event::Cut),
        3 => Just(Event::Hand),
        1 => Just(Event::Refuse),
        3 => Just(Event::Acknowledge),
        1 => Just(Event::Restart),
        2 => Just(Event::Begin),
    ]
}

impl World {
    fn new() -> Arc<Self> {
        let end = Arc::new(AtomicU64::new(0));
        let tails = LogTails::waiting(Duration::ZERO);
        let tail = tail(&end);
        tails.add(&tail);
        Arc::new(Self {
            disk: Mutex::default(),
            end,
            tails,
            home: Arc::default(),
            state: Mutex::new(State {
                tail,
                read: 0,
                watermark: 0,
                batch: None,
                has_begun: false,
            }),
        })
    }

    fn happen(&self, event: Event) {
        let mut state = self.state.lock();
        match event {
            Event::Come(seed, later, earlier) => {
                let mut disk = self.disk.lock();
                // None ends an hour or more before one that was recorded before it.
                let most = disk.iter().map(|row| row.time_ms).max().unwrap_or(BEGIN_MS);
                disk.push(row(seed, most + later - earlier));
                self.end.store(number(disk.len()), Ordering::SeqCst);
            }
            Event::Read(most) if state.has_begun => self.read(&mut state, most),
            Event::Cut if state.has_begun && state.batch.is_none() => {
                let batch = state.tail.next_batch().now_or_never();
                state.batch = batch.map(|batch| (batch, false));
            }
            Event::Hand => {
                if let Some((batch, has_it)) = &mut state.batch
                    && !std::mem::replace(has_it, true)
                {
                    let upto = batch.upto;
                    for row in &batch.rows {
                        self.home.put(row.row.clone());
                    }
                    state.watermark = upto;
                }
            }
            Event::Refuse => state.batch = state.batch.take().filter(|(_, has_it)| *has_it),
            Event::Acknowledge => {
                if let Some((batch, _)) = state.batch.take_if(|(_, has_it)| *has_it) {
                    state.tail.acknowledge(batch.upto);
                }
            }
            Event::Restart => {
                state.tail = tail(&self.end);
                self.tails.add(&state.tail);
                (state.batch, state.has_begun) = (None, false);
            }
            Event::Begin if !state.has_begun => {
                let disk = self.disk.lock();
                state.tail.reset(state.watermark, disk.first().map(|row| row.time_ms));
                state.read = (0..disk.len()).filter(|place| number(*place) < state.watermark).count();
                state.has_begun = true;
            }
            Event::Read(_) | Event::Cut | Event::Begin => {}
        }
    }

    fn read(&self, state: &mut State, most: usize) {
        let disk = self.disk.lock();
        let further = disk.iter().enumerate().skip(state.read);
        let read = further
            .take(most.min(state.tail.room()))
            .map(|(place, row)| NumberedRow {
                number: number(place),
                row: row.clone(),
            });
        let read: Vec<NumberedRow> = read.collect();
        state.read += read.len();
        let is_at_end = state.read == disk.len();
        // A reader stands behind the last row, and at the end of the disk behind whatever else is there.
        let at = if is_at_end {
            number(disk.len())
        } else {
            number(state.read) - APART / 2
        };
        state.tail.push(read, at, is_at_end);
    }

    fn is_behind(&self) -> bool {
        let state = self.state.lock();
        !state.has_begun || state.read < self.disk.lock().len()
    }

    /// The home gets all that it lacks, which is what comes of it in the end.
    fn settle(&self) {
        self.happen(Event::Begin);
        while self.is_behind() {
            for event in [Event::Read(100), Event::Cut, Event::Hand, Event::Acknowledge] {
                self.happen(event);
            }
        }
    }
}

fn tail(end: &Arc<AtomicU64>) -> Arc<LogTail> {
    let end = Arc::clone(end);
    let on_disk = move || Some(end.load(Ordering::SeqCst));
    Arc::new(LogTail::new(node(1), BATCHING, Box::new(on_disk)))
}

/// The number of the row at a place on the disk.
fn number(place: usize) -> u64 {
    (place as u64 + 1) * APART
}

/// How a program reads.
#[derive(Clone, Copy, Debug)]
enum Order {
    Oldest,
    Newest,
}

fn any_asked() -> impl Strategy<Value = LogFilter> {
    let account = prop::option::of(prop::sample::select(vec!["account-0", "account-3"]));
    (account, 0..48_i64, 1..60_i64).prop_map(|(account, from, hours)| LogFilter {
        account: account.map(str::to_owned),
        ..LogFilter::between(BEGIN_MS + from * HOUR_MS, BEGIN_MS + (from + hours) * HOUR_MS)
    })
}

/// Reads all pages. What happens next does so before each page and whenever the home is read.
async fn read_all(
    world: &Arc<World>,
    (filter, limit, order): (&LogFilter, usize, Order),
    events: Vec<Event>,
) -> Vec<Row> {
    let reading = Arc::new(LogReader::new(Arc::clone(&world.home) as _, None).with_tails(world.tails.clone()));
    let events = Arc::new(Mutex::new(events.into_iter()));
    let happen = {
        let (world, events) = (Arc::clone(world), Arc::clone(&events));
        move || {
            let some: Vec<Event> = events.lock().by_ref().take(2).collect();
            some.into_iter().for_each(|event| world.happen(event));
        }
    };
    world.home.happens(happen.clone());
    let (mut found, mut cursor, mut from) = (Vec::new(), Some(LogCursor::before(filter)), None);
    loop {
        happen();
        let page = match (order, cursor.clone()) {
            (Order::Oldest, None) => return found,
            (Order::Oldest, Some(at)) => {
                let mut rows = reading.rows(filter.clone(), at);
                let page = rows.next(limit).await;
                page.inspect(|_| cursor = rows.cursor().cloned())
            }
            (Order::Newest, _) => {
                let ask = NewestRowsQuery {
                    filter: filter.clone(),
                    from: from.clone(),
                    limit,
                    until: clock::instant() + LONG,
                };
                reading.newest(ask).await.map(|newest| {
                    from = newest.next;
                    newest.rows
                })
            }
        };
        match page {
            Ok(rows) => {
                assert!(rows.len() <= limit);
                found.extend(rows);
            }
            Err(LogReadError::Behind(_)) => {
                assert!(world.is_behind(), "nothing was unread");
                world.settle();
                continue;
            }
            Err(error) => panic!("{error}"),
        }
        if matches!(order, Order::Newest) && from.is_none() {
            return found;
        }
    }
}

proptest! {
    #[test]
    fn each_row_is_read_exactly_once_or_the_reader_is_told(
        before in prop::collection::vec(any_event(), 0..60),
        meanwhile in prop::collection::vec(any_event(), 0..60),
        filter in any_asked(),
        limit in 1..6_usize,
        order in prop::sample::select(vec![Order::Oldest, Order::Newest]),
    ) {
        let world = World::new();
        before.into_iter().for_each(|event| world.happen(event));
        let there = world.disk.lock().clone();
        let found = block_on(read_all(&world, (&filter, limit, order), meanwhile));
        prop_assert!(found.iter().all(|row| filter.matches(row)));
        match order {
            Order::Oldest => {
                let sorted = expected(&found, &filter);
                prop_assert_eq!(ids(&found), ids(&sorted));
            }
            Order::Newest => prop_assert!(found.is_sorted_by(|one, next| time_key(one) > time_key(next))),
        }
        let once: BTreeSet<&str> = ids(&found).into_iter().collect();
        prop_assert_eq!(once.len(), found.len(), "none twice");
        for row in expected(&there, &filter) {
            prop_assert!(once.contains(row.request_id.as_str()), "{} is left out", row.request_id);
        }
    }
}
