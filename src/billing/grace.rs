//! What is admitted while the store cannot be asked: a fixed amount for each key, and one for each account, on this node, and
//! no more than what the node knows of them allows.

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

/// What may be committed on this node until the store answers again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GraceLimits {
    /// By each key.
    pub key: NanoUsd,
    /// By all keys of each account.
    pub account: NanoUsd,
}

/// See the module. Every question is answered, and what it commits is noted, in one step.
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

    /// The store has admitted a request.
    pub(super) fn granted(&self, ask: &Admit, grant: &Grant) -> Seat {
        self.lock().granted(&ask.key, grant, ask.tokens, clock::unix_millis())
    }

    /// The store has refused one.
    pub(super) fn refused(&self, key: &KeyRecord, denied: Denied) {
        self.lock().refused(key, denied, clock::unix_millis());
    }

    /// An account was stopped at this node.
    pub(super) fn stopped(&self, account: &str) {
        self.lock().account_refused(account, clock::unix_millis());
    }

    /// The store is away: admits the request if this node may, holding its estimate or what is left.
    pub(super) fn admit(&self, ask: &Admit) -> Result<Seat, NotAlone> {
        let now_ms = clock::unix_millis();
        self.lock()
            .admit_alone(&ask.key, ask.estimate, ask.tokens, &self.limits, now_ms)
    }

    /// A request has ended.
    pub(super) fn ended(&self, account: &str, key: &KeyId, seat: Seat, end: &End) {
        self.lock().ended(account, key, seat, end);
    }

    /// Whether this node may give anything to anybody while the store is away.
    pub(super) fn is_left(&self) -> bool {
        self.lock().may_give(&self.limits)
    }

    /// What was committed while the store was away, and the store has not counted.
    pub(super) fn committed(&self) -> NanoUsd {
        self.lock().on_grace()
    }

    fn lock(&self) -> MutexGuard<'_, LastSeen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
