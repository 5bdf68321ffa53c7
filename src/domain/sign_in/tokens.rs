//! The access tokens and refresh tokens that agents get when they sign in.

use std::fmt;

use rand::CryptoRng;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::domain::keys::{
    key::KeyId,
    secret::{KeyDigest, KeyPrefix},
};

/// The stored document of an access token; its name is the digest of the token. The token has the form of a key. So it is
/// accepted wherever a key is, and is withheld from providers like a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessGrant {
    /// The id of the key that the token can use.
    pub(crate) key: KeyId,
    /// The digest of the key's secret when the token was issued. The token ends when that secret ends.
    pub(crate) digest: KeyDigest,
    /// The id of the sign-in that the token belongs to.
    pub(crate) sign_in: String,
    /// The time at which the token expires, in seconds since the Unix epoch. In that second it is no longer valid.
    pub(crate) until: i64,
}

impl AccessGrant {
    /// Returns the digest of the key's secret when the token was issued; `None` if the token has expired at `now`.
    pub(crate) fn key_digest_at(&self, now: i64) -> Option<KeyDigest> {
        (now < self.until).then_some(self.digest)
    }
}

const WORD: &str = "-refresh-";
/// The length of a refresh token's secret part: 64 hexadecimal digits carry 256 bits.
const SECRET_CHARS: usize = 64;
/// The length of a sign-in's id: 22 base 62 characters carry 128 bits.
pub(crate) const SIGN_IN_CHARS: usize = 22;

/// A refresh token: `<prefix>-refresh-<key id>-<sign-in>-<secret>`. By the key id and the sign-in's id its stored digest is
/// found.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct RefreshToken {
    prefix: KeyPrefix,
    key: KeyId,
    sign_in: String,
    secret: String,
}

impl RefreshToken {
    /// Draws the first refresh token of a sign-in.
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

    /// Returns the refresh token that replaces this one. It can only be derived from this token and the salt together, and is
    /// always the same for both.
    pub(crate) fn next(&self, salt: &KeyDigest) -> Self {
        let mut hash = Sha256::new();
        hash.update(salt.as_bytes());
        hash.update(&self.secret);
        Self {
            secret: KeyDigest::from_bytes(hash.finalize().into()).to_hex(),
            ..self.clone()
        }
    }

    /// Parses a refresh token in the form that [`RefreshToken::text`] returns; `None` if `text` has another form.
    pub(crate) fn parse(prefix: &KeyPrefix, text: &str) -> Option<Self> {
        let rest = text.strip_prefix(prefix.as_str())?.strip_prefix(WORD)?;
        let mut parts = rest.split('-');
        let (key, sign_in, secret) = (parts.next()?, parts.next()?, parts.next()?);
        let is_whole = parts.next().is_none()
            && sign_in.len() == SIGN_IN_CHARS
            && sign_in.bytes().all(|byte| byte.is_ascii_alphanumeric())
            && secret.len() == SECRET_CHARS
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

    /// Returns the id of the key that the token belongs to.
    pub(crate) fn key(&self) -> &KeyId {
        &self.key
    }

    /// Returns the id of the sign-in that the token belongs to.
    pub(crate) fn sign_in(&self) -> &str {
        &self.sign_in
    }

    /// Returns the digest of the refresh token, which is stored.
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
