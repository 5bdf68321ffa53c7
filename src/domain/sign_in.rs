//! Sign-ins of agents by the OAuth device flow (RFC 8628): the codes, the tokens, and the documents that are kept of them.
//!
//! A document is a short text under a digest, which is kept for a while. Of codes and tokens it has digests only.

pub(crate) mod access_token;
pub(crate) mod device_request;
pub(crate) mod endpoint;
pub(crate) mod managed_settings;
pub(crate) mod refresh_token;
pub(crate) mod sign_ins;
pub(crate) mod user_code;

use sha2::{Digest, Sha256};

use crate::domain::keys::secret::KeyDigest;

/// The digest of a text, with a word before it that no key begins with: what is kept under one kind of name is never found
/// under another.
fn named(kind: &str, text: &str) -> KeyDigest {
    KeyDigest::from_bytes(Sha256::digest(format!("{kind} {text}")).into())
}
