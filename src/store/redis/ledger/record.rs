//! Replaces the record of an account in Redis.

use super::{ADMIN_BUDGET, CallPolicy, RedisLedger, answer, arguments};
use crate::{domain::ledger::AccountRecord, store::StoreError};

impl RedisLedger {
    /// See [`crate::store::ledger::LedgerStore::set_terms`].
    pub(super) async fn replace_record(
        &self,
        account: &str,
        from: &AccountRecord,
        to: &AccountRecord,
    ) -> Result<bool, StoreError> {
        let mut status = self.call_set_terms(account, from, to, false).await?;
        let is_new = status == "missing" && *from == AccountRecord::default();
        if is_new {
            // The account may be created: the Redis is the one that this node knows.
            status = self.call_set_terms(account, from, to, true).await?;
        }
        match status.as_str() {
            "ok" => self.enter(account, is_new).await.map(|()| true),
            "changed" | "missing" => Ok(false),
            _ => Err(answer::unknown_answer()),
        }
    }

    async fn call_set_terms(
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
        // Replacing a record twice has one effect.
        let (status, _) = self.call(&call, CallPolicy::Read(ADMIN_BUDGET)).await?;
        Ok(status)
    }
}
