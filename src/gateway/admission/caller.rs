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
        wire::protocol::Protocol,
    },
    edges::clock,
    gateway::{
        entry::Entry,
        parts::Gateway,
        peer,
        request::head::{self, QueryKeys},
    },
    money::billing::FoundKey,
    providers::live::Live,
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
    /// The caller's key, for billing.
    pub(crate) fn found(&self) -> FoundKey<'_> {
        FoundKey {
            digest: &self.digest,
            record: &self.key,
        }
    }
}

/// Finds the key's record and checks that it is neither revoked nor expired. Reads no byte of the body.
pub(crate) async fn authenticate(
    gateway: &Gateway,
    session: &Session,
    live: &Live,
    shape: Protocol,
    keys: &QueryKeys,
    entry: &mut Entry,
) -> Result<Caller, Refusal> {
    let caller = identify(gateway, session, live, shape, keys, entry).await?;
    let now = gateway.billing.time().now_seconds(clock::instant());
    caller.key.check(&caller.digest, now)?;
    gateway.keys.touch(&caller.key.id, now);
    Ok(caller)
}

/// The same for a key that may have expired: what it has used can still be read.
pub(crate) async fn identify(
    gateway: &Gateway,
    session: &Session,
    live: &Live,
    shape: Protocol,
    keys: &QueryKeys,
    entry: &mut Entry,
) -> Result<Caller, Refusal> {
    let offered = head::offered(session.req_header(), keys);
    let prefix = &live.config.gateway.key_prefix;
    let presented = credential::take(shape, &offered, prefix).map_err(|error| match error {
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
    let (digest, key) = match found {
        None => return Err(Refusal::KeyUnknown),
        Some(Presented::Key(digest, key)) => (digest, key),
        Some(Presented::TokenExpired) => return Err(Refusal::KeyExpired),
    };
    entry.record.key_id = Some(key.id.as_str().to_owned());
    entry.record.account = Some(key.account.to_string());
    match key.check(&digest, now_unix) {
        Ok(()) | Err(KeyDenied::Expired) => {}
        Err(denied) => return Err(denied.into()),
    }
    Ok(Caller { digest, key, presented })
}
