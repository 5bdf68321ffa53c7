//! The numbered changes of an account.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use crate::domain::{
    keys::KeyId,
    ledger::{consumption::Row, ids::OperationId, lease::LeaseId},
    money::NanoUsd,
};

/// A change of an account, with its number among the changes by the same node to the same account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// The number of the step, starting from 1. A store applies the step only if the number is the store's watermark plus one.
    pub seq: u64,
    /// The change of the account.
    pub change: AccountChange,
}

impl Step {
    /// Whether the step includes a row of the consumption log.
    pub(crate) fn has_row(&self) -> bool {
        matches!(&self.change, AccountChange::Settle(settlement) if settlement.row.is_some())
    }
}

/// A change of an account. A store cannot refuse a change, so the caller checks it first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum AccountChange {
    /// A request has ended and is charged.
    Settle(Box<Settlement>),
    /// Creates the account with a balance of zero, unless it exists, and then adds `balance`.
    Open {
        /// The first credit, zero or more.
        balance: NanoUsd,
        /// The time of the creation, in seconds since the Unix epoch.
        at: i64,
        /// An id, under which the amount is added only once; `None` if it is always added.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        operation: Option<OperationId>,
    },
    /// Adds money to the balance.
    Credit {
        /// The amount, more than zero.
        amount: NanoUsd,
        /// The time at which the credit was requested, in seconds since the Unix epoch; 0 if unknown.
        #[serde(default, skip_serializing_if = "is_unknown")]
        at: i64,
        /// An id, under which the amount is added only once; `None` if it is always added.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        operation: Option<OperationId>,
    },
    /// Corrects the balance, up or down. The reason is in the audit record.
    Adjust {
        /// The amount; negative to lower the balance.
        amount: NanoUsd,
        /// The time at which the adjustment was requested, in seconds since the Unix epoch; 0 if unknown.
        #[serde(default, skip_serializing_if = "is_unknown")]
        at: i64,
        /// An id, under which the amount is added only once; `None` if it is always added.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        operation: Option<OperationId>,
    },
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_unknown(at: &i64) -> bool {
    *at == 0
}

impl AccountChange {
    /// Returns a change without effect. It takes the number of a lost step, so that later steps can be applied.
    pub(crate) const fn nothing() -> Self {
        Self::Adjust {
            amount: NanoUsd::ZERO,
            at: 0,
            operation: None,
        }
    }

    /// Returns the id under which the change is made only once; `None` if it has none.
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
    /// The request id that weir has assigned. The request's hold ends.
    pub request: SmolStr,
    /// The key of the request.
    pub key: KeyId,
    /// The time of the request's admission, in milliseconds since the Unix epoch. The cost belongs to the four periods that
    /// contain this time.
    pub at_ms: i64,
    /// The number of tokens that were taken from the tokens per minute at admission.
    pub tokens_estimated: u64,
    /// The number of tokens that were used.
    pub tokens_used: u64,
    /// The charge, zero or more.
    pub cost: NanoUsd,
    /// The lease from which the request was admitted, and from which the cost is taken. `None` if the request has a hold of its
    /// own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<LeaseId>,
    /// The request's row in the consumption log; `None` for a request that is not billed and costs nothing.
    pub row: Option<Arc<Row>>,
}

impl Settlement {
    /// Creates the settlement of a billed request.
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

    /// Creates the settlement of a request that is not billed. It ends the request's hold.
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

    /// Whether the settlement equals [`Settlement::of`] this row, apart from the estimate and the lease.
    pub(crate) fn matches_row(&self, row: &Row) -> bool {
        self.at_ms == row.admitted_ms
            && self.cost == row.cost_nano_usd
            && self.tokens_used == tokens_of(row)
            && self.request == row.request_id
            && self.key == row.key_id
    }

    /// Whether the settlement is one that [`Settlement::without_charge`] creates.
    pub(crate) fn is_free(&self) -> bool {
        self.row.is_none() && self.cost == NanoUsd::ZERO && self.tokens_used == 0
    }

    /// Returns the same settlement with the lease from which the request was admitted, if any.
    pub(crate) fn with_lease(self, lease: Option<LeaseId>) -> Self {
        Self { lease, ..self }
    }
}

/// Returns the number of tokens that the row's request has used.
fn tokens_of(row: &Row) -> u64 {
    row.usage.input_total().saturating_add(row.usage.output_total())
}
