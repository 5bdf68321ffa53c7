//! Access tokens, which stand for keys: looked up, kept and forgotten as keys are, since the feed names those that end.

use std::{sync::Arc, time::Instant};

use super::{KeyCache, KeyLookupError, shard::Known};
use crate::{
    domain::keys::{key::KeyRecord, secret::KeyDigest},
    edges::limiter::client::Client,
};

/// Whose request it is.
#[derive(Clone, Debug)]
pub(crate) enum Presented {
    /// That of the key of this digest, which was presented or stood for.
    Key(KeyDigest, Arc<KeyRecord>),
    /// The access token that was presented is over.
    TokenExpired,
}

impl KeyCache {
    /// The same as [`KeyCache::find`] for a digest that may be that of an access token: then the key that it stands for at
    /// `now_unix`. `None`: of neither, or the key has another text by now.
    pub(crate) async fn find_presented(
        &self,
        digest: &KeyDigest,
        (now, now_unix): (Instant, i64),
        asker: impl Fn() -> Client,
    ) -> Result<Option<Presented>, KeyLookupError> {
        let grant = match self.known(digest, now, &asker).await? {
            None => return Ok(None),
            Some(Known::Key(record)) => return Ok(Some(Presented::Key(*digest, record))),
            Some(Known::Token(grant)) => grant,
        };
        let Some(key) = grant.stands_for(now_unix) else {
            return Ok(Some(Presented::TokenExpired));
        };
        let record = self.find(&key, now, asker).await?;
        Ok(record.map(|record| Presented::Key(key, record)))
    }
}
