//! Accounts, quotas, holds and leases: the calls, replies and changes that every ledger store implements.
//!
//! The money of a request goes through three calls. [`AdmitCall`] checks every limit and places a hold. [`TopUp`] enlarges the
//! hold while the answer runs. A [`Step`] with a [`Settlement`] charges the request and ends the hold. Steps are numbered per
//! account and node, and a store applies each exactly once, in order. The terms and the state of an account are its
//! [`AccountRecord`], which is always replaced completely. [`account`] is the reference model that every store follows.

pub(crate) mod account;
mod admission;
pub(crate) mod calibration;
pub(crate) mod consumption;

pub(crate) mod daily_sums;
pub(crate) mod ids;
pub(crate) mod journaled;
pub(crate) mod lease;
pub(crate) mod log_home;
pub(crate) mod log_query;
pub(crate) mod notice;
pub(crate) mod period;
pub(crate) mod proof;
pub(crate) mod reports;

mod step;

#[cfg(test)]
pub(crate) mod tests;

use serde::{Deserialize, Serialize};

use crate::domain::version::Version;

pub use crate::domain::keys::terms::KeyTerms;
#[cfg(test)]
pub(crate) use crate::domain::keys::terms::KeyTermsChange;
pub(crate) use crate::domain::keys::terms::{
    AccountTerms, AccountTermsChange, FinishFactor, OnExhausted, ProviderState, QuotaReset, RateLimits,
    RateLimitsChange,
};
pub(crate) use crate::domain::ledger::account::{Account, operations::VolatileState};
pub use crate::domain::ledger::admission::{AdmitCall, AdmitReply};
pub(crate) use crate::domain::ledger::admission::{Denial, Grant, LimitScope, QuotaUse, RateKind};
pub(crate) use crate::domain::ledger::admission::{TopUp, TopUpReply};
#[cfg(test)]
pub(crate) use crate::domain::ledger::ids::LEASE_MS;
pub use crate::domain::ledger::ids::NodeId;
pub(crate) use crate::domain::ledger::ids::OperationId;
pub(crate) use crate::domain::ledger::journaled::{AdmittedRequest, Checkpoint, Record};
pub(crate) use crate::domain::ledger::journaled::{settlement_after_crash, settlement_of_charged};
pub(crate) use crate::domain::ledger::log_query::LogDay;
pub(crate) use crate::domain::ledger::reports::{AccountView, KeySpend, SpendByKey};
pub(crate) use crate::domain::ledger::step::Settlement;
pub use crate::domain::ledger::step::{AccountChange, Step};

/// The settings of an account by operators. A store replaces them completely, and only if its record is the one on which the
/// change is based.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccountRecord {
    /// The number of changes; 0 for an account of which nothing was set.
    pub revision: u64,
    /// Whether the account is suspended, so that all its requests are refused.
    pub suspended: bool,
    /// The account's limits.
    pub terms: AccountTerms,
}

impl AccountRecord {
    /// Returns the record with these limits and this state. Its revision is one higher, unless nothing changes.
    #[must_use]
    pub(crate) fn with_terms(&self, terms: AccountTerms, suspended: bool) -> Self {
        if (terms, suspended) == (self.terms, self.suspended) {
            return *self;
        }
        Self {
            revision: self.revision.saturating_add(1),
            suspended,
            terms,
        }
    }

    /// Compares this record of a store with `told`, the record that a journal has. Returns the record that the store must store,
    /// or `None` if the store's own record stays. The higher revision wins. At the same revision, a suspension wins, because a
    /// failover has lost one of two changes.
    pub(crate) fn healed(&self, told: &Self) -> Option<Self> {
        if told.revision > self.revision {
            return Some(*told);
        }
        // Neither side had this combination, so it gets a new revision.
        let is_suspended = told.revision == self.revision && told.suspended && !self.suspended;
        is_suspended.then(|| self.with_terms(self.terms, true))
    }

    /// Returns the version of this record. Operators name it in a change that must apply to exactly this record.
    pub(crate) fn version(&self) -> Version {
        let content = serde_json::to_vec(&(self.suspended, &self.terms)).unwrap_or_default();
        Version::new(self.revision, crc32fast::hash(&content))
    }
}
