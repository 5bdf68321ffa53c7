//! State at providers in Redis: one text for each name of state, with an expiry.

use async_trait::async_trait;

use super::link::CallPolicy;
use super::{ADMIN_BUDGET, RedisStore};
use crate::domain::wire::{provider_state::StateKey, session_hint::ServedBy};
use crate::store::StoreError;
use crate::store::sessions::{self, SESSION_LIFETIME, SessionStore};

#[async_trait]
impl SessionStore for RedisStore {
    async fn recall(&self, states: &[StateKey]) -> Result<Vec<Option<ServedBy>>, StoreError> {
        let mut call = self.prepare(&self.scripts.recall);
        for state in states {
            call.key(format!("{}:{}", self.session_key, state.to_hex()));
        }
        let mut reply = self.call(&call, CallPolicy::Read(self.budget)).await?;
        let texts = states.iter().map(|_| reply.text());
        texts.map(|text| Ok(sessions::from_text(&text?))).collect()
    }

    async fn remember(&self, served: &[(StateKey, ServedBy)], _now: i64) -> Result<(), StoreError> {
        let mut call = self.prepare(&self.scripts.remember);
        call.arg(SESSION_LIFETIME.as_secs());
        for (state, served_by) in served {
            call.key(format!("{}:{}", self.session_key, state.to_hex()));
            call.arg(sessions::to_text(served_by));
        }
        self.call(&call, CallPolicy::Write(ADMIN_BUDGET)).await.map(drop)
    }
}
