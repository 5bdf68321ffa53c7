//! Reads and checks fields that several requests have.

use axum::{Json, extract::rejection::JsonRejection};
use jiff::{Timestamp, civil::Date, tz::TimeZone};
use serde_json::{Map, Value};

use super::reply::ApiError;
use crate::domain::{
    keys::thresholds::{PERCENTS, Thresholds},
    ledger::{OperationId, Rates, RatesChange},
    money::NanoUsd,
    strict_toml::nearest,
};

const ACCOUNT_CHARS_MAX: usize = 64;

/// The body of a request, as axum gives it.
pub(super) type Body = Result<Json<Map<String, Value>>, JsonRejection>;

/// The body's fields.
pub(super) fn object(body: Body) -> Result<Map<String, Value>, ApiError> {
    match body {
        Ok(Json(fields)) => Ok(fields),
        Err(rejection) => Err(ApiError::invalid(rejection.body_text())),
    }
}

/// A field that is none of the known ones, with the nearest of these.
pub(super) fn unknown(field: &str, known: &[&str]) -> ApiError {
    let hint = nearest(field, known.iter().copied()).map_or_else(
        || format!("there are {}", known.join(", ")),
        |near| format!("did you mean `{near}`?"),
    );
    ApiError::invalid(format!("field `{field}` cannot be set: {hint}"))
}

/// Refuses a field that is none of the known ones.
pub(super) fn check_known(fields: &Map<String, Value>, known: &[&str]) -> Result<(), ApiError> {
    let other = fields.keys().find(|field| !known.contains(&field.as_str()));
    other.map_or(Ok(()), |other| Err(unknown(other, known)))
}

pub(super) fn account(field: &str, text: &str) -> Result<String, ApiError> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    if text.is_empty() || text.len() > ACCOUNT_CHARS_MAX || !text.bytes().all(plain) {
        return Err(ApiError::invalid(format!(
            "{field}: 1 to {ACCOUNT_CHARS_MAX} letters, digits, `.`, `_` or `-`"
        )));
    }
    Ok(text.to_owned())
}

/// 1 to `most` characters, none of them a control character.
pub(super) fn line(field: &str, value: &Value, most: usize) -> Result<String, ApiError> {
    let text = value.as_str().unwrap_or_default();
    let length = text.chars().count();
    if length == 0 || length > most || text.chars().any(char::is_control) {
        return Err(ApiError::invalid(format!(
            "{field}: 1 to {most} characters, none of them a control character"
        )));
    }
    Ok(text.to_owned())
}

/// An amount in USD. A text, because a JSON number may have been through a float.
pub(super) fn usd(field: &str, value: &Value) -> Result<NanoUsd, ApiError> {
    let text = value
        .as_str()
        .ok_or_else(|| ApiError::invalid(format!("{field}: an amount in USD as a text, such as \"12.50\"")))?;
    NanoUsd::parse_usd(text).map_err(|error| ApiError::invalid(format!("{field}: {error}")))
}

/// By what a change of a balance is counted once.
pub(super) fn operation(field: &str, value: &Value) -> Result<OperationId, ApiError> {
    let id = value.as_str().and_then(OperationId::parse);
    id.ok_or_else(|| ApiError::invalid(format!("{field}: {}", OperationId::RULE)))
}

/// Sets one of `rpm`, `tpm` and `concurrency`; false if the field is none of them.
pub(super) fn rate(change: &mut RatesChange, field: &str, value: &Value) -> Result<bool, ApiError> {
    let place = match field {
        "rpm" => &mut change.rpm,
        "tpm" => &mut change.tpm,
        "concurrency" => &mut change.concurrency,
        _ => return Ok(false),
    };
    *place = Some(limit(field, value)?);
    Ok(true)
}

fn limit(field: &str, value: &Value) -> Result<Option<u64>, ApiError> {
    if value.is_null() {
        return Ok(None);
    }
    match value.as_u64() {
        Some(0) => Err(ApiError::invalid(format!(
            "{field}: with 0 nothing would ever be admitted; suspend the account or revoke the key instead"
        ))),
        Some(limit) if limit <= Rates::MAX => Ok(Some(limit)),
        _ => Err(ApiError::invalid(format!(
            "{field}: a whole number from 1 to {}, or null for no limit",
            Rates::MAX
        ))),
    }
}

/// At which parts of a quota somebody is told; null: as what stands above says.
pub(super) fn thresholds(field: &str, value: &Value) -> Result<Option<Thresholds>, ApiError> {
    if value.is_null() {
        return Ok(None);
    }
    let percents = value
        .as_array()
        .and_then(|list| list.iter().map(Value::as_u64).collect::<Option<Vec<_>>>());
    let chosen = percents.and_then(|percents| Thresholds::of(percents).ok());
    chosen.map(Some).ok_or_else(|| {
        let known = PERCENTS.map(|percent| percent.to_string()).join(", ");
        ApiError::invalid(format!(
            "{field}: a list of {known}, empty to be told nothing, or null for the default"
        ))
    })
}

/// A moment, in milliseconds since the Unix epoch: an RFC 3339 time, or a date for its first moment in UTC.
pub(super) fn moment(field: &str, text: &str) -> Result<i64, ApiError> {
    let time = text.parse::<Timestamp>().ok().or_else(|| {
        let date: Date = text.parse().ok().filter(|_| text.len() == "2027-01-31".len())?;
        Some(date.to_zoned(TimeZone::UTC).ok()?.timestamp())
    });
    let wanted = || ApiError::invalid(format!("{field}: a time such as 2027-01-31T00:00:00Z, or a date"));
    time.map(Timestamp::as_millisecond).ok_or_else(wanted)
}
