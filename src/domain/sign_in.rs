//! Sign-ins of agents by the OAuth device flow (RFC 8628): the codes, the tokens, and the documents that store them.
//!
//! A document is a short text that is stored for a limited time under a digest as its name. It contains only digests of codes
//! and tokens.

pub(crate) mod access_token;
pub(crate) mod device_request;
pub(crate) mod endpoint;
pub(crate) mod managed_settings;
pub(crate) mod refresh_token;
pub(crate) mod sign_ins;
pub(crate) mod user_code;

use sha2::{Digest, Sha256};

use crate::domain::keys::secret::KeyDigest;

/// The name of a document: the digest of its kind and a text. The kind is a word that no key begins with, so that documents of
/// different kinds, and keys, never have the same name.
fn document_name(kind: &str, text: &str) -> KeyDigest {
    KeyDigest::from_bytes(Sha256::digest(format!("{kind} {text}")).into())
}
