//! Agents sign in: a code is begun, a person decides on it, and the agent redeems it for tokens that stand for one key, refreshes
//! them and gives them back. All of it is in the store, as documents, so that every node can do every step.

mod documents;
mod pace;

use std::{sync::Arc, time::Instant};

use thiserror::Error;

use self::{
    documents::{CONFLICTS_MAX, Documents, contended, read, text},
    pace::Pace,
};
use crate::{
    domain::{
        keys::{
            key::KeyId,
            secret::{KeyDigest, KeyPrefix, ServiceKey},
        },
        sign_in::{
            access_token::AccessGrant,
            device_request::{Decision, DeviceCode, DeviceRequest, Standing},
            refresh_token::RefreshToken,
            sign_ins::{Lifetimes, NotRefreshed, SignIns, Tokens},
            user_code::UserCode,
        },
    },
    edges::clock,
    store::{
        KeyStore, KeyView, StoreError,
        sign_ins::{DocumentChange, SignInStore},
        time::StoreTime,
    },
};

pub(crate) use self::pace::INTERVAL_SECONDS;

/// What the operator has set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SignInSettings {
    /// How long tokens last.
    pub lifetimes: Lifetimes,
    /// The most codes that wait for a decision at one node.
    pub codes_max: usize,
}

/// Signs agents in.
pub(crate) struct AgentSignIns {
    documents: Documents,
    keys: Arc<dyn KeyStore>,
    time: Arc<StoreTime>,
    prefix: KeyPrefix,
    settings: SignInSettings,
    pace: Pace,
}

/// Why an agent gets no code or no tokens (RFC 6749, section 5.2; RFC 8628, section 3.5).
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum NotIssued {
    /// Nobody has decided yet.
    #[error("nobody has approved this sign-in yet")]
    Pending,
    /// The agent asks too often.
    #[error("asked too often: wait five seconds longer between two requests")]
    SlowDown,
    /// As many codes wait as may.
    #[error("too many agents wait to be signed in: try again in some minutes")]
    TooMany,
    /// A person has refused, or the key that they approved it with does not work any more.
    #[error("the sign-in was refused")]
    Denied,
    /// The code's time is over.
    #[error("the code has expired: begin to sign in anew")]
    Expired,
    /// A code or a token that was never issued, was used, or has ended.
    #[error("this code or token is not good, or not any more: sign in anew")]
    InvalidGrant,
    /// The store cannot tell.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A request that waits for its person.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Waiting {
    /// For how many seconds.
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
    /// On these stores.
    pub(crate) fn new(
        documents: Arc<dyn SignInStore>,
        keys: Arc<dyn KeyStore>,
        time: Arc<StoreTime>,
        prefix: KeyPrefix,
        settings: SignInSettings,
    ) -> Self {
        Self {
            documents: Documents { store: documents },
            keys,
            time,
            prefix,
            settings,
            pace: Pace::new(settings.codes_max),
        }
    }

    /// A code for an agent that wants to sign in. It lasts for ten minutes.
    ///
    /// # Errors
    /// [`NotIssued::TooMany`] where too many wait already.
    pub(crate) async fn begin(&self) -> Result<DeviceCode, NotIssued> {
        let (now, now_unix) = self.now();
        for _ in 0..CONFLICTS_MAX {
            let code = DeviceCode::generate(&mut rand::rng());
            if !self.pace.begin(&code.digest(), now) {
                return Err(NotIssued::TooMany);
            }
            let request = DeviceRequest::new(&code, now_unix);
            let name = code.user_code().name();
            let change = DocumentChange {
                expected: vec![(name, None)],
                put: vec![(name, text(&request)?, request.kept_seconds(now_unix))],
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
        Err(contended().into())
    }

    /// The request that a person has been given the code of, while it waits for them.
    pub(crate) async fn waiting(&self, code: &UserCode) -> Result<Option<Waiting>, StoreError> {
        let (_, now) = self.now();
        let Some((_, request)) = self.request(code).await? else {
            return Ok(None);
        };
        let is_waiting = request.standing(now) == Standing::Decided(Decision::Pending);
        let seconds = request.age(now);
        Ok(is_waiting.then_some(Waiting { seconds }))
    }

    /// Whether a person has made this decision already, and the agent has not yet been told.
    pub(crate) async fn is_decided(
        &self,
        code: &UserCode,
        key: &KeyView,
        is_approved: bool,
    ) -> Result<bool, StoreError> {
        let (_, now) = self.now();
        let standing = self.request(code).await?.map(|(_, request)| request.standing(now));
        Ok(standing == Some(Standing::Decided(decision(key, is_approved))))
    }

    /// A person lets the agent use this key, or does not. False: its request does not wait for that any more.
    pub(crate) async fn decide(&self, code: &UserCode, key: &KeyView, is_approved: bool) -> Result<bool, StoreError> {
        let (_, now) = self.now();
        let Some((before, request)) = self.request(code).await? else {
            return Ok(false);
        };
        let Some(decided) = request.decided(decision(key, is_approved), now) else {
            return Ok(false);
        };
        let change = DocumentChange {
            expected: vec![(code.name(), Some(before))],
            put: vec![(code.name(), text(&decided)?, request.kept_seconds(now))],
            ..DocumentChange::default()
        };
        // Whoever came in between has decided it.
        self.documents.store.exchange(&change).await
    }

    /// The agent asks for the tokens that its code was approved for; it gets them once.
    ///
    /// # Errors
    /// [`NotIssued`], of which [`NotIssued::Pending`] means to ask again.
    pub(crate) async fn redeem(&self, code: &DeviceCode) -> Result<Tokens, NotIssued> {
        let (now, now_unix) = self.now();
        let found = self.request(code.user_code()).await?;
        let Some((before, request)) = found.filter(|(_, request)| request.is_of(code)) else {
            return Err(NotIssued::InvalidGrant);
        };
        let (key, digest) = match request.standing(now_unix) {
            Standing::Expired => return Err(NotIssued::Expired),
            Standing::Decided(_) if !self.pace.poll(&code.digest(), now) => return Err(NotIssued::SlowDown),
            Standing::Decided(Decision::Pending) => return Err(NotIssued::Pending),
            Standing::Decided(Decision::Denied) => return Err(NotIssued::Denied),
            Standing::Decided(Decision::Approved(key, digest)) => (key, digest),
        };
        let view = self.working_key(&key, now_unix).await?;
        if !view.is_some_and(|view| view.has_text(&digest, now_unix)) {
            return Err(NotIssued::Denied);
        }
        let redeemed = DocumentChange {
            expected: vec![(code.user_code().name(), Some(before))],
            removed: vec![code.user_code().name()],
            ..DocumentChange::default()
        };
        let (prefix, lifetimes) = (&self.prefix, &self.settings.lifetimes);
        let step = |all: &mut SignIns| {
            let begun = all.begin((&key, digest), prefix, lifetimes, now_unix, &mut rand::rng());
            (Ok(begun.outcome), begun.ended)
        };
        // Where its document is another one by now, somebody else has redeemed it.
        let issued = self.documents.step(&key, &redeemed, now_unix, step).await?;
        self.pace.end(&code.digest());
        issued.unwrap_or(Err(NotIssued::InvalidGrant))
    }

    /// New tokens in the place of those that a refresh token came with.
    ///
    /// # Errors
    /// [`NotIssued::InvalidGrant`] where the sign-in has ended.
    pub(crate) async fn refresh(&self, token: &RefreshToken) -> Result<Tokens, NotIssued> {
        let (_, now) = self.now();
        let Some(view) = self.working_key(token.key(), now).await? else {
            return Err(NotIssued::InvalidGrant);
        };
        let is_good = |text: &KeyDigest| view.has_text(text, now);
        let (prefix, lifetimes) = (&self.prefix, &self.settings.lifetimes);
        let step = |all: &mut SignIns| {
            let refreshed = all.refresh(token, is_good, prefix, lifetimes, now, &mut rand::rng());
            if refreshed.outcome.as_ref().err() == Some(&NotRefreshed::Reused) {
                tracing::warn!(key = %token.key(), "a refresh token was used again after it was replaced: its sign-in has ended");
            }
            let outcome = refreshed.outcome.map_err(|_| NotIssued::InvalidGrant);
            (outcome, refreshed.ended)
        };
        let issued = self
            .documents
            .step(token.key(), &DocumentChange::default(), now, step)
            .await?;
        issued.unwrap_or(Err(NotIssued::InvalidGrant))
    }

    /// Ends the sign-in of a token, an access token or a refresh token; one that is none ends nothing (RFC 7009, section 2.2).
    pub(crate) async fn revoke(&self, token: &str) -> Result<(), StoreError> {
        let (_, now) = self.now();
        let refresh = RefreshToken::parse(&self.prefix, token);
        let found = match &refresh {
            Some(token) => Some((token.key().clone(), token.sign_in().to_owned())),
            None => self.grant(token).await?.map(|grant| (grant.key, grant.sign_in)),
        };
        let Some((key, id)) = found else { return Ok(()) };
        let step = |all: &mut SignIns| {
            let is_known = refresh.as_ref().is_none_or(|token| all.has(token));
            ((), if is_known { all.end(&id) } else { Vec::new() })
        };
        self.documents
            .step(&key, &DocumentChange::default(), now, step)
            .await
            .map(drop)
    }

    /// How many agents are signed in with a key.
    pub(crate) async fn count(&self, key: &KeyId) -> Result<usize, StoreError> {
        Ok(self.lasting(key).await?.len())
    }

    /// Of each agent that is signed in with a key, when it was last given tokens, and when its sign-in ends.
    pub(crate) async fn lasting(&self, key: &KeyId) -> Result<Vec<(i64, i64)>, StoreError> {
        let (_, now) = self.now();
        let found = self.documents.store.document(&SignIns::name(key)).await?;
        let all = found.map(|text| read::<SignIns>(&text)).transpose()?;
        Ok(all.map_or_else(Vec::new, |all| all.lasting(now).collect()))
    }

    /// Ends all sign-ins of a key.
    pub(crate) async fn end_all(&self, key: &KeyId) -> Result<(), StoreError> {
        let (_, now) = self.now();
        let step = |all: &mut SignIns| ((), all.end_all());
        self.documents
            .step(key, &DocumentChange::default(), now, step)
            .await
            .map(drop)
    }

    async fn request(&self, code: &UserCode) -> Result<Option<(String, DeviceRequest)>, StoreError> {
        let Some(text) = self.documents.store.document(&code.name()).await? else {
            return Ok(None);
        };
        let request = read(&text)?;
        Ok(Some((text, request)))
    }

    async fn grant(&self, token: &str) -> Result<Option<AccessGrant>, StoreError> {
        let Ok(token) = ServiceKey::parse(&self.prefix, token) else {
            return Ok(None);
        };
        let text = self.documents.store.document(&token.digest()).await?;
        text.map(|text| read(&text)).transpose()
    }

    /// A key, if it works.
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

fn decision(key: &KeyView, is_approved: bool) -> Decision {
    match is_approved {
        true => Decision::Approved(key.record.id.clone(), key.digest),
        false => Decision::Denied,
    }
}

#[cfg(test)]
mod tests;
