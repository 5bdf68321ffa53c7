//! The latest rows of a key, the newest first, without reading all that came before them.

use super::shown;
use crate::{
    admin::{Admin, accounts, ask::Answered, author::Author},
    api::{
        error::AdminError,
        log::{LatestRows, ListLatestRows},
    },
    sinks::{asks::Latest, reading::LogReadError},
};

/// The most rows of one answer.
const ROWS_MAX: usize = 100;
const DAY_MS: i64 = 24 * 3_600_000;
/// How many days are looked at, today and those before it.
const DAYS: i64 = 31;

impl Answered for ListLatestRows {
    async fn answer(self, admin: &Admin, _: Author) -> Result<LatestRows, AdminError> {
        let account = accounts::existing(admin, self.account.as_str()).await?.id;
        let limit = self.limit.unwrap_or(ROWS_MAX).clamp(1, ROWS_MAX);
        let today = admin.ledger.now_ms().await?.div_euclid(DAY_MS);
        let latest = admin.log.latest(&account, &self.key, today - DAYS + 1..=today, limit);
        let (found, not_read) = match latest.await {
            Ok((found, not_read)) => (found, not_read.map(|error| error.to_string())),
            Err(error @ LogReadError::Behind(_)) => (Latest::default(), Some(error.to_string())),
            Err(error) => return Err(error.into()),
        };
        Ok(LatestRows {
            rows: shown(found.rows, self.lines, &*admin.providers),
            not_read,
            whole: found.is_whole,
        })
    }
}
