//! Who a request comes from, by its key.

use std::sync::Arc;

use pingora_proxy::Session;

use crate::{
    domain::{
        faults::refusal::Refusal,
        keys::{
            credential::{self, CredentialError},
            key::{KeyDenied, KeyRecord},
            secret::{KeyDigest, ServiceKey},
        },
    },
    edges::clock,
    gateway::{
        exchange::Exchange,
        parts::Gateway,
        peer,
        request::head::{self, QueryKeys},
    },
    money::billing::FoundKey,
    store::key_cache::{KeyLookupError, tokens::Presented},
};

/// The authenticated caller of a request.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    /// The digest of the key's text, the present one or the one before: not that of an access token that stands for it.
    pub digest: KeyDigest,
    /// The key's record, as this node knew it at authentication.
    pub key: Arc<KeyRecord>,
    /// The key itself, or the token that stands for it, to keep it out of what goes to a provider.
    pub presented: ServiceKey,
}

impl Caller {
    /// Checks that the key is neither revoked nor replaced nor expired.
    ///
    /// # Errors
    /// The refusal of a key that is.
    pub(crate) fn check(&self, now_unix: i64) -> Result<(), Refusal> {
        Ok(self.key.check(&self.digest, now_unix)?)
    }

    /// The same for a key that may have expired: its usage can still be read.
    ///
    /// # Errors
    /// The refusal of a key that was revoked or replaced.
    pub(crate) fn check_but_expiry(&self, now_unix: i64) -> Result<(), Refusal> {
        match self.key.check(&self.digest, now_unix) {
            Ok(()) | Err(KeyDenied::Expired) => Ok(()),
            Err(denied) => Err(denied.into()),
        }
    }

    /// The caller's key, for billing.
    pub(crate) fn found(&self) -> FoundKey<'_> {
        FoundKey {
            digest: &self.digest,
            record: &self.key,
        }
    }
}

/// Finds the record of the key that the request's head presents. Reads no byte of the body.
pub(crate) async fn identify(
    gateway: &Gateway,
    session: &Session,
    exchange: &Exchange,
    keys: &QueryKeys,
) -> Result<Caller, Refusal> {
    let offered = head::offered(session.req_header(), keys);
    let prefix = &exchange.live.config.gateway.key_prefix;
    let presented = credential::take(exchange.protocol, &offered, prefix).map_err(|error| match error {
        CredentialError::Missing => Refusal::CredentialMissing,
        CredentialError::Ambiguous => Refusal::CredentialAmbiguous,
        CredentialError::Malformed => Refusal::KeyUnknown,
    })?;
    let now = clock::instant();
    let now_unix = gateway.billing.time().now_seconds(now);
    let asker = || peer::client(session, &gateway.limits.trusted_proxies);
    let found = gateway
        .keys
        .find_presented(&presented.digest(), (now, now_unix), asker)
        .await;
    let found = found.map_err(|error| match error {
        KeyLookupError::Limited { wait } => Refusal::KeyNotLookedUp { wait },
        KeyLookupError::Store(error) => {
            tracing::warn!(%error, "the key store did not answer");
            Refusal::StoreUnavailable
        }
    })?;
    match found {
        None => Err(Refusal::KeyUnknown),
        Some(Presented::Key(digest, key)) => Ok(Caller { digest, key, presented }),
        Some(Presented::TokenExpired) => Err(Refusal::KeyExpired),
    }
}
