//! The bounded feed of recent changes, which caches follow.

use std::collections::VecDeque;

use crate::domain::keys::secret::KeyDigest;
use crate::store::{Changes, FEED_CHANGES_MAX};

/// A version that counts changes, and the digests of the last [`FEED_CHANGES_MAX`] of them.
#[derive(Debug, Default)]
pub(super) struct Feed {
    version: u64,
    /// The digests of change `version - len + 1` to change `version`.
    changes: VecDeque<Vec<KeyDigest>>,
}

impl Feed {
    pub(super) fn version(&self) -> u64 {
        self.version
    }

    /// Adds one change.
    pub(super) fn push(&mut self, digests: Vec<KeyDigest>) {
        self.version += 1;
        if self.changes.len() == FEED_CHANGES_MAX {
            self.changes.pop_front();
        }
        self.changes.push_back(digests);
    }

    pub(super) fn since(&self, version: u64) -> Changes {
        let behind = self
            .version
            .checked_sub(version)
            .and_then(|behind| usize::try_from(behind).ok());
        let skipped = behind.and_then(|behind| self.changes.len().checked_sub(behind));
        Changes {
            version: self.version,
            digests: skipped.map(|skipped| self.changes.iter().skip(skipped).flatten().copied().collect()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(number: usize) -> KeyDigest {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&number.to_be_bytes());
        KeyDigest::from_bytes(bytes)
    }

    #[test]
    fn it_says_what_came_after_a_version() {
        let mut feed = Feed::default();
        assert_eq!(
            feed.since(0),
            Changes {
                version: 0,
                digests: Some(vec![])
            }
        );
        feed.push(vec![digest(1)]);
        feed.push(vec![digest(2), digest(3)]);
        assert_eq!(
            feed.since(1),
            Changes {
                version: 2,
                digests: Some(vec![digest(2), digest(3)])
            }
        );
        assert_eq!(feed.since(0).digests.unwrap().len(), 3);
        assert_eq!(feed.since(3).digests, None, "the store is behind the caller");
    }

    #[test]
    fn it_keeps_no_more_than_its_limit() {
        let mut feed = Feed::default();
        for number in 0..=FEED_CHANGES_MAX {
            feed.push(vec![digest(number)]);
        }
        assert_eq!(feed.since(0).digests, None);
        assert_eq!(feed.since(1).digests.unwrap().len(), FEED_CHANGES_MAX);
    }
}
