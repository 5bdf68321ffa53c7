//! Whether a home has the rows that the store has of a day, each of them, and whether all that it has is what the day's sums say.

use std::{
    collections::HashSet,
    hash::{BuildHasher, RandomState},
};

use thiserror::Error;

use crate::{
    domain::ledger::{
        LogDay, NodeId,
        consumption::Row,
        daily_sums::{DailySums, DayTags, Subject, SumsOf, differences},
        log_place::LogPlace,
    },
    sinks::{
        asks::{HomeError, PageAsk},
        home::LogHome,
    },
    store::{
        StoreError,
        ledger::{LOG_ROWS_MAX, LedgerStore},
    },
};

/// So many of the store's rows are looked for at once: their hashes are in memory meanwhile, some 16 MB. The home's rows of the
/// day are read once for each so many.
pub(crate) const ROWS_AT_ONCE: usize = 1_000_000;

/// Why a day could not be compared.
#[derive(Debug, Error)]
pub(crate) enum ComparisonError {
    #[error(transparent)]
    Home(#[from] HomeError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Where rows are.
#[derive(Clone, Copy)]
pub(crate) enum Source<'s> {
    /// In the store.
    Store(&'s dyn LedgerStore),
    /// In a home of the log.
    Home(&'s dyn LogHome),
}

/// The rows of an account that ended on a day, read page by page, each as often as it is there.
#[derive(Clone)]
pub(crate) struct DayRows<'s> {
    source: Source<'s>,
    account: &'s str,
    day: i64,
    /// How many have been read.
    read: usize,
    /// The last one that was read of a home.
    after: LogPlace,
    ends: bool,
}

impl<'s> DayRows<'s> {
    /// The first ones.
    pub(crate) fn new(source: Source<'s>, account: &'s str, day: i64) -> Self {
        Self {
            source,
            account,
            day,
            read: 0,
            after: LogPlace::default(),
            ends: false,
        }
    }

    /// The next ones: `limit` or more, or else the last.
    pub(crate) async fn next(&mut self, limit: usize) -> Result<Vec<Row>, ComparisonError> {
        if self.ends {
            return Ok(Vec::new());
        }
        let rows = match self.source {
            Source::Store(ledger) => {
                let rows = ledger.rows(self.account, self.day, self.read, limit).await?;
                self.ends = rows.len() < limit;
                rows
            }
            Source::Home(home) => {
                let ask = PageAsk {
                    after: self.after.clone(),
                    ..PageAsk::of_day(self.account, self.day, limit)
                };
                let page = home.page(&ask).await?;
                match page.next {
                    Some(next) => self.after = next,
                    None => self.ends = true,
                }
                page.rows
            }
        };
        self.read += rows.len();
        Ok(rows)
    }

    /// Whether the last ones have been read.
    pub(crate) fn has_ended(&self) -> bool {
        self.ends
    }
}

/// Shows each row of an account that ended on a day.
pub(crate) async fn each_row(
    source: Source<'_>,
    account: &str,
    day: i64,
    mut visit: impl FnMut(&Row) + Send,
) -> Result<usize, ComparisonError> {
    let mut rows = DayRows::new(source, account, day);
    while !rows.has_ended() {
        rows.next(LOG_ROWS_MAX).await?.iter().for_each(&mut visit);
    }
    Ok(rows.read)
}

/// The same of a home, with the lane and the number of each row.
async fn each_numbered(
    home: &dyn LogHome,
    (account, day): (&str, i64),
    mut visit: impl FnMut(&(NodeId, u64), &Row) + Send,
) -> Result<usize, ComparisonError> {
    let (mut rows, mut after) = (0, LogPlace::default());
    loop {
        let ask = PageAsk {
            after,
            ..PageAsk::of_day(account, day, LOG_ROWS_MAX)
        };
        let page = home.page(&ask).await?;
        rows += page.rows.len();
        for (place, row) in page.numbers.iter().zip(&page.rows) {
            visit(place, row);
        }
        match page.next {
            Some(next) => after = next,
            None => return Ok(rows),
        }
    }
}

/// How many rows a home has of an account and day.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Present {
    pub(crate) rows: usize,
    /// So many of them are further ones of requests that have a row there already.
    pub(crate) again: usize,
}

/// Counts the home's rows of an account that ended on a day, and shows each. Of `at_once` rows the requests are remembered at one
/// time ([`ROWS_AT_ONCE`]): where more are `expected` they are read several times.
pub(crate) async fn count(
    home: &dyn LogHome,
    (account, day): (&str, i64),
    (expected, at_once): (u64, usize),
    mut visit: impl FnMut(&(NodeId, u64), &Row) + Send,
) -> Result<Present, ComparisonError> {
    let hashes = RandomState::new();
    let parts = expected.div_ceil(at_once.max(1) as u64).max(1);
    let mut present = Present::default();
    for part in 0..parts {
        let (mut seen, mut again) = (HashSet::new(), 0);
        present.rows = each_numbered(home, (account, day), |place, row| {
            let hash = hashes.hash_one(&row.request_id);
            again += usize::from(hash % parts == part && !seen.insert(hash));
            if part == 0 {
                visit(place, row);
            }
        })
        .await?;
        present.again += again;
    }
    Ok(present)
}

/// Rows that a home lacks, out of so many that were looked for.
pub(crate) struct Missing {
    hashes: RandomState,
    ids: HashSet<u64>,
    /// How many rows were looked for.
    pub(crate) looked_for: usize,
}

impl Missing {
    /// Looks in a home for the next rows, for `wanted` of them or a few more. Each row of the home's day is shown.
    pub(crate) async fn find(
        home: &dyn LogHome,
        rows: &mut DayRows<'_>,
        wanted: usize,
        mut visit: impl FnMut(&Row) + Send,
    ) -> Result<Self, ComparisonError> {
        let mut missing = Self {
            hashes: RandomState::new(),
            ids: HashSet::new(),
            looked_for: 0,
        };
        while missing.looked_for < wanted && !rows.has_ended() {
            let limit = (wanted - missing.looked_for).min(LOG_ROWS_MAX);
            let page = rows.next(limit).await?;
            missing.looked_for += page.len();
            let ids = page.iter().map(|row| missing.hashes.hash_one(&row.request_id));
            missing.ids.extend(ids);
        }
        each_row(Source::Home(home), rows.account, rows.day, |row| {
            missing.ids.remove(&missing.hashes.hash_one(&row.request_id));
            visit(row);
        })
        .await?;
        Ok(missing)
    }

    /// Whether the home lacks none.
    pub(crate) fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Whether the home lacks this row of those that were looked for. It is asked about once: a row that is about to be brought is
    /// not missing any more.
    pub(crate) fn remove(&mut self, row: &Row) -> bool {
        self.ids.remove(&self.hashes.hash_one(&row.request_id))
    }
}

/// Whether the home has each row that the store has of the day, as it was `seen`, and all that it has of it add up to the day's
/// sums: count, errors, money to the nano-dollar and tokens, for the account and for each key, by model. `at_once` rows are
/// looked for at once ([`ROWS_AT_ONCE`]).
pub(crate) async fn is_there(
    home: &dyn LogHome,
    ledger: &dyn LedgerStore,
    account: &str,
    seen: &LogDay,
    at_once: usize,
) -> Result<bool, ComparisonError> {
    let kept = kept(ledger, account, seen.day).await?;
    let requests = kept.iter().filter(|sum| sum.subject == Subject::Account);
    if requests.map(|sum| sum.sums.requests).sum::<u64>() != seen.ever() {
        return Ok(false);
    }
    let rows = usize::try_from(seen.rows).unwrap_or(usize::MAX);
    let mut of_store = DayRows::new(Source::Store(ledger), account, seen.day);
    let mut looked_for = 0;
    loop {
        let is_first = looked_for == 0;
        let (mut of_home, mut tags) = (DailySums::default(), DayTags::default());
        let visit = |row: &Row| {
            if is_first {
                of_home.add(row, &mut tags);
            }
        };
        let wanted = at_once.min(rows - looked_for);
        let missing = Missing::find(home, &mut of_store, wanted, visit).await?;
        let is_same = !is_first || differences(&kept, &of_account_and_keys(&of_home)).is_empty();
        if !missing.is_empty() || !is_same || missing.looked_for < wanted {
            return Ok(false);
        }
        looked_for += missing.looked_for;
        if looked_for >= rows {
            return Ok(true);
        }
    }
}

/// The day's sums of the account and of its keys. Those of tags are left out: which tags have sums of their own, the order of
/// their coming decides.
async fn kept(ledger: &dyn LedgerStore, account: &str, day: i64) -> Result<DailySums, StoreError> {
    let mut kept = DailySums::default();
    for of in [SumsOf::One(Subject::Account), SumsOf::Keys] {
        kept.extend(ledger.sums(account, day..=day, &of).await?);
    }
    Ok(kept)
}

fn of_account_and_keys(sums: &DailySums) -> DailySums {
    let wanted = sums
        .iter()
        .filter(|sum| matches!(sum.subject, Subject::Account | Subject::Key(_)));
    wanted.collect()
}
