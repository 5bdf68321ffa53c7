//! Accounts, quotas, holds and leases: the calls, replies and changes that every ledger store implements.
//!
//! A request's money goes through three calls: [`Admit`] checks every limit and places a hold, [`TopUp`] enlarges the hold
//! while the answer runs, and a [`Step`] with a [`Settlement`] charges the request and ends the hold. Steps are numbered per
//! account and node; a store applies each exactly once, in order. Terms and state of an account are its [`AccountRecord`], which
//! is replaced as a whole. [`account`] is the reference model that every store follows.

pub(crate) mod account;
pub(crate) mod account_record;
mod admission;
pub(crate) mod calibration;
pub(crate) mod consumption;
pub(crate) mod counters;
pub(crate) mod crash;
pub(crate) mod daily_costs;
pub(crate) mod daily_sums;
pub(crate) mod journaled;
pub(crate) mod lease;
mod log_day;
pub(crate) mod log_filter;
pub(crate) mod log_place;
pub(crate) mod node;
pub(crate) mod notice;
pub(crate) mod operation_id;
pub(crate) mod period;
pub(crate) mod price_lines;
pub(crate) mod proof;
pub(crate) mod retention;
pub(crate) mod spend_limit;
pub(crate) mod spend_report;
mod step;
pub(crate) mod tag;
mod top_up;
pub(crate) mod usage_report;
mod view;

pub use crate::domain::keys::terms::KeyTerms;
#[cfg(test)]
pub(crate) use crate::domain::keys::terms::KeyTermsChange;
pub(crate) use crate::domain::keys::terms::{
    AccountTerms, AccountTermsChange, FinishFactor, OnExhausted, ProviderState, QuotaReset, RateLimits,
    RateLimitsChange,
};
pub(crate) use account::{Account, transient::VolatileState};
pub(crate) use account_record::AccountRecord;
pub use admission::{AdmitCall, AdmitReply};
pub(crate) use admission::{Denial, Grant, LimitScope, QuotaUse, RateKind};
pub(crate) use crash::{settlement_after_crash, settlement_of_charged};
pub(crate) use journaled::{AdmittedRequest, Checkpoint, Record};
pub(crate) use log_day::LogDay;
#[cfg(test)]
pub(crate) use node::LEASE_MS;
pub use node::NodeId;
pub(crate) use operation_id::OperationId;
pub(crate) use step::Settlement;
pub use step::{AccountChange, Step};
pub(crate) use top_up::{TopUp, TopUpReply};
pub(crate) use view::{AccountView, KeySpend, SpendByKey};
