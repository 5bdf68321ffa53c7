//! For whom segments are kept besides settlement: sinks of the consumption log that lack rows of them.

use std::collections::BTreeMap;

use crate::{config::JournalSink, journal::position::Position};

/// How far a sink is.
#[derive(Debug)]
pub(super) struct Holder {
    required: bool,
    /// The sink has all rows in front of it.
    pub(super) passed: Position,
    /// Rows that were given up.
    pub(super) dropped: u64,
}

/// All sinks that a journal feeds, by name.
#[derive(Debug, Default)]
pub(super) struct Holders(BTreeMap<&'static str, Holder>);

impl Holders {
    /// None of them is known to have anything.
    pub(super) fn new(sinks: &[JournalSink]) -> Self {
        let holder = |sink: &JournalSink| Holder {
            required: sink.required,
            passed: Position::START,
            dropped: 0,
        };
        Self(sinks.iter().map(|sink| (sink.name, holder(sink))).collect())
    }

    /// Whether nobody lacks the row at a position who may keep its segment.
    pub(super) fn taken(&self, row: Position, short: bool) -> bool {
        let keeps = |holder: &&Holder| holder.required || !short;
        self.0.values().filter(keeps).all(|holder| holder.passed > row)
    }

    pub(super) fn get(&self, sink: &str) -> Option<&Holder> {
        self.0.get(sink)
    }

    pub(super) fn get_mut(&mut self, sink: &str) -> Option<&mut Holder> {
        self.0.get_mut(sink)
    }

    /// Those that lack a row at a position or behind it, with what they have.
    pub(super) fn behind(&self, row: Position) -> Vec<(&'static str, Position)> {
        let behind = self.0.iter().filter(|(_, holder)| holder.passed <= row);
        behind.map(|(name, holder)| (*name, holder.passed)).collect()
    }
}
