//! Daily sums in Redis: reading and replacing them.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use super::{ADMIN_BUDGET, CallPolicy, RedisLedger, daily_sums};
use crate::domain::ledger::daily_sums::{DailySum, DailySums, SumSelector, SumSubject};
use crate::store::StoreError;

impl RedisLedger {
    /// See [`crate::store::ledger::LedgerStore::sums`].
    pub(super) async fn daily_sums(
        &self,
        account: &str,
        days: RangeInclusive<i64>,
        of: &SumSelector,
    ) -> Result<Vec<DailySum>, StoreError> {
        let (subject, ranges) = match of {
            SumSelector::One(subject) => (subject.store_name(), vec![days]),
            // Day by day: an account may have many keys, and a script blocks the server.
            SumSelector::Keys => ("k:".to_owned(), days.map(|day| day..=day).collect()),
            SumSelector::Tags => ("t:".to_owned(), days.map(|day| day..=day).collect()),
        };
        let mut sums = Vec::new();
        for days in ranges {
            sums.extend(self.read_sums(account, days, &subject).await?.iter());
        }
        Ok(sums)
    }

    /// All sums of a day.
    pub(super) async fn sums_of_day(&self, account: &str, day: i64) -> Result<DailySums, StoreError> {
        self.read_sums(account, day..=day, "").await
    }

    /// The sums that `sums.lua` returns for `subject`.
    async fn read_sums(
        &self,
        account: &str,
        days: RangeInclusive<i64>,
        subject: &str,
    ) -> Result<DailySums, StoreError> {
        let mut call = self.prepare(&self.scripts().sums, account);
        call.arg(*days.start()).arg(*days.end()).arg(subject);
        let (_, answer) = self.call(&call, CallPolicy::Read(ADMIN_BUDGET)).await?;
        daily_sums::read(answer)
    }

    /// See [`crate::store::ledger::LedgerStore::put_sums`].
    pub(super) async fn replace_sums(
        &self,
        account: &str,
        day: i64,
        sums: &DailySums,
        seen: u64,
    ) -> Result<bool, StoreError> {
        let mut subjects: BTreeMap<SumSubject, String> = BTreeMap::new();
        for sum in sums.iter().filter(|sum| sum.day == day) {
            daily_sums::write_model(subjects.entry(sum.subject).or_default(), &sum.model, &sum.sums);
        }
        let subjects = subjects
            .into_iter()
            .map(|(subject, models)| [subject.store_name(), models]);
        self.put_subjects(account, day, Some(seen), &subjects.collect::<Vec<_>>())
            .await
    }

    /// Stores the sums of subjects by model. With `seen` they replace all sums of the day, if the account's still count
    /// exactly `seen` requests; without it, each replaces those of its subject. Returns whether they were stored.
    pub(super) async fn put_subjects(
        &self,
        account: &str,
        day: i64,
        seen: Option<u64>,
        subjects: &[[String; 2]],
    ) -> Result<bool, StoreError> {
        let mut call = self.prepare(&self.scripts().put_sums, account);
        let seen = seen.map_or_else(String::new, |seen| seen.to_string());
        call.arg(day).arg(seen).arg(subjects.as_flattened());
        // Not repeated when the answer is lost: the second time the day may count differently.
        let (status, _) = self.call(&call, CallPolicy::Write(ADMIN_BUDGET)).await?;
        Ok(status == "ok")
    }
}
