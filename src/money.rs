//! Everything about money: admission and bills of requests, settlement with the store, operators' changes to accounts, and
//! notices to operators.

pub(crate) mod account_changes;
pub(crate) mod billing;
pub(crate) mod notices;
pub(crate) mod settlement;
