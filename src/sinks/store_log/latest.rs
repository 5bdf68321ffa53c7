//! Reads the last rows of a key, from the end of each of its account's days backwards, without reading all earlier rows.

use std::ops::RangeInclusive;

use crate::{
    domain::keys::key::KeyId,
    sinks::asks::LatestKeyRows,
    store::{
        StoreError,
        ledger::{LOG_ROWS_MAX, LogLists},
    },
};

/// The maximum number of calls of the store for one query.
const CALLS_MAX: usize = 64;

/// The last rows of a key, as far as [`CALLS_MAX`] calls of the store find them. Reads each day of the account backwards, without
/// reading all earlier rows.
pub(super) async fn last_of_key(
    lists: &dyn LogLists,
    (account, key): (&str, &KeyId),
    days: RangeInclusive<i64>,
    limit: usize,
) -> Result<LatestKeyRows, StoreError> {
    let (mut rows, mut calls) = (Vec::new(), 0);
    for of_day in lists.log_days(account, days).await?.iter().rev() {
        let mut end = usize::try_from(of_day.rows).unwrap_or(usize::MAX);
        while end > 0 {
            if calls == CALLS_MAX {
                return Ok(LatestKeyRows {
                    rows,
                    is_complete: false,
                });
            }
            calls += 1;
            let first = end.saturating_sub(LOG_ROWS_MAX);
            let piece = lists.rows(account, of_day.day, first, end - first).await?;
            let of_key = piece.into_iter().rev().filter(|row| row.key_id == *key);
            rows.extend(of_key.take(limit - rows.len()));
            if rows.len() == limit {
                return Ok(LatestKeyRows {
                    rows,
                    is_complete: true,
                });
            }
            end = first;
        }
    }
    Ok(LatestKeyRows {
        rows,
        is_complete: true,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        domain::ledger::{AccountChange, Settlement, Step, consumption::Row},
        sinks::contract::samples::{BEGIN_MS, node, row},
        store::ledger::{
            LedgerStore as _,
            contract::{key_id, memory},
        },
    };

    const DAY_MS: i64 = 24 * 3_600_000;

    /// Lists with a row a day of one key, so many days, behind one of another key.
    async fn lists(days: i64) -> Arc<dyn LogLists> {
        let ledger = memory::ledger();
        let rows = (0..=days).map(|day| Row {
            account: "acme".into(),
            key_id: key_id(if day == 0 { 1 } else { 2 }),
            ..row(day.unsigned_abs(), BEGIN_MS + day * DAY_MS)
        });
        let steps = (1..).zip(rows).map(|(seq, row)| Step {
            seq,
            change: AccountChange::Settle(Box::new(Settlement::of(row, 0))),
        });
        ledger
            .apply(&node(7), "acme", &steps.collect::<Vec<_>>(), 0)
            .await
            .unwrap();
        ledger
    }

    #[tokio::test]
    async fn a_look_that_ends_early_says_that_it_has_not_seen_all() {
        for (days, rows, is_whole) in [(5, 1, true), (100, 0, false)] {
            let lists = lists(days).await;
            let today = BEGIN_MS.div_euclid(DAY_MS) + days;
            let (days_before, [key, other]) = (today - 100..=today, [key_id(1), key_id(2)]);
            let found = last_of_key(&*lists, ("acme", &key), days_before.clone(), 10);
            let found = found.await.unwrap();
            assert_eq!((found.rows.len(), found.is_complete), (rows, is_whole), "{days} days");
            let of_other = last_of_key(&*lists, ("acme", &other), days_before, 3);
            let of_other = of_other.await.unwrap();
            assert_eq!((of_other.rows.len(), of_other.is_complete), (3, true));
        }
    }
}
