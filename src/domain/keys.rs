//! API keys: their places in requests, their records and limits, and the headers and query parameters that are never forwarded to
//! a provider.

pub(crate) mod change;
pub(crate) mod forwarding;
pub(crate) mod secret;
pub(crate) mod terms;
#[cfg(test)]
mod tests;

use std::fmt;

use rand::CryptoRng;
use serde::{Deserialize, Serialize};
use smol_str::{SmolStr, format_smolstr};
use thiserror::Error;

use crate::domain::{
    keys::{
        secret::{KeyDigest, KeyPrefix, ServiceKey, base62_digit, random_base62},
        terms::KeyTerms,
    },
    wire::protocol::Protocol,
};

/// The request headers that can carry a credential. None of them is ever forwarded to a provider.
pub(crate) const CREDENTIAL_HEADERS: [&str; 6] = [
    "x-api-key",
    "authorization",
    "x-goog-api-key",
    "x-genai-api-key",
    "api-key",
    "proxy-authorization",
];

/// The values of all headers and query parameters in which a request can contain a key. A header that was sent twice has two
/// values.
#[derive(Debug, Default)]
pub(crate) struct PresentedCredentials<'a> {
    /// The values of the header `x-api-key`.
    pub x_api_key: Vec<&'a str>,
    /// The tokens after `Bearer ` in the header `authorization`. The token is empty if the header has another scheme or none.
    pub bearer: Vec<&'a str>,
    /// Whether a value of the header `authorization` does not begin with the scheme `Bearer`.
    pub lacks_bearer_scheme: bool,
    /// The values of the headers `x-goog-api-key` and `x-genai-api-key` together. The two headers are treated as one place.
    pub x_goog_api_key: Vec<&'a str>,
    /// The values of the query parameter `key`.
    pub query_key: Vec<&'a str>,
}

/// The reason why a request has no usable key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CredentialError {
    /// None of the places in which the protocol expects a key has a value.
    Missing,
    /// One of the places has two values.
    Ambiguous,
    /// The only value is that of the header `authorization`, and it does not begin with the scheme `Bearer`.
    BearerSchemeMissing,
    /// No value is a key of this service, because the prefix, the alphabet, the length or the checksum is wrong.
    Malformed,
}

/// Returns the key of a request. The key is taken from the place that the protocol prefers or, if no key is there, from the
/// protocol's second place. A value that does not have the format of this service's keys is skipped. Two values in one place are
/// an error, because different programs would use different values.
pub(crate) fn choose_key(
    protocol: Protocol,
    offered: &PresentedCredentials<'_>,
    prefix: &KeyPrefix,
) -> Result<ServiceKey, CredentialError> {
    // For Gemini-style requests, a bearer token is ignored, because Gemini CLI sends the token of the user's Google login there.
    let places: &[&Vec<&str>] = match protocol {
        Protocol::Messages => &[&offered.x_api_key, &offered.bearer],
        Protocol::Responses => &[&offered.bearer],
        Protocol::Gemini => &[&offered.x_goog_api_key, &offered.query_key],
    };
    if places.iter().any(|values| values.len() > 1) {
        return Err(CredentialError::Ambiguous);
    }
    let mut values = places.iter().filter_map(|values| values.first().copied()).peekable();
    if values.peek().is_none() {
        return Err(CredentialError::Missing);
    }
    let has_other_place = match protocol {
        Protocol::Messages => !offered.x_api_key.is_empty(),
        Protocol::Responses => false,
        Protocol::Gemini => true,
    };
    let error = match offered.lacks_bearer_scheme && !has_other_place {
        true => CredentialError::BearerSchemeMissing,
        false => CredentialError::Malformed,
    };
    values
        .find_map(|text| ServiceKey::parse(prefix, text).ok())
        .ok_or(error)
}

/// Whether a key is active or revoked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum KeyState {
    /// The key works, unless it has expired.
    Active,
    /// The key was revoked permanently.
    Revoked {
        /// The time of the revocation, in seconds since the Unix epoch.
        at: i64,
    },
}

/// The stored record of a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyRecord {
    /// The key's public identifier.
    pub id: KeyId,
    /// The key's display name.
    pub name: String,
    /// The account that pays for the key's requests.
    pub account: SmolStr,
    /// The time at which the key was created, in seconds since the Unix epoch.
    pub created_at: i64,
    /// The time at which the key expires, in seconds since the Unix epoch; `None` if it never expires. From that second on, the
    /// key no longer works.
    pub expires_at: Option<i64>,
    /// The public names of the models that the key may request; `None` for all. An empty list allows no model.
    pub models: Option<Vec<String>>,
    /// Whether the key is active or revoked.
    #[serde(flatten)]
    pub state: KeyState,
    /// The last characters of the key, by which users recognise it.
    pub hint: String,
    /// The number of changes to this record.
    pub revision: u64,
    /// The key's quota and rate limits.
    #[serde(default)]
    pub terms: KeyTerms,
    /// The previous secret; `None` if the last rotation had no overlap. A version of weir that does not support this field drops
    /// it, which invalidates the previous secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub former: Option<PreviousKeyText>,
    /// The time at which the current secret was created, in seconds since the Unix epoch; `None` if it is the key's first secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text_since: Option<i64>,
}

/// The reason why a stored key does not work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum KeyInvalid {
    /// The key was revoked.
    #[error("the key has been revoked")]
    Revoked,
    /// The presented secret was replaced by a rotation, and the rotation's overlap is over.
    #[error("the key was rotated, and its old secret is no longer valid")]
    Replaced,
    /// The key has expired.
    #[error("the key has expired")]
    Expired,
}

impl KeyRecord {
    /// Checks whether the key works at `now_unix`, in seconds since the Unix epoch, with the secret that has the digest `text`. A
    /// revocation takes precedence over other errors.
    pub fn check(&self, text: &KeyDigest, now_unix: i64) -> Result<(), KeyInvalid> {
        match (self.state, self.expires_at) {
            (KeyState::Revoked { .. }, _) => Err(KeyInvalid::Revoked),
            _ if self.is_ended_text(text, now_unix) => Err(KeyInvalid::Replaced),
            (KeyState::Active, Some(end)) if end <= now_unix => Err(KeyInvalid::Expired),
            (KeyState::Active, _) => Ok(()),
        }
    }

    /// Whether `text` is the digest of the key's previous secret and that secret is no longer valid.
    pub fn is_ended_text(&self, text: &KeyDigest, now_unix: i64) -> bool {
        let former = self.former.as_ref();
        former.is_some_and(|former| former.digest == *text && !former.is_valid(now_unix))
    }

    /// Returns the digest of the previous secret, even if that secret is no longer valid. `None` if the record has no previous
    /// secret.
    pub fn former_digest(&self) -> Option<KeyDigest> {
        self.former.as_ref().map(|former| former.digest)
    }

    /// Returns the record after a rotation, with the next revision. `before` is the digest of the secret that is replaced. Any
    /// older secret becomes invalid.
    pub fn rotated(&self, before: &KeyDigest, rotation: &Rotation) -> Self {
        let former = rotation.overlap_until.map(|until| PreviousKeyText {
            digest: *before,
            hint: self.hint.clone(),
            until,
        });
        Self {
            hint: rotation.hint.clone(),
            text_since: Some(rotation.at),
            revision: self.revision.saturating_add(1),
            former,
            ..self.clone()
        }
    }

    /// Returns the record without its previous secret. Returns it unchanged if it has no previous secret.
    pub fn overlap_ended(&self) -> Self {
        match self.former {
            None => self.clone(),
            Some(_) => Self {
                former: None,
                text_since: None,
                revision: self.revision.saturating_add(1),
                ..self.clone()
            },
        }
    }

    /// Returns the record with a revocation at `at`, in seconds since the Unix epoch. Returns it unchanged if the key is already
    /// revoked.
    pub fn revoked(&self, at: i64) -> Self {
        match self.state {
            KeyState::Revoked { .. } => self.clone(),
            KeyState::Active => Self {
                state: KeyState::Revoked { at },
                revision: self.revision.saturating_add(1),
                ..self.clone()
            },
        }
    }

    /// Merges this record with `told`, a copy of the same key's record from elsewhere. Returns the record to store, or `None` if
    /// this record need not change. The record with the higher revision wins. A revocation in either record always wins, because
    /// it is permanent.
    pub fn merged_with(&self, told: &Self) -> Option<Self> {
        let is_newer = told.revision > self.revision;
        let later = if is_newer { told } else { self };
        let revoked = [self.state, told.state]
            .into_iter()
            .find(|state| matches!(state, KeyState::Revoked { .. }));
        match (later.state, revoked) {
            // Neither record has this combination, so it gets a revision that is higher than both.
            (KeyState::Active, Some(state)) => Some(Self {
                state,
                revision: later.revision.saturating_add(1),
                ..later.clone()
            }),
            _ => is_newer.then(|| told.clone()),
        }
    }

    /// Whether the key is allowed to request the model with this public name.
    pub fn allows_model(&self, model: &str) -> bool {
        self.models
            .as_ref()
            .is_none_or(|models| models.iter().any(|allowed| allowed == model))
    }
}

/// A key with its digest, its record and its last use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyView {
    /// The digest of the current secret. The key is stored under this digest.
    pub digest: KeyDigest,
    /// The key's record.
    pub record: KeyRecord,
    /// The time at which the key was last used, in seconds since the Unix epoch; `None` if it was never used. The time is stored
    /// with a delay of some seconds.
    pub last_used: Option<i64>,
}

impl KeyView {
    /// Whether `digest` is the digest of the key's current secret, or of a previous secret that is still valid.
    pub(crate) fn has_text(&self, digest: &KeyDigest, now_unix: i64) -> bool {
        let former = self.record.former.as_ref();
        self.digest == *digest || former.is_some_and(|former| former.digest == *digest && former.is_valid(now_unix))
    }

    /// Returns the digest of the key's current secret and, if the record has a previous secret, the digest of that secret.
    pub(crate) fn digests(&self) -> impl Iterator<Item = KeyDigest> {
        std::iter::once(self.digest).chain(self.record.former_digest())
    }

    /// Merges this key with a copy of the same key from elsewhere, as described for [`KeyRecord::merged_with`]. `digest` and
    /// `told` are the copy's digest and record. Returns the key to store, or `None` if this key need not change. The secret of
    /// the record with the higher revision wins.
    pub(crate) fn merged_with(&self, digest: &KeyDigest, told: &KeyRecord) -> Option<Self> {
        let is_newer = told.revision > self.record.revision;
        Some(Self {
            digest: if is_newer { *digest } else { self.digest },
            record: self.record.merged_with(told)?,
            last_used: self.last_used,
        })
    }
}

const KEY_ID_START: &str = "key_";
const KEY_ID_RANDOM_CHARS: usize = 16;

/// The public identifier of a key: `key_` and 16 base 62 characters. It is not a credential, so it can be logged.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct KeyId(SmolStr);

impl KeyId {
    /// Generates a random id.
    pub fn generate(rng: &mut impl CryptoRng) -> Self {
        Self(format_smolstr!(
            "{KEY_ID_START}{}",
            random_base62(KEY_ID_RANDOM_CHARS, rng)
        ))
    }

    /// Derives an id from a digest. Equal digests give equal ids.
    pub(crate) fn from_digest(digest: &[u8; 32]) -> Self {
        let bytes = digest.iter().take(KEY_ID_RANDOM_CHARS);
        let random: String = bytes.map(|byte| base62_digit(u32::from(*byte) % 62)).collect();
        Self(format_smolstr!("{KEY_ID_START}{random}"))
    }

    /// Parses an id that comes from an untrusted source.
    pub fn parse(text: &str) -> Result<Self, KeyIdError> {
        let random = text.strip_prefix(KEY_ID_START).ok_or(KeyIdError)?;
        if random.len() == KEY_ID_RANDOM_CHARS && random.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            Ok(Self(text.into()))
        } else {
            Err(KeyIdError)
        }
    }

    /// Returns the id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl std::str::FromStr for KeyId {
    type Err = KeyIdError;

    fn from_str(text: &str) -> Result<Self, KeyIdError> {
        Self::parse(text)
    }
}

impl TryFrom<String> for KeyId {
    type Error = KeyIdError;

    fn try_from(text: String) -> Result<Self, KeyIdError> {
        Self::parse(&text)
    }
}

/// The error that a string is not a key id. It does not repeat the string, because a user may have pasted a key instead of its
/// id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("not a key id: give a key id of the form `key_` and 16 letters or digits, as `weir key list` prints it")]
pub struct KeyIdError;

/// The default overlap of a rotation: the time for which the previous secret stays valid, in seconds. During this time, which is
/// one day, users can deploy the new secret.
pub(crate) const OVERLAP_DEFAULT_SECONDS: u64 = 24 * 3600;
/// The maximum overlap, in seconds: 30 days.
pub(crate) const OVERLAP_MAX_SECONDS: u64 = 30 * 24 * 3600;

/// The period, in seconds, in which a client can repeat an operation with the same seed. The repeated operation returns the same
/// secret again. This is for clients that have lost the first answer.
pub(crate) const REPEATED_TEXT_SECONDS: i64 = 120;

/// The replacement of a key's secret with a new secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rotation {
    /// The digest of the new secret.
    pub digest: KeyDigest,
    /// The last characters of the new key, by which users recognise it.
    pub hint: String,
    /// The time of the rotation, in seconds since the Unix epoch.
    pub at: i64,
    /// The time at which the previous secret becomes invalid, in seconds since the Unix epoch; `None` if it becomes invalid at
    /// once. From that second on, the secret is no longer valid.
    pub overlap_until: Option<i64>,
}

/// The secret that a key had before its last rotation. While it is valid, it works like the current secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreviousKeyText {
    /// The digest of the previous secret.
    pub digest: KeyDigest,
    /// The last characters of the key with the previous secret, by which users recognise it.
    pub hint: String,
    /// The time at which the previous secret becomes invalid, in seconds since the Unix epoch. From that second on, it is no
    /// longer valid.
    pub until: i64,
}

impl PreviousKeyText {
    /// Whether the previous secret is still valid at `now_unix`, in seconds since the Unix epoch.
    pub fn is_valid(&self, now_unix: i64) -> bool {
        now_unix < self.until
    }
}
