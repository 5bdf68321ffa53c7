//! Rows of the store and of the home come once each, however they are shared between the two and whatever happens meanwhile.

use std::{collections::BTreeMap, ops::RangeInclusive, time::Duration};

use proptest::prelude::*;

use super::*;
use crate::{
    domain::ledger::{consumption::Row, log_filter::LogFilter, log_place, tag::Tag},
    edges::clock,
    sinks::{
        contract::samples::{BEGIN_MS, row},
        store_log::tests::shelf::StoreShelf,
    },
};

mod shelves;

use shelves::HomeShelf;

const DAY_MS: i64 = 24 * 3_600_000;

/// A log in three shelves.
struct Split {
    store: Arc<StoreShelf>,
    home: Arc<HomeShelf>,
    /// The home before.
    former: Arc<HomeShelf>,
    reading: Arc<LogReading>,
}

impl Split {
    /// Nothing is in them.
    fn new() -> Self {
        let (store, home) = (Arc::<StoreShelf>::default(), Arc::<HomeShelf>::default());
        let former = Arc::<HomeShelf>::default();
        let homes: Vec<Arc<dyn LogHome>> = vec![Arc::clone(&home) as _, Arc::clone(&former) as _];
        let reading = Arc::new(LogReading::new(StoreLog::new(Arc::clone(&store) as _), homes));
        Self {
            store,
            home,
            former,
            reading,
        }
    }

    /// The same with rows, each in its place.
    fn of(rows: &[(Row, Where)]) -> Self {
        let split = Self::new();
        for (row, place) in rows {
            if matches!(place, Where::Store | Where::Both) {
                split.store.put(row.clone());
            }
            if matches!(place, Where::Home | Where::Both | Where::Moved) {
                split.home.put(row.clone());
            }
            if matches!(place, Where::Former | Where::Moved) {
                split.former.put(row.clone());
            }
        }
        split
    }

    /// Reads page by page, each as a request of its own, with something happening before each and some time for each.
    async fn read_within(
        &self,
        time: Duration,
        filter: &LogFilter,
        limit: usize,
        mut happen: impl FnMut(&Self),
    ) -> Vec<Row> {
        let (mut found, mut cursor) = (Vec::new(), Some(LogCursor::before(filter)));
        while let Some(from) = cursor {
            happen(self);
            let rows = self.reading.rows(filter.clone(), from, false);
            let mut rows = rows.within(clock::instant() + time);
            let some = rows.next(limit).await.unwrap();
            assert!(some.len() <= limit);
            found.extend(some);
            cursor = rows.cursor().cloned();
        }
        found
    }
}

fn ids(rows: &[Row]) -> Vec<&str> {
    rows.iter().map(|row| row.request_id.as_str()).collect()
}

/// What a filter takes, in the order of the log.
fn expected(rows: &[Row], filter: &LogFilter) -> Vec<Row> {
    let mut rows: Vec<Row> = rows.iter().filter(|row| filter.takes(row)).cloned().collect();
    rows.sort_by(|one, other| {
        let place = |row: &Row| row.time_ms.div_euclid(DAY_MS);
        (place(one), log_place::order(one)).cmp(&(place(other), log_place::order(other)))
    });
    rows
}

/// One of some rows: few different times and accounts, so that many are equal in them.
fn any_row() -> impl Strategy<Value = Row> {
    (any::<u64>(), 0..40_i64).prop_map(|(seed, time)| row(seed, BEGIN_MS + time * DAY_MS / 10))
}

fn any_filter() -> impl Strategy<Value = LogFilter> {
    let optional = |choices: Vec<&'static str>| prop::option::of(prop::sample::select(choices));
    let account = optional(vec!["account-0", "account-3", "nobody"]);
    let model = optional(vec!["gpt-5.2", "claude-opus-4-8"]);
    let status = prop::option::of(prop::sample::select(vec![200..=200, 500..=599]));
    let tag = optional(vec!["team=research", "cost-center=42"]);
    let times = (0..40_i64, 0..40_i64);
    (account, model, status, tag, times).prop_map(|(account, model, status, tag, (from, until))| LogFilter {
        account: account.map(str::to_owned),
        model: model.map(str::to_owned),
        status,
        tag: tag.and_then(Tag::parse),
        ..LogFilter::between(
            BEGIN_MS + from.min(until) * DAY_MS / 10,
            BEGIN_MS + from.max(until) * DAY_MS / 10,
        )
    })
}

/// Where a row is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Where {
    Store,
    Home,
    Both,
    Former,
    /// In both homes.
    Moved,
}

fn anywhere() -> impl Strategy<Value = Where> {
    prop::sample::select(vec![
        Where::Store,
        Where::Home,
        Where::Both,
        Where::Former,
        Where::Moved,
    ])
}

/// As much time as is needed for a page, or none.
fn any_time() -> impl Strategy<Value = Duration> {
    prop::sample::select(vec![Duration::from_secs(3600), Duration::ZERO])
}

/// What happens between two pages.
#[derive(Clone, Debug)]
enum Event {
    /// The home gets a row of the store.
    Bring(usize),
    /// The first half of the store's rows of an account and day go over to the home.
    Trim(usize),
    /// A row comes.
    Come(Box<Row>),
}

fn any_event() -> impl Strategy<Value = Event> {
    prop_oneof![
        any::<usize>().prop_map(Event::Bring),
        any::<usize>().prop_map(Event::Trim),
        any_row().prop_map(|row| Event::Come(Box::new(row))),
    ]
}

fn happen(split: &Split, event: Option<Event>) {
    match event {
        Some(Event::Bring(number)) => {
            let rows = split.store.all();
            if let Some(row) = number.checked_rem(rows.len()).map(|place| rows[place].clone()) {
                split.home.put(row);
            }
        }
        Some(Event::Trim(number)) => {
            let days = split.store.days();
            if let Some(day) = number.checked_rem(days.len()).map(|place| days[place].clone()) {
                split.store.trim(&day).into_iter().for_each(|row| split.home.put(row));
            }
        }
        Some(Event::Come(row)) => split.store.put(*row),
        None => {}
    }
}

proptest! {
    #[test]
    fn any_split_of_the_rows_gives_each_once_in_order(
        rows in prop::collection::vec((any_row(), anywhere()), 0..80),
        filter in any_filter(),
        limit in 1..20_usize,
        time in any_time(),
    ) {
        let split = Split::of(&rows);
        let rows: Vec<Row> = rows.into_iter().map(|(row, _)| row).collect();
        let found = block_on(split.read_within(time, &filter, limit, |_| {}));
        let mut expected = expected(&rows, &filter);
        expected.dedup();
        prop_assert_eq!(ids(&found), ids(&expected));
    }

    #[test]
    fn rows_that_come_and_go_over_while_they_are_read_are_read_once(
        rows in prop::collection::vec((any_row(), anywhere()), 0..80),
        events in prop::collection::vec(any_event(), 0..30),
        filter in any_filter(),
        limit in 1..8_usize,
        time in any_time(),
    ) {
        let split = Split::of(&rows);
        let mut events = events.into_iter();
        let read = split.read_within(time, &filter, limit, |split| happen(split, events.next()));
        let found = block_on(read);
        let there: Vec<Row> = rows.into_iter().map(|(row, _)| row).collect();
        let mut sorted = expected(&found, &filter);
        prop_assert_eq!(ids(&found), ids(&sorted), "only what is wanted, in order");
        sorted.dedup();
        prop_assert_eq!(sorted.len(), found.len(), "none twice");
        let found: std::collections::BTreeSet<&str> = ids(&found).into_iter().collect();
        for row in expected(&there, &filter) {
            prop_assert!(found.contains(row.request_id.as_str()), "{} is left out", row.request_id);
        }
    }
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap()
        .block_on(work)
}

#[tokio::test]
async fn a_home_that_is_away_is_an_error_and_never_a_gap() {
    let split = Split::new();
    split.store.put(row(1, BEGIN_MS));
    split.home.go_away();
    let filter = LogFilter::between(BEGIN_MS, BEGIN_MS + DAY_MS);
    let from = LogCursor::before(&filter);
    let mut rows = split.reading.rows(filter.clone(), from.clone(), false);
    let error = rows.next(10).await.unwrap_err().to_string();
    assert!(
        error.contains("the log's home cannot be read") && error.contains("--store-only"),
        "{error}"
    );
    let mut of_store = split.reading.rows(filter, from, true);
    assert_eq!(of_store.next(10).await.unwrap().len(), 1);
}
