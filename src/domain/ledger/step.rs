//! The numbered changes of an account.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use crate::domain::{
    keys::key::KeyId,
    ledger::{consumption::Row, ids::OperationId, lease::LeaseId},
    money::NanoUsd,
};

/// One change of an account, numbered by node and account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// Counts from 1. A store applies the step only if this is its watermark plus one.
    pub seq: u64,
    /// The change itself.
    pub change: AccountChange,
}

impl Step {
    /// Whether it carries a row of the log.
    pub(crate) fn has_row(&self) -> bool {
        matches!(&self.change, AccountChange::Settle(settlement) if settlement.row.is_some())
    }
}

/// A change of an account. A store cannot refuse a change; the caller checks it first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum AccountChange {
    /// A request has ended and is charged.
    Settle(Box<Settlement>),
    /// Creates the account with a balance of zero, unless it exists, then adds `balance`.
    Open {
        /// The first credit, zero or more.
        balance: NanoUsd,
        /// The time of creation, in seconds since the Unix epoch.
        at: i64,
        /// If set, the amount counts once for this id.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        operation: Option<OperationId>,
    },
    /// Adds money.
    Credit {
        /// More than zero.
        amount: NanoUsd,
        /// When it was requested, in seconds since the Unix epoch; 0 if unknown.
        #[serde(default, skip_serializing_if = "is_unknown")]
        at: i64,
        /// If set, the amount counts once for this id.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        operation: Option<OperationId>,
    },
    /// Corrects the balance, up or down; the reason is in the audit record.
    Adjust {
        /// Any amount.
        amount: NanoUsd,
        /// When it was requested, in seconds since the Unix epoch; 0 if unknown.
        #[serde(default, skip_serializing_if = "is_unknown")]
        at: i64,
        /// If set, the amount counts once for this id.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        operation: Option<OperationId>,
    },
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_unknown(at: &i64) -> bool {
    *at == 0
}

impl AccountChange {
    /// A change without effect: takes the number of a lost step, so that later steps can be applied.
    pub(crate) const fn nothing() -> Self {
        Self::Adjust {
            amount: NanoUsd::ZERO,
            at: 0,
            operation: None,
        }
    }

    /// The id under which the change counts once, if it has one.
    pub fn operation(&self) -> Option<&OperationId> {
        match self {
            Self::Open { operation, .. } | Self::Credit { operation, .. } | Self::Adjust { operation, .. } => {
                operation.as_ref()
            }
            Self::Settle(_) => None,
        }
    }
}

/// The charge of a request that has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settlement {
    /// weir's request id; the request's hold ends.
    pub request: SmolStr,
    /// The key of the request.
    pub key: KeyId,
    /// When it was admitted, in milliseconds since the Unix epoch. Its cost counts in the four periods of that time.
    pub at_ms: i64,
    /// The tokens taken from the tokens per minute at admission.
    pub tokens_estimated: u64,
    /// The tokens actually used.
    pub tokens_used: u64,
    /// The charge, zero or more.
    pub cost: NanoUsd,
    /// The lease from which it was admitted: the cost is taken from it, and the request has no hold of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<LeaseId>,
    /// Its row in the consumption log; `None` for a request that is not billed and costs nothing.
    pub row: Option<Arc<Row>>,
}

impl Settlement {
    /// The settlement of a billed request.
    pub fn of(row: impl Into<Arc<Row>>, tokens_estimated: u64) -> Self {
        let row = row.into();
        Self {
            request: row.request_id.clone(),
            key: row.key_id.clone(),
            at_ms: row.admitted_ms,
            tokens_estimated,
            tokens_used: tokens_of(&row),
            cost: row.cost_nano_usd,
            lease: None,
            row: Some(row),
        }
    }

    /// The settlement of a request that is not billed: its hold ends.
    pub fn without_charge(request: SmolStr, key: KeyId, at_ms: i64, tokens_estimated: u64) -> Self {
        Self {
            request,
            key,
            at_ms,
            tokens_estimated,
            tokens_used: 0,
            cost: NanoUsd::ZERO,
            lease: None,
            row: None,
        }
    }

    /// Whether it equals [`Settlement::of`] this row, apart from estimate and lease.
    pub(crate) fn matches_row(&self, row: &Row) -> bool {
        self.at_ms == row.admitted_ms
            && self.cost == row.cost_nano_usd
            && self.tokens_used == tokens_of(row)
            && self.request == row.request_id
            && self.key == row.key_id
    }

    /// Whether it is a settlement [`Settlement::without_charge`].
    pub(crate) fn is_free(&self) -> bool {
        self.row.is_none() && self.cost == NanoUsd::ZERO && self.tokens_used == 0
    }

    /// The same settlement with the lease from which the request was admitted, if any.
    pub(crate) fn with_lease(self, lease: Option<LeaseId>) -> Self {
        Self { lease, ..self }
    }
}

/// The tokens that the row's request has used.
fn tokens_of(row: &Row) -> u64 {
    row.usage.input_total().saturating_add(row.usage.output_total())
}
