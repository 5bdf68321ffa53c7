//! The call that enlarges a running request's hold.

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use crate::domain::{keys::key::KeyId, ledger::node::NodeId, money::NanoUsd};

/// A running request's call for a larger hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopUp {
    /// The node that admitted it, or the holder of the lease from which it was admitted.
    pub node: NodeId,
    /// weir's request id, or the name of that lease's hold, which then grows.
    pub request: SmolStr,
    /// The account that pays.
    pub account: SmolStr,
    /// The key of the request.
    pub key: KeyId,
    /// When it was admitted ([`super::Grant::at_ms`]). Determines the quota's period.
    pub at_ms: i64,
    /// The requested growth of the hold.
    pub more: NanoUsd,
}

/// The answer to [`TopUp`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TopUpReply {
    /// The hold has grown by this amount: the requested one, or what remained; more than zero.
    Granted(NanoUsd),
    /// Nothing remains.
    Refused,
    /// The rest is in leases, which are being recalled: ask again in a moment.
    Recalling,
    /// The store has no hold of this request: it was settled, or the node's lease has lapsed. The request goes on, and
    /// its settlement is charged all the same.
    NoHold,
}
