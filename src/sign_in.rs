//! Sign-ins of agents. An agent requests a code, a user of the portal approves the code, and the agent redeems it for tokens that
//! represent one key. The agent later refreshes or revokes the tokens. All data is stored as documents in the store, so any node
//! can perform any step.

mod documents;
#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use thiserror::Error;

use crate::{
    domain::{
        keys::{
            KeyId,
            secret::{KeyDigest, KeyPrefix, ServiceKey},
        },
        sign_in::{
            IssuedTokens, RefreshError, SignIns, TokenLifetimes,
            device_request::{
                AccessGrant, DeviceCode, DeviceRequest, DeviceRequestState, REQUEST_SECONDS, RefreshToken,
                SignInDecision, UserCode,
            },
        },
    },
    edges::clock,
    sign_in::documents::{CONFLICTS_MAX, SignInDocuments, contention_error, read_document, to_document},
    store::{
        KeyStore, KeyView, StoreError,
        sessions::{DocumentChange, SignInStore},
        time::StoreTime,
    },
};

/// The operator's settings for sign-ins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SignInSettings {
    /// The lifetimes of tokens and sign-ins.
    pub lifetimes: TokenLifetimes,
    /// The maximum number of codes that wait for a decision. Each node counts its codes separately.
    pub codes_max: usize,
}

/// The service that signs agents in.
pub(crate) struct AgentSignIns {
    documents: SignInDocuments,
    keys: Arc<dyn KeyStore>,
    time: Arc<StoreTime>,
    prefix: KeyPrefix,
    settings: SignInSettings,
    pace: CodePolling,
}

/// The reason why an agent does not get a code or tokens (RFC 6749, section 5.2; RFC 8628, section 3.5).
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum SignInError {
    /// No user has decided on the code yet.
    #[error("the sign-in has not been approved yet: approve it in the portal")]
    Pending,
    /// The agent polls too frequently.
    #[error("this code was polled too often: wait five seconds longer between two requests")]
    SlowDown,
    /// Too many codes wait for a decision.
    #[error("too many agents are waiting to sign in: try again in a few minutes")]
    TooMany,
    /// A user has refused the sign-in, or has approved it with a key that is no longer valid.
    #[error("the sign-in was refused")]
    Denied,
    /// The code has expired.
    #[error("the code has expired: sign in again")]
    Expired,
    /// The code or token was never issued, has already been used, or has expired.
    #[error("this code or token is invalid or has expired: sign in again")]
    InvalidGrant,
    /// A call to the store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A sign-in request that waits for a user's decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PendingSignIn {
    /// The time since the request was made, in seconds.
    pub seconds: i64,
}

impl std::fmt::Debug for AgentSignIns {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("AgentSignIns")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

impl AgentSignIns {
    /// Creates the service, which uses the given stores.
    pub(crate) fn new(
        documents: Arc<dyn SignInStore>,
        keys: Arc<dyn KeyStore>,
        time: Arc<StoreTime>,
        prefix: KeyPrefix,
        settings: SignInSettings,
    ) -> Self {
        Self {
            documents: SignInDocuments { store: documents },
            keys,
            time,
            prefix,
            settings,
            pace: CodePolling::new(settings.codes_max),
        }
    }

    /// Creates a code for an agent that wants to sign in. The code is valid for ten minutes.
    ///
    /// # Errors
    /// [`SignInError::TooMany`] if too many codes wait for a decision.
    pub(crate) async fn begin(&self) -> Result<DeviceCode, SignInError> {
        let (now, now_unix) = self.now();
        for _ in 0..CONFLICTS_MAX {
            let code = DeviceCode::generate(&mut rand::rng());
            if !self.pace.begin(&code.digest(), now) {
                return Err(SignInError::TooMany);
            }
            let request = DeviceRequest::new(&code, now_unix);
            let name = code.user_code().document_name();
            let change = DocumentChange {
                expected: vec![(name, None)],
                put: vec![(name, to_document(&request)?, request.kept_seconds(now_unix))],
                ..DocumentChange::default()
            };
            let begun = self.documents.store.exchange(&change).await;
            if !matches!(begun, Ok(true)) {
                self.pace.end(&code.digest());
            }
            if begun? {
                return Ok(code);
            }
        }
        Err(contention_error().into())
    }

    /// Returns the sign-in request with this code; `None` if it does not wait for a decision.
    pub(crate) async fn pending(&self, code: &UserCode) -> Result<Option<PendingSignIn>, StoreError> {
        let (_, now) = self.now();
        let Some((_, request)) = self.request(code).await? else {
            return Ok(None);
        };
        let is_waiting = request.state(now) == DeviceRequestState::Decided(SignInDecision::Pending);
        let seconds = request.age(now);
        Ok(is_waiting.then_some(PendingSignIn { seconds }))
    }

    /// Returns true if a user has already made the decision that `key` and `is_approved` describe, and the agent has not redeemed
    /// the code yet.
    pub(crate) async fn is_decided(
        &self,
        code: &UserCode,
        key: &KeyView,
        is_approved: bool,
    ) -> Result<bool, StoreError> {
        let (_, now) = self.now();
        let standing = self.request(code).await?.map(|(_, request)| request.state(now));
        Ok(standing == Some(DeviceRequestState::Decided(decision(key, is_approved))))
    }

    /// Records whether the user allows the agent to use this key. Returns false if the request no longer waits for a decision.
    pub(crate) async fn decide(&self, code: &UserCode, key: &KeyView, is_approved: bool) -> Result<bool, StoreError> {
        let (_, now) = self.now();
        let Some((before, request)) = self.request(code).await? else {
            return Ok(false);
        };
        let Some(decided) = request.with_decision(decision(key, is_approved), now) else {
            return Ok(false);
        };
        let change = DocumentChange {
            expected: vec![(code.document_name(), Some(before))],
            put: vec![(code.document_name(), to_document(&decided)?, request.kept_seconds(now))],
            ..DocumentChange::default()
        };
        // If this fails, another user has decided in the meantime.
        self.documents.store.exchange(&change).await
    }

    /// Issues the tokens for an approved code. A code can be redeemed only once.
    ///
    /// # Errors
    /// A [`SignInError`]; after [`SignInError::Pending`] the agent polls again.
    pub(crate) async fn redeem(&self, code: &DeviceCode) -> Result<IssuedTokens, SignInError> {
        let (now, now_unix) = self.now();
        let found = self.request(code.user_code()).await?;
        let Some((before, request)) = found.filter(|(_, request)| request.has_code(code)) else {
            return Err(SignInError::InvalidGrant);
        };
        let (key, digest) = match request.state(now_unix) {
            DeviceRequestState::Expired => return Err(SignInError::Expired),
            DeviceRequestState::Decided(_) if !self.pace.poll(&code.digest(), now) => {
                return Err(SignInError::SlowDown);
            }
            DeviceRequestState::Decided(SignInDecision::Pending) => return Err(SignInError::Pending),
            DeviceRequestState::Decided(SignInDecision::Denied) => return Err(SignInError::Denied),
            DeviceRequestState::Decided(SignInDecision::Approved(key, digest)) => (key, digest),
        };
        let view = self.working_key(&key, now_unix).await?;
        if !view.is_some_and(|view| view.has_text(&digest, now_unix)) {
            return Err(SignInError::Denied);
        }
        let redeemed = DocumentChange {
            expected: vec![(code.user_code().document_name(), Some(before))],
            removed: vec![code.user_code().document_name()],
            ..DocumentChange::default()
        };
        let (prefix, lifetimes) = (&self.prefix, &self.settings.lifetimes);
        let step = |all: &mut SignIns| {
            let begun = all.begin((&key, digest), prefix, lifetimes, now_unix, &mut rand::rng());
            (Ok(begun.outcome), begun.ended)
        };
        // If the document has changed, another agent has redeemed the code.
        let issued = self.documents.change_sign_ins(&key, &redeemed, now_unix, step).await?;
        self.pace.end(&code.digest());
        issued.unwrap_or(Err(SignInError::InvalidGrant))
    }

    /// Issues new tokens, which replace the given refresh token.
    ///
    /// # Errors
    /// [`SignInError::InvalidGrant`] if the sign-in has ended or the token is not valid.
    pub(crate) async fn refresh(&self, token: &RefreshToken) -> Result<IssuedTokens, SignInError> {
        let (_, now) = self.now();
        let Some(view) = self.working_key(token.key(), now).await? else {
            return Err(SignInError::InvalidGrant);
        };
        let is_good = |text: &KeyDigest| view.has_text(text, now);
        let (prefix, lifetimes) = (&self.prefix, &self.settings.lifetimes);
        let step = |all: &mut SignIns| {
            let refreshed = all.refresh(token, is_good, prefix, lifetimes, now, &mut rand::rng());
            if refreshed.outcome.as_ref().err() == Some(&RefreshError::Reused) {
                tracing::warn!(
                    key = %token.key(),
                    "a refresh token was used a second time: it may have been stolen, so its sign-in has ended and the agent must \
                     sign in again"
                );
            }
            let outcome = refreshed.outcome.map_err(|_| SignInError::InvalidGrant);
            (outcome, refreshed.ended)
        };
        let issued = self
            .documents
            .change_sign_ins(token.key(), &DocumentChange::default(), now, step)
            .await?;
        issued.unwrap_or(Err(SignInError::InvalidGrant))
    }

    /// Ends the sign-in to which an access token or refresh token belongs. An unknown token is ignored (RFC 7009, section 2.2).
    pub(crate) async fn revoke(&self, token: &str) -> Result<(), StoreError> {
        let (_, now) = self.now();
        let refresh = RefreshToken::parse(&self.prefix, token);
        let found = match &refresh {
            Some(token) => Some((token.key().clone(), token.sign_in().to_owned())),
            None => self.grant(token).await?.map(|grant| (grant.key, grant.sign_in)),
        };
        let Some((key, id)) = found else { return Ok(()) };
        let step = |all: &mut SignIns| {
            let is_known = refresh.as_ref().is_none_or(|token| all.contains(token));
            ((), if is_known { all.end(&id) } else { Vec::new() })
        };
        self.documents
            .change_sign_ins(&key, &DocumentChange::default(), now, step)
            .await
            .map(drop)
    }

    /// Returns the number of agents that are signed in with a key.
    pub(crate) async fn count(&self, key: &KeyId) -> Result<usize, StoreError> {
        Ok(self.active(key).await?.len())
    }

    /// Returns two times for each agent that is signed in with a key: when the agent most recently got tokens, and when its
    /// sign-in ends. Both are in seconds since the Unix epoch.
    pub(crate) async fn active(&self, key: &KeyId) -> Result<Vec<(i64, i64)>, StoreError> {
        let (_, now) = self.now();
        let found = self.documents.store.document(&SignIns::document_name(key)).await?;
        let all = found.map(|text| read_document::<SignIns>(&text)).transpose()?;
        Ok(all.map_or_else(Vec::new, |all| all.active(now).collect()))
    }

    /// Ends all sign-ins of a key.
    pub(crate) async fn end_all(&self, key: &KeyId) -> Result<(), StoreError> {
        let (_, now) = self.now();
        let step = |all: &mut SignIns| ((), all.end_all());
        self.documents
            .change_sign_ins(key, &DocumentChange::default(), now, step)
            .await
            .map(drop)
    }

    async fn request(&self, code: &UserCode) -> Result<Option<(String, DeviceRequest)>, StoreError> {
        let Some(text) = self.documents.store.document(&code.document_name()).await? else {
            return Ok(None);
        };
        let request = read_document(&text)?;
        Ok(Some((text, request)))
    }

    async fn grant(&self, token: &str) -> Result<Option<AccessGrant>, StoreError> {
        let Ok(token) = ServiceKey::parse(&self.prefix, token) else {
            return Ok(None);
        };
        let text = self.documents.store.document(&token.digest()).await?;
        text.map(|text| read_document(&text)).transpose()
    }

    /// Returns the key with this id; `None` if the key is unknown or not valid.
    async fn working_key(&self, key: &KeyId, now: i64) -> Result<Option<KeyView>, StoreError> {
        let view = self.keys.by_id(key).await?;
        Ok(view.filter(|view| view.record.check(&view.digest, now).is_ok()))
    }

    /// Returns the current time by the monotonic clock, and by the store's clock in seconds since the Unix epoch.
    fn now(&self) -> (Instant, i64) {
        let now = clock::instant();
        (now, self.time.now_seconds(now))
    }
}

fn decision(key: &KeyView, is_approved: bool) -> SignInDecision {
    match is_approved {
        true => SignInDecision::Approved(key.record.id.clone(), key.digest),
        false => SignInDecision::Denied,
    }
}

/// The initial polling interval of an agent, in seconds.
pub(crate) const INTERVAL_SECONDS: u64 = 5;
/// The increase of the polling interval each time an agent polls too early.
const INTERVAL_GROWTH: Duration = Duration::from_secs(5);
/// The time by which a poll may be early without penalty, because clocks and networks are not exact.
const EARLY_TOLERANCE: Duration = Duration::from_secs(1);

/// The codes that wait for a decision, with the polling interval of each.
#[derive(Debug)]
struct CodePolling {
    codes: Mutex<HashMap<KeyDigest, PolledCode>>,
    codes_max: usize,
}

#[derive(Clone, Copy, Debug)]
struct PolledCode {
    until: Instant,
    interval: Duration,
    asked_at: Option<Instant>,
}

impl CodePolling {
    fn new(codes_max: usize) -> Self {
        Self {
            codes: Mutex::default(),
            codes_max,
        }
    }

    /// Adds a waiting code. Returns false if the maximum number of codes is already waiting.
    fn begin(&self, code: &KeyDigest, now: Instant) -> bool {
        self.get_or_insert(code, now).is_some()
    }

    /// Records a poll for a code. Returns false if the poll was too early; later polls then have a longer interval. A code that
    /// was created on another node is added at its first poll. If the maximum number of codes is reached, the code is not added
    /// and its polls are not limited.
    fn poll(&self, code: &KeyDigest, now: Instant) -> bool {
        let Some(mut known) = self.get_or_insert(code, now) else {
            return true;
        };
        let is_early = known
            .asked_at
            .is_some_and(|at| now.saturating_duration_since(at) + EARLY_TOLERANCE < known.interval);
        if is_early {
            known.interval += INTERVAL_GROWTH;
        }
        known.asked_at = Some(now);
        self.codes.lock().insert(*code, known);
        !is_early
    }

    /// Removes a code that no longer waits for a decision.
    fn end(&self, code: &KeyDigest) {
        self.codes.lock().remove(code);
    }

    fn get_or_insert(&self, code: &KeyDigest, now: Instant) -> Option<PolledCode> {
        let mut codes = self.codes.lock();
        if let Some(known) = codes.get(code) {
            return Some(*known);
        }
        if codes.len() >= self.codes_max {
            codes.retain(|_, known| now < known.until);
        }
        let lifetime = Duration::from_secs(REQUEST_SECONDS.unsigned_abs());
        let known = PolledCode {
            until: now + lifetime,
            interval: Duration::from_secs(INTERVAL_SECONDS),
            asked_at: None,
        };
        (codes.len() < self.codes_max).then(|| {
            codes.insert(*code, known);
            known
        })
    }
}

#[cfg(test)]
mod pace_tests {
    use super::*;
    use crate::edges::clock;

    const CODES: [KeyDigest; 3] = [
        KeyDigest::from_bytes([1; 32]),
        KeyDigest::from_bytes([2; 32]),
        KeyDigest::from_bytes([3; 32]),
    ];

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    #[test]
    fn whoever_asks_too_early_waits_five_seconds_longer_each_time() {
        let (pace, start) = (CodePolling::new(10), clock::instant());
        assert!(pace.begin(&CODES[0], start));
        for (at, is_in_time) in [(0, true), (4, true), (7, false), (16, true), (24, false), (38, true)] {
            assert_eq!(pace.poll(&CODES[0], start + seconds(at)), is_in_time, "{at}");
        }
        assert!(pace.poll(&CODES[1], start), "another one has its own pace");
    }

    #[test]
    fn so_many_codes_wait_and_no_more_until_one_ends() {
        let (pace, start) = (CodePolling::new(2), clock::instant());
        assert!(pace.begin(&CODES[0], start) && pace.begin(&CODES[1], start));
        assert!(!pace.begin(&CODES[2], start + seconds(599)));
        assert!(
            pace.poll(&CODES[2], start) && pace.poll(&CODES[2], start),
            "of another node"
        );
        pace.end(&CODES[0]);
        assert!(pace.begin(&CODES[2], start));
        assert!(pace.begin(&CODES[0], start + seconds(600)), "the others' time is over");
    }
}
