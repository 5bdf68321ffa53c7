//! The path of money: admission and bills, settlement, and operators' changes.

pub(crate) mod account_changes;
pub(crate) mod billing;
pub(crate) mod notices;
pub(crate) mod settlement;
