//! The last rows of a key, from the end of each of its account's days backwards, without reading all that came before them.

use std::ops::RangeInclusive;

use crate::{
    domain::{keys::key::KeyId, ledger::consumption::Row},
    sinks::asks::Latest,
    store::{
        StoreError,
        ledger::{LOG_ROWS_MAX, LedgerStore},
    },
};

/// Questions to the store that one look may cause.
const CALLS_MAX: usize = 64;

/// The last rows of a key, as far as a bounded number of questions to the store tells.
pub(super) async fn last_of_key(
    ledger: &dyn LedgerStore,
    (account, key): (&str, &KeyId),
    days: RangeInclusive<i64>,
    limit: usize,
) -> Result<Latest, StoreError> {
    let mut rows = Vec::new();
    let mut look = Look {
        ledger,
        account,
        calls: CALLS_MAX,
        is_cut_short: false,
    };
    for day in days.rev() {
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

    const DAY_MS: i64 = 24 * 3_600_000;

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
            let (days_before, [key, other]) = (today - 30..=today, [key_id(1), key_id(2)]);
            let found = last_of_key(&*ledger, ("acme", &key), days_before.clone(), 10);
            let found = found.await.unwrap();
            assert_eq!((found.rows.len(), found.is_whole), (rows, is_whole), "{days} days");
            let of_other = last_of_key(&*ledger, ("acme", &other), days_before, 3);
            let of_other = of_other.await.unwrap();
            assert_eq!((of_other.rows.len(), of_other.is_whole), (3, true));
        }
    }
}
