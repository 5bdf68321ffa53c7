//! Leases of budget: an amount that a store holds for one node and one of an account's keys, so that the node admits requests
//! out of it by itself. [`super::account`] is the store's side, [`node`] the node's.

pub(crate) mod demand;
pub(crate) mod node;

use std::fmt;

use serde::{Deserialize, Serialize};
use smol_str::{SmolStr, format_smolstr};

use crate::domain::{
    keys::key::KeyId,
    ledger::{admission::Grant, node::NodeId},
    money::NanoUsd,
};

/// A single lease gets at most one part in so many of what is left.
pub(crate) const PART_OF_LEFT: i64 = 16;
/// All leases together get at most one part in so many of what is left. So a limit is far away wherever there are leases, and
/// they are taken back in time when it comes near.
pub(crate) const ALL_PART_OF_LEFT: i64 = 4;
/// A lease that could grow by less than one part in so many of what was asked for does not grow: the limit is near.
pub(crate) const PART_OF_WANTED: i64 = 4;
/// How long leases that were taken back may take to come back, in milliseconds. Until then nothing that running requests ask
/// for is refused.
pub(crate) const RECALL_MS: i64 = 2_000;

/// The day (UTC) of a moment in milliseconds since the Unix epoch.
pub(crate) fn day_of(ms: i64) -> i64 {
    ms.div_euclid(24 * 3600 * 1000)
}

/// Names a lease: a hold of its holder.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LeaseId {
    /// Who holds it. A process draws itself a name for that when it starts, so that what it leaves behind is not kept
    /// alive by the next one.
    pub holder: NodeId,
    /// The how many-th of the holder it is, from 1: a later one has a higher number.
    pub number: u64,
}

impl LeaseId {
    /// The name of its hold among those of its holder. No request has one like it.
    pub(crate) fn hold(&self) -> SmolStr {
        format_smolstr!("lease-{}", self.number)
    }
}

impl fmt::Display for LeaseId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} of {}", self.hold(), self.holder)
    }
}

/// Requests and tokens, as rates per minute count them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rated {
    /// Requests.
    pub requests: u64,
    /// Input and output tokens, as estimated.
    pub tokens: u64,
}

impl Rated {
    /// What is more than another, of each.
    pub(crate) const fn beyond(self, other: Self) -> Self {
        Self {
            requests: self.requests.saturating_sub(other.requests),
            tokens: self.tokens.saturating_sub(other.tokens),
        }
    }

    /// The sum of each.
    pub(crate) const fn plus(self, other: Self) -> Self {
        Self {
            requests: self.requests.saturating_add(other.requests),
            tokens: self.tokens.saturating_add(other.tokens),
        }
    }

    /// The more of each.
    pub(crate) fn max(self, other: Self) -> Self {
        Self {
            requests: self.requests.max(other.requests),
            tokens: self.tokens.max(other.tokens),
        }
    }
}

/// What a node tells of a lease, and wants of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AskLease {
    /// The lease.
    pub lease: LeaseId,
    /// The node whose steps settle what is admitted out of it.
    pub node: NodeId,
    /// The account that pays.
    pub account: SmolStr,
    /// The key whose requests are admitted out of it.
    pub key: KeyId,
    /// The key's revision at this node.
    pub revision: u64,
    /// How many requests run in it. The account counts them as running.
    pub running: u64,
    /// What was admitted out of it since it began, all told.
    #[serde(default)]
    pub used: Rated,
    /// What should be free of it for further requests, where rates are limited: what it has beyond that is given back, and
    /// [`LeaseChange::Grow`] adds what is missing.
    #[serde(default)]
    pub free: Rated,
    /// How many should be able to run in it at one time, where that is limited: fewer at once, more with
    /// [`LeaseChange::Grow`].
    #[serde(default)]
    pub places: u64,
    /// Counts the questions about this lease from 1. One that comes behind a later one changes nothing.
    pub turn: u64,
    /// What is to become of it.
    pub change: LeaseChange,
}

/// What is to become of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LeaseChange {
    /// It grows by up to this amount, and by what it wants of rates and places; and begins if it is not there.
    Grow(NanoUsd),
    /// This amount of it is given back; zero leaves it as it is.
    Return(NanoUsd),
    /// It ends. Nothing runs in it, and all that ran in it is settled.
    End,
}

/// The answer to [`AskLease`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LeaseAnswer {
    /// It is there, whether it has grown or not.
    Held(Leased),
    /// It did not begin: a limit is near, or the key or its account is served by the exact way alone.
    Refused,
    /// It is not there: it has ended, or the holder was not heard of for too long.
    Gone,
}

/// A lease, as its account has it at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leased {
    /// When it began, in milliseconds since the Unix epoch. Only requests of the same day (UTC) are admitted out of it.
    pub since_ms: i64,
    /// Moves whenever all leases of the account are to come back.
    pub recall: u64,
    /// The requests and tokens that its holder may admit out of it. Another process reads it as `given`.
    #[serde(default, rename = "given")]
    pub allowance: LeaseAllowance,
    /// `hold` is the lease's amount: what was granted, less what was given back and what was charged to it. `at_ms` is now.
    /// The rest is as for a request of the key.
    pub grant: Grant,
}

/// What may be admitted out of a lease, in addition to its amount. `None`: neither key nor account limits it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseAllowance {
    /// Requests in all since it began.
    pub requests: Option<u64>,
    /// Tokens in all since it began.
    pub tokens: Option<u64>,
    /// Requests that run at one time.
    pub places: Option<u64>,
}
