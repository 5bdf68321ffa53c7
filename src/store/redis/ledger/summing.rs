//! Daily sums in Redis: asked for, and made anew from the rows.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use super::{ADMIN_BUDGET, Effort, LOG_ROWS_MAX, RedisLedger, daily_sums};
use crate::domain::ledger::daily_sums::{DailySum, DailySums, DayTags, Subject, SumsOf};
use crate::store::StoreError;
use crate::store::ledger::LedgerStore;

/// How often the sums of a day are begun anew because rows came meanwhile.
const ATTEMPTS_MAX: usize = 8;

impl RedisLedger {
    pub(super) async fn daily_sums(
        &self,
        account: &str,
        days: RangeInclusive<i64>,
        of: &SumsOf,
    ) -> Result<Vec<DailySum>, StoreError> {
        let (subject, ranges) = match of {
            SumsOf::One(subject) => (subject.text(), vec![days]),
            // Day by day: an account may have many keys, and a script holds up the server.
            SumsOf::Keys => ("k:".to_owned(), days.map(|day| day..=day).collect()),
            SumsOf::Tags => ("t:".to_owned(), days.map(|day| day..=day).collect()),
        };
        let mut sums = Vec::new();
        for days in ranges {
            let mut call = self.prepare(&self.scripts().sums, account);
            call.arg(*days.start()).arg(*days.end()).arg(&subject);
            let (_, answer) = self.call(&call, Effort::Read(ADMIN_BUDGET)).await?;
            sums.extend(daily_sums::read(answer)?);
        }
        Ok(sums)
    }

    /// Reads all rows of a day and puts their sums in place, if no row has come meanwhile.
    pub(super) async fn sum_anew(&self, account: &str, day: i64) -> Result<(), StoreError> {
        let (mut sums, mut day_tags, mut rows) = (DailySums::default(), DayTags::default(), 0);
        for _ in 0..ATTEMPTS_MAX {
            loop {
                let page = self.rows(account, day, rows, LOG_ROWS_MAX).await?;
                if page.is_empty() {
                    break;
                }
                rows += page.len();
                page.iter().for_each(|row| sums.add(row, &mut day_tags));
            }
            let mut subjects: BTreeMap<Subject, String> = BTreeMap::new();
            for sum in sums.iter() {
                daily_sums::put(subjects.entry(sum.subject.clone()).or_default(), &sum);
            }
            let tags = subjects.keys().filter(|subject| matches!(subject, Subject::Tag(_)));
            let mut call = self.prepare(&self.scripts().resum, account);
            call.arg(day).arg(rows).arg(tags.count());
            for (subject, models) in &subjects {
                call.arg(subject.text()).arg(models);
            }
            // Put twice, they are the same.
            let (status, _) = self.call(&call, Effort::Read(ADMIN_BUDGET)).await?;
            match status.as_str() {
                "moved" => {}
                "trimmed" => {
                    return Err(StoreError::Busy(format!(
                        "rows of account `{account}`, day {day} since 1970, have left the store for the log's home: their sums \
                         stay as they are"
                    )));
                }
                _ => return Ok(()),
            }
        }
        Err(StoreError::Busy(format!(
            "rows of account `{account}` come faster than they are read; try again later"
        )))
    }
}
