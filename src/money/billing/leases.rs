//! The leases of this node: which keys have one, what is admitted out of it, and what the store is asked about it.
//!
//! A key gets a lease when it asks often enough, and loses it when it does not. Each request takes a part of it under one lock; the
//! questions to the store run beside the requests, so none of them waits for one.

use std::{collections::HashMap, time::Duration, time::Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::domain::{
    keys::key::{KeyId, KeyRecord},
    ledger::{
        NodeId,
        lease::{
            AskLease, LeaseAnswer, LeaseId,
            demand::Demand,
            node::{Cut, NodeLease, Target},
        },
    },
    money::NanoUsd,
    quick_map::QuickMap,
};

/// The most keys whose demand is counted. Those beyond ask the store each time.
pub(super) const KEYS_MAX: usize = 100_000;
/// How long a key is served by the store alone when its lease was refused or taken back.
const PAUSE: Duration = Duration::from_secs(1);
/// How often keys that ask for nothing any more are forgotten.
const FORGET_EVERY: Duration = Duration::from_secs(2);

/// From when on keys get leases, and how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeaseLimits {
    /// The requests per second from which on a lease takes fewer calls than asking each time.
    pub(crate) requests_per_second: u64,
    /// The most leases at one time, those that are ending included.
    pub(crate) max: usize,
}

/// A request's part of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LeasePart {
    lease: u64,
    cut: u64,
}

/// All leases of this node.
#[derive(Debug)]
pub(super) struct Leases {
    limits: Option<LeaseLimits>,
    holder: NodeId,
    state: Mutex<State>,
    /// Notified when there may be something to ask.
    pub(super) wake: Notify,
}

#[derive(Debug, Default)]
struct State {
    keys: QuickMap<KeyId, OfKey>,
    leases: HashMap<u64, Entry>,
    next: u64,
    forgot: Option<Instant>,
}

#[derive(Debug, Default)]
struct OfKey {
    demand: Demand,
    lease: Option<u64>,
    not_before: Option<Instant>,
}

#[derive(Debug)]
struct Entry {
    key: KeyRecord,
    lease: NodeLease,
}

/// The sums of all leases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LeaseFigures {
    pub(super) leases: usize,
    /// What the store holds for them.
    pub(super) amount: NanoUsd,
}

impl Leases {
    /// Leases within limits, or none at all. A new holder, since the one before may have left some.
    pub(super) fn new(limits: Option<LeaseLimits>) -> Self {
        Self {
            limits,
            holder: NodeId::generate(&mut rand::rng()),
            state: Mutex::default(),
            wake: Notify::new(),
        }
    }

    /// Whether there can be any.
    pub(super) fn are_used(&self) -> bool {
        self.limits.is_some()
    }

    /// Admits a request out of its key's lease, if that has all of what it needs. Otherwise the store decides.
    pub(super) fn cut(
        &self,
        key: &KeyRecord,
        estimate: NanoUsd,
        tokens: u64,
        now: Instant,
    ) -> Option<(LeasePart, Cut)> {
        let limits = self.limits?;
        let mut state = self.state.lock();
        let State { keys, leases, next, .. } = &mut *state;
        if !keys.contains_key(&key.id) {
            if keys.len() >= KEYS_MAX {
                return None;
            }
            keys.insert(key.id.clone(), OfKey::default());
        }
        let known = keys.get_mut(&key.id)?;
        known.demand.note(estimate, tokens, now);
        if let Some(number) = known.lease
            && let Some(entry) = leases.get_mut(&number)
        {
            if entry.key.revision != key.revision || entry.key.account != key.account {
                entry.lease.end();
            }
            let cut = entry.lease.cut(estimate, tokens, key.expires_at, now);
            if cut.is_none() || entry.lease.is_low(known.demand.target(now)) {
                self.wake.notify_one();
            }
            let part = |cut: Cut| LeasePart {
                lease: number,
                cut: cut.number,
            };
            return cut.map(|cut| (part(cut), cut));
        }
        let is_time = known.not_before.is_none_or(|from| now >= from);
        if is_time && leases.len() < limits.max && known.demand.requests(now) >= limits.requests_per_second {
            *next += 1;
            known.lease = Some(*next);
            let entry = Entry {
                key: key.clone(),
                lease: NodeLease::default(),
            };
            leases.insert(*next, entry);
            self.wake.notify_one();
        }
        None
    }

    /// The name of the lease that a part is of.
    pub(super) fn id(&self, part: LeasePart) -> LeaseId {
        LeaseId {
            holder: self.holder.clone(),
            number: part.lease,
        }
    }

    /// Gives a running request up to that much more, of what is free: zero if that is nothing, and then it is noted as asked of
    /// the store; [`Leases::got`] follows.
    pub(super) fn enlarge(&self, part: LeasePart, more: NanoUsd, now: Instant) -> NanoUsd {
        let mut state = self.state.lock();
        let Some(entry) = state.leases.get_mut(&part.lease) else {
            return NanoUsd::ZERO;
        };
        let got = entry.lease.enlarge(part.cut, more, now);
        if got <= NanoUsd::ZERO {
            entry.lease.asks(more);
        }
        got
    }

    /// What a running request got of what the store was asked for.
    pub(super) fn got(&self, part: LeasePart, asked: NanoUsd, got: NanoUsd) {
        if let Some(entry) = self.state.lock().leases.get_mut(&part.lease) {
            entry.lease.got(part.cut, asked, got);
        }
    }

    /// A request has ended, and a step charges it; `None`: the step could not be recorded.
    pub(super) fn ended(&self, part: LeasePart, cost: NanoUsd, step: Option<u64>) {
        if let Some(entry) = self.state.lock().leases.get_mut(&part.lease) {
            entry.lease.ended(part.cut, cost, step);
        }
    }

    /// Gives back what is free of the leases that this concerns. Nothing more is admitted out of them.
    pub(super) fn recall(&self, concerns: impl Fn(&KeyRecord) -> bool) {
        if !self.are_used() {
            return;
        }
        let mut state = self.state.lock();
        for entry in state.leases.values_mut().filter(|entry| concerns(&entry.key)) {
            entry.lease.end();
        }
        self.wake.notify_one();
    }

    /// What the store is to be asked now; [`Leases::answered`] follows for each.
    pub(super) fn questions(&self, node: &NodeId, now: Instant) -> Vec<AskLease> {
        let Some(limits) = self.limits else { return Vec::new() };
        let mut state = self.state.lock();
        let State {
            keys, leases, forgot, ..
        } = &mut *state;
        let mut questions = Vec::new();
        for (number, entry) in leases.iter_mut() {
            let of_key = keys.get_mut(&entry.key.id).filter(|known| known.lease == Some(*number));
            let mut target = Target::default();
            if let Some(known) = of_key {
                // Half as many, so that it does not come and go.
                if known.demand.requests(now) < limits.requests_per_second.div_ceil(2) {
                    entry.lease.end();
                }
                if entry.lease.is_over() {
                    (known.lease, known.not_before) = (None, Some(now + PAUSE));
                }
                target = known.demand.target(now);
            }
            let Some(question) = entry.lease.wants(target, now) else {
                continue;
            };
            questions.push(AskLease {
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

    /// The answer to a question; `None`: it did not come. The key's record, for what else the answer tells, and whether the lease
    /// goes on.
    pub(super) fn answered(
        &self,
        ask: &AskLease,
        answer: Option<&LeaseAnswer>,
        (asked, answered): (Instant, Instant),
    ) -> Option<(KeyRecord, bool)> {
        let mut state = self.state.lock();
        let entry = state.leases.get_mut(&ask.lease.number)?;
        entry.lease.answered(answer, asked, answered);
        matches!(answer, Some(LeaseAnswer::Held(_))).then(|| (entry.key.clone(), !entry.lease.is_over()))
    }

    /// Whether something may have to be asked without being woken.
    pub(super) fn are_there(&self) -> bool {
        !self.state.lock().leases.is_empty()
    }

    /// The sums, for the metrics.
    pub(super) fn figures(&self) -> LeaseFigures {
        let state = self.state.lock();
        let amounts = state.leases.values().map(|entry| entry.lease.amount());
        LeaseFigures {
            leases: state.leases.len(),
            amount: amounts.fold(NanoUsd::ZERO, NanoUsd::saturating_add),
        }
    }
}
