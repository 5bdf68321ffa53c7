//! A key gets a new text, and the one before may stay good beside it for a while.

use serde::{Deserialize, Serialize};

use crate::domain::keys::secret::KeyDigest;

/// For how long the text before stays good unless it is said, in seconds: a day, to bring the new one to wherever the key is used.
pub(crate) const OVERLAP_DEFAULT_SECONDS: u64 = 24 * 3600;
/// The longest that it may stay good, in seconds: 30 days.
pub(crate) const OVERLAP_MAX_SECONDS: u64 = 30 * 24 * 3600;

/// For how long the text of a key is told again to who has asked for it with the same seed, in seconds: their first answer was lost.
pub(crate) const TOLD_AGAIN_SECONDS: i64 = 120;

/// A new text for a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rotation {
    /// The digest of the new text.
    pub digest: KeyDigest,
    /// The last characters of its random part.
    pub hint: String,
    /// When it is made, in seconds since the Unix epoch.
    pub at: i64,
    /// The first second in which the text before is not good any more, since the Unix epoch; `None`: it ends at once.
    pub overlap_until: Option<i64>,
}

/// A text that a key had before its last rotation. It is good for the key beside the present one until its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FormerText {
    /// Its digest.
    pub digest: KeyDigest,
    /// The last characters of its random part.
    pub hint: String,
    /// The first second in which it is not good any more, since the Unix epoch.
    pub until: i64,
}

impl FormerText {
    /// Whether it is still good at this moment, in seconds since the Unix epoch.
    pub fn is_good(&self, now_unix: i64) -> bool {
        now_unix < self.until
    }
}
