//! The documents of sign-ins in the store. A change is applied only if the documents have not been changed by another call in the
//! meantime.

use std::sync::Arc;

use crate::{
    domain::{
        keys::{KeyId, secret::KeyDigest},
        sign_in::{IssuedTokens, SignIns},
    },
    store::{
        StoreError,
        sessions::{DocumentChange, SignInStore},
    },
};

/// The maximum number of attempts to apply a change. An attempt fails if another call changes the documents between reading and
/// writing.
pub(super) const CONFLICTS_MAX: usize = 8;

/// The documents of sign-ins.
pub(super) struct SignInDocuments {
    pub(super) store: Arc<dyn SignInStore>,
}

impl SignInDocuments {
    /// Changes the document of a key's sign-ins and, in the same atomic step, the documents in `beside`. Returns `None` if a
    /// document no longer has the content that `beside` expects.
    pub(super) async fn change_sign_ins<T: StepResult>(
        &self,
        key: &KeyId,
        beside: &DocumentChange,
        now: i64,
        step: impl Fn(&mut SignIns) -> (T, Vec<KeyDigest>) + Send,
    ) -> Result<Option<T>, StoreError> {
        let name = SignIns::document_name(key);
        for _ in 0..CONFLICTS_MAX {
            let before = self.store.document(&name).await?;
            let known = before
                .as_deref()
                .map(read_document::<SignIns>)
                .transpose()?
                .unwrap_or_default();
            let mut after = known.clone();
            let (outcome, ended) = step(&mut after);
            if after == known {
                return Ok(Some(outcome));
            }
            let mut change = beside.clone();
            change.expected.push((name, before));
            change.ended = ended;
            match after.needed_until() {
                Some(until) => change
                    .put
                    .push((name, to_document(&after)?, remaining_seconds(until, now))),
                None => change.removed.push(name),
            }
            if let Some(tokens) = outcome.tokens() {
                let grant = (
                    tokens.access.digest(),
                    to_document(&tokens.grant)?,
                    remaining_seconds(tokens.grant.until, now),
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
        Err(contention_error())
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

/// The result of a change. The change may have issued tokens.
pub(super) trait StepResult: Send {
    fn tokens(&self) -> Option<&IssuedTokens>;
}

impl StepResult for () {
    fn tokens(&self) -> Option<&IssuedTokens> {
        None
    }
}

impl<E: Send> StepResult for Result<IssuedTokens, E> {
    fn tokens(&self) -> Option<&IssuedTokens> {
        self.as_ref().ok()
    }
}

fn remaining_seconds(until: i64, now: i64) -> u64 {
    u64::try_from(until.saturating_sub(now)).unwrap_or(0).max(1)
}

pub(super) fn to_document(document: &impl serde::Serialize) -> Result<String, StoreError> {
    serde_json::to_string(document).map_err(|error| StoreError::Corrupt(error.to_string()))
}

/// Parses a document. An error contains the position of the fault, never the content.
pub(super) fn read_document<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, StoreError> {
    serde_json::from_str(text).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        StoreError::Corrupt(format!(
            "cannot parse a document of sign-ins (line {line}, column {column})"
        ))
    })
}

pub(super) fn contention_error() -> StoreError {
    StoreError::Unavailable(
        "cannot change these sign-ins, because other calls keep changing them; try again".to_owned(),
    )
}
