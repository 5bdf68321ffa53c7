//! The generation: a random word by which a node recognises that a Redis still has its data. Also repeats keys to a Redis that
//! may have lost them.

use crate::{
    domain::keys::secret::random_base62,
    store::{
        StoreError,
        redis::{ADMIN_BUDGET, RedisStore, link::CallPolicy},
    },
};

const GENERATION_CHARS: usize = 22;

/// How to treat keys in a Redis that has no generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdoptPolicy {
    /// Refuse: part of the data was lost.
    Refuse,
    /// Take them over as they are.
    Data,
}

/// The result of [`RedisStore::init`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InitOutcome {
    /// The store has been set up.
    Made,
    /// It was set up before.
    Already,
    /// There are keys but no generation; nothing was changed.
    HasData,
}

impl RedisStore {
    /// Sets up a new Redis: until then every other call returns [`StoreError::Unavailable`]. A Redis that is already set up
    /// does not change. [`crate::store::KeyStore::run`] must be running, and the connection must be up.
    pub async fn init(&self, adopt: AdoptPolicy) -> Result<InitOutcome, StoreError> {
        self.set_generation(&random_base62(GENERATION_CHARS, &mut rand::rng()), adopt)
            .await
    }

    /// The same with a given word, by which nodes recognise a Redis with restored data.
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
