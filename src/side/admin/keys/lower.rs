//! Lowers limits of a key: what its owner may do, who can never raise one.

use axum::{
    Extension,
    extract::{Path, State},
};
use serde_json::Value;

use super::{id, noted};
use crate::{
    domain::keys::key::KeyRecord,
    edges::clock,
    side::admin::{
        change,
        fields::{self, Body, object},
        peer::Peer,
        reply::{ApiError, JsonResult},
        state::AdminState,
    },
    store::StoreError,
};

/// The limits that can be lowered.
const FIELDS: [&str; 5] = ["concurrency", "expires_at", "quota_usd", "rpm", "tpm"];

/// `POST /v1/keys/{id}/lower`
pub(in crate::side::admin) async fn lower(
    State(state): State<AdminState>,
    Extension(peer): Extension<Peer>,
    Path(key_id): Path<String>,
    body: Body,
) -> JsonResult {
    let body = object(body)?;
    let key_id = id(&key_id)?;
    if let Some(other) = body.keys().find(|field| !FIELDS.contains(&field.as_str())) {
        return Err(fields::unknown(other, &FIELDS));
    }
    if body.is_empty() {
        return Err(ApiError::invalid("nothing to change: name at least one field"));
    }
    let change = change::read(&body, clock::unix_seconds())?.change;
    // One at a time, so that of two that lower the same limit the later one is compared with the former.
    let _turn = state.changing.lock().await;
    let view = state.store.by_id(&key_id).await?.ok_or(StoreError::NotFound)?;
    is_lower(&view.record, &change.apply(&view.record))?;
    let values = Value::Object(body);
    state.audit(peer, "key.lower", key_id.as_str(), values).await?;
    noted(&state, &state.store.update(&key_id, &change).await?, None).await
}

/// Whether no limit is higher afterwards; none at all is the highest.
fn is_lower(before: &KeyRecord, after: &KeyRecord) -> Result<(), ApiError> {
    let (old, new) = (&before.terms, &after.terms);
    let falls = |old: Option<i128>, new: Option<i128>| match (old, new) {
        (None, _) => true,
        (Some(old), Some(new)) => new <= old,
        (Some(_), None) => false,
    };
    let rate = |limit: Option<u64>| limit.map(i128::from);
    let nanos = |quota: Option<crate::domain::money::NanoUsd>| quota.map(|quota| i128::from(quota.nanos()));
    let limits = [
        ("quota_usd", nanos(old.quota), nanos(new.quota)),
        ("rpm", rate(old.rates.rpm), rate(new.rates.rpm)),
        ("tpm", rate(old.rates.tpm), rate(new.rates.tpm)),
        ("concurrency", rate(old.rates.concurrency), rate(new.rates.concurrency)),
        (
            "expires_at",
            before.expires_at.map(i128::from),
            after.expires_at.map(i128::from),
        ),
    ];
    match limits.iter().find(|(_, old, new)| !falls(*old, *new)) {
        None => Ok(()),
        Some((field, ..)) => Err(ApiError::invalid(format!(
            "{field}: the owner of a key can lower a limit, and only an operator can raise it"
        ))),
    }
}
