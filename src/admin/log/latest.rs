//! The latest rows of a key, the newest first, without reading all rows before them.

use super::log_rows;
use crate::{
    admin::{Admin, accounts, ask::AdminHandler, author::Author},
    api::{
        error::AdminError,
        log::{LatestRows, ListLatestRows},
    },
    sinks::{asks::LatestKeyRows, reading::LogReadError},
};

/// The maximum number of rows in an answer.
const ROWS_MAX: usize = 100;
const MS_PER_DAY: i64 = 24 * 3_600_000;
/// The number of days that are searched, including today.
const DAYS_SEARCHED: i64 = 31;

impl AdminHandler for ListLatestRows {
    async fn answer(self, admin: &Admin, _: Author) -> Result<LatestRows, AdminError> {
        let account = accounts::existing_account(admin, self.account.as_str()).await?.id;
        let limit = self.limit.unwrap_or(ROWS_MAX).clamp(1, ROWS_MAX);
        let today = admin.ledger.now_ms().await?.div_euclid(MS_PER_DAY);
        let latest = admin
            .log
            .latest(&account, &self.key, today - DAYS_SEARCHED + 1..=today, limit);
        let (found, not_read) = match latest.await {
            Ok((found, not_read)) => (found, not_read.map(|error| error.to_string())),
            Err(error @ LogReadError::Behind(_)) => (LatestKeyRows::default(), Some(error.to_string())),
            Err(error) => return Err(error.into()),
        };
        Ok(LatestRows {
            rows: log_rows(found.rows, self.lines, &*admin.providers),
            not_read,
            whole: found.is_complete,
        })
    }
}
