//! A key gets a new text; the one before works on for a while, or ends at once.

use axum::{
    body::Bytes,
    extract::{Path, State},
};
use serde_json::{Map, Value, json};

use super::{fresh, id, make};
use crate::{
    admin::{
        author::Author,
        fields,
        reply::{AdminError, JsonResult, time},
        state::Admin,
    },
    domain::keys::{
        change::KeyChange,
        rotation::{OVERLAP_DEFAULT_SECONDS, OVERLAP_MAX_SECONDS, Rotation},
    },
    edges::clock,
};

/// The fields of a rotation.
const FIELDS: [&str; 1] = ["overlap_seconds"];

/// `POST /v1/keys/{id}/rotate`, with a body or without.
pub(in crate::admin) async fn rotate(
    State(state): State<Admin>,
    author: Author,
    Path(key_id): Path<String>,
    body: Bytes,
) -> JsonResult {
    let key_id = id(&key_id)?;
    let seconds = overlap(&body)?;
    let (key, _) = fresh(&state);
    let rotation = Rotation {
        digest: key.digest(),
        hint: key.hint(),
        overlap_until: (seconds > 0).then(|| clock::unix_seconds().saturating_add_unsigned(seconds)),
    };
    let values = json!({ "hint": rotation.hint, "old_until": rotation.overlap_until.map(time) });
    let change = KeyChange::Rotate(rotation);
    make(&state, author, &key_id, &change, ("key.rotate", values, Some(&key))).await
}

/// `POST /v1/keys/{id}/end-overlap`: the text before the present one ends now.
pub(in crate::admin) async fn end_overlap(
    State(state): State<Admin>,
    author: Author,
    Path(key_id): Path<String>,
) -> JsonResult {
    let done = ("key.end_overlap", json!({}), None);
    make(&state, author, &id(&key_id)?, &KeyChange::EndOverlap, done).await
}

/// For how many seconds the text before works on.
fn overlap(body: &[u8]) -> Result<u64, AdminError> {
    if body.is_empty() {
        return Ok(OVERLAP_DEFAULT_SECONDS);
    }
    let body: Map<String, Value> = serde_json::from_slice(body)
        .map_err(|error| AdminError::invalid(format!("the body is no JSON object: {error}")))?;
    fields::check_known(&body, &FIELDS)?;
    match body.get("overlap_seconds") {
        None => Ok(OVERLAP_DEFAULT_SECONDS),
        Some(value) => value.as_u64().filter(|seconds| *seconds <= OVERLAP_MAX_SECONDS).ok_or_else(|| {
            AdminError::invalid(format!(
                "overlap_seconds: a whole number up to {OVERLAP_MAX_SECONDS} (30 days), 0 to end the old text at once"
            ))
        }),
    }
}
