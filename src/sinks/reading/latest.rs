//! The last rows of a key, of all places where some are.

use std::ops::RangeInclusive;

use super::{LogReadError, LogReading};
use crate::{
    domain::{keys::key::KeyId, ledger::log_place},
    sinks::asks::{HomeError, Latest},
};

impl LogReading {
    /// The last rows of a key that ended on one of these days, and why there may be others that could not be read.
    pub(crate) async fn latest(
        &self,
        account: &str,
        key: &KeyId,
        days: RangeInclusive<i64>,
        limit: usize,
    ) -> Result<(Latest, Option<HomeError>), LogReadError> {
        let mut found = Latest {
            is_whole: true,
            ..Latest::default()
        };
        for home in self.places(false) {
            // The newest ones are in the first of them.
            if found.rows.len() >= limit {
                break;
            }
            match home.latest(account, key, days.clone(), limit).await {
                Ok(of_home) => {
                    found.rows.extend(of_home.rows);
                    found.is_whole &= of_home.is_whole;
                }
                Err(HomeError::Store(error)) => return Err(error.into()),
                Err(error) => {
                    found.is_whole = false;
                    return Ok((sorted(found, limit), Some(error)));
                }
            }
        }
        Ok((sorted(found, limit), None))
    }
}

/// Each once, the latest first.
fn sorted(found: Latest, limit: usize) -> Latest {
    let mut rows = found.rows;
    rows.sort_by(|one, other| log_place::order(other).cmp(&log_place::order(one)));
    rows.dedup_by(|one, other| log_place::order(one) == log_place::order(other));
    let is_whole = found.is_whole || rows.len() >= limit;
    rows.truncate(limit);
    Latest { rows, is_whole }
}
