//! Grace: what this node admits while the store is unreachable. It is a fixed amount per key and per account, and never
//! more than what the node last knew of them allows.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{
    last_seen::{LastSeen, NotAlone},
    tally::{End, Seat},
};
use crate::{
    clock,
    domain::{
        key::{KeyId, KeyRecord},
        ledger::{Admit, Denied, Grant},
        money::NanoUsd,
    },
};

/// What this node may commit until the store answers again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GraceLimits {
    /// For each key.
    pub key: NanoUsd,
    /// For all keys of one account together.
    pub account: NanoUsd,
}

/// The grace of this node. Each decision and what it commits are one atomic step.
#[derive(Debug)]
pub(super) struct Grace {
    limits: GraceLimits,
    seen: Mutex<LastSeen>,
}

impl Grace {
    pub(super) fn new(limits: GraceLimits) -> Self {
        Self {
            limits,
            seen: Mutex::default(),
        }
    }

    /// Records that the store has admitted a request.
    pub(super) fn granted(&self, ask: &Admit, grant: &Grant) -> Seat {
        self.lock().granted(&ask.key, grant, ask.tokens, clock::unix_millis())
    }

    /// Records that the store has refused a request.
    pub(super) fn refused(&self, key: &KeyRecord, denied: Denied) {
        self.lock().refused(key, denied, clock::unix_millis());
    }

    /// Gives the account no further grace, since an operator suspended it on this node.
    pub(super) fn stopped(&self, account: &str) {
        self.lock().account_refused(account, clock::unix_millis());
    }

    /// Admits a request without the store if the grace allows it, and holds its estimate or what is left.
    pub(super) fn admit(&self, ask: &Admit) -> Result<Seat, NotAlone> {
        let now_ms = clock::unix_millis();
        self.lock()
            .admit_alone(&ask.key, ask.estimate, ask.tokens, &self.limits, now_ms)
    }

    /// Records that a request has ended.
    pub(super) fn ended(&self, account: &str, key: &KeyId, seat: Seat, end: &End) {
        self.lock().ended(account, key, seat, end);
    }

    /// Whether this node could admit any request without the store.
    pub(super) fn is_left(&self) -> bool {
        self.lock().may_give(&self.limits)
    }

    /// What was committed without the store, and the store has not counted yet.
    pub(super) fn committed(&self) -> NanoUsd {
        self.lock().on_grace()
    }

    fn lock(&self) -> MutexGuard<'_, LastSeen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
