//! The Redis ledger's accounts in a backup. An account that is being put back is not there until all of it is.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use async_trait::async_trait;
use tokio::sync::mpsc;

use super::{ADMIN_BUDGET, Effort, LIST_ACCOUNTS_MAX, RedisLedger, arguments, daily_sums};
use crate::{
    domain::ledger::daily_sums::{DailySums, Subject, SumsOf, day_of},
    store::{
        StoreError,
        archive::{Archive, Item},
        ledger::{LOG_ROWS_MAX, LogLists},
        redis::ledger::stored_account::StoredAccount,
    },
};

/// Items that one round of scripts puts back, so that none holds up the server.
const LOAD_ITEMS_MAX: usize = 200;
/// How often an account is read again because rows of days that are over came meanwhile.
const ATTEMPTS_MAX: usize = 8;

/// Why a dump ends early.
enum DumpEnd {
    /// Nobody receives any more.
    NotWanted,
    Failed(StoreError),
}

impl From<StoreError> for DumpEnd {
    fn from(error: StoreError) -> Self {
        Self::Failed(error)
    }
}

impl RedisLedger {
    /// Makes all accounts that were put back ones that are there, of this generation or of the one that comes.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn restored(&self, generation: Option<&str>) -> Result<(), StoreError> {
        let mut after = String::new();
        loop {
            let names = self.names(&after, LIST_ACCOUNTS_MAX).await?;
            let Some(last) = names.last() else { return Ok(()) };
            after.clone_from(last);
            for account in &names {
                let mut call = self.prepare(&self.scripts().restored, account);
                call.arg(generation.unwrap_or_default());
                self.call(&call, Effort::Write(ADMIN_BUDGET)).await?;
            }
        }
    }

    /// Sends one account; nothing if it is not there. Days that are over are read by themselves, and again if rows have come to
    /// them since; then all that was sent is of the moment at which the account was read last.
    async fn dump_account(&self, account: &str, to: &mpsc::Sender<Item>) -> Result<(), DumpEnd> {
        let mut sent = BTreeMap::new();
        for _ in 0..ATTEMPTS_MAX {
            let call = self.prepare(&self.scripts().kept, account);
            let (status, answer) = self.call(&call, Effort::Read(ADMIN_BUDGET)).await?;
            if status == "missing" {
                return Ok(());
            }
            let stored = StoredAccount::read(answer)?;
            if self.dump_days(account, &stored.over, &mut sent, to).await? {
                return self.dump_rest(account, stored, to).await;
            }
        }
        Err(DumpEnd::Failed(StoreError::Busy(format!(
            "rows of account `{account}` from before yesterday came faster than its sums were read; make the backup again"
        ))))
    }

    /// Sends the sums of days that are over, but for days that were `sent` as they are `told`. Answers whether all were read so.
    async fn dump_days(
        &self,
        account: &str,
        told: &BTreeMap<i64, DailySums>,
        sent: &mut BTreeMap<i64, DailySums>,
        to: &mpsc::Sender<Item>,
    ) -> Result<bool, DumpEnd> {
        let mut is_same = true;
        for (day, told) in told {
            if sent.get(day) == Some(told) {
                continue;
            }
            let sums = self.sums_of_day(account, *day).await?;
            let of_account = sums.of(&(*day..=*day), &SumsOf::One(Subject::Account));
            let of_account: DailySums = of_account.into_iter().collect();
            is_same &= of_account == *told;
            sent.insert(*day, of_account);
            send(to, Item::day_sums(account, *day, &sums)).await?;
        }
        Ok(is_same)
    }

    /// Sends all else of an account.
    async fn dump_rest(&self, account: &str, stored: StoredAccount, to: &mpsc::Sender<Item>) -> Result<(), DumpEnd> {
        let own = Item::Account {
            id: account.to_owned(),
            standing: Box::new(stored.standing),
            operations: stored.operations,
        };
        let of_keys = stored.keys.into_iter().map(|(id, state)| Item::AccountKey {
            account: account.to_owned(),
            id,
            state: Box::new(state),
        });
        send(to, std::iter::once(own).chain(of_keys)).await?;
        let days: BTreeSet<i64> = stored.latest.iter().map(|sum| sum.day).collect();
        for day in days {
            send(to, Item::day_sums(account, day, &stored.latest)).await?;
        }
        for told in stored.logs {
            let count = usize::try_from(told.rows).unwrap_or(usize::MAX);
            let mut skip = 0;
            while skip < count {
                let limit = (count - skip).min(LOG_ROWS_MAX);
                let rows = self.rows(account, told.day, skip, limit).await?;
                if rows.is_empty() {
                    // Its day has passed out of the log meanwhile, or was removed.
                    break;
                }
                skip += rows.len();
                send(to, rows.into_iter().map(|row| Item::Row { row: Box::new(row) })).await?;
            }
        }
        Ok(())
    }

    async fn put_back(&self, account: &str, parts: &[[String; 3]]) -> Result<(), StoreError> {
        let mut call = self.prepare(&self.scripts().put_back, account);
        for word in parts.iter().flatten() {
            call.arg(word);
        }
        self.call(&call, Effort::Write(ADMIN_BUDGET)).await?;
        self.enter(account, true).await
    }
}

/// Sends items until nobody receives them.
async fn send(to: &mpsc::Sender<Item>, items: impl IntoIterator<Item = Item>) -> Result<(), DumpEnd> {
    for item in items {
        to.send(item).await.map_err(|_| DumpEnd::NotWanted)?;
    }
    Ok(())
}

#[async_trait]
impl Archive for RedisLedger {
    async fn dump(&self, to: mpsc::Sender<Item>) -> Result<(), StoreError> {
        let mut after = String::new();
        loop {
            let names = self.names(&after, LIST_ACCOUNTS_MAX).await?;
            let Some(last) = names.last() else { break };
            after.clone_from(last);
            for account in &names {
                match self.dump_account(account, &to).await {
                    Ok(()) => {}
                    Err(DumpEnd::NotWanted) => return Ok(()),
                    Err(DumpEnd::Failed(error)) => return Err(error),
                }
            }
        }
        self.store.check_generation().await
    }

    async fn is_empty(&self) -> Result<bool, StoreError> {
        Ok(self.names("", 1).await?.is_empty())
    }

    async fn load(&self, items: &[Item]) -> Result<(), StoreError> {
        for items in items.chunks(LOAD_ITEMS_MAX) {
            let mut accounts: BTreeMap<&str, Vec<[String; 3]>> = BTreeMap::new();
            let mut days: BTreeMap<(&str, i64), Vec<[String; 2]>> = BTreeMap::new();
            let mut logs: HashMap<(&str, i64), Vec<Vec<u8>>> = HashMap::new();
            for item in items {
                match item {
                    Item::Account {
                        id,
                        standing,
                        operations,
                    } => {
                        let parts = accounts.entry(id).or_default();
                        parts.extend(arguments::standing(standing));
                        parts.extend(operations.iter().map(arguments::operation));
                    }
                    Item::AccountKey { account, id, state } => {
                        let parts = accounts.entry(account).or_default();
                        parts.extend(arguments::account_key(id, state));
                    }
                    Item::DaySums {
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
                    Item::Row { row } if self.keeps_rows => {
                        let text = arguments::row(row)?;
                        logs.entry((&row.account, day_of(row))).or_default().push(text);
                    }
                    Item::Row { .. } | Item::Key { .. } | Item::KeyGone { .. } | Item::Stability { .. } => {}
                }
            }
            for (account, parts) in accounts {
                self.put_back(account, &parts).await?;
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
