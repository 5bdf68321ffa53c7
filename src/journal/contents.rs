//! What stands in the segments, as far as it has to be at hand.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use super::{
    Position,
    accounts::{Accounts, Place},
};
use crate::domain::{
    key::KeyId,
    ledger::{Change, Record},
};

/// One segment.
#[derive(Debug, Default)]
pub(super) struct Summary {
    /// Where its data end.
    pub(super) end: u64,
    /// What it takes on disk.
    pub(super) bytes: u64,
    /// The first and the last step of each account in it.
    pub(super) steps: HashMap<String, (u64, u64)>,
    /// Requests that were admitted in it and have not ended.
    pub(super) running: u64,
    /// When its last record was written, in milliseconds since the Unix epoch.
    pub(super) last_ms: i64,
}

/// All segments that are kept.
#[derive(Debug, Default)]
pub(super) struct Contents {
    pub(super) segments: BTreeMap<u64, Summary>,
    pub(super) accounts: Accounts,
    /// Requests that have not ended, with the segment they were admitted in.
    running: HashMap<String, u64>,
    /// The last record of each key.
    pub(super) keys: HashMap<KeyId, Position>,
}

impl Contents {
    /// A segment is begun.
    pub(super) fn begin(&mut self, position: Position, bytes: u64, at_ms: i64) {
        let summary = Summary {
            end: position.offset,
            bytes,
            last_ms: at_ms,
            ..Summary::default()
        };
        self.segments.insert(position.segment, summary);
    }

    /// A record stands at a position, and the next one would at `end`. `live`: it was written by this process.
    pub(super) fn note(&mut self, record: &Record, position: Position, end: u64, at_ms: i64, live: bool) {
        let segment = self.segments.entry(position.segment).or_default();
        segment.end = end;
        segment.last_ms = at_ms;
        match record {
            Record::Admit(admitted) => {
                segment.running += 1;
                self.running.insert(admitted.row.request_id.clone(), position.segment);
            }
            Record::Checkpoint(_) => {}
            Record::Step { account, step } => {
                match segment.steps.get_mut(account) {
                    Some((_, last)) => *last = step.seq.max(*last),
                    None => {
                        segment.steps.insert(account.clone(), (step.seq, step.seq));
                    }
                }
                let key = match &step.change {
                    Change::Settle(settlement) => {
                        self.ended(&settlement.request);
                        live.then(|| Arc::new(settlement.key.clone()))
                    }
                    Change::Open { .. }
                    | Change::Credit { .. }
                    | Change::Adjust { .. }
                    | Change::Suspend
                    | Change::Resume
                    | Change::SetTerms { .. } => None,
                };
                let place = Place {
                    seq: step.seq,
                    position,
                    at_ms,
                    key,
                };
                self.accounts.recorded(account, place);
            }
            Record::Key { record, .. } => {
                self.keys.insert(record.id.clone(), position);
            }
            Record::KeyGone { id, .. } => {
                self.keys.insert(id.clone(), position);
            }
        }
    }

    fn ended(&mut self, request: &str) {
        let admitted_in = self.running.remove(request);
        if let Some(segment) = admitted_in.and_then(|number| self.segments.get_mut(&number)) {
            segment.running = segment.running.saturating_sub(1);
        }
    }

    /// Whether nothing in a segment is needed for settlement any more.
    pub(super) fn done(&self, number: u64) -> bool {
        self.segments.get(&number).is_some_and(|segment| {
            let acknowledged = |(name, (_, last)): (&String, &(u64, u64))| self.accounts.watermark(name) >= *last;
            segment.running == 0 && segment.steps.iter().all(acknowledged)
        })
    }

    /// A segment is gone.
    pub(super) fn remove(&mut self, number: u64) {
        self.segments.remove(&number);
        self.keys.retain(|_, position| position.segment != number);
    }

    /// The accounts with steps in the segments.
    pub(super) fn account_names(&self) -> Vec<String> {
        let mut names: Vec<String> = self
            .segments
            .values()
            .flat_map(|segment| segment.steps.keys().cloned())
            .collect();
        names.sort_unstable();
        names.dedup();
        names
    }
}
