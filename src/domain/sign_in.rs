//! Sign-ins of agents by the OAuth device flow (RFC 8628): codes, tokens, and the stored documents that contain them.
//!
//! A document is a short string in the store. The store deletes the document when the document's lifetime ends. The name of a
//! document is a digest. A document contains only digests of codes and tokens, never the codes and tokens themselves. All
//! sign-ins of one key, at most [`SIGN_INS_MAX`], are in one document.

pub(crate) mod device_request;
#[cfg(test)]
mod tests;

use http::Uri;
use rand::CryptoRng;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::domain::{
    keys::{
        KeyId,
        secret::{KeyDigest, KeyPrefix, ServiceKey, random_base62},
    },
    sign_in::device_request::{AccessGrant, RefreshToken, SIGN_IN_CHARS},
};

/// Returns the name of a document: the digest of the document's kind, a space and `text`. Documents of different kinds have
/// different names. None of these names is the digest of an API key or an access token, because a key or a token contains no
/// space.
fn document_name(kind: &str, text: &str) -> KeyDigest {
    KeyDigest::from_bytes(Sha256::digest(format!("{kind} {text}")).into())
}

/// A URL to which secrets are allowed to be sent: `https://host[:port]/path[?query]`, or an `http://` URL whose host is this
/// machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SecureUrl {
    text: String,
    pub(crate) https: bool,
    /// The host. An IPv6 address has no brackets here.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// The host and, if the URL contains one, the port, as written in the URL.
    pub(crate) authority: String,
    pub(crate) path: String,
}

impl SecureUrl {
    /// Parses a URL. Returns `None` in three cases: `text` is not an HTTP URL, the URL contains user information, or secrets sent
    /// to the URL would cross a network unencrypted.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let uri: Uri = text.parse().ok()?;
        let authority = uri.authority()?;
        let https = match uri.scheme_str()? {
            "https" => true,
            "http" => false,
            _ => return None,
        };
        let host = authority
            .host()
            .trim_start_matches('[')
            .trim_end_matches(']')
            .to_owned();
        let is_here = host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
        if authority.as_str().contains('@') || !(https || is_here) {
            return None;
        }
        Some(Self {
            text: text.to_owned(),
            https,
            host,
            port: authority.port_u16().unwrap_or(if https { 443 } else { 80 }),
            authority: authority.as_str().to_owned(),
            path: uri.path_and_query().map_or_else(|| "/".to_owned(), ToString::to_string),
        })
    }

    /// Returns the URL's scheme, host and port, such as `https://host:8443`.
    pub(crate) fn origin(&self) -> String {
        let scheme = if self.https { "https" } else { "http" };
        format!("{scheme}://{}", self.authority)
    }

    /// Returns the URL with `query`, such as `?a=b`, appended to the URL's own query.
    pub(crate) fn with_query(&self, query: &str) -> String {
        let text = self.text.split('#').next().unwrap_or_default();
        match (text.contains('?'), query.strip_prefix('?')) {
            (true, Some(more)) => format!("{text}&{more}"),
            _ => format!("{text}{query}"),
        }
    }
}

/// The settings that an operator has made for agents, in the form in which agents fetch them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ManagedSettings {
    /// The body of the answer, in JSON.
    pub body: String,
    /// The entity tag of the body, including its quotes.
    pub etag: String,
}

impl ManagedSettings {
    /// Renders `settings` as the body of an answer, with their checksum.
    pub(crate) fn new(settings: &Map<String, Value>) -> Self {
        let sorted = sorted(&Value::Object(settings.clone()));
        let digest: [u8; 32] = Sha256::digest(sorted.to_string()).into();
        let checksum = format!("sha256:{}", KeyDigest::from_bytes(digest).to_hex());
        let body = json!({ "uuid": uuid(&digest), "checksum": checksum, "settings": sorted }).to_string();
        Self {
            body,
            etag: format!("\"{checksum}\""),
        }
    }

    /// Whether the client already has these settings. `if_none_match` is the value of its header `if-none-match`.
    pub(crate) fn is_known(&self, if_none_match: &str) -> bool {
        if_none_match.split(',').any(|tag| tag.trim() == self.etag)
    }
}

/// Returns the value with the members of all objects sorted by name. The client computes the checksum from this form.
fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let mut names: Vec<&String> = members.keys().collect();
            names.sort_unstable();
            let pairs = names
                .into_iter()
                .filter_map(|name| Some((name.clone(), sorted(members.get(name)?))));
            Value::Object(pairs.collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(sorted).collect()),
        other => other.clone(),
    }
}

/// Derives a UUID from a digest (RFC 9562, version 8), so that equal settings have equal UUIDs.
fn uuid(digest: &[u8; 32]) -> String {
    let mut bits = u128::from_be_bytes(digest.first_chunk().copied().unwrap_or_default());
    bits = bits & !(0xf << 76) | 8 << 76;
    bits = bits & !(0x3 << 62) | 2 << 62;
    let hex = format!("{bits:032x}");
    let part = |range: std::ops::Range<usize>| hex.get(range).unwrap_or_default().to_owned();
    [part(0..8), part(8..12), part(12..16), part(16..20), part(20..32)].join("-")
}

/// The role of a console session. Roles are in ascending order, and each includes the permissions of those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Role {
    /// Permission to read everything.
    Viewer,
    /// Permission to change keys, and to switch providers on and off.
    Operator,
    /// Permission to change accounts and their money.
    Owner,
}

impl Role {
    /// All roles, in ascending order.
    pub(crate) const ALL: [Self; 3] = [Self::Viewer, Self::Operator, Self::Owner];

    /// Returns the role's name.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Owner => "owner",
        }
    }
}

/// The maximum number of sign-ins of one key. A further sign-in ends the least recently used one.
pub(crate) const SIGN_INS_MAX: usize = 16;
/// The maximum number of valid access tokens of one sign-in. A further token ends the oldest one.
const ACCESS_MAX: usize = 8;
/// The number of seconds for which a replaced refresh token is still accepted. The agent gets the replacement again. This is
/// needed if a response was lost, or if two processes of one agent refresh at the same time.
const REPEATED_SECONDS: i64 = 60;

/// The lifetimes of access tokens and sign-ins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TokenLifetimes {
    /// The lifetime of an access token, in seconds.
    pub access_seconds: i64,
    /// The lifetime of a sign-in, in seconds. Refreshing tokens does not extend it.
    pub sign_in_seconds: i64,
}

/// The stored document with the sign-ins of a key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SignIns {
    sign_ins: Vec<StoredSignIn>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct StoredSignIn {
    id: String,
    /// The digest of the secret that the key had when the sign-in was approved.
    key: KeyDigest,
    ends: i64,
    used: i64,
    refresh: KeyDigest,
    /// The digest of the previous refresh token, the time at which it was replaced, and the salt from which the current token was
    /// derived. `None` if the current token is the first one.
    replaced: Option<(KeyDigest, i64, KeyDigest)>,
    access: Vec<(KeyDigest, i64)>,
}

/// The tokens issued to an agent.
#[derive(Debug)]
pub(crate) struct IssuedTokens {
    /// The access token, which the agent sends with its requests.
    pub access: ServiceKey,
    /// The lifetime of the access token, in seconds.
    pub lasts_seconds: i64,
    /// The document of the access token. The caller stores it.
    pub grant: AccessGrant,
    /// The refresh token, with which the agent requests its next tokens.
    pub refresh: RefreshToken,
}

/// The outcome of a step of a sign-in, with the digests of the access tokens that the step has invalidated.
#[derive(Debug)]
pub(crate) struct StepOutcome<T> {
    pub outcome: T,
    pub ended: Vec<KeyDigest>,
}

/// The reason why a refresh token is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RefreshError {
    /// The token does not belong to an active sign-in.
    Unknown,
    /// The agent used a token that had already been replaced. The token may have been stolen, so the sign-in has ended (RFC 9700,
    /// section 4.14.2).
    Reused,
}

impl SignIns {
    /// Returns the name of the document that contains the key's sign-ins.
    pub(crate) fn document_name(key: &KeyId) -> KeyDigest {
        document_name("sign-ins", key.as_str())
    }

    /// Returns a pair for each active sign-in: the time at which tokens were last issued for the sign-in, and the time at which
    /// the sign-in expires. Both times are in seconds since the Unix epoch.
    pub(crate) fn active(&self, now: i64) -> impl Iterator<Item = (i64, i64)> {
        let lasting = self.sign_ins.iter().filter(move |one| now < one.ends);
        lasting.map(|one| (one.used, one.ends))
    }

    /// Returns the time until which the document must be stored, in seconds since the Unix epoch; `None` if the document has no
    /// sign-ins.
    pub(crate) fn needed_until(&self) -> Option<i64> {
        self.sign_ins.iter().map(|one| one.ends).max()
    }

    /// Starts a sign-in, and issues its first tokens. `digest` is the digest of the key's secret.
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

    /// Issues new tokens and replaces the refresh token. `is_good` gets the digest of the secret that the key had when the
    /// sign-in was approved, and returns whether that secret still works.
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

    /// Whether a refresh token is the current or the previous one of a sign-in.
    pub(crate) fn contains(&self, token: &RefreshToken) -> bool {
        let presented = token.digest();
        let is_of = |one: &&StoredSignIn| one.id == token.sign_in();
        let known = self.sign_ins.iter().find(is_of);
        known
            .is_some_and(|one| one.refresh == presented || one.replaced.is_some_and(|(before, ..)| before == presented))
    }

    /// Ends a sign-in and returns the digests of its access tokens.
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

    /// Ends all sign-ins and returns the digests of their access tokens.
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
