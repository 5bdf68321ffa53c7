//! The index of all accounts: entering one, and reading their names.

use super::RedisLedger;
use crate::store::{
    StoreError,
    redis::{ADMIN_BUDGET, link::CallPolicy},
};

impl RedisLedger {
    fn index(&self) -> String {
        format!("{{{}:accounts}}:index", self.store.namespace)
    }

    /// Enters an account into the index, unless it is not new and this process knows that it is there.
    pub(super) async fn enter(&self, account: &str, is_new: bool) -> Result<(), StoreError> {
        let epoch = *self.store.link.epochs().borrow();
        if !is_new && self.entered.contains(account, epoch) {
            return Ok(());
        }
        let mut call = self.scripts().enter.call();
        call.key(self.index()).arg(account);
        self.send(&call, CallPolicy::Read(ADMIN_BUDGET)).await?;
        self.entered.insert(account, epoch);
        Ok(())
    }

    /// Up to `limit` names after `after`.
    pub(super) async fn names(&self, after: &str, limit: usize) -> Result<Vec<String>, StoreError> {
        let mut call = self.scripts().names.call();
        call.key(self.index()).arg(after).arg(limit);
        let (_, answer) = self.call(&call, CallPolicy::Read(ADMIN_BUDGET)).await?;
        Ok(answer.remaining().collect())
    }
}
