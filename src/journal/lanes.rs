//! The lanes of a journal's folder: one for each process that uses it at the same time.
//!
//! A lane is a complete journal with its own node name. The first is the folder itself, the others are subfolders. Each
//! process writes to one lane. After an upgrade the old process continues in its lane until its last request is settled, and
//! the new one writes to another. When a process has ended, its lane is an orphaned journal: the serving process opens it,
//! settles what is open in it, and can resend steps that the store has forgotten.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use crate::{
    config::JournalConfig,
    journal::{
        error::JournalError,
        folder,
        handle::{Journal, OpenedJournal},
    },
};

/// How many processes may share the folder: one that serves, the others shutting down.
pub(crate) const LANES_MAX: usize = 16;

/// How a process starts among those that use the folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StartRole {
    /// On its own: it refuses to start if another process serves, but not if others are only shutting down.
    Alone,
    /// Started by the serving process, which vouches for all others.
    Successor,
}

/// The journals that a process opens at its start.
#[derive(Debug)]
pub(crate) struct ProcessJournals {
    /// The one that it writes to.
    pub(crate) own: OpenedJournal,
    /// The orphaned ones.
    pub(crate) orphaned: Vec<OpenedJournal>,
}

impl ProcessJournals {
    /// Opens all unused lanes, or a new one if there is none. Blocks until they are read.
    ///
    /// # Errors
    /// As for [`Journal::open`]; [`JournalError::InUse`] if another process serves with this folder, or all lanes are in use.
    pub(crate) fn open(settings: &JournalConfig, place: StartRole) -> Result<Self, JournalError> {
        let mut opened = Vec::new();
        for (number, path) in paths(settings).enumerate() {
            let is_new = number > 0 && !path.exists();
            if is_new && !opened.is_empty() {
                continue;
            }
            match open(settings, &path) {
                Ok(lane) => opened.push(lane),
                Err(JournalError::InUse(path)) => {
                    if place == StartRole::Alone && !folder::is_draining(&path) {
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
        Ok(Self { own, orphaned: opened })
    }

    /// The number of accounts of the lane that knows most.
    pub(crate) fn accounts_known(&self) -> usize {
        let lanes = self.orphaned.iter().chain([&self.own]);
        lanes.map(|lane| lane.journal.accounts_known()).max().unwrap_or(0)
    }
}

/// The result of [`open_left`].
#[derive(Debug)]
pub(crate) struct OrphanScan {
    /// The journals that were opened.
    pub(crate) opened: Vec<OpenedJournal>,
    /// The number of journals that are open already, in this or another process.
    pub(crate) in_use: usize,
}

/// Opens the journals whose processes have ended since. One that cannot be opened is logged and added to `refused`, and not
/// tried again. Blocks until they are read.
pub(crate) fn open_orphaned(settings: &JournalConfig, refused: &mut BTreeSet<PathBuf>) -> OrphanScan {
    let (mut opened, mut in_use) = (Vec::new(), 0);
    // If the folder was replaced, the new one is not to be touched.
    for path in paths(settings).filter(|path| folder::is_journal(path)) {
        if refused.contains(&path) {
            continue;
        }
        match open(settings, &path) {
            Ok(lane) => opened.push(lane),
            Err(JournalError::InUse(_)) => in_use += 1,
            Err(error) => {
                tracing::error!(%error, "an orphaned journal cannot be opened: its requests are not settled before the next start");
                refused.insert(path);
            }
        }
    }
    OrphanScan { opened, in_use }
}

fn open(settings: &JournalConfig, path: &Path) -> Result<OpenedJournal, JournalError> {
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
        let first = ProcessJournals::open(&settings, StartRole::Alone).unwrap();
        let second = ProcessJournals::open(&settings, StartRole::Successor).unwrap();
        assert!(second.orphaned.is_empty());
        assert_ne!(first.own.journal.node(), second.own.journal.node());
        let mut refused = BTreeSet::new();
        let mut open_left = || open_orphaned(&settings, &mut refused);
        let found = open_left();
        assert_eq!((found.opened.len(), found.in_use), (0, 2));
        let node = first.own.journal.node().clone();
        drop(first);
        let OrphanScan { opened: left, in_use } = open_left();
        assert_eq!((left.len(), in_use), (1, 1));
        assert_eq!(*left[0].journal.node(), node);
        let found = open_left();
        assert_eq!((found.opened.len(), found.in_use), (0, 2), "it is open already");
        drop((left, second));
        let all = ProcessJournals::open(&settings, StartRole::Alone).unwrap();
        assert_eq!(
            (all.own.journal.node().clone(), all.orphaned.len()),
            (node, 1),
            "the first lane is written to again"
        );
    }

    #[test]
    fn who_serves_is_in_the_way_of_a_start_and_who_ends_is_not() {
        let folder = scratch();
        let settings = settings(folder.path());
        let first = ProcessJournals::open(&settings, StartRole::Alone).unwrap();
        let refused = ProcessJournals::open(&settings, StartRole::Alone);
        assert!(matches!(refused, Err(JournalError::InUse(_))), "{refused:?}");
        first.own.journal.mark_draining().unwrap();
        let third = ProcessJournals::open(&settings, StartRole::Alone).unwrap();
        assert_ne!(first.own.journal.node(), third.own.journal.node());
        drop((first, third));
        let again = ProcessJournals::open(&settings, StartRole::Alone).unwrap();
        let refused = ProcessJournals::open(&settings, StartRole::Alone);
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
        let lanes = ProcessJournals::open(&settings, StartRole::Alone).unwrap();
        std::fs::rename(&settings.path, folder.path().join("away")).unwrap();
        std::fs::create_dir(&settings.path).unwrap();
        assert!(open_orphaned(&settings, &mut BTreeSet::new()).opened.is_empty());
        assert_eq!(std::fs::read_dir(&settings.path).unwrap().count(), 0);
        drop(lanes);
    }

    #[test]
    fn a_copy_of_a_lane_is_refused_once() {
        let folder = scratch();
        let settings = settings(folder.path());
        drop(ProcessJournals::open(&settings, StartRole::Alone).unwrap());
        let copy = folder.path().join("lane-2");
        std::fs::create_dir(&copy).unwrap();
        for file in ["node", "place"] {
            std::fs::copy(folder.path().join(file), copy.join(file)).unwrap();
        }
        let mut refused = BTreeSet::new();
        assert_eq!(open_orphaned(&settings, &mut refused).opened.len(), 1);
        assert!(refused.contains(&copy));
        let refused = ProcessJournals::open(&settings, StartRole::Alone);
        assert!(matches!(refused, Err(JournalError::Copied(which)) if which == copy));
    }

    #[test]
    fn there_are_no_more_lanes_than_so_many() {
        let folder = scratch();
        let settings = settings(folder.path());
        let lanes: Vec<ProcessJournals> = (0..LANES_MAX)
            .map(|_| ProcessJournals::open(&settings, StartRole::Successor).unwrap())
            .collect();
        let refused = ProcessJournals::open(&settings, StartRole::Successor);
        assert!(matches!(refused, Err(JournalError::InUse(_))), "{refused:?}");
        drop(lanes);
    }
}
