//! The latest rows of a key, the newest first, without reading all that came before them: those of the store, and where these are
//! too few, those of the log's home.

use super::shown;
use crate::{
    admin::{Admin, accounts, ask::Answered, author::Author},
    api::{
        error::AdminError,
        log::{LatestRows, ListLatestRows},
    },
    domain::{
        keys::key::KeyId,
        ledger::{consumption::Row, log_place},
    },
    store::{
        StoreError,
        ledger::{LOG_ROWS_MAX, LedgerStore},
    },
};

/// The most rows of one answer.
const ROWS_MAX: usize = 100;
const DAY_MS: i64 = 24 * 3_600_000;
/// How many days are looked at, today and those before it.
const DAYS: i64 = 31;
/// Questions to the store that one request may cause.
const STORE_CALLS_MAX: usize = 64;

impl Answered for ListLatestRows {
    async fn answer(self, admin: &Admin, _: Author) -> Result<LatestRows, AdminError> {
        let key = self.key;
        let account = accounts::existing(admin, self.account.as_str()).await?.id;
        let limit = self.limit.unwrap_or(ROWS_MAX).clamp(1, ROWS_MAX);
        let today = admin.ledger.now_ms().await?.div_euclid(DAY_MS);
        let Latest { mut rows, is_whole } = latest(&*admin.ledger, (&account, &key), today, limit).await?;
        let (mut whole, mut not_read) = (is_whole, None);
        // The store has the newest ones. Where it has too few, others may have left it.
        if rows.len() < limit {
            let days = today - DAYS + 1..=today;
            match admin.log.homes().latest(&account, &key, days, limit).await {
                Ok(of_home) => {
                    rows = together(rows, of_home, limit);
                    whole |= admin.homes.home.is_some();
                }
                Err(error) => not_read = Some(error.to_string()),
            }
        }
        let rows = shown(rows, self.lines, &*admin.providers);
        Ok(LatestRows { rows, not_read, whole })
    }
}

/// The latest of both, each once.
fn together(of_store: Vec<Row>, of_home: Vec<Row>, limit: usize) -> Vec<Row> {
    let mut rows: Vec<Row> = of_store.into_iter().chain(of_home).collect();
    rows.sort_by(|one, other| log_place::order(other).cmp(&log_place::order(one)));
    rows.dedup_by(|one, other| log_place::order(one) == log_place::order(other));
    rows.truncate(limit);
    rows
}

/// What was found in the store.
#[derive(Debug)]
struct Latest {
    rows: Vec<Row>,
    /// There are no more of these days, or as many as were asked for.
    is_whole: bool,
}

/// The last rows of the key, as far as a bounded number of questions to the store tells.
async fn latest(
    ledger: &dyn LedgerStore,
    (account, key): (&str, &KeyId),
    today: i64,
    limit: usize,
) -> Result<Latest, StoreError> {
    let mut rows = Vec::new();
    let mut look = Look {
        ledger,
        account,
        calls: STORE_CALLS_MAX,
        is_cut_short: false,
    };
    for day in (today - DAYS + 1..=today).rev() {
        let mut page = look.last_page(day).await?;
        while let Some(number) = page {
            let page_of_all = look.rows(day, number, LOG_ROWS_MAX).await?;
            let of_key = page_of_all.into_iter().rev().filter(|row| row.key_id == *key);
            rows.extend(of_key.take(limit - rows.len()));
            if rows.len() == limit {
                return Ok(Latest { rows, is_whole: true });
            }
            page = number.checked_sub(1);
        }
    }
    let is_whole = !look.is_cut_short;
    Ok(Latest { rows, is_whole })
}

/// A look into an account's log, with a limited number of calls. Without any left, it finds nothing.
struct Look<'a> {
    ledger: &'a dyn LedgerStore,
    account: &'a str,
    calls: usize,
    /// It wanted more calls.
    is_cut_short: bool,
}

impl Look<'_> {
    /// Up to `limit` rows of a page of a day.
    async fn rows(&mut self, day: i64, page: usize, limit: usize) -> Result<Vec<Row>, StoreError> {
        let Some(left) = self.calls.checked_sub(1) else {
            self.is_cut_short = true;
            return Ok(Vec::new());
        };
        self.calls = left;
        self.ledger.rows(self.account, day, page * LOG_ROWS_MAX, limit).await
    }

    /// The number of a day's last page that has rows; `None` if none has.
    async fn last_page(&mut self, day: i64) -> Result<Option<usize>, StoreError> {
        if self.rows(day, 0, 1).await?.is_empty() {
            return Ok(None);
        }
        let (mut last, mut beyond) = (0, 1);
        while !self.rows(day, beyond, 1).await?.is_empty() {
            (last, beyond) = (beyond, beyond * 2);
        }
        while beyond - last > 1 {
            let middle = last + (beyond - last) / 2;
            if self.rows(day, middle, 1).await?.is_empty() {
                beyond = middle;
            } else {
                last = middle;
            }
        }
        Ok(Some(last))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        domain::ledger::{Change, Settlement, Step},
        sinks::contract::samples::{BEGIN_MS, node, row},
        store::ledger::contract::{key_id, memory},
    };

    /// A ledger with a row a day of one key, so many days, behind one of another key.
    async fn ledger(days: i64) -> Arc<dyn LedgerStore> {
        let ledger = memory::ledger();
        let rows = (0..=days).map(|day| Row {
            account: "acme".into(),
            key_id: key_id(if day == 0 { 1 } else { 2 }),
            ..row(day.unsigned_abs(), BEGIN_MS + day * DAY_MS)
        });
        let steps = (1..).zip(rows).map(|(seq, row)| Step {
            seq,
            change: Change::Settle(Box::new(Settlement::of(row, 0))),
        });
        ledger
            .apply(&node(7), "acme", &steps.collect::<Vec<_>>(), 0)
            .await
            .unwrap();
        ledger
    }

    #[tokio::test]
    async fn a_look_that_ends_early_says_that_it_has_not_seen_all() {
        for (days, rows, is_whole) in [(5, 1, true), (30, 0, false)] {
            let ledger = ledger(days).await;
            let today = BEGIN_MS.div_euclid(DAY_MS) + days;
            let found = latest(&*ledger, ("acme", &key_id(1)), today, 10).await.unwrap();
            assert_eq!((found.rows.len(), found.is_whole), (rows, is_whole), "{days} days");
            let of_other = latest(&*ledger, ("acme", &key_id(2)), today, 3).await.unwrap();
            assert_eq!((of_other.rows.len(), of_other.is_whole), (3, true));
        }
    }
}
