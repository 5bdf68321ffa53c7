//! What rows add up to that have left Redis for the log's home, for a backup: the day's sums without those of the rows that are
//! still there.

use super::{LOG_ROWS_MAX, RedisLedger};
use crate::{
    domain::ledger::{
        LogDay,
        daily_sums::{DailySums, Subject, SumsOf},
    },
    store::{StoreError, archive::Item, ledger::LedgerStore},
};

/// How often a day is looked at again because rows came meanwhile.
const ATTEMPTS_MAX: usize = 8;

impl RedisLedger {
    /// The items of the rows that had left a day when it was `told`.
    pub(super) async fn trimmed_items(&self, account: &str, told: &LogDay) -> Result<Vec<Item>, StoreError> {
        for _ in 0..ATTEMPTS_MAX {
            let before = self.same_trimmed(account, told).await?;
            let mut sums = DailySums::default();
            for of in [SumsOf::One(Subject::Account), SumsOf::Keys, SumsOf::Tags] {
                sums.extend(self.sums(account, told.day..=told.day, &of).await?);
            }
            let (mut skip, mut is_last) = (0, false);
            while !is_last {
                let page = self.rows(account, told.day, skip, LOG_ROWS_MAX).await?;
                skip += page.len();
                is_last = page.len() < LOG_ROWS_MAX;
                sums = sums.without(&page);
            }
            if self.same_trimmed(account, told).await? == before {
                let sums: Vec<_> = sums.iter().collect();
                return Ok(Item::trimmed(account, told.day, told.trimmed, sums));
            }
        }
        Err(moved(account))
    }

    /// The day as it is now, if no row has left it since.
    pub(super) async fn same_trimmed(&self, account: &str, told: &LogDay) -> Result<LogDay, StoreError> {
        let now = self.days_of_log(account, told.day..=told.day).await?.pop();
        let now = now.unwrap_or(LogDay {
            day: told.day,
            ..LogDay::default()
        });
        if now.trimmed == told.trimmed {
            Ok(now)
        } else {
            Err(moved(account))
        }
    }
}

fn moved(account: &str) -> StoreError {
    StoreError::Busy(format!(
        "rows of account `{account}` left the store for the log's home while they were read; make the backup anew"
    ))
}
