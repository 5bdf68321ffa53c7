//! The generation: a random word by which a node recognises that a Redis still has its data.

use crate::{
    domain::keys::secret::random_base62,
    store::{
        StoreError,
        redis::{ADMIN_BUDGET, RedisStore, link::Effort},
    },
};

const GENERATION_CHARS: usize = 22;

/// What to do about keys in a Redis that has no generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adopt {
    /// Refuse: part of the data was lost.
    Refuse,
    /// Take them over as they are.
    Data,
}

/// What [`RedisStore::init`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Init {
    /// The store is set up now.
    Made,
    /// It was set up before.
    Already,
    /// There are keys but no generation, and nothing was changed.
    HasData,
}

impl RedisStore {
    /// Sets a new Redis up: until then every other call says [`StoreError::Unavailable`]. A Redis that is set up stays as it
    /// is. [`crate::store::KeyStore::run`] has to run, and the connection to be there.
    pub async fn init(&self, adopt: Adopt) -> Result<Init, StoreError> {
        self.set_generation(&random_base62(GENERATION_CHARS, &mut rand::rng()), adopt)
            .await
    }

    /// The same with a given word, which makes a Redis with its data put back the one that nodes knew.
    pub(super) async fn set_generation(&self, word: &str, adopt: Adopt) -> Result<Init, StoreError> {
        let mut call = self.keyed(&self.scripts.init);
        call.arg(word).arg(if adopt == Adopt::Data { "adopt" } else { "" });
        let mut reply = self.call_alone(&call, Effort::Write(ADMIN_BUDGET)).await?;
        match reply.text()?.as_str() {
            "made" => Ok(Init::Made),
            "there" => Ok(Init::Already),
            _ => Ok(Init::HasData),
        }
    }
}
