//! Replaces the record of an account in Redis.

use super::{ADMIN_BUDGET, Effort, RedisLedger, answer, arguments};
use crate::{domain::ledger::AccountRecord, store::StoreError};

impl RedisLedger {
    /// See [`crate::store::ledger::LedgerStore::set_terms`].
    pub(super) async fn replace_record(
        &self,
        account: &str,
        from: &AccountRecord,
        to: &AccountRecord,
    ) -> Result<bool, StoreError> {
        let mut status = self.record_replaced(account, from, to, false).await?;
        let is_new = status == "missing" && *from == AccountRecord::default();
        if is_new {
            // It may be made: the Redis is the one this node knows.
            status = self.record_replaced(account, from, to, true).await?;
        }
        match status.as_str() {
            "ok" => self.enter(account, is_new).await.map(|()| true),
            "changed" | "missing" => Ok(false),
            _ => Err(answer::unknown()),
        }
    }

    async fn record_replaced(
        &self,
        account: &str,
        from: &AccountRecord,
        to: &AccountRecord,
        may_create: bool,
    ) -> Result<String, StoreError> {
        let mut call = self.prepare(&self.scripts().set_terms, account);
        call.arg(u8::from(may_create));
        for (_, value) in [from, to].into_iter().flat_map(arguments::record) {
            call.arg(value);
        }
        // A record that is put twice has one effect.
        let (status, _) = self.call(&call, Effort::Read(ADMIN_BUDGET)).await?;
        Ok(status)
    }
}
