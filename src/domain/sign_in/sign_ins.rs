//! The sign-ins of one key, in one document: so many at the most, each with its tokens' digests.

use rand::CryptoRng;
use serde::{Deserialize, Serialize};

use crate::domain::{
    keys::{
        key::KeyId,
        secret::{KeyDigest, KeyPrefix, ServiceKey, random_base62},
    },
    sign_in::{
        access_token::AccessGrant,
        named,
        refresh_token::{RefreshToken, SIGN_IN_CHARS},
    },
};

/// The most sign-ins of one key; beyond it the one that was used longest ago ends.
pub(crate) const SIGN_INS_MAX: usize = 16;
/// The most access tokens of one sign-in that are good at a time; beyond it the first one ends.
const ACCESS_MAX: usize = 8;
/// How long a refresh token that was replaced gives the one in its place once more: an answer may be lost on its way, and two
/// processes of one agent may ask at the same time.
const REPEATED_SECONDS: i64 = 60;

/// How long tokens last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lifetimes {
    /// An access token.
    pub access_seconds: i64,
    /// A sign-in in all, however often it is refreshed.
    pub sign_in_seconds: i64,
}

/// The document of a key's sign-ins.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SignIns {
    sign_ins: Vec<SignIn>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct SignIn {
    id: String,
    /// The digest of the key's text that was signed in with.
    key: KeyDigest,
    ends: i64,
    used: i64,
    refresh: KeyDigest,
    /// The refresh token before this one, when it was replaced, and what makes the one in its place.
    replaced: Option<(KeyDigest, i64, KeyDigest)>,
    access: Vec<(KeyDigest, i64)>,
}

/// The tokens that an agent gets.
#[derive(Debug)]
pub(crate) struct Tokens {
    /// For its requests.
    pub access: ServiceKey,
    /// For how many seconds it is good.
    pub lasts_seconds: i64,
    /// What is kept of it.
    pub grant: AccessGrant,
    /// For the next tokens.
    pub refresh: RefreshToken,
}

/// What a step leads to: whatever else has ended, by the digests of the access tokens.
#[derive(Debug)]
pub(crate) struct Stepped<T> {
    pub outcome: T,
    pub ended: Vec<KeyDigest>,
}

/// Why a refresh token gives nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotRefreshed {
    /// It belongs to no sign-in that lasts.
    Unknown,
    /// It was replaced before: somebody else has it too, so the sign-in has ended (RFC 9700, section 4.14.2).
    Reused,
}

impl SignIns {
    /// The name of a key's document.
    pub(crate) fn name(key: &KeyId) -> KeyDigest {
        named("sign-ins", key.as_str())
    }

    /// Those that last now: when each was last given tokens, and when it ends, since the Unix epoch.
    pub(crate) fn lasting(&self, now: i64) -> impl Iterator<Item = (i64, i64)> {
        let lasting = self.sign_ins.iter().filter(move |one| now < one.ends);
        lasting.map(|one| (one.used, one.ends))
    }

    /// Until when the document is needed, since the Unix epoch; `None`: it is not.
    pub(crate) fn needed_until(&self) -> Option<i64> {
        self.sign_ins.iter().map(|one| one.ends).max()
    }

    /// Begins a sign-in with a key.
    pub(crate) fn begin(
        &mut self,
        (key, digest): (&KeyId, KeyDigest),
        prefix: &KeyPrefix,
        lifetimes: &Lifetimes,
        now: i64,
        rng: &mut impl CryptoRng,
    ) -> Stepped<Tokens> {
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
        let mut one = SignIn {
            id,
            key: digest,
            ends: now.saturating_add(lifetimes.sign_in_seconds),
            used: now,
            refresh: refresh.digest(),
            replaced: None,
            access: Vec::new(),
        };
        let (access, grant) = one.access(key, prefix, lifetimes, (now, &mut ended), rng);
        self.sign_ins.push(one);
        let outcome = Tokens::new(access, grant, refresh, now);
        Stepped { outcome, ended }
    }

    /// New tokens for a refresh token, which they replace, if the key's text that was signed in with still is one.
    pub(crate) fn refresh(
        &mut self,
        token: &RefreshToken,
        is_good: impl Fn(&KeyDigest) -> bool,
        prefix: &KeyPrefix,
        lifetimes: &Lifetimes,
        now: i64,
        rng: &mut impl CryptoRng,
    ) -> Stepped<Result<Tokens, NotRefreshed>> {
        let mut ended = Vec::new();
        let presented = token.digest();
        let known = self.sign_ins.iter_mut().find(|one| one.id == token.sign_in());
        let Some(one) = known.filter(|one| now < one.ends && is_good(&one.key)) else {
            let outcome = Err(NotRefreshed::Unknown);
            return Stepped { outcome, ended };
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
                let outcome = Err(NotRefreshed::Reused);
                return Stepped { outcome, ended };
            }
        };
        one.used = now;
        let (access, grant) = one.access(token.key(), prefix, lifetimes, (now, &mut ended), rng);
        let outcome = Ok(Tokens::new(access, grant, refresh, now));
        Stepped { outcome, ended }
    }

    /// Whether a refresh token is the present one of a sign-in, or the one before.
    pub(crate) fn has(&self, token: &RefreshToken) -> bool {
        let presented = token.digest();
        let is_of = |one: &&SignIn| one.id == token.sign_in();
        let known = self.sign_ins.iter().find(is_of);
        known
            .is_some_and(|one| one.refresh == presented || one.replaced.is_some_and(|(before, ..)| before == presented))
    }

    /// Ends a sign-in: the access tokens that ended with it.
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

    /// Ends all of them.
    pub(crate) fn end_all(&mut self) -> Vec<KeyDigest> {
        let all = self.sign_ins.drain(..);
        all.flat_map(|one| one.access.into_iter().map(|(digest, _)| digest))
            .collect()
    }
}

impl Tokens {
    fn new(access: ServiceKey, grant: AccessGrant, refresh: RefreshToken, now: i64) -> Self {
        Self {
            access,
            lasts_seconds: grant.until.saturating_sub(now),
            grant,
            refresh,
        }
    }
}

impl SignIn {
    fn access(
        &mut self,
        key: &KeyId,
        prefix: &KeyPrefix,
        lifetimes: &Lifetimes,
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
