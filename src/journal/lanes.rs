//! The lanes of a journal's folder: one for each process that uses it at the same time.
//!
//! A lane is a whole journal with a node's name of its own. The first is the folder itself, the others are folders in it. A
//! process writes to one. After an upgrade the process before goes on in its lane until its last request is settled, and the
//! new one writes to another. A lane that nobody has any more is opened by who serves: what is left in it is settled, and
//! the store can be told again what it has forgotten.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use crate::{
    config::JournalConfig,
    journal::{
        error::JournalError,
        folder,
        handle::{Journal, Opened},
    },
};

/// The most lanes: so many processes may use a folder at the same time, all but one of them ending.
pub(crate) const LANES_MAX: usize = 16;

/// Where a process stands among those that use the folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// It serves alone: a process that serves already is in its way, one that only ends is not.
    Alone,
    /// The process that serves has started it, and vouches for all others.
    Successor,
}

/// The lanes that a process opens at its start.
#[derive(Debug)]
pub(crate) struct Lanes {
    /// The one that it writes to.
    pub(crate) own: Opened,
    /// Those that others have left.
    pub(crate) left: Vec<Opened>,
}

impl Lanes {
    /// Opens all lanes that nobody has, and a new one if there is none. Blocks for as long as reading them takes.
    ///
    /// # Errors
    /// As for [`Journal::open`]; [`JournalError::InUse`] where another process serves with this folder, or too many are ending.
    pub(crate) fn open(settings: &JournalConfig, place: Place) -> Result<Self, JournalError> {
        let mut opened = Vec::new();
        for (number, path) in paths(settings).enumerate() {
            let is_new = number > 0 && !path.exists();
            if is_new && !opened.is_empty() {
                continue;
            }
            match open(settings, &path) {
                Ok(lane) => opened.push(lane),
                Err(JournalError::InUse(path)) => {
                    if place == Place::Alone && !folder::is_draining(&path) {
                        return Err(JournalError::InUse(settings.path.clone()));
                    }
                }
                Err(error) => return Err(error),
            }
        }
        if opened.is_empty() {
            return Err(JournalError::InUse(settings.path.clone()));
        }
        let own = opened.remove(0);
        Ok(Self { own, left: opened })
    }

    /// How many accounts the lanes know, at least.
    pub(crate) fn accounts_known(&self) -> usize {
        let lanes = self.left.iter().chain([&self.own]);
        lanes.map(|lane| lane.journal.accounts_known()).max().unwrap_or(0)
    }
}

/// What came of looking for lanes that others have left.
#[derive(Debug)]
pub(crate) struct LeftBehind {
    /// Those that are open now.
    pub(crate) opened: Vec<Opened>,
    /// How many were open already, in this process or in others.
    pub(crate) in_use: usize,
}

/// Opens the lanes whose processes have ended since; those that are open already are passed over. One that cannot be opened is
/// said and `refused`: it is not tried again. Blocks for as long as reading them takes.
pub(crate) fn open_left(settings: &JournalConfig, refused: &mut BTreeSet<PathBuf>) -> LeftBehind {
    let (mut opened, mut in_use) = (Vec::new(), 0);
    // In the place of a folder that is gone there may be another one, which is nobody's business.
    for path in paths(settings).filter(|path| folder::is_journal(path)) {
        if refused.contains(&path) {
            continue;
        }
        match open(settings, &path) {
            Ok(lane) => opened.push(lane),
            Err(JournalError::InUse(_)) => in_use += 1,
            Err(error) => {
                tracing::error!(%error, "what is left in a lane of the journal is not settled before the next start");
                refused.insert(path);
            }
        }
    }
    LeftBehind { opened, in_use }
}

fn open(settings: &JournalConfig, path: &Path) -> Result<Opened, JournalError> {
    let settings = JournalConfig {
        path: path.to_owned(),
        ..settings.clone()
    };
    Journal::open(&settings)
}

fn paths(settings: &JournalConfig) -> impl Iterator<Item = PathBuf> {
    let first = std::iter::once(settings.path.clone());
    let others = (2..=LANES_MAX).map(|number| settings.path.join(format!("lane-{number}")));
    first.chain(others)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::tests::scratch;

    fn settings(folder: &Path) -> JournalConfig {
        JournalConfig {
            path: folder.to_owned(),
            segment_bytes: 1 << 16,
            keep: std::time::Duration::from_secs(3600),
            sync: std::time::Duration::from_millis(1),
            sinks: Vec::new(),
        }
    }

    #[test]
    fn a_successor_has_a_lane_of_its_own_and_opens_what_its_predecessor_leaves() {
        let folder = scratch();
        let settings = settings(folder.path());
        let first = Lanes::open(&settings, Place::Alone).unwrap();
        let second = Lanes::open(&settings, Place::Successor).unwrap();
        assert!(second.left.is_empty());
        assert_ne!(first.own.journal.node(), second.own.journal.node());
        let mut refused = BTreeSet::new();
        let mut open_left = || open_left(&settings, &mut refused);
        let found = open_left();
        assert_eq!((found.opened.len(), found.in_use), (0, 2));
        let node = first.own.journal.node().clone();
        drop(first);
        let LeftBehind { opened: left, in_use } = open_left();
        assert_eq!((left.len(), in_use), (1, 1));
        assert_eq!(*left[0].journal.node(), node);
        let found = open_left();
        assert_eq!((found.opened.len(), found.in_use), (0, 2), "it is open already");
        drop((left, second));
        let all = Lanes::open(&settings, Place::Alone).unwrap();
        assert_eq!(
            (all.own.journal.node().clone(), all.left.len()),
            (node, 1),
            "the first lane is written to again"
        );
    }

    #[test]
    fn who_serves_is_in_the_way_of_a_start_and_who_ends_is_not() {
        let folder = scratch();
        let settings = settings(folder.path());
        let first = Lanes::open(&settings, Place::Alone).unwrap();
        let refused = Lanes::open(&settings, Place::Alone);
        assert!(matches!(refused, Err(JournalError::InUse(_))), "{refused:?}");
        first.own.journal.note_draining().unwrap();
        let third = Lanes::open(&settings, Place::Alone).unwrap();
        assert_ne!(first.own.journal.node(), third.own.journal.node());
        drop((first, third));
        let again = Lanes::open(&settings, Place::Alone).unwrap();
        let refused = Lanes::open(&settings, Place::Alone);
        assert!(
            matches!(refused, Err(JournalError::InUse(_))),
            "the note went with the next start"
        );
        drop(again);
    }

    #[test]
    fn a_folder_in_the_place_of_one_that_is_gone_is_left_alone() {
        let folder = scratch();
        let settings = settings(&folder.path().join("journal"));
        let lanes = Lanes::open(&settings, Place::Alone).unwrap();
        std::fs::rename(&settings.path, folder.path().join("away")).unwrap();
        std::fs::create_dir(&settings.path).unwrap();
        assert!(open_left(&settings, &mut BTreeSet::new()).opened.is_empty());
        assert_eq!(std::fs::read_dir(&settings.path).unwrap().count(), 0);
        drop(lanes);
    }

    #[test]
    fn a_copy_of_a_lane_is_refused_once() {
        let folder = scratch();
        let settings = settings(folder.path());
        drop(Lanes::open(&settings, Place::Alone).unwrap());
        let copy = folder.path().join("lane-2");
        std::fs::create_dir(&copy).unwrap();
        for file in ["node", "place"] {
            std::fs::copy(folder.path().join(file), copy.join(file)).unwrap();
        }
        let mut refused = BTreeSet::new();
        assert_eq!(open_left(&settings, &mut refused).opened.len(), 1);
        assert!(refused.contains(&copy));
        let refused = Lanes::open(&settings, Place::Alone);
        assert!(matches!(refused, Err(JournalError::Copied(which)) if which == copy));
    }

    #[test]
    fn there_are_no_more_lanes_than_so_many() {
        let folder = scratch();
        let settings = settings(folder.path());
        let lanes: Vec<Lanes> = (0..LANES_MAX)
            .map(|_| Lanes::open(&settings, Place::Successor).unwrap())
            .collect();
        let refused = Lanes::open(&settings, Place::Successor);
        assert!(matches!(refused, Err(JournalError::InUse(_))), "{refused:?}");
        drop(lanes);
    }
}
