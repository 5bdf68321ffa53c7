//! Reads and checks fields that several requests have.

use axum::{
    Json,
    extract::rejection::JsonRejection,
    http::{HeaderMap, header},
};
use jiff::{Timestamp, civil::Date, tz::TimeZone};
use serde_json::{Map, Value};

use super::reply::AdminError;
use crate::domain::{
    keys::thresholds::{PERCENTS, Thresholds},
    ledger::{OperationId, Rates, RatesChange},
    money::NanoUsd,
    strict_toml::nearest,
    version::Version,
};

const ACCOUNT_CHARS_MAX: usize = 64;

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

/// The name of an account. It is a segment of a path and the value of an option: `.` and `..` name no segment, and what begins
/// with `-` is an option itself.
pub(super) fn account(field: &str, text: &str) -> Result<String, AdminError> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    let is_long = text.is_empty() || text.len() > ACCOUNT_CHARS_MAX;
    if is_long || !text.bytes().all(plain) || text.starts_with(['.', '-']) {
        return Err(AdminError::invalid(format!(
            "{field}: 1 to {ACCOUNT_CHARS_MAX} letters, digits, `.`, `_` or `-`, the first of them neither `.` nor `-`"
        )));
    }
    Ok(text.to_owned())
}

/// 1 to `most` characters, one of them visible and none of them a control character.
pub(super) fn line(field: &str, value: &Value, most: usize) -> Result<String, AdminError> {
    let text = value.as_str().unwrap_or_default();
    let length = text.chars().count();
    if length > most || !text.chars().any(is_visible) || text.chars().any(char::is_control) {
        return Err(AdminError::invalid(format!(
            "{field}: 1 to {most} characters, one of them visible and none of them a control character"
        )));
    }
    Ok(text.to_owned())
}

/// Whether a character shows by itself: it is no space, and none of those that a font leaves out (Unicode's
/// Default_Ignorable_Code_Point) or draws as nothing.
fn is_visible(character: char) -> bool {
    let is_left_out = matches!(
        character,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fff8}' | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}'
    );
    !(is_left_out || character.is_whitespace() || character.is_control())
}

/// An amount in USD. A text, because a JSON number may have been through a float.
pub(super) fn usd(field: &str, value: &Value) -> Result<NanoUsd, AdminError> {
    let text = value
        .as_str()
        .ok_or_else(|| AdminError::of_field(field, format!("an amount in USD as a text, such as \"12.50\"")))?;
    NanoUsd::parse_usd(text).map_err(|error| AdminError::of_field(field, format!("{error}")))
}

/// By what a change of a balance is counted once.
pub(super) fn operation(field: &str, value: &Value) -> Result<OperationId, AdminError> {
    let id = value.as_str().and_then(OperationId::parse);
    id.ok_or_else(|| AdminError::of_field(field, format!("{}", OperationId::RULE)))
}

/// Sets one of `rpm`, `tpm` and `concurrency`; false if the field is none of them.
pub(super) fn rate(change: &mut RatesChange, field: &str, value: &Value) -> Result<bool, AdminError> {
    let place = match field {
        "rpm" => &mut change.rpm,
        "tpm" => &mut change.tpm,
        "concurrency" => &mut change.concurrency,
        _ => return Ok(false),
    };
    *place = Some(limit(field, value)?);
    Ok(true)
}

fn limit(field: &str, value: &Value) -> Result<Option<u64>, AdminError> {
    if value.is_null() {
        return Ok(None);
    }
    match value.as_u64() {
        Some(0) => Err(AdminError::invalid(format!(
            "{field}: with 0 nothing would ever be admitted; suspend the account or revoke the key instead"
        ))),
        Some(limit) if limit <= Rates::MAX => Ok(Some(limit)),
        _ => Err(AdminError::invalid(format!(
            "{field}: a whole number from 1 to {}, or null for no limit",
            Rates::MAX
        ))),
    }
}

/// At which parts of a quota somebody is told; null: as what stands above says.
pub(super) fn thresholds(field: &str, value: &Value) -> Result<Option<Thresholds>, AdminError> {
    if value.is_null() {
        return Ok(None);
    }
    let percents = value
        .as_array()
        .and_then(|list| list.iter().map(Value::as_u64).collect::<Option<Vec<_>>>());
    let chosen = percents.and_then(|percents| Thresholds::of(percents).ok());
    chosen.map(Some).ok_or_else(|| {
        let known = PERCENTS.map(|percent| percent.to_string()).join(", ");
        AdminError::invalid(format!(
            "{field}: a list of {known}, empty to be told nothing, or null for the default"
        ))
    })
}

/// A moment, in milliseconds since the Unix epoch: an RFC 3339 time, or a date for its first moment in UTC.
pub(super) fn moment(field: &str, text: &str) -> Result<i64, AdminError> {
    let time = text.parse::<Timestamp>().ok().or_else(|| {
        let date: Date = text.parse().ok().filter(|_| text.len() == "2027-01-31".len())?;
        Some(date.to_zoned(TimeZone::UTC).ok()?.timestamp())
    });
    let wanted = || AdminError::of_field(field, format!("a time such as 2027-01-31T00:00:00Z, or a date"));
    time.map(Timestamp::as_millisecond).ok_or_else(wanted)
}
