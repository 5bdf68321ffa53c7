//! Step numbers by account: the last one given, the last one acknowledged by the store, and where those in between are.

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    sync::Arc,
};

use smol_str::SmolStr;
use tokio::sync::Notify;

use crate::{
    domain::{
        keys::key::KeyId,
        ledger::{Change, Step},
        quick_map::QuickMap,
    },
    journal::{position::Position, synced::Synced},
};

/// The most steps kept in memory until they are sent. The others are read from their segments.
pub(super) const KEPT_MAX: usize = 1024;

/// A step that the store has not acknowledged.
#[derive(Debug)]
pub(super) struct RecordedStep {
    pub(super) seq: u64,
    pub(super) position: Position,
    /// When it was recorded, in milliseconds since the Unix epoch.
    pub(super) at_ms: i64,
    /// The key, if it settles a request that was running in this process.
    pub(super) key: Option<Arc<KeyId>>,
    /// It settles a request that was admitted out of a lease: nobody waits for it.
    pub(super) is_patient: bool,
    /// The step itself, until it is first sent.
    pub(super) kept: Option<Box<Step>>,
}

/// Steps of an account that are to be sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Unsent {
    /// In order, without a gap, from the acknowledged one on.
    pub steps: Vec<Step>,
    /// The number of the last row among them in the journal; 0 if none of them has one.
    pub upto: u64,
    /// How many of them stand for steps that the journal has lost: they change nothing, and let the later ones pass.
    pub lost: u64,
}

#[derive(Debug, Default)]
struct Account {
    last: u64,
    acked: u64,
    places: VecDeque<RecordedStep>,
    /// How many of them are not patient.
    urgent: usize,
    /// Requests of this process that have ended, by key.
    keys: QuickMap<Arc<KeyId>, u64>,
    settled: u64,
    /// Notified when more steps are acknowledged; `None` if nobody has asked for it.
    told: Option<Arc<Notify>>,
}

/// All accounts that this node has changed.
#[derive(Debug, Default)]
pub(super) struct Accounts {
    by_name: QuickMap<SmolStr, Account>,
    unacknowledged: u64,
    /// The number of steps kept.
    kept: usize,
    /// Accounts with steps that settlement has not picked up.
    woken: HashSet<SmolStr>,
    /// Accounts for which the store forgot acknowledged steps.
    rewound: HashSet<SmolStr>,
}

impl Unsent {
    /// Notes where the last step stands, if it has a row.
    pub(super) fn note_row(&mut self, position: Position) {
        if self.steps.last().is_some_and(Step::has_row) {
            self.upto = position.number();
        }
    }

    /// Puts a step that changes nothing in the place of one that the journal has lost.
    pub(super) fn fill(&mut self, seq: u64) {
        let change = Change::nothing();
        self.steps.push(Step { seq, change });
        self.lost += 1;
    }
}

impl Accounts {
    /// The number of the next step, greater than `floor`.
    pub(super) fn next(&self, account: &str, floor: u64) -> u64 {
        let last = self.by_name.get(account).map_or(0, |account| account.last);
        last.max(floor).saturating_add(1)
    }

    /// The store has applied steps up to `floor`, whatever this journal knows of them.
    pub(super) fn raise(&mut self, account: &str, floor: u64) {
        if self.by_name.get(account).map_or(0, |account| account.last) < floor {
            self.acknowledged(account, floor);
        }
    }

    /// A step was recorded. One that does not count on is passed over.
    pub(super) fn recorded(&mut self, name: &str, place: RecordedStep) {
        if !self.by_name.contains_key(name) {
            self.by_name.insert(name.into(), Account::default());
        }
        let Some(account) = self.by_name.get_mut(name) else {
            return;
        };
        let newest = account.places.back().map_or(account.acked, |newest| newest.seq);
        if place.seq <= newest {
            return;
        }
        account.last = account.last.max(place.seq);
        if let Some(key) = &place.key {
            let key = account.keys.get_key_value(key).map_or(key, |(known, _)| known).clone();
            *account.keys.entry(key).or_default() += 1;
            account.settled += 1;
        }
        account.urgent += usize::from(!place.is_patient);
        account.places.push_back(place);
        self.unacknowledged += 1;
        if !self.woken.contains(name) {
            self.woken.insert(name.into());
        }
    }

    /// Keeps the step that was recorded last, if there is a place for it.
    pub(super) fn keep(&mut self, name: &str, step: Step) {
        let place = self.by_name.get_mut(name).and_then(|account| account.places.back_mut());
        if let Some(place) = place.filter(|place| place.seq == step.seq && place.kept.is_none())
            && self.kept < KEPT_MAX
        {
            place.kept = Some(Box::new(step));
            self.kept += 1;
        }
    }

    /// Up to `max` steps that are on disk, in order, without a gap, from the acknowledged one on; `None` where one of them is
    /// not kept. Each is given once: the next time it is read.
    pub(super) fn take_kept(&mut self, name: &str, max: usize, synced: &Synced) -> Option<Unsent> {
        if self.rewound.contains(name) {
            return None;
        }
        let account = self.by_name.get_mut(name)?;
        if account.places.is_empty() && account.acked < account.last {
            return None;
        }
        let on_disk = |place: &RecordedStep| synced.knows(place.position);
        let count = account
            .places
            .iter()
            .take(max)
            .take_while(|place| on_disk(place))
            .count();
        let mut places = account.places.iter().take(count).zip(account.acked + 1..);
        if !places.all(|(place, next)| place.seq == next && place.kept.is_some() && synced.has(place.position)) {
            return None;
        }
        self.kept = self.kept.saturating_sub(count);
        let places = account.places.iter_mut().take(count);
        let mut unsent = Unsent::default();
        for place in places {
            unsent.steps.extend(place.kept.take().map(|step| *step));
            unsent.note_row(place.position);
        }
        Some(unsent)
    }

    /// The accounts with steps since the last call.
    pub(super) fn take_woken(&mut self) -> HashSet<SmolStr> {
        std::mem::take(&mut self.woken)
    }

    /// The store says that it has applied steps up to `watermark`. `false`: fewer than it had said before.
    pub(super) fn acknowledged(&mut self, name: &str, watermark: u64) -> bool {
        let account = self.by_name.entry(name.into()).or_default();
        account.last = account.last.max(watermark);
        if watermark < account.acked {
            account.acked = watermark;
            self.rewound.insert(name.into());
            return false;
        }
        account.acked = watermark;
        if let Some(told) = &account.told {
            told.notify_waiters();
        }
        while account.places.front().is_some_and(|place| place.seq <= watermark) {
            let Some(place) = account.places.pop_front() else { break };
            account.urgent -= usize::from(!place.is_patient);
            self.unacknowledged = self.unacknowledged.saturating_sub(1);
            self.kept = self.kept.saturating_sub(usize::from(place.kept.is_some()));
            let Some(key) = place.key else { continue };
            account.settled = account.settled.saturating_sub(1);
            let left = account.keys.get(&key).map_or(0, |count| count.saturating_sub(1));
            if left == 0 {
                account.keys.remove(&key);
            } else {
                account.keys.insert(key, left);
            }
        }
        true
    }

    /// Told when the store has acknowledged steps of an account.
    pub(super) fn acknowledgements(&mut self, name: &str) -> Arc<Notify> {
        let account = self.by_name.entry(name.into()).or_default();
        Arc::clone(account.told.get_or_insert_default())
    }

    /// The last acknowledged step.
    pub(super) fn watermark(&self, account: &str) -> u64 {
        self.by_name.get(account).map_or(0, |account| account.acked)
    }

    /// The number of the account's last step; 0 if it has none.
    pub(super) fn last(&self, account: &str) -> u64 {
        self.by_name.get(account).map_or(0, |account| account.last)
    }

    /// Up to `max` steps that are not acknowledged, in order: their numbers, and where they stand.
    pub(super) fn places(&self, account: &str, max: usize) -> Vec<(u64, Position)> {
        let places = self.by_name.get(account).map(|account| account.places.iter().take(max));
        let places = places.into_iter().flatten();
        places.map(|place| (place.seq, place.position)).collect()
    }

    /// The number of unacknowledged steps.
    pub(super) fn waiting(&self, account: &str) -> usize {
        self.by_name.get(account).map_or(0, |account| account.places.len())
    }

    /// Whether nobody waits for any of the steps that the store has not acknowledged.
    pub(super) fn is_patient(&self, account: &str) -> bool {
        self.by_name.get(account).is_none_or(|account| account.urgent == 0)
    }

    /// Requests that have ended, of a key and of its account.
    pub(super) fn pending(&self, account: &str, key: &KeyId) -> (u64, u64) {
        self.by_name.get(account).map_or((0, 0), |account| {
            (account.keys.get(key).copied().unwrap_or(0), account.settled)
        })
    }

    /// Every account with its last number and the last one that is acknowledged.
    pub(super) fn numbers(&self) -> BTreeMap<SmolStr, (u64, u64)> {
        let known = self.by_name.iter().filter(|(_, account)| account.last > 0);
        known
            .map(|(name, account)| (name.clone(), (account.last, account.acked)))
            .collect()
    }

    /// Every account with steps that are not acknowledged, and its last number.
    pub(super) fn behind(&self) -> Vec<(SmolStr, u64)> {
        let behind = self.by_name.iter().filter(|(_, account)| account.acked < account.last);
        behind.map(|(name, account)| (name.clone(), account.last)).collect()
    }

    /// Takes over what is known of an account from elsewhere than its steps: its last number, and up to where they are
    /// acknowledged.
    pub(super) fn known(&mut self, name: SmolStr, last: u64, acknowledged: u64) {
        let account = self.by_name.entry(name).or_default();
        account.last = account.last.max(last);
        account.acked = account.acked.max(acknowledged);
    }

    /// Whether steps of the account are to be looked up before any can be sent.
    pub(super) fn is_rewound(&self, account: &str) -> bool {
        self.rewound.contains(account)
    }

    /// The accounts whose forgotten steps are to be looked up, with the range that is missing: more than the first, less
    /// than the second.
    pub(super) fn rewound(&self) -> HashMap<SmolStr, (u64, u64)> {
        let range = |name: &SmolStr| {
            let account = self.by_name.get(name)?;
            let front = account.places.front();
            let first = front.map_or(account.last.saturating_add(1), |place| place.seq);
            Some((name.clone(), (account.acked, first)))
        };
        self.rewound.iter().filter_map(range).collect()
    }

    /// Puts the steps above `above` that were looked up in front of the others.
    pub(super) fn restore(&mut self, name: &str, above: u64, places: Vec<RecordedStep>) {
        let Some(account) = self.by_name.get_mut(name) else {
            return;
        };
        for place in places.into_iter().rev() {
            let fits = account.places.front().is_none_or(|front| place.seq < front.seq);
            if fits && place.seq > account.acked {
                account.urgent += usize::from(!place.is_patient);
                account.places.push_front(place);
                self.unacknowledged += 1;
            }
        }
        // Otherwise the store has forgotten even more in the meantime.
        if above <= account.acked {
            self.rewound.remove(name);
        }
    }

    /// The number of unacknowledged steps of all accounts.
    pub(super) fn unacknowledged(&self) -> u64 {
        self.unacknowledged
    }

    /// When the oldest unacknowledged step was recorded, in milliseconds since the Unix epoch.
    pub(super) fn oldest_ms(&self) -> Option<i64> {
        self.fronts().map(|place| place.at_ms).min()
    }

    /// The position of the first unacknowledged step.
    pub(super) fn first_position(&self) -> Option<Position> {
        self.fronts().map(|place| place.position).min()
    }

    fn fronts(&self) -> impl Iterator<Item = &RecordedStep> {
        self.by_name.values().filter_map(|account| account.places.front())
    }
}
