//! Money: admission and bills, settlement with the store, operators' changes, and notices to operators.

pub(crate) mod account_changes;
pub(crate) mod billing;
pub(crate) mod notices;
pub(crate) mod settlement;
