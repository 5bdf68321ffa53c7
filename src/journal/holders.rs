//! The sinks of the consumption log, for which segments are kept in addition to settlement.

use std::collections::BTreeMap;

use crate::{config::JournalSink, journal::position::Position};

/// The position of a sink.
#[derive(Debug)]
pub(super) struct Retainer {
    required: bool,
    /// The sink has all rows before this position.
    pub(super) passed: Position,
    /// The number of rows that were removed although the sink lacked them.
    pub(super) dropped: u64,
}

/// The sinks that read the journal, by name. Segments are kept for them in addition to settlement.
#[derive(Debug, Default)]
pub(super) struct Retainers(BTreeMap<&'static str, Retainer>);

impl Retainers {
    /// Creates the sinks, all at the journal's start.
    pub(super) fn new(sinks: &[JournalSink]) -> Self {
        let holder = |sink: &JournalSink| Retainer {
            required: sink.required,
            passed: Position::START,
            dropped: 0,
        };
        Self(sinks.iter().map(|sink| (sink.name, holder(sink))).collect())
    }

    /// Whether every sink that may keep the row's segment has the row: only required sinks may if the disk is `short`.
    pub(super) fn can_remove(&self, row: Position, short: bool) -> bool {
        let keeps = |holder: &&Retainer| holder.required || !short;
        self.0.values().filter(keeps).all(|holder| holder.passed > row)
    }

    pub(super) fn get(&self, sink: &str) -> Option<&Retainer> {
        self.0.get(sink)
    }

    pub(super) fn get_mut(&mut self, sink: &str) -> Option<&mut Retainer> {
        self.0.get_mut(sink)
    }

    /// The sinks that lack the row at a position, with their own positions.
    pub(super) fn lagging(&self, row: Position) -> Vec<(&'static str, Position)> {
        let behind = self.0.iter().filter(|(_, holder)| holder.passed <= row);
        behind.map(|(name, holder)| (*name, holder.passed)).collect()
    }
}
