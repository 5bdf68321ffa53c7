//! The list of all accounts: entering one, and reading their names.

use super::RedisLedger;
use crate::store::{
    StoreError,
    redis::{ADMIN_BUDGET, link::Effort},
};

impl RedisLedger {
    fn index(&self) -> String {
        format!("{{{}:accounts}}:index", self.store.namespace)
    }

    /// Enters an account into the index, unless this process knows that it is there and it is not new.
    pub(super) async fn enter(&self, account: &str, is_new: bool) -> Result<(), StoreError> {
        let epoch = *self.store.link.epochs().borrow();
        if !is_new && self.entered.has(account, epoch) {
            return Ok(());
        }
        let mut call = self.scripts().enter.call();
        call.key(self.index()).arg(account);
        self.send(&call, Effort::Read(ADMIN_BUDGET)).await?;
        self.entered.note(account, epoch);
        Ok(())
    }

    /// The names behind one, at most so many.
    pub(super) async fn names(&self, after: &str, limit: usize) -> Result<Vec<String>, StoreError> {
        let mut call = self.scripts().names.call();
        call.key(self.index()).arg(after).arg(limit);
        let (_, answer) = self.call(&call, Effort::Read(ADMIN_BUDGET)).await?;
        Ok(answer.rest().collect())
    }
}
