//! An agent's request to be signed in (RFC 8628, section 3.2), from its beginning until it is redeemed.

use std::fmt;

use rand::CryptoRng;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::domain::{
    keys::{
        key::KeyId,
        secret::{KeyDigest, random_base62},
    },
    sign_in::user_code::UserCode,
};

/// How long a request may wait for its decision.
pub(crate) const REQUEST_SECONDS: i64 = 600;
/// How much longer it is kept, so that whoever comes too late is told that.
const TOLD_SECONDS: i64 = 300;
/// 43 characters of 62 carry 256 bits.
const SECRET_CHARS: usize = 43;

/// The code that the agent alone knows: its user code, by which the request is found, and a secret.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct DeviceCode {
    user_code: UserCode,
    text: String,
}

impl DeviceCode {
    /// Draws one with its user code.
    pub(crate) fn generate(rng: &mut impl CryptoRng) -> Self {
        let user_code = UserCode::generate(rng);
        let text = format!("{}-{}", user_code.letters(), random_base62(SECRET_CHARS, rng));
        Self { user_code, text }
    }

    /// Reads what [`DeviceCode::as_str`] gave.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (letters, secret) = text.split_once('-')?;
        let user_code = UserCode::parse(letters).filter(|code| code.letters() == letters)?;
        let is_secret = secret.len() == SECRET_CHARS && secret.bytes().all(|byte| byte.is_ascii_alphanumeric());
        is_secret.then(|| Self {
            user_code,
            text: text.to_owned(),
        })
    }

    /// The code itself, for the agent.
    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    /// What its person is shown.
    pub(crate) fn user_code(&self) -> &UserCode {
        &self.user_code
    }

    /// What is kept of it.
    pub(crate) fn digest(&self) -> KeyDigest {
        KeyDigest::from_bytes(Sha256::digest(&self.text).into())
    }
}

impl fmt::Debug for DeviceCode {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("DeviceCode(..)")
    }
}

/// The document of a request. Times are seconds since the Unix epoch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DeviceRequest {
    code: KeyDigest,
    asked_at: i64,
    decision: Decision,
}

/// What a person has said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Decision {
    /// Nothing yet.
    Pending,
    /// The agent gets a token that stands for this key, as long as it has this text.
    Approved(KeyId, KeyDigest),
    /// The agent gets none.
    Denied,
}

/// Where a request stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It was decided, or waits for it.
    Decided(Decision),
    /// Its time is over.
    Expired,
}

impl DeviceRequest {
    /// A request that begins now.
    pub(crate) fn new(code: &DeviceCode, now: i64) -> Self {
        Self {
            code: code.digest(),
            asked_at: now,
            decision: Decision::Pending,
        }
    }

    /// Whether it is that of this code.
    pub(crate) fn is_of(&self, code: &DeviceCode) -> bool {
        self.code == code.digest()
    }

    /// Where it stands now.
    pub(crate) fn standing(&self, now: i64) -> Standing {
        if now >= self.asked_at.saturating_add(REQUEST_SECONDS) {
            return Standing::Expired;
        }
        Standing::Decided(self.decision.clone())
    }

    /// For how many seconds it has waited.
    pub(crate) fn age(&self, now: i64) -> i64 {
        now.saturating_sub(self.asked_at).max(0)
    }

    /// The same after a person's decision; `None` if none is waited for.
    pub(crate) fn decided(&self, decision: Decision, now: i64) -> Option<Self> {
        (self.standing(now) == Standing::Decided(Decision::Pending)).then(|| Self {
            decision,
            ..self.clone()
        })
    }

    /// For how many seconds from now it is kept; at least 1.
    pub(crate) fn kept_seconds(&self, now: i64) -> u64 {
        let until = self.asked_at.saturating_add(REQUEST_SECONDS + TOLD_SECONDS);
        u64::try_from(until.saturating_sub(now)).unwrap_or(0).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn approved() -> Decision {
        let id = KeyId::generate(&mut rand::rng());
        Decision::Approved(id, KeyDigest::from_bytes([7; 32]))
    }

    #[test]
    fn a_code_is_read_again_and_nothing_else_is() {
        let code = DeviceCode::generate(&mut rand::rng());
        assert_eq!(DeviceCode::parse(code.as_str()).as_ref(), Some(&code));
        let other = DeviceCode::generate(&mut rand::rng());
        let request = DeviceRequest::new(&code, 0);
        assert!(request.is_of(&code) && !request.is_of(&other));
        for wrong in [
            "",
            "BCDFGHJK",
            code.user_code().letters(),
            &code.as_str().to_lowercase(),
            &format!("{}x", code.as_str()),
        ] {
            assert_eq!(DeviceCode::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_request_is_decided_once_and_in_time() {
        let code = DeviceCode::generate(&mut rand::rng());
        let request = DeviceRequest::new(&code, 100);
        assert_eq!(request.standing(100), Standing::Decided(Decision::Pending));
        let yes = request.decided(approved(), 699).unwrap();
        assert!(matches!(yes.standing(699), Standing::Decided(Decision::Approved(..))));
        assert_eq!(yes.decided(Decision::Denied, 699), None, "what was said was said");
        assert_eq!(request.decided(approved(), 700), None);
        assert_eq!(
            (request.standing(700), yes.standing(700)),
            (Standing::Expired, Standing::Expired)
        );
        assert_eq!((request.kept_seconds(100), request.kept_seconds(99_999)), (900, 1));
    }

    #[test]
    fn a_document_has_no_code() {
        let code = DeviceCode::generate(&mut rand::rng());
        let request = DeviceRequest::new(&code, 1).decided(approved(), 1).unwrap();
        let text = serde_json::to_string(&request).unwrap();
        assert_eq!(serde_json::from_str::<DeviceRequest>(&text).unwrap(), request);
        let (_, secret) = code.as_str().split_once('-').unwrap();
        assert!(!text.contains(secret) && !text.contains(code.user_code().letters()));
    }
}
