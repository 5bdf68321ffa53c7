//! This node's contribution to the stability record: whole hours, each reported again whenever it has grown.

use crate::{
    domain::faults::stability::{Hour, Share},
    journal::{handle::Journal, position::Position},
};

impl Journal {
    /// The hours whose counters have grown since the last call, each in full, and the position of the last row that is
    /// counted in any hour, for [`Journal::synced`] before they are told and [`Journal::shares_told`] after that. After the
    /// start every hour has grown. [`crate::journal::JournalError::NotDurable`] is no reason not to tell: a settlement is sent then, too.
    pub(crate) fn shares_changed(&self) -> (Vec<Share>, Position) {
        let mut state = self.engine.lock();
        let tallies = &mut state.contents.tallies;
        (tallies.take_changed(), tallies.last().unwrap_or(Position::START))
    }

    /// All hours that are at hand: those of the segments that are kept, and at least those of the last 48 hours.
    pub(crate) fn shares(&self) -> Vec<Share> {
        self.engine.lock().contents.tallies.shares()
    }

    /// These hours could not be told: [`Journal::shares_changed`] answers with them again.
    pub(crate) fn shares_untold(&self, hours: &[Hour]) {
        self.engine.lock().contents.tallies.untold(hours);
    }

    /// Everything up to a position that [`Journal::shares_changed`] gave has been told, of every hour, all calls before
    /// included. Segments whose rows are not told are kept: after a start without them their hours would lack something.
    pub(crate) fn shares_told(&self, position: Position) {
        let mut state = self.engine.lock();
        let told = &mut state.contents.told;
        *told = position.max(*told);
    }
}
