//! Reads and checks fields that several requests have.

use axum::{
    Json,
    extract::rejection::JsonRejection,
    http::{HeaderMap, header},
};
use serde_json::{Map, Value};

use super::reply::AdminError;
use crate::domain::{strict_toml::nearest, version::Version};

/// The body of a request, as axum gives it.
pub(super) type Body = Result<Json<Map<String, Value>>, JsonRejection>;

/// The body's fields.
pub(super) fn object(body: Body) -> Result<Map<String, Value>, AdminError> {
    match body {
        Ok(Json(fields)) => Ok(fields),
        Err(rejection) => Err(AdminError::invalid(rejection.body_text())),
    }
}

/// The version that a change was made from, as `If-Match` names it; `None`: it holds whatever is there.
pub(super) fn condition(headers: &HeaderMap) -> Result<Option<Version>, AdminError> {
    let wanted = || AdminError::invalid("If-Match: one version in quotes, such as \"17-5f3a9c21\", or `*`");
    let mut named = headers.get_all(header::IF_MATCH).iter();
    let tag = match (named.next(), named.next()) {
        (None, _) => return Ok(None),
        (Some(one), None) => one.to_str().map_err(|_| wanted())?.trim(),
        (Some(_), Some(_)) => return Err(wanted()),
    };
    if tag == "*" {
        return Ok(None);
    }
    let version = tag.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    let version = version.and_then(|text| text.parse().ok());
    version.map(Some).ok_or_else(wanted)
}

/// A field that is none of the known ones, with the nearest of these.
pub(super) fn unknown(field: &str, known: &[&str]) -> AdminError {
    let hint = nearest(field, known.iter().copied()).map_or_else(
        || format!("there are {}", known.join(", ")),
        |near| format!("did you mean `{near}`?"),
    );
    AdminError::invalid(format!("field `{field}` cannot be set: {hint}"))
}

/// Refuses a field that is none of the known ones.
pub(super) fn check_known(fields: &Map<String, Value>, known: &[&str]) -> Result<(), AdminError> {
    let other = fields.keys().find(|field| !known.contains(&field.as_str()));
    other.map_or(Ok(()), |other| Err(unknown(other, known)))
}
