//! Sign-ins of agents: an agent requests a code, a person approves it, and the agent redeems it for tokens that stand for one
//! key, refreshes them and revokes them. All state is in the store, as documents, so that any node can do any step.

mod documents;
mod pace;

use std::{sync::Arc, time::Instant};

use thiserror::Error;

use self::{
    documents::{CONFLICTS_MAX, SignInDocuments, contention_error, read_document, to_document},
    pace::CodePolling,
};
use crate::{
    domain::{
        keys::{
            key::KeyId,
            secret::{KeyDigest, KeyPrefix, ServiceKey},
        },
        sign_in::{
            device_request::{DeviceCode, DeviceRequest, DeviceRequestState, SignInDecision, UserCode},
            sign_ins::{IssuedTokens, RefreshError, SignIns, TokenLifetimes},
            tokens::{AccessGrant, RefreshToken},
        },
    },
    edges::clock,
    store::{
        KeyStore, KeyView, StoreError,
        sessions::{DocumentChange, SignInStore},
        time::StoreTime,
    },
};

pub(crate) use self::pace::INTERVAL_SECONDS;

/// The operator's settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SignInSettings {
    /// Lifetimes of tokens and sign-ins.
    pub lifetimes: TokenLifetimes,
    /// Maximum number of codes that wait for a decision at one node.
    pub codes_max: usize,
}

/// Signs agents in.
pub(crate) struct AgentSignIns {
    documents: SignInDocuments,
    keys: Arc<dyn KeyStore>,
    time: Arc<StoreTime>,
    prefix: KeyPrefix,
    settings: SignInSettings,
    pace: CodePolling,
}

/// Why an agent gets no code or no tokens (RFC 6749, section 5.2; RFC 8628, section 3.5).
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum SignInError {
    /// The request has not been decided yet.
    #[error("nobody has approved this sign-in yet")]
    Pending,
    /// The agent polls too often.
    #[error("polled too often: wait five seconds longer between two requests")]
    SlowDown,
    /// The maximum number of codes is waiting.
    #[error("too many agents are waiting to sign in: try again in a few minutes")]
    TooMany,
    /// A person has refused, or the key with which they approved does not work any more.
    #[error("the sign-in was refused")]
    Denied,
    /// The code has expired.
    #[error("the code has expired: sign in again")]
    Expired,
    /// The code or token was never issued, was used already, or has ended.
    #[error("this code or token is invalid or has expired: sign in again")]
    InvalidGrant,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A request that waits for a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PendingSignIn {
    /// How long it has waited, in seconds.
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
    /// Signs agents in with these stores.
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

    /// Makes a code for an agent that wants to sign in, valid for ten minutes.
    ///
    /// # Errors
    /// [`SignInError::TooMany`] if too many codes are waiting.
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

    /// The request with this code; `None` if it does not wait for a decision.
    pub(crate) async fn pending(&self, code: &UserCode) -> Result<Option<PendingSignIn>, StoreError> {
        let (_, now) = self.now();
        let Some((_, request)) = self.request(code).await? else {
            return Ok(None);
        };
        let is_waiting = request.state(now) == DeviceRequestState::Decided(SignInDecision::Pending);
        let seconds = request.age(now);
        Ok(is_waiting.then_some(PendingSignIn { seconds }))
    }

    /// Whether a person has made this decision already, and the agent has not redeemed it yet.
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

    /// Records whether a person lets the agent use this key. Returns false if the request does not wait for a decision any
    /// more.
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
        // If this fails, somebody else has decided in the meantime.
        self.documents.store.exchange(&change).await
    }

    /// Issues the tokens for an approved code, once.
    ///
    /// # Errors
    /// [`SignInError`]; after [`SignInError::Pending`] the agent polls again.
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
        // If the document has changed, somebody else has redeemed the code.
        let issued = self.documents.change_sign_ins(&key, &redeemed, now_unix, step).await?;
        self.pace.end(&code.digest());
        issued.unwrap_or(Err(SignInError::InvalidGrant))
    }

    /// Issues new tokens for a refresh token, and replaces that token.
    ///
    /// # Errors
    /// [`SignInError::InvalidGrant`] if the sign-in has ended.
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
                tracing::warn!(key = %token.key(), "a refresh token was used again after it was replaced: its sign-in has ended");
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

    /// Ends the sign-in of an access token or refresh token. An unknown token ends nothing (RFC 7009, section 2.2).
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

    /// How many agents are signed in with a key.
    pub(crate) async fn count(&self, key: &KeyId) -> Result<usize, StoreError> {
        Ok(self.active(key).await?.len())
    }

    /// For each agent that is signed in with a key: when it was last given tokens, and when its sign-in ends.
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

    /// The key, if it works.
    async fn working_key(&self, key: &KeyId, now: i64) -> Result<Option<KeyView>, StoreError> {
        let view = self.keys.by_id(key).await?;
        Ok(view.filter(|view| view.record.check(&view.digest, now).is_ok()))
    }

    /// The time, by the monotonic clock and by the store's, in seconds since the Unix epoch.
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

#[cfg(test)]
mod tests;
