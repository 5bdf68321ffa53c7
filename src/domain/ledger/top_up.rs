//! How a running request's hold grows.

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use crate::domain::{keys::key::KeyId, ledger::node::NodeId, money::NanoUsd};

/// A running request's demand for a larger hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopUp {
    /// The node that admitted it; the holder of the lease that it was admitted out of.
    pub node: NodeId,
    /// weir's request id; or the name of that lease's hold, which then grows.
    pub request: SmolStr,
    /// The account that pays.
    pub account: SmolStr,
    /// The key of the request.
    pub key: KeyId,
    /// When it was admitted ([`super::Grant::at_ms`]). The quota's period is the one of this time.
    pub at_ms: i64,
    /// By how much the hold is to grow.
    pub more: NanoUsd,
}

/// The answer to [`TopUp`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToppedUp {
    /// The hold has grown by this much: what was asked for, or what was left; more than zero.
    Granted(NanoUsd),
    /// Nothing is left.
    Refused,
    /// Nothing is left but what nodes have of leases, which they are giving back: ask again in a moment.
    Recalling,
    /// The store has no hold of this request: it was settled, or the node's lease had ended. The request goes on, and
    /// its settlement is charged anyway.
    NoHold,
}
