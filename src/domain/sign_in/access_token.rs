//! What is kept of an access token. Its text has the form of a key, so it is looked for wherever a key may stand, and kept from
//! providers as one is.

use serde::{Deserialize, Serialize};

use crate::domain::keys::{key::KeyId, secret::KeyDigest};

/// The document of an access token, under the digest of its text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessGrant {
    /// The key that it stands for.
    pub(crate) key: KeyId,
    /// The key's digest when it was issued: one that was rotated since is not stood for any more.
    pub(crate) digest: KeyDigest,
    /// The sign-in that it belongs to.
    pub(crate) sign_in: String,
    /// The first second in which it is not good any more, since the Unix epoch.
    pub(crate) until: i64,
}

impl AccessGrant {
    /// The digest of the key that it stands for now.
    pub(crate) fn stands_for(&self, now: i64) -> Option<KeyDigest> {
        (now < self.until).then_some(self.digest)
    }
}
