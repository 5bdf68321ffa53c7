//! An agent's request to sign in, with its codes (RFC 8628, section 3.2). A request exists until the agent redeems it for tokens
//! or it expires.

use std::{fmt, str::FromStr};

use rand::{CryptoRng, RngExt};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::domain::{
    keys::{
        KeyId,
        secret::{KeyDigest, KeyPrefix, random_base62},
    },
    sign_in::document_name,
};

/// The lifetime of a sign-in request, in seconds. Within it, a user must decide on the request and the agent must redeem it.
pub(crate) const REQUEST_SECONDS: i64 = 600;
/// The number of seconds for which an expired request stays stored, so that the agent can be notified of the expiry.
const TOLD_SECONDS: i64 = 300;
/// The length of a device code's secret part, in characters: 43 base 62 characters carry 256 bits.
const SECRET_CHARS: usize = 43;

/// A device code, which only the agent has. It consists of the user code, by which the request is found, and a secret part.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct DeviceCode {
    user_code: UserCode,
    text: String,
}

impl DeviceCode {
    /// Generates a random device code, including its user code.
    pub(crate) fn generate(rng: &mut impl CryptoRng) -> Self {
        let user_code = UserCode::generate(rng);
        let text = format!("{}-{}", user_code.letters(), random_base62(SECRET_CHARS, rng));
        Self { user_code, text }
    }

    /// Parses a device code in the form that [`DeviceCode::as_str`] returns; `None` if `text` does not have that form.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (letters, secret) = text.split_once('-')?;
        let user_code = UserCode::parse(letters).filter(|code| code.letters() == letters)?;
        let is_secret = secret.len() == SECRET_CHARS && secret.bytes().all(|byte| byte.is_ascii_alphanumeric());
        is_secret.then(|| Self {
            user_code,
            text: text.to_owned(),
        })
    }

    /// Returns the complete device code, for the agent.
    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the user code, which the agent displays to the user.
    pub(crate) fn user_code(&self) -> &UserCode {
        &self.user_code
    }

    /// Returns the digest of the device code. Only the digest is stored.
    pub(crate) fn digest(&self) -> KeyDigest {
        KeyDigest::from_bytes(Sha256::digest(&self.text).into())
    }
}

impl fmt::Debug for DeviceCode {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("DeviceCode(..)")
    }
}

/// The stored document of a sign-in request. Times are in seconds since the Unix epoch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DeviceRequest {
    code: KeyDigest,
    asked_at: i64,
    decision: SignInDecision,
}

/// A user's decision on a sign-in request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SignInDecision {
    /// The user has not decided yet.
    Pending,
    /// The agent gets tokens for the key with this id. The tokens are valid while the key's secret has this digest.
    Approved(KeyId, KeyDigest),
    /// The user has refused, and the agent gets no tokens.
    Denied,
}

/// The state of a sign-in request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DeviceRequestState {
    /// The request has not expired. The value is the user's decision, which may be pending.
    Decided(SignInDecision),
    /// The request has expired.
    Expired,
}

impl DeviceRequest {
    /// Creates a request at `now`, in seconds since the Unix epoch.
    pub(crate) fn new(code: &DeviceCode, now: i64) -> Self {
        Self {
            code: code.digest(),
            asked_at: now,
            decision: SignInDecision::Pending,
        }
    }

    /// Whether the request was created with this device code.
    pub(crate) fn has_code(&self, code: &DeviceCode) -> bool {
        self.code == code.digest()
    }

    /// Returns the request's state at `now`, in seconds since the Unix epoch.
    pub(crate) fn state(&self, now: i64) -> DeviceRequestState {
        if now >= self.asked_at.saturating_add(REQUEST_SECONDS) {
            return DeviceRequestState::Expired;
        }
        DeviceRequestState::Decided(self.decision.clone())
    }

    /// Returns the request's age in seconds. `now` is in seconds since the Unix epoch.
    pub(crate) fn age(&self, now: i64) -> i64 {
        now.saturating_sub(self.asked_at).max(0)
    }

    /// Returns the request with the user's decision. `None` if it was already decided or has expired.
    pub(crate) fn with_decision(&self, decision: SignInDecision, now: i64) -> Option<Self> {
        (self.state(now) == DeviceRequestState::Decided(SignInDecision::Pending)).then(|| Self {
            decision,
            ..self.clone()
        })
    }

    /// Returns the number of seconds, at least 1, for which the document must be stored after `now`.
    pub(crate) fn kept_seconds(&self, now: i64) -> u64 {
        let until = self.asked_at.saturating_add(REQUEST_SECONDS + TOLD_SECONDS);
        u64::try_from(until.saturating_sub(now)).unwrap_or(0).max(1)
    }
}

const LETTERS: &[u8; 20] = b"BCDFGHJKLMNPQRSTVWXZ";
const CHARS: usize = 8;

/// A user code. The user either types it, or compares it with the code that the agent displays. It has eight consonants, so that
/// it never spells a word (RFC 8628, section 6.1). Of the 20^8 possible codes, only a few are valid at the same time, each for a
/// few minutes.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct UserCode(String);

impl UserCode {
    /// Generates a random user code.
    pub(crate) fn generate(rng: &mut impl CryptoRng) -> Self {
        let mut letter = || LETTERS.get(rng.random_range(0..LETTERS.len())).copied().unwrap_or(b'B');
        Self((0..CHARS).map(|_| char::from(letter())).collect())
    }

    /// Parses a user code as users type it: in upper or lower case, with or without the hyphen. `None` if `text` is not a user
    /// code.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let typed = text.chars().filter(|char| !matches!(char, '-' | ' '));
        // One letter more than the length of a code is read, so that longer strings are rejected.
        let letters: String = typed.map(|char| char.to_ascii_uppercase()).take(CHARS + 1).collect();
        let is_code = letters.len() == CHARS && letters.bytes().all(|byte| LETTERS.contains(&byte));
        is_code.then_some(Self(letters))
    }

    /// Returns the eight letters, without the hyphen.
    pub(crate) fn letters(&self) -> &str {
        &self.0
    }

    /// Returns the name of the document that stores the request with this user code.
    pub(crate) fn document_name(&self) -> KeyDigest {
        document_name("device", &self.0)
    }
}

impl FromStr for UserCode {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        Self::parse(text).ok_or("give the eight letters that the agent displays")
    }
}

/// Formats the code as agents display it, such as `WDJB-MJHT`.
impl fmt::Display for UserCode {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, second) = self.0.split_at_checked(CHARS / 2).unwrap_or_default();
        write!(out, "{first}-{second}")
    }
}

impl fmt::Debug for UserCode {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("UserCode(..)")
    }
}

/// The stored document of an access token. Its name is the digest of the token. The token has the form of an API key, so it is
/// accepted wherever an API key is accepted. Like an API key, it is never forwarded to providers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessGrant {
    /// The id of the key for which the token authenticates requests.
    pub(crate) key: KeyId,
    /// The digest of the secret that the key had when the token was issued. The token is invalid once the key no longer has that
    /// secret.
    pub(crate) digest: KeyDigest,
    /// The id of the sign-in to which the token belongs.
    pub(crate) sign_in: String,
    /// The time at which the token expires, in seconds since the Unix epoch. The token is no longer valid in that second.
    pub(crate) until: i64,
}

impl AccessGrant {
    /// Returns the digest of the secret that the key had when the token was issued. `None` if the token has expired at `now`.
    pub(crate) fn key_digest_at(&self, now: i64) -> Option<KeyDigest> {
        (now < self.until).then_some(self.digest)
    }
}

const WORD: &str = "-refresh-";
/// The length of a refresh token's secret part in characters: 64 hexadecimal digits carry 256 bits.
const TOKEN_SECRET_CHARS: usize = 64;
/// The length of a sign-in's id in characters: 22 base 62 characters carry 128 bits.
pub(crate) const SIGN_IN_CHARS: usize = 22;

/// A refresh token: `<prefix>-refresh-<key id>-<sign-in>-<secret>`. The key id and the sign-in's id identify the token's stored
/// digest.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct RefreshToken {
    prefix: KeyPrefix,
    key: KeyId,
    sign_in: String,
    secret: String,
}

impl RefreshToken {
    /// Generates the first refresh token of a sign-in.
    pub(crate) fn generate(prefix: &KeyPrefix, key: &KeyId, sign_in: &str, rng: &mut impl CryptoRng) -> Self {
        let mut bytes = [0; 32];
        rng.fill_bytes(&mut bytes);
        Self {
            prefix: prefix.clone(),
            key: key.clone(),
            sign_in: sign_in.to_owned(),
            secret: KeyDigest::from_bytes(bytes).to_hex(),
        }
    }

    /// Returns the refresh token that replaces this one. Deriving it requires both this token and the salt. The same token and
    /// salt always give the same replacement.
    pub(crate) fn next(&self, salt: &KeyDigest) -> Self {
        let mut hash = Sha256::new();
        hash.update(salt.as_bytes());
        hash.update(&self.secret);
        Self {
            secret: KeyDigest::from_bytes(hash.finalize().into()).to_hex(),
            ..self.clone()
        }
    }

    /// Parses a refresh token in the form that [`RefreshToken::text`] returns; `None` if `text` does not have that form.
    pub(crate) fn parse(prefix: &KeyPrefix, text: &str) -> Option<Self> {
        let rest = text.strip_prefix(prefix.as_str())?.strip_prefix(WORD)?;
        let mut parts = rest.split('-');
        let (key, sign_in, secret) = (parts.next()?, parts.next()?, parts.next()?);
        let is_whole = parts.next().is_none()
            && sign_in.len() == SIGN_IN_CHARS
            && sign_in.bytes().all(|byte| byte.is_ascii_alphanumeric())
            && secret.len() == TOKEN_SECRET_CHARS
            && KeyDigest::from_hex(secret).is_some();
        let key = KeyId::parse(key).ok().filter(|_| is_whole)?;
        Some(Self {
            prefix: prefix.clone(),
            key,
            sign_in: sign_in.to_owned(),
            secret: secret.to_owned(),
        })
    }

    /// Returns the complete refresh token, for the agent.
    pub(crate) fn text(&self) -> String {
        format!("{}{WORD}{}-{}-{}", self.prefix, self.key, self.sign_in, self.secret)
    }

    /// Returns the id of the key to which the token belongs.
    pub(crate) fn key(&self) -> &KeyId {
        &self.key
    }

    /// Returns the id of the sign-in to which the token belongs.
    pub(crate) fn sign_in(&self) -> &str {
        &self.sign_in
    }

    /// Returns the digest of the refresh token. Only the digest is stored.
    pub(crate) fn digest(&self) -> KeyDigest {
        KeyDigest::from_bytes(Sha256::digest(self.text()).into())
    }
}

impl fmt::Debug for RefreshToken {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("RefreshToken(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn approved() -> SignInDecision {
        let id = KeyId::generate(&mut rand::rng());
        SignInDecision::Approved(id, KeyDigest::from_bytes([7; 32]))
    }

    #[test]
    fn a_code_is_read_again_and_nothing_else_is() {
        let code = DeviceCode::generate(&mut rand::rng());
        assert_eq!(DeviceCode::parse(code.as_str()).as_ref(), Some(&code));
        let other = DeviceCode::generate(&mut rand::rng());
        let request = DeviceRequest::new(&code, 0);
        assert!(request.has_code(&code) && !request.has_code(&other));
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
        assert_eq!(request.state(100), DeviceRequestState::Decided(SignInDecision::Pending));
        let yes = request.with_decision(approved(), 699).unwrap();
        assert!(matches!(
            yes.state(699),
            DeviceRequestState::Decided(SignInDecision::Approved(..))
        ));
        assert_eq!(
            yes.with_decision(SignInDecision::Denied, 699),
            None,
            "what was said was said"
        );
        assert_eq!(request.with_decision(approved(), 700), None);
        assert_eq!(
            (request.state(700), yes.state(700)),
            (DeviceRequestState::Expired, DeviceRequestState::Expired)
        );
        assert_eq!((request.kept_seconds(100), request.kept_seconds(99_999)), (900, 1));
    }

    #[test]
    fn a_document_has_no_code() {
        let code = DeviceCode::generate(&mut rand::rng());
        let request = DeviceRequest::new(&code, 1).with_decision(approved(), 1).unwrap();
        let text = serde_json::to_string(&request).unwrap();
        assert_eq!(serde_json::from_str::<DeviceRequest>(&text).unwrap(), request);
        let (_, secret) = code.as_str().split_once('-').unwrap();
        assert!(!text.contains(secret) && !text.contains(code.user_code().letters()));
    }

    #[test]
    fn a_code_is_read_as_people_type_it() {
        let code = UserCode::generate(&mut rand::rng());
        assert_eq!(code.letters().len(), CHARS);
        let shown = code.to_string();
        assert_eq!((shown.len(), shown.as_bytes()[4]), (CHARS + 1, b'-'));
        for typed in [
            shown.clone(),
            shown.to_lowercase(),
            code.letters().to_owned(),
            format!(" {} ", shown.replace('-', " ")),
        ] {
            assert_eq!(UserCode::parse(&typed).as_ref(), Some(&code), "{typed}");
        }
        for wrong in ["", "BCDF", "BCDFGHJKL", "ABCD-EFGH", "BCDF-GHJ\u{212a}", "12345678"] {
            assert_eq!(UserCode::parse(wrong), None, "{wrong}");
        }
        assert!(!format!("{code:?}").contains(code.letters()));
    }

    #[test]
    fn a_token_is_read_again_and_nothing_else_is() {
        let mut rng = rand::rng();
        let (prefix, key) = (KeyPrefix::default(), KeyId::generate(&mut rng));
        let token = RefreshToken::generate(&prefix, &key, "abcdefghijklmnopqrstuv", &mut rng);
        let text = token.text();
        assert_eq!(RefreshToken::parse(&prefix, &text).as_ref(), Some(&token));
        for wrong in [
            "",
            "weir-refresh-",
            text.get(1..).unwrap(),
            text.get(..text.len() - 1).unwrap(),
            &text.to_uppercase(),
            &format!("{text}-x"),
            &text.replace("refresh", "access"),
        ] {
            assert_eq!(RefreshToken::parse(&prefix, wrong), None, "{wrong}");
        }
        let salts = [1, 2].map(|byte| KeyDigest::from_bytes([byte; 32]));
        let next = token.next(&salts[0]);
        assert_eq!(next, token.next(&salts[0]));
        assert_ne!(next, token.next(&salts[1]));
        assert_eq!(RefreshToken::parse(&prefix, &next.text()), Some(next));
        assert!(!format!("{token:?}").contains(&text));
    }
}
