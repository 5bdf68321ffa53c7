//! The Redis ledger's accounts in a backup. An account that is being put back is not there until all of it is.

use std::collections::{BTreeMap, HashMap};

use async_trait::async_trait;
use tokio::sync::mpsc;

use super::{ADMIN_BUDGET, Effort, LIST_ACCOUNTS_MAX, LOG_ROWS_MAX, RedisLedger, arguments, daily_sums};
use crate::store::{
    StoreError,
    archive::{Archive, Item},
    ledger::LedgerStore,
    redis::ledger::stored_account::StoredAccount,
};

/// Items that one round of scripts puts back, so that none holds up the server.
const LOAD_ITEMS_MAX: usize = 200;

/// What nobody receives any more need not be read.
struct NotWanted;

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

    /// Sends one account; nothing if it is not there.
    async fn dump_account(&self, account: &str, to: &mpsc::Sender<Item>) -> Result<Result<(), NotWanted>, StoreError> {
        let call = self.prepare(&self.scripts().kept, account);
        let (status, answer) = self.call(&call, Effort::Read(ADMIN_BUDGET)).await?;
        if status == "missing" {
            return Ok(Ok(()));
        }
        let StoredAccount {
            standing,
            operations,
            keys,
            logs,
        } = StoredAccount::read(answer)?;
        let own = Item::Account {
            id: account.to_owned(),
            standing: Box::new(standing),
            operations,
        };
        let of_keys = keys.into_iter().map(|(id, state)| Item::AccountKey {
            account: account.to_owned(),
            id,
            state: Box::new(state),
        });
        for item in std::iter::once(own).chain(of_keys) {
            if to.send(item).await.is_err() {
                return Ok(Err(NotWanted));
            }
        }
        for told in logs.into_values() {
            let (day, count) = (told.day, usize::try_from(told.rows).unwrap_or(usize::MAX));
            if told.trimmed > 0 {
                for item in self.trimmed_items(account, &told).await? {
                    if to.send(item).await.is_err() {
                        return Ok(Err(NotWanted));
                    }
                }
            }
            let mut skip = 0;
            while skip < count {
                let rows = self.rows(account, day, skip, (count - skip).min(LOG_ROWS_MAX)).await?;
                if rows.is_empty() {
                    // Its day has passed out of the log in the meantime.
                    break;
                }
                skip += rows.len();
                for row in rows {
                    if to.send(Item::Row { row: Box::new(row) }).await.is_err() {
                        return Ok(Err(NotWanted));
                    }
                }
            }
            // Else rows were left out, or others stand in their place.
            self.same_trimmed(account, &told).await?;
        }
        Ok(Ok(()))
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

impl RedisLedger {
    /// Puts rows behind those of their day. `is_used`: the account has to be there, and no row of the day may have left.
    pub(super) async fn put(
        &self,
        account: &str,
        day: i64,
        rows: &[[Vec<u8>; 5]],
        is_used: bool,
    ) -> Result<bool, StoreError> {
        let mut call = self.prepare(&self.scripts().put_rows, account);
        call.arg(day).arg(u8::from(is_used)).arg(rows.as_flattened());
        let (status, _) = self.call(&call, Effort::Write(ADMIN_BUDGET)).await?;
        Ok(status == "ok")
    }
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
                if self.dump_account(account, &to).await?.is_err() {
                    return Ok(());
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
            let mut trimmed: BTreeMap<(&str, i64), (u64, Vec<[String; 3]>)> = BTreeMap::new();
            let mut logs: HashMap<(&str, i64), Vec<[Vec<u8>; 5]>> = HashMap::new();
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
                    Item::Trimmed { account, day, rows } => trimmed.entry((account, *day)).or_default().0 += rows,
                    Item::TrimmedSum {
                        account,
                        day,
                        subject,
                        model,
                        sums,
                    } => {
                        let [model, counts] = daily_sums::summed_words(model, sums);
                        let parts = &mut trimmed.entry((account, *day)).or_default().1;
                        parts.push([subject.clone(), model, counts]);
                    }
                    Item::Row { row } => {
                        let (day, words) = arguments::put_row(row)?;
                        logs.entry((&row.account, day)).or_default().push(words);
                    }
                    Item::Key { .. } | Item::KeyGone { .. } | Item::Stability { .. } => {}
                }
            }
            for (account, parts) in accounts {
                self.put_back(account, &parts).await?;
            }
            for ((account, day), (rows, sums)) in trimmed {
                let mut call = self.prepare(&self.scripts().put_trimmed, account);
                call.arg(day).arg(rows).arg(sums.as_flattened());
                self.call(&call, Effort::Write(ADMIN_BUDGET)).await?;
            }
            for ((account, day), rows) in logs {
                self.put(account, day, &rows, false).await?;
            }
        }
        Ok(())
    }
}
