//! Access tokens, which stand for keys: looked up, cached and dropped like keys, since the feed includes those that end.

use std::{sync::Arc, time::Instant};

use super::{KeyCache, KeyLookupError, shard::DigestOwner};
use crate::{
    domain::keys::{key::KeyRecord, secret::KeyDigest},
    edges::limiter::client::ClientAddress,
};

/// The caller that a presented digest belongs to.
#[derive(Clone, Debug)]
pub(crate) enum PresentedCaller {
    /// The key of this digest, presented itself or through an access token.
    Key(KeyDigest, Arc<KeyRecord>),
    /// The presented access token has expired.
    TokenExpired,
}

impl KeyCache {
    /// Like [`KeyCache::find`], for a digest that may also be that of an access token: then returns the key that the token
    /// stands for at `now_unix`. `None` if the digest is unknown, or the key has another text by now.
    pub(crate) async fn lookup(
        &self,
        digest: &KeyDigest,
        (now, now_unix): (Instant, i64),
        asker: impl Fn() -> ClientAddress,
    ) -> Result<Option<PresentedCaller>, KeyLookupError> {
        let grant = match self.find_owner(digest, now, &asker).await? {
            None => return Ok(None),
            Some(DigestOwner::Key(record)) => return Ok(Some(PresentedCaller::Key(*digest, record))),
            Some(DigestOwner::Token(grant)) => grant,
        };
        let Some(key) = grant.key_digest_at(now_unix) else {
            return Ok(Some(PresentedCaller::TokenExpired));
        };
        let record = self.find(&key, now, asker).await?;
        Ok(record.map(|record| PresentedCaller::Key(key, record)))
    }
}
