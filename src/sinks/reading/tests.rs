//! Rows of the store and of the home come once each, however they are shared between the two and whatever happens meanwhile.

use std::{collections::BTreeMap, ops::RangeInclusive, time::Duration};

use proptest::prelude::*;

use super::*;
use crate::{
    domain::ledger::{consumption::Row, log_place, tag::Tag},
    edges::clock,
    sinks::{
        Home,
        contract::samples::{BEGIN_MS, row},
    },
};

pub(super) mod shelves;

use shelves::{HomeShelf, StoreShelf};

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
    /// With at most so many places of rows in memory.
    fn new(places_max: usize) -> Self {
        let (store, home) = (Arc::<StoreShelf>::default(), Arc::<HomeShelf>::default());
        let former = Arc::<HomeShelf>::default();
        let homes: [Arc<dyn Home>; 2] = [Arc::clone(&home) as _, Arc::clone(&former) as _];
        let mut reading = LogReading::new(Arc::clone(&store) as _, Homes::of(homes));
        reading.places_max = places_max;
        let reading = Arc::new(reading);
        Self {
            store,
            home,
            former,
            reading,
        }
    }

    /// The same with rows, each in its place.
    fn of(rows: &[(Row, Where)], places_max: usize) -> Self {
        let split = Self::new(places_max);
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

    /// Reads page by page, each as a request of its own, with something happening before each.
    async fn read(&self, filter: &LogFilter, limit: usize, happen: impl FnMut(&Self)) -> Vec<Row> {
        self.read_within(Duration::from_secs(3600), filter, limit, happen).await
    }

    /// The same, with so much time for each page.
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
        places_max in 1..30_usize,
        time in any_time(),
    ) {
        let split = Split::of(&rows, places_max);
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
        places_max in 1..30_usize,
        time in any_time(),
    ) {
        let split = Split::of(&rows, places_max);
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

/// Rows of one account and day that were settled in another order than they ended in.
fn busy_day(count: u64) -> Vec<Row> {
    let rows = (0..count).map(|seed| Row {
        account: "busy".into(),
        ..row(seed, BEGIN_MS + i64::try_from(seed * 7919 % count).unwrap() * 100)
    });
    rows.collect()
}

#[tokio::test]
async fn a_busy_day_is_read_in_order_with_few_places_in_memory() {
    let rows = busy_day(5_300);
    for (places_max, limit) in [(100_000, 4000), (1_500, 700), (1_000, 1_000)] {
        let split = Split::new(places_max);
        rows.iter().for_each(|row| split.store.put(row.clone()));
        let filter = LogFilter::of_day("busy", BEGIN_MS / DAY_MS);
        let found = split.read(&filter, limit, |_| {}).await;
        assert!(ids(&found) == ids(&expected(&rows, &filter)), "{places_max} places");
    }
}

#[tokio::test]
async fn a_page_behind_another_does_not_look_through_the_day_again() {
    let split = Split::new(100_000);
    busy_day(20_000).into_iter().for_each(|row| split.store.put(row));
    let filter = LogFilter::of_day("busy", BEGIN_MS / DAY_MS);
    let mut before = 0;
    let mut calls = Vec::new();
    let found = split
        .read(&filter, 50, |split| {
            calls.push(split.store.calls() - before);
            before = split.store.calls();
        })
        .await;
    assert_eq!(found.len(), 20_000);
    // Each page at most reads the pieces that its rows are in, and asks what has come.
    let most = calls.iter().skip(2).max().unwrap();
    assert!(*most <= 52, "{most} calls for a page");
}

#[tokio::test]
async fn a_look_at_a_busy_day_ends_in_time_and_goes_on_where_it_was() {
    let mut rows = busy_day(5_300);
    for (number, account) in (0..).zip(["a", "c", "z"]) {
        let account = account.to_owned();
        let row = row(100_000 + number, BEGIN_MS + 7);
        rows.push(Row {
            account: account.into(),
            ..row
        });
    }
    let places = rows.into_iter().enumerate().map(|(number, row)| match number {
        // Some of it is at home, and all of two other accounts.
        _ if row.account != "busy" => (row, if number % 2 == 0 { Where::Home } else { Where::Store }),
        _ => (row, if number % 1000 == 0 { Where::Both } else { Where::Store }),
    });
    let places: Vec<(Row, Where)> = places.collect();
    let rows: Vec<Row> = places.iter().map(|(row, _)| row.clone()).collect();
    let split = Split::of(&places, 100_000);
    let few = LogFilter {
        status: Some(500..=599),
        ..LogFilter::between(BEGIN_MS, BEGIN_MS + 60_000)
    };
    for filter in [few, LogFilter::between(BEGIN_MS, BEGIN_MS + DAY_MS)] {
        let (mut before, mut calls) = (split.store.calls(), Vec::new());
        let found = split
            .read_within(Duration::ZERO, &filter, 1000, |split| {
                calls.push(split.store.calls() - before);
                before = split.store.calls();
            })
            .await;
        assert_eq!(ids(&found), ids(&expected(&rows, &filter)));
        assert!(calls.len() > 6, "a piece of the day at a time: {calls:?}");
        assert!(calls.iter().all(|calls| *calls <= 3), "{calls:?}");
    }
}

#[tokio::test]
async fn a_home_that_is_away_is_an_error_and_never_a_gap() {
    let split = Split::new(100);
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
