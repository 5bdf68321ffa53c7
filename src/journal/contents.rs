//! What the journal keeps in memory about its segments.

use std::{
    collections::{BTreeMap, HashMap, hash_map::Entry},
    sync::Arc,
};

use smol_str::SmolStr;

use crate::{
    config::JournalSink,
    domain::{
        faults::stability::Hour,
        keys::key::KeyId,
        ledger::{Change, Checkpoint, NodeId, Record, Settlement, Step},
        quick_map::QuickMap,
    },
    journal::{
        accounts::{Accounts, RecordedStep},
        holders::Holders,
        index::{Index, Left, Rest},
        position::Position,
        tallies::{self, Tallies},
    },
};

/// What is known of one segment.
#[derive(Debug, Default)]
pub(super) struct Summary {
    /// The offset behind its last frame.
    pub(super) end: u64,
    /// Its size on disk, in bytes.
    pub(super) bytes: u64,
    /// The first and the last step of each account in it.
    pub(super) steps: QuickMap<SmolStr, (u64, u64)>,
    /// Requests that were admitted in it and have not ended.
    pub(super) running: u64,
    /// When its last record was written, in milliseconds since the Unix epoch.
    pub(super) last_ms: i64,
    /// Where the last row of a billed request begins, if it has any.
    pub(super) last_row: Option<u64>,
    /// What its index is to say besides; `None`: it has one, or is to have none.
    pub(super) rest: Option<Box<Rest>>,
}

/// A request that has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    /// Where its admission stands.
    pub(super) admitted: Position,
    /// Where the last stands that is known of it.
    pub(super) checkpoint: Option<Position>,
}

/// All segments that are kept.
#[derive(Debug, Default)]
pub(super) struct Contents {
    pub(super) segments: BTreeMap<u64, Summary>,
    pub(super) accounts: Accounts,
    /// Requests that have not ended.
    pub(super) running: QuickMap<SmolStr, Request>,
    /// The last record of each key.
    pub(super) keys: HashMap<KeyId, Position>,
    /// The last record of each account.
    pub(super) records: HashMap<SmolStr, Position>,
    /// What the rows count.
    pub(super) tallies: Tallies,
    /// The rows up to here are told to the stability record.
    pub(super) told: Position,
    /// How far sinks have the rows.
    pub(super) holders: Holders,
    /// By account, who last held leases that requests of processes before were admitted out of.
    pub(super) lessees: HashMap<SmolStr, NodeId>,
}

impl Contents {
    /// A segment is begun; the one before is complete.
    pub(super) fn begin(&mut self, position: Position, bytes: u64, at_ms: i64) {
        self.seal();
        let summary = Summary {
            end: position.offset,
            bytes,
            last_ms: at_ms,
            rest: Some(Box::default()),
            ..Summary::default()
        };
        self.segments.insert(position.segment, summary);
    }

    /// The last segment is complete: what its index has to say of running requests is what runs now.
    pub(super) fn seal(&mut self) {
        let Some(mut last) = self.segments.last_entry() else {
            return;
        };
        let number = *last.key();
        let Some(rest) = last.get_mut().rest.as_mut().filter(|rest| rest.left.is_none()) else {
            return;
        };
        let here = |position: Position| (position.segment == number).then_some(position.offset);
        let left = self.running.iter().map(|(request, places)| {
            let left = Left {
                admitted: here(places.admitted),
                checkpoint: places.checkpoint.and_then(here),
            };
            (request, left)
        });
        let left = left.filter(|(_, left)| *left != Left::default());
        rest.left = Some(left.map(|(request, left)| (request.clone(), left)).collect());
    }

    /// Nothing that is not on disk for certain gets an index.
    pub(super) fn index_none(&mut self) {
        for segment in self.segments.values_mut() {
            segment.rest = None;
        }
    }

    /// The first complete segment in front of `end` that is to have an index, and that.
    pub(super) fn take_index(&mut self, end: u64) -> Option<(u64, Index)> {
        let mut complete = self.segments.range_mut(..end);
        complete.find_map(|(number, segment)| {
            let rest = segment.rest.take_if(|rest| rest.left.is_some())?;
            let index = Index {
                end: segment.end,
                last_ms: segment.last_ms,
                last_row: segment.last_row,
                steps: segment.steps.clone(),
                rest: *rest,
            };
            Some((*number, index))
        })
    }

    /// A segment behind the others is as its index says. The store has acknowledged all its steps.
    pub(super) fn indexed(&mut self, number: u64, index: Index) {
        let at = |offset: u64| Position {
            segment: number,
            offset,
        };
        let rest = index.rest;
        for request in &rest.ended {
            self.ended(request);
        }
        for (account, (_, last)) in &index.steps {
            self.accounts.known(account.clone(), *last, *last);
        }
        let keys = rest.keys.into_iter().map(|(key, offset)| (key, at(offset)));
        self.keys.extend(keys);
        let records = rest.records.into_iter().map(|(account, offset)| (account, at(offset)));
        self.records.extend(records);
        self.tallies.segment(&rest.tallies, index.last_row.map(at));
        let mut running = 0;
        for (request, left) in rest.left.into_iter().flatten() {
            let checkpoint = left.checkpoint.map(at);
            match (self.running.entry(request), left.admitted) {
                (Entry::Occupied(mut known), _) => {
                    let known = known.get_mut();
                    known.checkpoint = checkpoint.or(known.checkpoint);
                }
                (Entry::Vacant(free), Some(offset)) => {
                    let admitted = at(offset);
                    free.insert(Request { admitted, checkpoint });
                    running += 1;
                }
                // Its admission is lost.
                (Entry::Vacant(_), None) => {}
            }
        }
        let summary = Summary {
            end: index.end,
            bytes: index.end,
            steps: index.steps,
            running,
            last_ms: index.last_ms,
            last_row: index.last_row,
            rest: None,
        };
        self.segments.insert(number, summary);
    }

    /// A record stands at a position, and the next one would at `end`. `live`: it was written by this process.
    pub(super) fn note(&mut self, record: &Record, position: Position, end: u64, at_ms: i64, live: bool) {
        self.grow(position, end, at_ms);
        match record {
            Record::Admit(admitted) => {
                if let Entry::Vacant(free) = self.running.entry(admitted.row.request_id.clone()) {
                    free.insert(Request {
                        admitted: position,
                        checkpoint: None,
                    });
                    if let Some(segment) = self.segments.get_mut(&position.segment) {
                        segment.running += 1;
                    }
                }
            }
            Record::Checkpoints(checkpoints) => self.reached(checkpoints, position),
            Record::Step { account, step } => self.step(account, step, position, at_ms, live),
            Record::Key { record, .. } => self.key(&record.id, position),
            Record::KeyGone { id, .. } => self.key(id, position),
            Record::Account { account, .. } => self.record(account, position),
        }
    }

    /// Checkpoints stand at a position, and the next record would at `end`.
    pub(super) fn checkpoints(&mut self, checkpoints: &[Checkpoint], position: Position, end: u64, at_ms: i64) {
        self.grow(position, end, at_ms);
        self.reached(checkpoints, position);
    }

    fn grow(&mut self, position: Position, end: u64, at_ms: i64) {
        let segment = self.segments.entry(position.segment).or_default();
        segment.end = end;
        segment.last_ms = at_ms;
    }

    fn reached(&mut self, checkpoints: &[Checkpoint], position: Position) {
        for checkpoint in checkpoints {
            if let Some(request) = self.running.get_mut(&checkpoint.request) {
                request.checkpoint = Some(position);
            }
        }
    }

    fn key(&mut self, id: &KeyId, position: Position) {
        self.keys.insert(id.clone(), position);
        if let Some(rest) = self.rest(position.segment) {
            rest.keys.insert(id.clone(), position.offset);
        }
    }

    fn record(&mut self, account: &SmolStr, position: Position) {
        self.records.insert(account.clone(), position);
        if let Some(rest) = self.rest(position.segment) {
            rest.records.insert(account.clone(), position.offset);
        }
    }

    fn step(&mut self, account: &str, step: &Step, position: Position, at_ms: i64, live: bool) {
        if let Some(segment) = self.segments.get_mut(&position.segment) {
            match segment.steps.get_mut(account) {
                Some((_, last)) => *last = step.seq.max(*last),
                None => {
                    segment.steps.insert(account.into(), (step.seq, step.seq));
                }
            }
        }
        let mut is_patient = false;
        let key = match &step.change {
            Change::Settle(settlement) => {
                self.settled(settlement, position);
                is_patient = settlement.lease.is_some();
                if let Some(lease) = settlement.lease.as_ref().filter(|_| !live) {
                    self.lessees.insert(account.into(), lease.holder.clone());
                }
                // Of a lease the store knows how many run in it, whatever is settled.
                (live && !is_patient).then(|| Arc::new(settlement.key.clone()))
            }
            Change::Open { .. } | Change::Credit { .. } | Change::Adjust { .. } => None,
        };
        let place = RecordedStep {
            seq: step.seq,
            position,
            at_ms,
            key,
            is_patient,
            kept: None,
        };
        self.accounts.recorded(account, place);
    }

    fn settled(&mut self, settlement: &Settlement, position: Position) {
        let admitted_in = self.ended(&settlement.request);
        if admitted_in.is_some_and(|number| number != position.segment)
            && let Some(rest) = self.rest(position.segment)
        {
            rest.ended.push(settlement.request.clone());
        }
        let Some(row) = &settlement.row else { return };
        self.tallies.row(row, position);
        if let Some(segment) = self.segments.get_mut(&position.segment) {
            segment.last_row = Some(position.offset);
            if let Some(rest) = &mut segment.rest {
                tallies::count(row, |hour| rest.tallies.entry(hour).or_default());
            }
        }
    }

    /// A request has ended; the answer is the segment that it was admitted in.
    fn ended(&mut self, request: &str) -> Option<u64> {
        let number = self.running.remove(request)?.admitted.segment;
        if let Some(segment) = self.segments.get_mut(&number) {
            segment.running = segment.running.saturating_sub(1);
        }
        Some(number)
    }

    fn rest(&mut self, number: u64) -> Option<&mut Rest> {
        self.segments.get_mut(&number)?.rest.as_deref_mut()
    }

    /// Whether nothing in a segment is needed for settlement, or for the stability record, any more.
    pub(super) fn done(&self, number: u64) -> bool {
        self.segments.get(&number).is_some_and(|segment| {
            let acknowledged = |(name, (_, last)): (&SmolStr, &(u64, u64))| self.accounts.watermark(name) >= *last;
            let told = |offset: u64| {
                let segment = number;
                self.told >= Position { segment, offset }
            };
            segment.running == 0 && segment.steps.iter().all(acknowledged) && segment.last_row.is_none_or(told)
        })
    }

    /// Whether every sink has the segment's rows, or every required one where the disk is `short`; and an embedded store has all
    /// its steps in its file.
    pub(super) fn taken(&self, number: u64, short: bool) -> bool {
        let store = self.holders.get(JournalSink::EMBEDDED_STORE.name);
        let written = store.is_none_or(|store| store.passed.segment > number);
        written
            && self.segments.get(&number).is_some_and(|segment| {
                let last = segment.last_row.map(|offset| Position {
                    segment: number,
                    offset,
                });
                last.is_none_or(|last| self.holders.taken(last, short))
            })
    }

    /// A segment is gone.
    pub(super) fn remove(&mut self, number: u64, now_ms: i64) {
        self.segments.remove(&number);
        self.keys.retain(|_, position| position.segment != number);
        self.records.retain(|_, position| position.segment != number);
        self.tallies.removed(number, Hour::of_ms(now_ms));
    }

    /// The accounts with steps in the segments.
    pub(super) fn account_names(&self) -> Vec<SmolStr> {
        let mut names: Vec<SmolStr> = self
            .segments
            .values()
            .flat_map(|segment| segment.steps.keys().cloned())
            .collect();
        names.sort_unstable();
        names.dedup();
        names
    }
}
