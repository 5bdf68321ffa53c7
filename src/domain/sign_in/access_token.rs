//! Access tokens and refresh tokens of sign-ins.

use serde::{Deserialize, Serialize};

use crate::domain::keys::{key::KeyId, secret::KeyDigest};

/// The document of an access token, stored under the digest of its text. The token has the form of a key, so it is accepted
/// wherever a key is, and withheld from providers like a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessGrant {
    /// The key that the token stands for.
    pub(crate) key: KeyId,
    /// The digest of the key's text when the token was issued. The token ends with that text.
    pub(crate) digest: KeyDigest,
    /// The sign-in that the token belongs to.
    pub(crate) sign_in: String,
    /// When the token expires, in seconds since the Unix epoch. It is no longer valid in that second.
    pub(crate) until: i64,
}

impl AccessGrant {
    /// The digest of the key's text that the token stands for; `None` if the token has expired.
    pub(crate) fn key_digest_at(&self, now: i64) -> Option<KeyDigest> {
        (now < self.until).then_some(self.digest)
    }
}
