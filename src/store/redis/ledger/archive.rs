//! Backs up and restores the accounts of the Redis ledger. Also implements the lists of log rows in Redis. An account that is
//! being restored does not exist until it is complete.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    ops::RangeInclusive,
};

use async_trait::async_trait;
use tokio::sync::mpsc;

use crate::{
    domain::ledger::{
        LogDay,
        consumption::Row,
        daily_sums::{DailySums, SumSelector, SumSubject, day_of},
    },
    store::{
        StoreError,
        archive::{Archive, ArchiveItem},
        ledger::{LOG_ROWS_MAX, LogLists},
        redis::ledger::{
            ADMIN_BUDGET, CallPolicy, LIST_ACCOUNTS_MAX, RedisLedger, answer, arguments, daily_sums,
            stored_account::StoredAccount,
        },
    },
};

/// Maximum number of items that one round of scripts restores, so that no script blocks the server for long.
const LOAD_ITEMS_MAX: usize = 200;
/// Maximum number of times that an account is read. It is read again if rows were added to days before yesterday meanwhile.
const ATTEMPTS_MAX: usize = 8;

/// The reason why a dump ends early.
enum DumpEnd {
    /// The receiver was dropped.
    ReceiverGone,
    Failed(StoreError),
}

impl From<StoreError> for DumpEnd {
    fn from(error: StoreError) -> Self {
        Self::Failed(error)
    }
}

impl RedisLedger {
    /// Ends the restore of all accounts. From then on, they exist and belong to `generation`. If that is `None`, they belong to
    /// the generation that is set next.
    ///
    /// # Errors
    /// Redis does not answer.
    pub async fn finish_restore(&self, generation: Option<&str>) -> Result<(), StoreError> {
        let mut after = String::new();
        loop {
            let names = self.names(&after, LIST_ACCOUNTS_MAX).await?;
            let Some(last) = names.last() else { return Ok(()) };
            after.clone_from(last);
            for account in &names {
                let mut call = self.prepare(&self.scripts().restored, account);
                call.arg(generation.unwrap_or_default());
                self.call(&call, CallPolicy::Write(ADMIN_BUDGET)).await?;
            }
        }
    }

    /// Sends one account, or nothing if it does not exist. Past days are read separately. A past day is read and sent again if
    /// rows were added to it in the meantime. In the end, the latest items that were sent agree with the account as it was last
    /// read.
    async fn dump_account(&self, account: &str, to: &mpsc::Sender<ArchiveItem>) -> Result<(), DumpEnd> {
        let mut sent = BTreeMap::new();
        for _ in 0..ATTEMPTS_MAX {
            let call = self.prepare(&self.scripts().kept, account);
            let (status, answer) = self.call(&call, CallPolicy::Read(ADMIN_BUDGET)).await?;
            if status == "missing" {
                return Ok(());
            }
            let stored = StoredAccount::read(answer)?;
            if self.dump_days(account, &stored.past_days, &mut sent, to).await? {
                return self.dump_remaining(account, stored, to).await;
            }
        }
        Err(DumpEnd::Failed(StoreError::Busy(format!(
            "rows of account `{account}` from before yesterday were added faster than its sums were read; start the backup again"
        ))))
    }

    /// Reads and sends the sums of the past days in `told`, except for days that were already `sent` with the same values.
    /// Returns `false` if, for one of the days, the account's sums that were just read differ from those in `told`.
    async fn dump_days(
        &self,
        account: &str,
        told: &BTreeMap<i64, DailySums>,
        sent: &mut BTreeMap<i64, DailySums>,
        to: &mpsc::Sender<ArchiveItem>,
    ) -> Result<bool, DumpEnd> {
        let mut is_same = true;
        for (day, told) in told {
            if sent.get(day) == Some(told) {
                continue;
            }
            let sums = self.sums_of_day(account, *day).await?;
            let of_account = sums.select(&(*day..=*day), &SumSelector::One(SumSubject::Account));
            let of_account: DailySums = of_account.into_iter().collect();
            is_same &= of_account == *told;
            sent.insert(*day, of_account);
            send(to, ArchiveItem::day_sums(account, *day, &sums)).await?;
        }
        Ok(is_same)
    }

    /// Sends the parts of an account that are not sums of past days: its summary, keys, latest sums and rows.
    async fn dump_remaining(
        &self,
        account: &str,
        stored: StoredAccount,
        to: &mpsc::Sender<ArchiveItem>,
    ) -> Result<(), DumpEnd> {
        let own = ArchiveItem::Account {
            id: account.to_owned(),
            standing: Box::new(stored.standing),
            operations: stored.operations,
        };
        let of_keys = stored.keys.into_iter().map(|(id, state)| ArchiveItem::AccountKey {
            account: account.to_owned(),
            id,
            state: Box::new(state),
        });
        send(to, std::iter::once(own).chain(of_keys)).await?;
        let days: BTreeSet<i64> = stored.latest.iter().map(|sum| sum.day).collect();
        for day in days {
            send(to, ArchiveItem::day_sums(account, day, &stored.latest)).await?;
        }
        for told in stored.logs {
            let count = usize::try_from(told.rows).unwrap_or(usize::MAX);
            let mut skip = 0;
            while skip < count {
                let limit = (count - skip).min(LOG_ROWS_MAX);
                let rows = self.rows(account, told.day, skip, limit).await?;
                if rows.is_empty() {
                    // The day is older than the retention period by now, or its rows were removed.
                    break;
                }
                skip += rows.len();
                send(to, rows.into_iter().map(|row| ArchiveItem::Row { row: Box::new(row) })).await?;
            }
        }
        Ok(())
    }

    async fn restore_parts(&self, account: &str, parts: &[[String; 3]]) -> Result<(), StoreError> {
        let mut call = self.prepare(&self.scripts().put_back, account);
        for word in parts.iter().flatten() {
            call.arg(word);
        }
        self.call(&call, CallPolicy::Write(ADMIN_BUDGET)).await?;
        self.enter(account, true).await
    }
}

/// Sends items until the receiver is dropped.
async fn send(to: &mpsc::Sender<ArchiveItem>, items: impl IntoIterator<Item = ArchiveItem>) -> Result<(), DumpEnd> {
    for item in items {
        to.send(item).await.map_err(|_| DumpEnd::ReceiverGone)?;
    }
    Ok(())
}

#[async_trait]
impl Archive for RedisLedger {
    async fn dump(&self, to: mpsc::Sender<ArchiveItem>) -> Result<(), StoreError> {
        let mut after = String::new();
        loop {
            let names = self.names(&after, LIST_ACCOUNTS_MAX).await?;
            let Some(last) = names.last() else { break };
            after.clone_from(last);
            for account in &names {
                match self.dump_account(account, &to).await {
                    Ok(()) => {}
                    Err(DumpEnd::ReceiverGone) => return Ok(()),
                    Err(DumpEnd::Failed(error)) => return Err(error),
                }
            }
        }
        self.store.check_generation().await
    }

    async fn is_empty(&self) -> Result<bool, StoreError> {
        Ok(self.names("", 1).await?.is_empty())
    }

    async fn load(&self, items: &[ArchiveItem]) -> Result<(), StoreError> {
        for items in items.chunks(LOAD_ITEMS_MAX) {
            let mut accounts: BTreeMap<&str, Vec<[String; 3]>> = BTreeMap::new();
            let mut days: BTreeMap<(&str, i64), Vec<[String; 2]>> = BTreeMap::new();
            let mut logs: HashMap<(&str, i64), Vec<Vec<u8>>> = HashMap::new();
            for item in items {
                match item {
                    ArchiveItem::Account {
                        id,
                        standing,
                        operations,
                    } => {
                        let parts = accounts.entry(id).or_default();
                        parts.extend(arguments::standing(standing));
                        parts.extend(operations.iter().map(arguments::operation));
                    }
                    ArchiveItem::AccountKey { account, id, state } => {
                        let parts = accounts.entry(account).or_default();
                        parts.extend(arguments::account_key(id, state));
                    }
                    ArchiveItem::DaySums {
                        account,
                        day,
                        subject,
                        models,
                    } => {
                        let mut text = String::new();
                        for (model, sums) in models {
                            daily_sums::write_model(&mut text, model, sums);
                        }
                        days.entry((account, *day)).or_default().push([subject.clone(), text]);
                    }
                    ArchiveItem::Row { row } if self.keeps_rows => {
                        let text = arguments::row(row)?;
                        logs.entry((&row.account, day_of(row))).or_default().push(text);
                    }
                    ArchiveItem::Row { .. }
                    | ArchiveItem::Key { .. }
                    | ArchiveItem::KeyGone { .. }
                    | ArchiveItem::Stability { .. } => {}
                }
            }
            for (account, parts) in accounts {
                self.restore_parts(account, &parts).await?;
            }
            for ((account, day), subjects) in days {
                self.put_subjects(account, day, None, &subjects).await?;
            }
            for ((account, day), rows) in logs {
                self.push_rows(account, day, &rows, false).await?;
            }
        }
        Ok(())
    }
}

impl RedisLedger {
    /// Appends rows to their day. If `is_used` is true, the account must exist. Returns whether the rows were appended.
    pub(super) async fn push_rows(
        &self,
        account: &str,
        day: i64,
        rows: &[Vec<u8>],
        is_used: bool,
    ) -> Result<bool, StoreError> {
        let mut call = self.prepare(&self.scripts().put_rows, account);
        call.arg(day).arg(u8::from(is_used)).arg(rows);
        let (status, _) = self.call(&call, CallPolicy::Write(ADMIN_BUDGET)).await?;
        Ok(status == "ok")
    }
}

#[async_trait]
impl LogLists for RedisLedger {
    async fn rows(&self, account: &str, day: i64, skip: usize, limit: usize) -> Result<Vec<Row>, StoreError> {
        let limit = limit.min(LOG_ROWS_MAX);
        if limit == 0 {
            return Ok(Vec::new());
        }
        let mut call = self.prepare(&self.scripts().rows, account);
        call.arg(day).arg(skip).arg(limit);
        let (_, answer) = self.call(&call, CallPolicy::Read(ADMIN_BUDGET)).await?;
        answer.remaining().map(|text| answer::parse_row(&text)).collect()
    }

    async fn log_days(&self, account: &str, days: RangeInclusive<i64>) -> Result<Vec<LogDay>, StoreError> {
        let mut call = self.prepare(&self.scripts().log_days, account);
        call.arg(*days.start()).arg(*days.end());
        let (_, answer) = self.call(&call, CallPolicy::Read(ADMIN_BUDGET)).await?;
        let mut words = answer.remaining();
        let mut found = Vec::new();
        while let Some(day) = words.next() {
            let rows = words.next().ok_or_else(answer::unknown_answer)?;
            found.push(LogDay {
                day: answer::parse(&day)?,
                rows: answer::parse(&rows)?,
            });
        }
        Ok(found)
    }

    async fn put_rows(&self, account: &str, day: i64, rows: &[Row]) -> Result<bool, StoreError> {
        let rows = rows.iter().map(arguments::row).collect::<Result<Vec<_>, _>>()?;
        self.push_rows(account, day, &rows, true).await
    }

    async fn remove(&self, account: &str, seen: &LogDay) -> Result<bool, StoreError> {
        let mut call = self.prepare(&self.scripts().remove, account);
        call.arg(seen.day).arg(seen.rows);
        // Not repeated when the answer is lost, because the second time the day has no rows.
        let (status, _) = self.call(&call, CallPolicy::Write(ADMIN_BUDGET)).await?;
        Ok(status == "ok")
    }
}
