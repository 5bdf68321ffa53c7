//! Rotation: a key gets a new text, and the previous one may stay valid for a while.

use serde::{Deserialize, Serialize};

use crate::domain::keys::secret::KeyDigest;

/// The default overlap, in which the previous text stays valid, in seconds: a day, to deploy the new text wherever the key is
/// used.
pub(crate) const OVERLAP_DEFAULT_SECONDS: u64 = 24 * 3600;
/// The maximum overlap, in seconds: 30 days.
pub(crate) const OVERLAP_MAX_SECONDS: u64 = 30 * 24 * 3600;

/// How long a repeated request with the same seed gets the same key text again, in seconds: the first response may have been
/// lost.
pub(crate) const REPEATED_TEXT_SECONDS: i64 = 120;

/// A new text for a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rotation {
    /// The digest of the new text.
    pub digest: KeyDigest,
    /// The last characters of its random part.
    pub hint: String,
    /// The time of the rotation, in seconds since the Unix epoch.
    pub at: i64,
    /// When the previous text ends, in seconds since the Unix epoch; `None`: at once. It is no longer valid in that second.
    pub overlap_until: Option<i64>,
}

/// The text that a key had before its last rotation. It is valid until its end, like the present text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreviousKeyText {
    /// The digest of the text.
    pub digest: KeyDigest,
    /// The last characters of its random part.
    pub hint: String,
    /// When it ends, in seconds since the Unix epoch. It is no longer valid in that second.
    pub until: i64,
}

impl PreviousKeyText {
    /// Whether it is still valid at `now_unix`.
    pub fn is_valid(&self, now_unix: i64) -> bool {
        now_unix < self.until
    }
}
