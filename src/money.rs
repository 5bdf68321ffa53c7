//! The path of money: admission and bills, settlement, and operators' changes.

pub mod account_changes;
pub mod billing;
pub mod settlement;
