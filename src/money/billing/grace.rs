//! Grace: what this node admits while the store is unreachable. It is a fixed amount per key and per account, and never
//! more than what the node last knew of them allows.

use parking_lot::Mutex;

use crate::{
    domain::{
        keys::key::{KeyId, KeyRecord},
        ledger::{Admit, Denial, Grant},
        money::NanoUsd,
    },
    edges::clock,
    money::billing::{
        last_seen::{GraceLimits, LastSeen},
        tally::{Seat, Settled},
    },
};

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
        self.seen
            .lock()
            .granted(&ask.key, grant, ask.tokens, clock::unix_millis())
    }

    /// Records what the store has told of a lease's account and key. The lease `goes_on`: its requests are admitted.
    pub(super) fn told(&self, key: &KeyRecord, grant: &Grant, goes_on: bool) {
        self.seen.lock().told(key, grant, goes_on, clock::unix_millis());
    }

    /// Records that a request was admitted out of a lease.
    pub(super) fn leased(&self, key: &KeyRecord, hold: NanoUsd, tokens: u64) -> Seat {
        self.seen.lock().leased(key, hold, tokens, clock::unix_millis())
    }

    /// Records that the store has refused a request.
    pub(super) fn refused(&self, key: &KeyRecord, denial: Denial) {
        self.seen.lock().refused(key, denial, clock::unix_millis());
    }

    /// Gives the account no further grace, since an operator suspended it on this node.
    pub(super) fn stopped(&self, account: &str) {
        self.seen.lock().account_refused(account, clock::unix_millis());
    }

    /// Admits a request without the store if the grace allows it, and holds its estimate or what is left. The error is as
    /// that of [`LastSeen::admit_alone`].
    pub(super) fn admit(&self, ask: &Admit) -> Result<Seat, Option<Denial>> {
        let now_ms = clock::unix_millis();
        self.seen
            .lock()
            .admit_alone(&ask.key, ask.estimate, ask.tokens, &self.limits, now_ms)
    }

    /// The rate or concurrency limit of the key or its account that any request exceeds now, by what this node has
    /// admitted and refused itself. Other nodes only add to that, so the store would say no as well, unless somebody has
    /// changed the limit. Asks nobody.
    pub(super) fn foresees(&self, key: &KeyRecord) -> Option<Denial> {
        self.seen.lock().foresees(key, clock::unix_millis())
    }

    /// Whether the store has said within the last seconds that the account has money and the key some of its quota, and
    /// this node has not spent it since. Asks nobody.
    pub(super) fn vouches_for(&self, key: &KeyRecord) -> bool {
        self.seen.lock().vouches_for(key, clock::unix_millis())
    }

    /// Counts a refused request in the rate of its key.
    pub(super) fn count_refused(&self, key: &KeyRecord) {
        self.seen.lock().count_refused(key, clock::unix_millis());
    }

    /// Records that a request has ended.
    pub(super) fn ended(&self, account: &str, key: &KeyId, seat: Seat, end: &Settled) {
        self.seen.lock().ended(account, key, seat, end);
    }

    /// Whether this node could admit any request without the store.
    pub(super) fn is_left(&self) -> bool {
        self.seen.lock().may_give(&self.limits)
    }

    /// What was committed without the store, and the store has not counted yet.
    pub(super) fn committed(&self) -> NanoUsd {
        self.seen.lock().on_grace()
    }
}
