//! The documents of sign-ins in the store, and changes of them that hold only if nobody else has changed them meanwhile.

use std::sync::Arc;

use crate::{
    domain::{
        keys::{key::KeyId, secret::KeyDigest},
        sign_in::sign_ins::{SignIns, Tokens},
    },
    store::{
        StoreError,
        sign_ins::{DocumentChange, SignInStore},
    },
};

/// How often a change is tried anew because another one came between reading and writing.
pub(super) const CONFLICTS_MAX: usize = 8;

/// The documents of sign-ins.
pub(super) struct Documents {
    pub(super) store: Arc<dyn SignInStore>,
}

impl Documents {
    /// Changes the document of a key's sign-ins together with what else changes; `None`: that is not as expected.
    pub(super) async fn step<T: Issued>(
        &self,
        key: &KeyId,
        beside: &DocumentChange,
        now: i64,
        step: impl Fn(&mut SignIns) -> (T, Vec<KeyDigest>) + Send,
    ) -> Result<Option<T>, StoreError> {
        let name = SignIns::name(key);
        for _ in 0..CONFLICTS_MAX {
            let before = self.store.document(&name).await?;
            let known = before.as_deref().map(read::<SignIns>).transpose()?.unwrap_or_default();
            let mut after = known.clone();
            let (outcome, ended) = step(&mut after);
            if after == known {
                return Ok(Some(outcome));
            }
            let mut change = beside.clone();
            change.expected.push((name, before));
            change.ended = ended;
            match after.needed_until() {
                Some(until) => change.put.push((name, text(&after)?, seconds(until, now))),
                None => change.removed.push(name),
            }
            if let Some(tokens) = outcome.tokens() {
                let grant = (
                    tokens.access.digest(),
                    text(&tokens.grant)?,
                    seconds(tokens.grant.until, now),
                );
                change.put.push(grant);
            }
            if self.store.exchange(&change).await? {
                return Ok(Some(outcome));
            }
            if !self.still_holds(&beside.expected).await? {
                return Ok(None);
            }
        }
        Err(contended())
    }

    async fn still_holds(&self, expected: &[(KeyDigest, Option<String>)]) -> Result<bool, StoreError> {
        for (name, text) in expected {
            if self.store.document(name).await? != *text {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// What a step gives out.
pub(super) trait Issued: Send {
    fn tokens(&self) -> Option<&Tokens>;
}

impl Issued for () {
    fn tokens(&self) -> Option<&Tokens> {
        None
    }
}

impl<E: Send> Issued for Result<Tokens, E> {
    fn tokens(&self) -> Option<&Tokens> {
        self.as_ref().ok()
    }
}

fn seconds(until: i64, now: i64) -> u64 {
    u64::try_from(until.saturating_sub(now)).unwrap_or(0).max(1)
}

pub(super) fn text(document: &impl serde::Serialize) -> Result<String, StoreError> {
    serde_json::to_string(document).map_err(|error| StoreError::Corrupt(error.to_string()))
}

/// Reads a document. The error names a place, never the content.
pub(super) fn read<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, StoreError> {
    serde_json::from_str(text).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        StoreError::Corrupt(format!(
            "a document of sign-ins cannot be read (line {line}, column {column})"
        ))
    })
}

pub(super) fn contended() -> StoreError {
    StoreError::Unavailable("these sign-ins are being changed by others all the time, try again".to_owned())
}
