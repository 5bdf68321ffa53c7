//! Secrets and service keys. Their types prevent accidental printing. The format of a key can be checked without the store, and
//! only the digest of a key is stored.

#[cfg(test)]
mod tests;

use std::fmt;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit, Mac};
use rand::{CryptoRng, RngExt};
use sha2::{Digest, Sha256};
use thiserror::Error;

/// The maximum length of the prefix of service keys, in characters.
pub(crate) const KEY_PREFIX_CHARS_MAX: usize = 16;
/// The length of a service key's random part in characters: 43 base 62 characters carry 256 bits.
pub(crate) const KEY_RANDOM_CHARS: usize = 43;
/// The length of a service key's checksum in characters: 6 base 62 characters can represent any 32-bit number.
pub(crate) const KEY_CHECKSUM_CHARS: usize = 6;
/// The length of a key's hint in characters. The hint is the end of the key, by which users recognise the key.
pub(crate) const KEY_HINT_CHARS: usize = 4;

const BASE62: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// A credential for a provider or a store. It has no `Display`, and its `Debug` does not reveal it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a credential that was read from its source.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns the credential in clear, for the code that sends it.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Whether the credential is empty. It is empty if its source exists but has no content.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Secret(..)")
    }
}

/// The prefix of every service key of an installation: 1 to 16 characters of `a-z0-9`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct KeyPrefix(String);

impl KeyPrefix {
    /// Checks a prefix from the configuration.
    pub(crate) fn new(text: &str) -> Result<Self, KeyPrefixError> {
        let fits = (1..=KEY_PREFIX_CHARS_MAX).contains(&text.len());
        if fits
            && text
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
        {
            Ok(Self(text.to_owned()))
        } else {
            Err(KeyPrefixError { text: text.to_owned() })
        }
    }

    /// Returns the prefix as it is in the configuration.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for KeyPrefix {
    fn default() -> Self {
        Self("weir".to_owned())
    }
}

impl fmt::Display for KeyPrefix {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// The error that a prefix in the configuration is not allowed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "the key prefix {text:?} is invalid: a prefix must have 1 to {KEY_PREFIX_CHARS_MAX} characters, each from a-z or 0-9"
)]
pub(crate) struct KeyPrefixError {
    text: String,
}

/// The reason why a string is not a service key. The error never repeats the string.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum KeyFormatError {
    /// The string does not begin with the installation's prefix and a hyphen.
    #[error("the key does not begin with the prefix of this service's keys")]
    Prefix,
    /// The part after the prefix is too short or too long.
    #[error("the key has the wrong length")]
    Length,
    /// The part after the prefix has characters outside `0-9A-Za-z`.
    #[error("the key contains characters other than letters and digits")]
    Alphabet,
    /// The checksum does not match, because of a typing error or because the key was invented.
    #[error("the key's checksum does not match")]
    Checksum,
}

/// A service key in clear: `<prefix>-<43 base62><6 base62 checksum>`. The checksum is the CRC32 of everything before it, and has
/// leading zeros if necessary. A key exists in clear only while a request with the key is running, and while the new key is
/// displayed for the only time. It is never stored in clear.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct ServiceKey {
    text: String,
}

impl ServiceKey {
    /// Generates a new key with a cryptographic random number generator.
    pub(crate) fn generate(prefix: &KeyPrefix, rng: &mut impl CryptoRng) -> Self {
        let mut text = format!("{prefix}-{}", random_base62(KEY_RANDOM_CHARS, rng));
        let checksum = checksum_of(&text);
        text.push_str(&checksum);
        Self { text }
    }

    /// Derives a key from a seed and a purpose. The same prefix, seed and purpose always give the same key.
    pub(crate) fn from_seed(prefix: &KeyPrefix, seed: &[u8], purpose: &str) -> Self {
        let mut text = format!("{prefix}-{}", derived_base62(KEY_RANDOM_CHARS, seed, purpose));
        let checksum = checksum_of(&text);
        text.push_str(&checksum);
        Self { text }
    }

    /// Parses a key, and checks its format and checksum. A mistyped key is therefore rejected without a call to the store. The
    /// checksum does not detect invented keys, because anybody can compute it.
    pub(crate) fn parse(prefix: &KeyPrefix, text: &str) -> Result<Self, KeyFormatError> {
        let (before, rest) = text.split_once('-').ok_or(KeyFormatError::Prefix)?;
        if before != prefix.as_str() {
            return Err(KeyFormatError::Prefix);
        }
        if rest.len() != KEY_RANDOM_CHARS + KEY_CHECKSUM_CHARS {
            return Err(KeyFormatError::Length);
        }
        if !rest.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return Err(KeyFormatError::Alphabet);
        }
        let (body, checksum) = text
            .split_at_checked(text.len() - KEY_CHECKSUM_CHARS)
            .ok_or(KeyFormatError::Length)?;
        if checksum_of(body) != checksum {
            return Err(KeyFormatError::Checksum);
        }
        Ok(Self { text: text.to_owned() })
    }

    /// Returns the key in clear, so that a new key can be displayed once.
    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the random part, without prefix and checksum.
    pub(crate) fn random(&self) -> &str {
        let (_, rest) = self.text.split_once('-').unwrap_or_default();
        rest.get(..KEY_RANDOM_CHARS).unwrap_or(rest)
    }

    /// Returns the digest of the key. The store finds the key by this digest.
    pub(crate) fn digest(&self) -> KeyDigest {
        KeyDigest(Sha256::digest(self.text.as_bytes()).into())
    }

    /// Returns the last characters of the key, by which users recognise it. They are part of the checksum. They reveal no more
    /// about the random part than the same number of characters of the random part would.
    pub(crate) fn hint(&self) -> String {
        let start = self.text.len().saturating_sub(KEY_HINT_CHARS);
        self.text.get(start..).unwrap_or_default().to_owned()
    }
}

impl fmt::Debug for ServiceKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("ServiceKey(..)")
    }
}

/// The SHA-256 digest of a key, which does not reveal the key. `Debug` writes only the beginning of the digest, so that logs
/// cannot be matched with a store.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct KeyDigest([u8; 32]);

impl From<KeyDigest> for String {
    fn from(digest: KeyDigest) -> Self {
        digest.to_hex()
    }
}

impl TryFrom<String> for KeyDigest {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::from_hex(&text).ok_or("the digest is not 64 lower-case hexadecimal digits")
    }
}

impl KeyDigest {
    /// Creates a digest from its 32 bytes.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Formats the digest as 64 lower-case hexadecimal digits.
    pub fn to_hex(self) -> String {
        const HEX: &[u8; 16] = b"0123456789abcdef";
        let digit = |nibble: u8| HEX.get(usize::from(nibble)).map_or('0', |&byte| char::from(byte));
        self.0
            .iter()
            .flat_map(|&byte| [digit(byte >> 4), digit(byte & 15)])
            .collect()
    }

    /// Parses exactly the form that [`KeyDigest::to_hex`] writes, so that each digest has only one string form. `None` for any
    /// other string.
    pub fn from_hex(text: &str) -> Option<Self> {
        let nibble = |byte: u8| match byte {
            b'0'..=b'9' => Some(byte - b'0'),
            b'a'..=b'f' => Some(byte - b'a' + 10),
            _ => None,
        };
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        if pairs.len() != 32 || !rest.is_empty() {
            return None;
        }
        let mut bytes = [0; 32];
        for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
            *byte = nibble(*high)? << 4 | nibble(*low)?;
        }
        Some(Self(bytes))
    }
}

impl fmt::Debug for KeyDigest {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hex = self.to_hex();
        write!(out, "KeyDigest({}..)", hex.get(..8).unwrap_or_default())
    }
}

/// Generates `chars` random base 62 characters, all with the same probability.
pub(crate) fn random_base62(chars: usize, rng: &mut impl CryptoRng) -> String {
    (0..chars).map(|_| base62_digit(rng.random_range(0..62))).collect()
}

fn checksum_of(text: &str) -> String {
    let mut left = crc32fast::hash(text.as_bytes());
    let mut digits = ['0'; KEY_CHECKSUM_CHARS];
    for digit in digits.iter_mut().rev() {
        *digit = base62_digit(left % 62);
        left /= 62;
    }
    digits.iter().collect()
}

/// Derives `chars` base 62 characters from a seed and a purpose. The same inputs give the same characters in every version of
/// weir and of its dependencies. The characters are computed from HMAC-SHA-256 over a counter and the purpose. Bytes that would
/// make some characters more frequent are skipped.
pub(crate) fn derived_base62(chars: usize, seed: &[u8], purpose: &str) -> String {
    let mut digits = String::new();
    for block in 0_u64.. {
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(seed) else {
            break;
        };
        mac.update(&block.to_be_bytes());
        mac.update(purpose.as_bytes());
        let bytes = mac.finalize().into_bytes();
        let even = bytes.iter().filter(|byte| **byte < 4 * 62);
        digits.extend(even.map(|byte| base62_digit(u32::from(*byte) % 62)));
        if digits.len() >= chars {
            break;
        }
    }
    digits.truncate(chars);
    digits
}

pub(super) fn base62_digit(value: u32) -> char {
    usize::try_from(value)
        .ok()
        .and_then(|value| BASE62.get(value))
        .map_or('0', |&byte| char::from(byte))
}

/// The prefix of a webhook secret whose rest is encoded in base64.
const ENCODED: &str = "whsec_";

/// A signer of webhook messages.
#[derive(Clone)]
pub(crate) struct WebhookSigner(Hmac<Sha256>);

impl fmt::Debug for WebhookSigner {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Signer(..)")
    }
}

impl WebhookSigner {
    /// Creates a signer. If the secret begins with `whsec_`, the rest is decoded from base64. Otherwise, the bytes of the
    /// complete secret are used.
    ///
    /// # Errors
    /// The secret begins with `whsec_`, and the rest is not base64. The error does not repeat the secret.
    pub(crate) fn new(secret: &Secret) -> Result<Self, String> {
        let bytes = match secret.expose().strip_prefix(ENCODED) {
            Some(encoded) => STANDARD
                .decode(encoded)
                .map_err(|_| format!("the text after `{ENCODED}` is not base64"))?,
            None => secret.expose().as_bytes().to_vec(),
        };
        // HMAC accepts keys of any length, so this never fails.
        Hmac::new_from_slice(&bytes)
            .map(Self)
            .map_err(|error| error.to_string())
    }

    /// Returns the signature headers of a message. `time` is in seconds since the Unix epoch.
    pub(crate) fn headers(&self, id: &str, time: i64, body: &[u8]) -> [(&'static str, String); 3] {
        let mut mac = self.0.clone();
        mac.update(format!("{id}.{time}.").as_bytes());
        mac.update(body);
        let signature = format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()));
        [
            ("webhook-id", id.to_owned()),
            ("webhook-timestamp", time.to_string()),
            ("webhook-signature", signature),
        ]
    }
}

#[cfg(test)]
mod webhook_signature_tests {
    use super::*;

    fn signature(secret: &str, id: &str, time: i64, body: &str) -> String {
        let signer = WebhookSigner::new(&Secret::new(secret)).unwrap();
        let [_, _, (_, signature)] = signer.headers(id, time, body.as_bytes());
        signature
    }

    #[test]
    fn a_signature_is_that_of_the_standards_own_example() {
        // The example is from the tests of the libraries at https://github.com/standard-webhooks/standard-webhooks.
        let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
        let id = "msg_p5jXN8AQM9LWM0D4loKWxJek";
        let signature = signature(secret, id, 1_614_265_330, r#"{"test": 2432232314}"#);
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn secret_id_time_and_body_all_count() {
        let first = signature("a", "1", 1, "x");
        assert_eq!(first, signature("a", "1", 1, "x"));
        for other in [
            signature("b", "1", 1, "x"),
            signature("a", "2", 1, "x"),
            signature("a", "1", 2, "x"),
            signature("a", "1", 1, "y"),
        ] {
            assert_ne!(first, other);
        }
    }

    #[test]
    fn a_secret_is_text_or_base64() {
        assert_eq!(
            signature("plain", "a", 1, "b"),
            signature("whsec_cGxhaW4=", "a", 1, "b")
        );
        let wrong = WebhookSigner::new(&Secret::new("whsec_?")).unwrap_err();
        assert!(wrong.contains("not base64") && !wrong.contains('?'), "{wrong}");
    }
}
