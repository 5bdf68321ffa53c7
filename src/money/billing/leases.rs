//! The leases of this node. This module decides which keys have a lease, allocates parts of the leases to requests, and
//! determines which lease calls the node sends to the store.
//!
//! A key gets a lease when its requests are frequent enough, and loses the lease when they no longer are. A request takes its
//! allocation under one lock. The calls to the store run in the background, so no request waits for one.

use std::{collections::HashMap, time::Duration, time::Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::domain::{
    QuickMap,
    keys::{KeyId, KeyRecord},
    ledger::{
        NodeId,
        lease::{
            Demand, LeaseCall, LeaseId, LeaseReply,
            node::{Allocation, LeaseTarget, NodeLease},
        },
    },
    money::NanoUsd,
};

/// Maximum number of keys whose demand is recorded. Each request of a further key needs a call to the store.
pub(super) const KEYS_MAX: usize = 100_000;
/// The time for which a key gets no new lease after its last lease was denied or taken back.
const PAUSE: Duration = Duration::from_secs(1);
/// The interval at which keys without recent requests are removed.
const FORGET_EVERY: Duration = Duration::from_secs(2);

/// The minimum demand at which a key gets a lease, and the maximum number of leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeaseLimits {
    /// The minimum rate at which a key gets a lease, in requests per second. Above this rate, a lease needs fewer calls to the
    /// store than one call per request.
    pub(crate) requests_per_second: u64,
    /// Maximum number of leases at one time, including those that are ending.
    pub(crate) max: usize,
}

/// Identifies a request's allocation from a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AllocationId {
    lease: u64,
    allocation: u64,
}

/// All leases of this node.
#[derive(Debug)]
pub(super) struct Leases {
    limits: Option<LeaseLimits>,
    holder: NodeId,
    state: Mutex<LeaseTable>,
    /// Notified when a call to the store may be due.
    pub(super) wake: Notify,
}

#[derive(Debug, Default)]
struct LeaseTable {
    keys: QuickMap<KeyId, KeyLeaseState>,
    leases: HashMap<u64, LeaseEntry>,
    next: u64,
    forgot: Option<Instant>,
}

#[derive(Debug, Default)]
struct KeyLeaseState {
    demand: Demand,
    lease: Option<u64>,
    not_before: Option<Instant>,
}

#[derive(Debug)]
struct LeaseEntry {
    key: KeyRecord,
    lease: NodeLease,
}

/// The sums over all leases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LeaseFigures {
    pub(super) leases: usize,
    /// The amount that the store holds for the leases.
    pub(super) amount: NanoUsd,
}

impl Leases {
    /// Creates the table of leases. `None` disables leases. Generates a new id for the holder of the leases. So the leases that
    /// an earlier process left in the store are not mistaken for leases of this table.
    pub(super) fn new(limits: Option<LeaseLimits>) -> Self {
        Self {
            limits,
            holder: NodeId::generate(&mut rand::rng()),
            state: Mutex::default(),
            wake: Notify::new(),
        }
    }

    /// Whether this node uses leases.
    pub(super) fn is_enabled(&self) -> bool {
        self.limits.is_some()
    }

    /// Admits a request from its key's lease, if the lease has everything that the request needs. Returns `None` if the store
    /// must decide.
    pub(super) fn allocate(
        &self,
        key: &KeyRecord,
        estimate: NanoUsd,
        tokens: u64,
        now: Instant,
    ) -> Option<(AllocationId, Allocation)> {
        let limits = self.limits?;
        let mut state = self.state.lock();
        let LeaseTable { keys, leases, next, .. } = &mut *state;
        if !keys.contains_key(&key.id) {
            if keys.len() >= KEYS_MAX {
                return None;
            }
            keys.insert(key.id.clone(), KeyLeaseState::default());
        }
        let known = keys.get_mut(&key.id)?;
        known.demand.record(estimate, tokens, now);
        if let Some(number) = known.lease
            && let Some(entry) = leases.get_mut(&number)
        {
            if entry.key.revision != key.revision || entry.key.account != key.account {
                entry.lease.end();
            }
            let cut = entry.lease.allocate(estimate, tokens, key.expires_at, now);
            if cut.is_none() || entry.lease.is_low(known.demand.target(now)) {
                self.wake.notify_one();
            }
            let part = |cut: Allocation| AllocationId {
                lease: number,
                allocation: cut.number,
            };
            return cut.map(|cut| (part(cut), cut));
        }
        let is_time = known.not_before.is_none_or(|from| now >= from);
        if is_time && leases.len() < limits.max && known.demand.requests(now) >= limits.requests_per_second {
            *next += 1;
            known.lease = Some(*next);
            let entry = LeaseEntry {
                key: key.clone(),
                lease: NodeLease::default(),
            };
            leases.insert(*next, entry);
            self.wake.notify_one();
        }
        None
    }

    /// Returns the id of the lease to which an allocation belongs.
    pub(super) fn lease_id(&self, part: AllocationId) -> LeaseId {
        LeaseId {
            holder: self.holder.clone(),
            number: part.lease,
        }
    }

    /// Enlarges a running request's allocation by up to `more` from the lease's free amount, and returns the added amount. If
    /// nothing is free, returns zero and records that a top-up by `more` is pending. The caller must request the top-up from the
    /// store, and report the result with [`Leases::on_top_up`].
    pub(super) fn enlarge(&self, part: AllocationId, more: NanoUsd, now: Instant) -> NanoUsd {
        let mut state = self.state.lock();
        let Some(entry) = state.leases.get_mut(&part.lease) else {
            return NanoUsd::ZERO;
        };
        let got = entry.lease.enlarge(part.allocation, more, now);
        if got <= NanoUsd::ZERO {
            entry.lease.begin_top_up(more);
        }
        got
    }

    /// Records that the store has granted `got` of the top-up `asked`, which was requested for a running request.
    pub(super) fn on_top_up(&self, part: AllocationId, asked: NanoUsd, got: NanoUsd) {
        if let Some(entry) = self.state.lock().leases.get_mut(&part.lease) {
            entry.lease.end_top_up(part.allocation, asked, got);
        }
    }

    /// Records that a request has ended. `step` is the step that charges it; `None` if it could not be recorded.
    pub(super) fn on_end(&self, part: AllocationId, cost: NanoUsd, step: Option<u64>) {
        if let Some(entry) = self.state.lock().leases.get_mut(&part.lease) {
            entry.lease.on_request_ended(part.allocation, cost, step);
        }
    }

    /// Ends the leases whose key matches `concerns`. These leases admit no further requests, and their free amounts are returned
    /// to the store.
    pub(super) fn recall(&self, concerns: impl Fn(&KeyRecord) -> bool) {
        if !self.is_enabled() {
            return;
        }
        let mut state = self.state.lock();
        for entry in state.leases.values_mut().filter(|entry| concerns(&entry.key)) {
            entry.lease.end();
        }
        self.wake.notify_one();
    }

    /// Returns the calls to the store that are due. The caller reports each result with [`Leases::on_reply`].
    pub(super) fn due_calls(&self, node: &NodeId, now: Instant) -> Vec<LeaseCall> {
        let Some(limits) = self.limits else { return Vec::new() };
        let mut state = self.state.lock();
        let LeaseTable {
            keys, leases, forgot, ..
        } = &mut *state;
        let mut questions = Vec::new();
        for (number, entry) in leases.iter_mut() {
            let of_key = keys.get_mut(&entry.key.id).filter(|known| known.lease == Some(*number));
            let mut target = LeaseTarget::default();
            if let Some(known) = of_key {
                // The threshold for ending is half the rate, so that a lease does not repeatedly start and end.
                if known.demand.requests(now) < limits.requests_per_second.div_ceil(2) {
                    entry.lease.end();
                }
                if entry.lease.is_over() {
                    (known.lease, known.not_before) = (None, Some(now + PAUSE));
                }
                target = known.demand.target(now);
            }
            let Some(question) = entry.lease.next_request(target, now) else {
                continue;
            };
            questions.push(LeaseCall {
                lease: LeaseId {
                    holder: self.holder.clone(),
                    number: *number,
                },
                node: node.clone(),
                account: entry.key.account.clone(),
                key: entry.key.id.clone(),
                revision: entry.key.revision,
                running: entry.lease.running(),
                used: question.used,
                free: question.free,
                places: question.places,
                turn: question.turn,
                change: question.change,
            });
        }
        leases.retain(|_, entry| !entry.lease.is_done());
        if forgot.is_none_or(|forgot| now >= forgot + FORGET_EVERY) {
            *forgot = Some(now);
            keys.retain(|_, known| known.lease.is_some() || known.demand.requests(now) > 0);
        }
        questions
    }

    /// Applies the store's reply to a call; `answer` is `None` if there was no reply. If the reply says that the store still
    /// holds the lease, returns the key's record and whether the lease still admits requests. The caller uses both to record the
    /// state of the account and the key that the reply contains.
    pub(super) fn on_reply(
        &self,
        ask: &LeaseCall,
        answer: Option<&LeaseReply>,
        (asked, answered): (Instant, Instant),
    ) -> Option<(KeyRecord, bool)> {
        let mut state = self.state.lock();
        let entry = state.leases.get_mut(&ask.lease.number)?;
        entry.lease.on_store_reply(answer, asked, answered);
        matches!(answer, Some(LeaseReply::Held(_))).then(|| (entry.key.clone(), !entry.lease.is_over()))
    }

    /// Whether there is a lease. If there is one, a call may become due without a notification.
    pub(super) fn has_leases(&self) -> bool {
        !self.state.lock().leases.is_empty()
    }

    /// The sums over all leases, for the metrics.
    pub(super) fn figures(&self) -> LeaseFigures {
        let state = self.state.lock();
        let amounts = state.leases.values().map(|entry| entry.lease.amount());
        LeaseFigures {
            leases: state.leases.len(),
            amount: amounts.fold(NanoUsd::ZERO, NanoUsd::saturating_add),
        }
    }
}
