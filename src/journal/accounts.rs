//! The numbers of the steps of each account: the last number used, the last number that the store has acknowledged, and the steps
//! in between.

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    sync::Arc,
};

use smol_str::SmolStr;
use tokio::sync::Notify;

use crate::{
    domain::{
        QuickMap,
        keys::KeyId,
        ledger::{AccountChange, Step},
    },
    journal::{Position, Synced},
};

/// The maximum number of steps that are held in memory until they are sent. Further steps are read from their segments.
pub(super) const CACHED_MAX: usize = 4096;

/// A recorded step that the store has not acknowledged.
#[derive(Debug)]
pub(super) struct RecordedStep {
    pub(super) seq: u64,
    pub(super) position: Position,
    /// The time at which the step was recorded, in milliseconds since the Unix epoch.
    pub(super) at_ms: i64,
    /// The key, if the step settles a request that this process has served and has not admitted from a lease; otherwise `None`.
    pub(super) key: Option<Arc<KeyId>>,
    /// Whether the step can be sent with a delay. This is true if the step settles a request that was admitted from a lease,
    /// because nothing waits for such a step.
    pub(super) is_patient: bool,
    /// The step itself, until it is first sent; `None` if it has to be read from its segment.
    pub(super) cached_step: Option<Box<Step>>,
}

/// The steps of an account that are to be sent to the store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct UnsentSteps {
    /// The steps after the last acknowledged one, in order and without a gap.
    pub steps: Vec<Step>,
    /// The number of the last row among the steps; 0 if no step has a row.
    pub last_row: u64,
    /// The number of filler steps in `steps`. A filler step replaces a lost step and changes nothing. It closes the gap in
    /// the numbers, so the store can apply the later steps.
    pub lost: u64,
}

#[derive(Debug, Default)]
struct TrackedAccount {
    last: u64,
    watermark: u64,
    steps: VecDeque<RecordedStep>,
    /// The number of unacknowledged steps whose [`RecordedStep::is_patient`] is false.
    urgent: usize,
    /// For each key, how many settlements of this process are unacknowledged.
    keys: QuickMap<Arc<KeyId>, u64>,
    settled: u64,
    /// Notified when the store acknowledges steps; `None` until a caller first asks for it.
    acknowledgements: Option<Arc<Notify>>,
}

/// The step numbers of all accounts that this node has changed.
#[derive(Debug, Default)]
pub(super) struct StepTracker {
    by_name: QuickMap<SmolStr, TrackedAccount>,
    unacknowledged: u64,
    /// The number of steps that are held in memory.
    cached: usize,
    /// The accounts with steps that were recorded since the last sync.
    changed: HashSet<SmolStr>,
    /// The accounts with acknowledged steps that the store has forgotten.
    rewound: HashSet<SmolStr>,
}

impl UnsentSteps {
    /// Sets `last_row` to the number of the last step's row, if that step has a row. `position` is the position of the last
    /// step.
    pub(super) fn update_last_row(&mut self, position: Position) {
        if self.steps.last().is_some_and(Step::has_row) {
            self.last_row = position.number();
        }
    }

    /// Adds a step that changes nothing, in place of a step that the journal has lost.
    pub(super) fn push_filler(&mut self, seq: u64) {
        let change = AccountChange::nothing();
        self.steps.push(Step { seq, change });
        self.lost += 1;
    }
}

impl StepTracker {
    /// Returns the number of the account's next step, which is greater than `floor`.
    pub(super) fn next_number(&self, account: &str, floor: u64) -> u64 {
        let last = self.by_name.get(account).map_or(0, |account| account.last);
        last.max(floor).saturating_add(1)
    }

    /// Raises an account's last acknowledged number to `floor`, which the store has reported.
    pub(super) fn raise_watermark(&mut self, account: &str, floor: u64) {
        if self.by_name.get(account).map_or(0, |account| account.last) < floor {
            self.acknowledge(account, floor);
        }
    }

    /// Adds a recorded step. The step is ignored if its number is not higher than that of the account's last step.
    pub(super) fn add(&mut self, name: &str, place: RecordedStep) {
        if !self.by_name.contains_key(name) {
            self.by_name.insert(name.into(), TrackedAccount::default());
        }
        let Some(account) = self.by_name.get_mut(name) else {
            return;
        };
        let newest = account.steps.back().map_or(account.watermark, |newest| newest.seq);
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
        account.steps.push_back(place);
        self.unacknowledged += 1;
        if !self.changed.contains(name) {
            self.changed.insert(name.into());
        }
    }

    /// Keeps the most recently recorded step in memory, unless [`CACHED_MAX`] steps are in memory already.
    pub(super) fn cache(&mut self, name: &str, step: Step) {
        let place = self.by_name.get_mut(name).and_then(|account| account.steps.back_mut());
        if let Some(place) = place.filter(|place| place.seq == step.seq && place.cached_step.is_none())
            && self.cached < CACHED_MAX
        {
            place.cached_step = Some(Box::new(step));
            self.cached += 1;
        }
    }

    /// Returns up to `max` steps that are on disk. They begin with the first unacknowledged step and have no gap. Returns `None`
    /// if one of these steps is not in memory. Each step is returned only once from memory; after that it has to be read from its
    /// segment.
    pub(super) fn take_cached(&mut self, name: &str, max: usize, synced: &Synced) -> Option<UnsentSteps> {
        if self.rewound.contains(name) {
            return None;
        }
        let account = self.by_name.get_mut(name)?;
        if account.steps.is_empty() && account.watermark < account.last {
            return None;
        }
        let on_disk = |place: &RecordedStep| synced.is_decided(place.position);
        let count = account
            .steps
            .iter()
            .take(max)
            .take_while(|place| on_disk(place))
            .count();
        let mut places = account.steps.iter().take(count).zip(account.watermark + 1..);
        if !places
            .all(|(place, next)| place.seq == next && place.cached_step.is_some() && synced.is_on_disk(place.position))
        {
            return None;
        }
        self.cached = self.cached.saturating_sub(count);
        let places = account.steps.iter_mut().take(count);
        let mut unsent = UnsentSteps::default();
        for place in places {
            unsent.steps.extend(place.cached_step.take().map(|step| *step));
            unsent.update_last_row(place.position);
        }
        Some(unsent)
    }

    /// Returns the accounts with steps that were recorded since the last call.
    pub(super) fn take_changed(&mut self) -> HashSet<SmolStr> {
        std::mem::take(&mut self.changed)
    }

    /// Records that the store has applied the account's steps up to `watermark`. Returns `false` if the store had reported a
    /// higher watermark before.
    pub(super) fn acknowledge(&mut self, name: &str, watermark: u64) -> bool {
        let account = self.by_name.entry(name.into()).or_default();
        account.last = account.last.max(watermark);
        if watermark < account.watermark {
            account.watermark = watermark;
            self.rewound.insert(name.into());
            return false;
        }
        account.watermark = watermark;
        if let Some(told) = &account.acknowledgements {
            told.notify_waiters();
        }
        while account.steps.front().is_some_and(|place| place.seq <= watermark) {
            let Some(place) = account.steps.pop_front() else { break };
            account.urgent -= usize::from(!place.is_patient);
            self.unacknowledged = self.unacknowledged.saturating_sub(1);
            self.cached = self.cached.saturating_sub(usize::from(place.cached_step.is_some()));
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

    /// Returns the `Notify` that is triggered when the store acknowledges steps of the account.
    pub(super) fn acknowledgements(&mut self, name: &str) -> Arc<Notify> {
        let account = self.by_name.entry(name.into()).or_default();
        Arc::clone(account.acknowledgements.get_or_insert_default())
    }

    /// Returns the number of the account's last acknowledged step; 0 if it has none.
    pub(super) fn watermark(&self, account: &str) -> u64 {
        self.by_name.get(account).map_or(0, |account| account.watermark)
    }

    /// Returns the number of the account's last step; 0 if it has none.
    pub(super) fn last(&self, account: &str) -> u64 {
        self.by_name.get(account).map_or(0, |account| account.last)
    }

    /// Returns the numbers and positions of up to `max` unacknowledged steps, in order.
    pub(super) fn unacknowledged_positions(&self, account: &str, max: usize) -> Vec<(u64, Position)> {
        let places = self.by_name.get(account).map(|account| account.steps.iter().take(max));
        let places = places.into_iter().flatten();
        places.map(|place| (place.seq, place.position)).collect()
    }

    /// Returns how many unacknowledged steps an account has.
    pub(super) fn unacknowledged_count(&self, account: &str) -> usize {
        self.by_name.get(account).map_or(0, |account| account.steps.len())
    }

    /// Whether all of the account's unacknowledged steps can be delayed, because nothing waits for them.
    pub(super) fn is_patient(&self, account: &str) -> bool {
        self.by_name.get(account).is_none_or(|account| account.urgent == 0)
    }

    /// Returns how many unacknowledged settlements the key has, and how many its account has.
    pub(super) fn pending_settlements(&self, account: &str, key: &KeyId) -> (u64, u64) {
        self.by_name.get(account).map_or((0, 0), |account| {
            (account.keys.get(key).copied().unwrap_or(0), account.settled)
        })
    }

    /// Returns, for each account, the number of its last step and the number of its last acknowledged step.
    pub(super) fn numbers(&self) -> BTreeMap<SmolStr, (u64, u64)> {
        let known = self.by_name.iter().filter(|(_, account)| account.last > 0);
        known
            .map(|(name, account)| (name.clone(), (account.last, account.watermark)))
            .collect()
    }

    /// Returns every account that has unacknowledged steps, and the number of the account's last step.
    pub(super) fn unacknowledged_accounts(&self) -> Vec<(SmolStr, u64)> {
        let behind = self
            .by_name
            .iter()
            .filter(|(_, account)| account.watermark < account.last);
        behind.map(|(name, account)| (name.clone(), account.last)).collect()
    }

    /// Raises the number of an account's last step to `last`, and the number of its last acknowledged step to `acknowledged`. Use
    /// this if the numbers are known but the steps themselves are not added.
    pub(super) fn restore_numbers(&mut self, name: SmolStr, last: u64, acknowledged: u64) {
        let account = self.by_name.entry(name).or_default();
        account.last = account.last.max(last);
        account.watermark = account.watermark.max(acknowledged);
    }

    /// Whether the store has forgotten steps of the account. They must be looked up before any step can be sent.
    pub(super) fn is_rewound(&self, account: &str) -> bool {
        self.rewound.contains(account)
    }

    /// Returns the accounts whose steps the store has forgotten, each with the two step numbers between which the missing steps
    /// lie. Both numbers are exclusive.
    pub(super) fn missing_ranges(&self) -> HashMap<SmolStr, (u64, u64)> {
        let range = |name: &SmolStr| {
            let account = self.by_name.get(name)?;
            let front = account.steps.front();
            let first = front.map_or(account.last.saturating_add(1), |place| place.seq);
            Some((name.clone(), (account.watermark, first)))
        };
        self.rewound.iter().filter_map(range).collect()
    }

    /// Inserts steps that were looked up. They are placed in front of the other unacknowledged steps. The lookup covered the
    /// steps with numbers greater than `above`.
    pub(super) fn restore(&mut self, name: &str, above: u64, places: Vec<RecordedStep>) {
        let Some(account) = self.by_name.get_mut(name) else {
            return;
        };
        for place in places.into_iter().rev() {
            let fits = account.steps.front().is_none_or(|front| place.seq < front.seq);
            if fits && place.seq > account.watermark {
                account.urgent += usize::from(!place.is_patient);
                account.steps.push_front(place);
                self.unacknowledged += 1;
            }
        }
        // If `above` is greater, the store has forgotten further steps during the lookup.
        if above <= account.watermark {
            self.rewound.remove(name);
        }
    }

    /// Returns the number of unacknowledged steps of all accounts.
    pub(super) fn unacknowledged(&self) -> u64 {
        self.unacknowledged
    }

    /// Returns the time at which the oldest unacknowledged step was recorded, in milliseconds since the Unix epoch; `None` if
    /// there is no such step.
    pub(super) fn oldest_ms(&self) -> Option<i64> {
        self.fronts().map(|place| place.at_ms).min()
    }

    /// Returns the position of the first unacknowledged step; `None` if there is no such step.
    pub(super) fn first_position(&self) -> Option<Position> {
        self.fronts().map(|place| place.position).min()
    }

    fn fronts(&self) -> impl Iterator<Item = &RecordedStep> {
        self.by_name.values().filter_map(|account| account.steps.front())
    }
}
