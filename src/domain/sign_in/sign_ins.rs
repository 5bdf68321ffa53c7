//! The sign-ins of one key, in one document: at most [`SIGN_INS_MAX`], each with the digests of its tokens.

use rand::CryptoRng;
use serde::{Deserialize, Serialize};

use crate::domain::{
    keys::{
        key::KeyId,
        secret::{KeyDigest, KeyPrefix, ServiceKey, random_base62},
    },
    sign_in::{
        document_name,
        tokens::{AccessGrant, RefreshToken, SIGN_IN_CHARS},
    },
};

/// Maximum number of sign-ins of one key. Beyond it, the least recently used one ends.
pub(crate) const SIGN_INS_MAX: usize = 16;
/// Maximum number of valid access tokens of one sign-in. Beyond it, the oldest one ends.
const ACCESS_MAX: usize = 8;
/// How long a replaced refresh token still gets its replacement, in seconds: a response may get lost, and two processes of one
/// agent may refresh at the same time.
const REPEATED_SECONDS: i64 = 60;

/// Lifetimes of tokens and sign-ins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TokenLifetimes {
    /// Lifetime of an access token, in seconds.
    pub access_seconds: i64,
    /// Lifetime of a sign-in, in seconds, no matter how often it is refreshed.
    pub sign_in_seconds: i64,
}

/// The document of a key's sign-ins.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SignIns {
    sign_ins: Vec<StoredSignIn>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct StoredSignIn {
    id: String,
    /// The digest of the key's text that the sign-in was approved with.
    key: KeyDigest,
    ends: i64,
    used: i64,
    refresh: KeyDigest,
    /// The digest of the previous refresh token, when it was replaced, and the salt from which its replacement was made.
    replaced: Option<(KeyDigest, i64, KeyDigest)>,
    access: Vec<(KeyDigest, i64)>,
}

/// The tokens issued to an agent.
#[derive(Debug)]
pub(crate) struct IssuedTokens {
    /// The access token, for requests.
    pub access: ServiceKey,
    /// Lifetime of the access token, in seconds.
    pub lasts_seconds: i64,
    /// The document of the access token.
    pub grant: AccessGrant,
    /// The refresh token, to get the next tokens.
    pub refresh: RefreshToken,
}

/// The outcome of a step, and the digests of the access tokens that it ended.
#[derive(Debug)]
pub(crate) struct StepOutcome<T> {
    pub outcome: T,
    pub ended: Vec<KeyDigest>,
}

/// Why a refresh token was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RefreshError {
    /// It does not belong to an active sign-in.
    Unknown,
    /// It was replaced before and may have been stolen, so the sign-in has ended (RFC 9700, section 4.14.2).
    Reused,
}

impl SignIns {
    /// The name of a key's document.
    pub(crate) fn document_name(key: &KeyId) -> KeyDigest {
        document_name("sign-ins", key.as_str())
    }

    /// The active sign-ins: when each was last given tokens, and when it ends, in seconds since the Unix epoch.
    pub(crate) fn active(&self, now: i64) -> impl Iterator<Item = (i64, i64)> {
        let lasting = self.sign_ins.iter().filter(move |one| now < one.ends);
        lasting.map(|one| (one.used, one.ends))
    }

    /// When the document is no longer needed, in seconds since the Unix epoch; `None`: it is not needed now.
    pub(crate) fn needed_until(&self) -> Option<i64> {
        self.sign_ins.iter().map(|one| one.ends).max()
    }

    /// Begins a sign-in with a key; `digest` is that of the key's text.
    pub(crate) fn begin(
        &mut self,
        (key, digest): (&KeyId, KeyDigest),
        prefix: &KeyPrefix,
        lifetimes: &TokenLifetimes,
        now: i64,
        rng: &mut impl CryptoRng,
    ) -> StepOutcome<IssuedTokens> {
        let mut ended = Vec::new();
        self.sign_ins.retain(|one| now < one.ends);
        while self.sign_ins.len() >= SIGN_INS_MAX {
            let oldest = self
                .sign_ins
                .iter()
                .min_by_key(|one| one.used)
                .map(|one| one.id.clone());
            ended.extend(self.end(&oldest.unwrap_or_default()));
        }
        let id = random_base62(SIGN_IN_CHARS, rng);
        let refresh = RefreshToken::generate(prefix, key, &id, rng);
        let mut one = StoredSignIn {
            id,
            key: digest,
            ends: now.saturating_add(lifetimes.sign_in_seconds),
            used: now,
            refresh: refresh.digest(),
            replaced: None,
            access: Vec::new(),
        };
        let (access, grant) = one.issue_access_token(key, prefix, lifetimes, (now, &mut ended), rng);
        self.sign_ins.push(one);
        let outcome = IssuedTokens::new(access, grant, refresh, now);
        StepOutcome { outcome, ended }
    }

    /// Issues new tokens and replaces the refresh token, if `is_good` accepts the key's text that the sign-in was approved
    /// with.
    pub(crate) fn refresh(
        &mut self,
        token: &RefreshToken,
        is_good: impl Fn(&KeyDigest) -> bool,
        prefix: &KeyPrefix,
        lifetimes: &TokenLifetimes,
        now: i64,
        rng: &mut impl CryptoRng,
    ) -> StepOutcome<Result<IssuedTokens, RefreshError>> {
        let mut ended = Vec::new();
        let presented = token.digest();
        let known = self.sign_ins.iter_mut().find(|one| one.id == token.sign_in());
        let Some(one) = known.filter(|one| now < one.ends && is_good(&one.key)) else {
            let outcome = Err(RefreshError::Unknown);
            return StepOutcome { outcome, ended };
        };
        let refresh = match one.replaced {
            _ if presented == one.refresh => {
                let mut salt = [0; 32];
                rng.fill_bytes(&mut salt);
                let salt = KeyDigest::from_bytes(salt);
                let next = token.next(&salt);
                one.replaced = Some((presented, now, salt));
                one.refresh = next.digest();
                next
            }
            Some((before, at, salt)) if presented == before && now < at.saturating_add(REPEATED_SECONDS) => {
                token.next(&salt)
            }
            _ => {
                let ended = self.end(token.sign_in());
                let outcome = Err(RefreshError::Reused);
                return StepOutcome { outcome, ended };
            }
        };
        one.used = now;
        let (access, grant) = one.issue_access_token(token.key(), prefix, lifetimes, (now, &mut ended), rng);
        let outcome = Ok(IssuedTokens::new(access, grant, refresh, now));
        StepOutcome { outcome, ended }
    }

    /// Whether a refresh token is the present or the previous one of a sign-in.
    pub(crate) fn contains(&self, token: &RefreshToken) -> bool {
        let presented = token.digest();
        let is_of = |one: &&StoredSignIn| one.id == token.sign_in();
        let known = self.sign_ins.iter().find(is_of);
        known
            .is_some_and(|one| one.refresh == presented || one.replaced.is_some_and(|(before, ..)| before == presented))
    }

    /// Ends a sign-in; returns the digests of the access tokens that end with it.
    pub(crate) fn end(&mut self, id: &str) -> Vec<KeyDigest> {
        let mut ended = Vec::new();
        self.sign_ins.retain(|one| {
            if one.id == id {
                ended.extend(one.access.iter().map(|(digest, _)| *digest));
            }
            one.id != id
        });
        ended
    }

    /// Ends all sign-ins; returns the digests of their access tokens.
    pub(crate) fn end_all(&mut self) -> Vec<KeyDigest> {
        let all = self.sign_ins.drain(..);
        all.flat_map(|one| one.access.into_iter().map(|(digest, _)| digest))
            .collect()
    }
}

impl IssuedTokens {
    fn new(access: ServiceKey, grant: AccessGrant, refresh: RefreshToken, now: i64) -> Self {
        Self {
            access,
            lasts_seconds: grant.until.saturating_sub(now),
            grant,
            refresh,
        }
    }
}

impl StoredSignIn {
    fn issue_access_token(
        &mut self,
        key: &KeyId,
        prefix: &KeyPrefix,
        lifetimes: &TokenLifetimes,
        (now, ended): (i64, &mut Vec<KeyDigest>),
        rng: &mut impl CryptoRng,
    ) -> (ServiceKey, AccessGrant) {
        self.access.retain(|(_, until)| now < *until);
        if self.access.len() >= ACCESS_MAX {
            ended.push(self.access.remove(0).0);
        }
        let access = ServiceKey::generate(prefix, rng);
        let until = now.saturating_add(lifetimes.access_seconds).min(self.ends);
        self.access.push((access.digest(), until));
        let grant = AccessGrant {
            key: key.clone(),
            digest: self.key,
            sign_in: self.id.clone(),
            until,
        };
        (access, grant)
    }
}

#[cfg(test)]
mod tests;
