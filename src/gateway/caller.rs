//! Identifies the caller of a request by its key.

use std::sync::Arc;

use pingora_proxy::Session;

use crate::{
    domain::{
        faults::refusal::Refusal,
        keys::{
            self, CredentialError, KeyInvalid, KeyRecord,
            secret::{KeyDigest, ServiceKey},
        },
    },
    edges::clock,
    gateway::{
        exchange::Exchange,
        parts::Gateway,
        request::head::{self, QueryKeys},
    },
    money::billing::FoundKey,
    store::key_cache::{KeyLookupError, shard::PresentedCaller},
};

/// The authenticated caller of a request.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    /// The digest of the key's current or previous secret. If the client presents an access token, this is the digest of the
    /// key's secret and not of the token.
    pub digest: KeyDigest,
    /// The key's record, as this node had it at authentication.
    pub key: Arc<KeyRecord>,
    /// The presented secret: the key in plain text, or the access token that represents the key. It is stored so that weir can
    /// keep it out of requests to providers.
    pub presented: ServiceKey,
}

impl Caller {
    /// Checks that the key is not revoked, replaced or expired.
    ///
    /// # Errors
    /// Returns the refusal of a revoked, replaced or expired key.
    pub(crate) fn check(&self, now_unix: i64) -> Result<(), Refusal> {
        Ok(self.key.check(&self.digest, now_unix)?)
    }

    /// Checks that the key is not revoked or replaced. Accepts an expired key, because its usage can still be read.
    ///
    /// # Errors
    /// Returns the refusal of a revoked or replaced key.
    pub(crate) fn check_except_expiry(&self, now_unix: i64) -> Result<(), Refusal> {
        match self.key.check(&self.digest, now_unix) {
            Ok(()) | Err(KeyInvalid::Expired) => Ok(()),
            Err(denied) => Err(denied.into()),
        }
    }

    /// Returns the caller's key in the form that billing expects.
    pub(crate) fn key_for_billing(&self) -> FoundKey<'_> {
        FoundKey {
            digest: &self.digest,
            record: &self.key,
        }
    }
}

/// Finds the record of the key that the request's head presents. Does not read the body.
pub(crate) async fn identify(
    gateway: &Gateway,
    session: &Session,
    exchange: &Exchange,
    keys: &QueryKeys,
) -> Result<Caller, Refusal> {
    let offered = head::presented_keys(session.req_header(), keys);
    let prefix = &exchange.live.config.gateway.key_prefix;
    let presented = keys::choose_key(exchange.protocol, &offered, prefix).map_err(|error| match error {
        CredentialError::Missing => Refusal::CredentialMissing,
        CredentialError::Ambiguous => Refusal::CredentialAmbiguous,
        CredentialError::BearerSchemeMissing => Refusal::BearerSchemeMissing,
        CredentialError::Malformed => Refusal::KeyUnknown,
    })?;
    let now = clock::instant();
    let now_unix = gateway.billing.time().now_seconds(now);
    let asker = || head::client(session, &gateway.limits.trusted_proxies);
    let found = gateway.keys.lookup(&presented.digest(), (now, now_unix), asker).await;
    let found = found.map_err(|error| match error {
        KeyLookupError::Limited { wait } => Refusal::KeyNotLookedUp { wait },
        KeyLookupError::Store(error) => {
            tracing::warn!(%error, "cannot look up the key of a request in the store; the request is refused with status 503");
            Refusal::StoreUnavailable
        }
    })?;
    match found {
        None => Err(Refusal::KeyUnknown),
        Some(PresentedCaller::Key(digest, key)) => Ok(Caller { digest, key, presented }),
        Some(PresentedCaller::TokenExpired) => Err(Refusal::KeyExpired),
    }
}
