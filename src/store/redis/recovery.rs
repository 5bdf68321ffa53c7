//! The generation: a random word with which a node recognises that a Redis still has its data. Also sends records of keys again
//! to a Redis that may have lost them.

use async_trait::async_trait;

use crate::{
    domain::keys::{
        KeyId, KeyRecord,
        secret::{KeyDigest, random_base62},
    },
    store::{
        KeyHealer, StoreError,
        redis::{ADMIN_BUDGET, CONFLICTS_MAX, RedisStore, contention_error, link::CallPolicy},
    },
};

const GENERATION_CHARS: usize = 22;

/// How to treat keys in a Redis that has no generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdoptPolicy {
    /// Refuse to set up the Redis, because part of the data was lost.
    Refuse,
    /// Use the keys as they are.
    Data,
}

/// The result of [`RedisStore::init`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InitOutcome {
    /// The store has been set up now.
    Made,
    /// The store was set up before.
    Already,
    /// There are keys but no generation; nothing was changed.
    HasData,
}

impl RedisStore {
    /// Sets up a new Redis; until then, every other call returns [`StoreError::Unavailable`]. A Redis that is already set up is
    /// not changed. [`crate::store::KeyStore::run`] must be running, and the connection must be established.
    pub async fn init(&self, adopt: AdoptPolicy) -> Result<InitOutcome, StoreError> {
        self.set_generation(&random_base62(GENERATION_CHARS, &mut rand::rng()), adopt)
            .await
    }

    /// Like [`Self::init`], but with the given generation, by which nodes recognise a Redis with restored data.
    pub(super) async fn set_generation(&self, word: &str, adopt: AdoptPolicy) -> Result<InitOutcome, StoreError> {
        let mut call = self.call_with_keys(&self.scripts.init);
        call.arg(word)
            .arg(if adopt == AdoptPolicy::Data { "adopt" } else { "" });
        let mut reply = self.call_alone(&call, CallPolicy::Write(ADMIN_BUDGET)).await?;
        match reply.text()?.as_str() {
            "made" => Ok(InitOutcome::Made),
            "there" => Ok(InitOutcome::Already),
            _ => Ok(InitOutcome::HasData),
        }
    }
}

#[async_trait]
impl KeyHealer for RedisStore {
    async fn heal(&self, digest: &KeyDigest, told: &KeyRecord) -> Result<(), StoreError> {
        for _ in 0..CONFLICTS_MAX {
            let is_done = match self.read(&told.id).await? {
                None => {
                    let call = self.creation_call(&self.scripts.heal, digest, told)?;
                    !self.call(&call, CallPolicy::Write(ADMIN_BUDGET)).await?.is_conflict()
                }
                Some((text, before)) => match before.merged_with(digest, told) {
                    None => true,
                    Some(after) => self.replace(&text, &before, &after).await?,
                },
            };
            if is_done {
                return Ok(());
            }
        }
        Err(contention_error(&told.id))
    }

    async fn heal_gone(&self, id: &KeyId, revision: u64) -> Result<(), StoreError> {
        for _ in 0..CONFLICTS_MAX {
            let is_done = match self.read(id).await? {
                Some((_, view)) if view.record.revision > revision => true,
                Some((text, _)) => self.remove_record(id, &text).await?,
                None => {
                    let mut call = self.prepare(&self.scripts.gone);
                    call.key(&self.gone_key).arg(id.as_str());
                    !self.call(&call, CallPolicy::Write(ADMIN_BUDGET)).await?.is_conflict()
                }
            };
            if is_done {
                return Ok(());
            }
        }
        Err(contention_error(id))
    }
}
