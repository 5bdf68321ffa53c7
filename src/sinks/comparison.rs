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
    },
    journal::NumberedRow,
    sinks::home::{Home, HomeError},
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
    Home(&'s dyn Home),
}

impl Source<'_> {
    /// Up to `limit` rows of an account that ended on a day, the first `skip` left out, in an order that stays.
    pub(crate) async fn rows(
        self,
        (account, day): (&str, i64),
        skip: usize,
        limit: usize,
    ) -> Result<Vec<Row>, ComparisonError> {
        Ok(match self {
            Self::Store(ledger) => ledger.rows(account, day, skip, limit).await?,
            Self::Home(home) => home.rows(account, day, skip, limit).await?,
        })
    }
}

/// Reads the rows of an account that ended on a day, page by page.
pub(crate) async fn each_row(
    source: Source<'_>,
    account: &str,
    day: i64,
    mut visit: impl FnMut(&Row) + Send,
) -> Result<usize, ComparisonError> {
    let mut rows = 0;
    loop {
        let page = source.rows((account, day), rows, LOG_ROWS_MAX).await?;
        page.iter().for_each(&mut visit);
        rows += page.len();
        if page.len() < LOG_ROWS_MAX {
            return Ok(rows);
        }
    }
}

/// The same of a home, with the lane and the number of each row.
async fn each_numbered(
    home: &dyn Home,
    (account, day): (&str, i64),
    mut visit: impl FnMut(&NodeId, &NumberedRow) + Send,
) -> Result<usize, ComparisonError> {
    let mut rows = 0;
    loop {
        let page = home.numbered(account, day, rows, LOG_ROWS_MAX).await?;
        page.iter().for_each(|(lane, row)| visit(lane, row));
        rows += page.len();
        if page.len() < LOG_ROWS_MAX {
            return Ok(rows);
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
    home: &dyn Home,
    (account, day): (&str, i64),
    (expected, at_once): (u64, usize),
    mut visit: impl FnMut(&NodeId, &NumberedRow) + Send,
) -> Result<Present, ComparisonError> {
    let hashes = RandomState::new();
    let parts = expected.div_ceil(at_once.max(1) as u64).max(1);
    let mut present = Present::default();
    for part in 0..parts {
        let (mut seen, mut again) = (HashSet::new(), 0);
        present.rows = each_numbered(home, (account, day), |lane, row| {
            let hash = hashes.hash_one(&row.row.request_id);
            again += usize::from(hash % parts == part && !seen.insert(hash));
            if part == 0 {
                visit(lane, row);
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
    /// Looks for up to `wanted` rows of a source, the first `skip` of the day left out. Each row of the home's day is shown.
    pub(crate) async fn find(
        (home, source): (&dyn Home, Source<'_>),
        (account, day): (&str, i64),
        (skip, wanted): (usize, usize),
        mut visit: impl FnMut(&Row) + Send,
    ) -> Result<Self, ComparisonError> {
        let mut missing = Self {
            hashes: RandomState::new(),
            ids: HashSet::new(),
            looked_for: 0,
        };
        while missing.looked_for < wanted {
            let limit = (wanted - missing.looked_for).min(LOG_ROWS_MAX);
            let page = source.rows((account, day), skip + missing.looked_for, limit).await?;
            missing.looked_for += page.len();
            missing
                .ids
                .extend(page.iter().map(|row| missing.hashes.hash_one(&row.request_id)));
            if page.len() < limit {
                break;
            }
        }
        each_row(Source::Home(home), account, day, |row| {
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

    /// Whether the home lacks this row of those that were looked for.
    pub(crate) fn has(&self, row: &Row) -> bool {
        self.ids.contains(&self.hashes.hash_one(&row.request_id))
    }
}

/// Whether the home has each row that the store has of the day, as it was `seen`, and all that it has of it add up to the day's
/// sums: count, errors, money to the nano-dollar and tokens, for the account and for each key, by model. `at_once` rows are
/// looked for at once ([`ROWS_AT_ONCE`]).
pub(crate) async fn is_there(
    home: &dyn Home,
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
    let mut looked_for = 0;
    loop {
        let is_first = looked_for == 0;
        let (mut of_home, mut tags) = (DailySums::default(), DayTags::default());
        let visit = |row: &Row| {
            if is_first {
                of_home.add(row, &mut tags);
            }
        };
        let portion = (looked_for, at_once.min(rows - looked_for));
        let missing = Missing::find((home, Source::Store(ledger)), (account, seen.day), portion, visit).await?;
        let is_same = !is_first || differences(&kept, &of_account_and_keys(&of_home)).is_empty();
        if !missing.is_empty() || !is_same || missing.looked_for < portion.1 {
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
