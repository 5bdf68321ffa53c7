//! Accounts, quotas and holds: what every ledger store is asked, what it answers, and what changes it.
//!
//! A request's money goes through three steps: [`Admit`] checks everything and puts a hold,
//! [`TopUp`] enlarges the hold while the answer runs, and a [`Step`] with a [`Settlement`] charges what was used and ends
//! the hold. Steps are numbered per account and node; a store applies each exactly once, in order. [`account`] is the
//! reference model that every store obeys.

pub mod account;
mod admission;
pub mod calibration;
pub mod consumption;
pub mod crash;
pub mod journaled;
pub mod node;
pub mod operation_id;
pub mod period;
pub mod retention;
pub mod spend_limit;
mod step;
mod top_up;
mod view;

pub use crate::domain::keys::terms::{
    AccountTerms, AccountTermsChange, FinishFactor, KeyTerms, KeyTermsChange, OnExhausted, ProviderState, Rates,
    RatesChange, Reset,
};
pub use account::Account;
pub use admission::{Admission, Admit, Counted, Denied, Grant, QuotaUse, Scope};
pub use crash::{settlement_after_crash, settlement_of_charged};
pub use journaled::{Admitted, Checkpoint, Record};
pub use node::{LEASE_MS, NodeId};
pub use operation_id::OperationId;
pub use step::{Change, Settlement, Step};
pub use top_up::{TopUp, ToppedUp};
pub use view::{AccountView, KeySpend};
