//! What a request to make or change a key may say, checked.

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::reply::ApiError;
use crate::domain::{key::KeyChange, strict_toml::nearest};

/// The fields that can be set. State, key and hint have operations of their own.
const FIELDS: [&str; 4] = ["account", "expires_at", "models", "name"];

const NAME_CHARS_MAX: usize = 128;
const ACCOUNT_CHARS_MAX: usize = 64;
const MODELS_MAX: usize = 1000;

/// What is asked for.
pub(super) struct Wanted {
    /// The account of a new key.
    pub(super) account: Option<String>,
    /// Everything else.
    pub(super) change: KeyChange,
}

/// Reads the body of a create or update; unknown fields are refused with the nearest valid name.
pub(super) fn read(body: &Map<String, Value>, now_unix: i64) -> Result<Wanted, ApiError> {
    let mut wanted_account = None;
    let mut change = KeyChange::default();
    for (field, value) in body {
        match field.as_str() {
            "name" => change.name = Some(name(value)?),
            "account" => wanted_account = Some(account(value)?),
            "expires_at" => change.expires_at = Some(expires_at(value, now_unix)?),
            "models" => change.models = Some(models(value)?),
            other => {
                let hint = nearest(other, FIELDS.iter().copied()).map_or_else(
                    || format!("there are {}", FIELDS.join(", ")),
                    |near| format!("did you mean `{near}`?"),
                );
                return Err(ApiError::invalid(format!("field `{other}` cannot be set: {hint}")));
            }
        }
    }
    Ok(Wanted {
        account: wanted_account,
        change,
    })
}

fn name(value: &Value) -> Result<String, ApiError> {
    let text = value.as_str().unwrap_or_default();
    let length = text.chars().count();
    if length == 0 || length > NAME_CHARS_MAX || text.chars().any(char::is_control) {
        return Err(ApiError::invalid(format!(
            "name: 1 to {NAME_CHARS_MAX} characters, none of them a control character"
        )));
    }
    Ok(text.to_owned())
}

fn account(value: &Value) -> Result<String, ApiError> {
    let text = value.as_str().unwrap_or_default();
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    if text.is_empty() || text.len() > ACCOUNT_CHARS_MAX || !text.bytes().all(plain) {
        return Err(ApiError::invalid(format!(
            "account: 1 to {ACCOUNT_CHARS_MAX} letters, digits, `.`, `_` or `-`"
        )));
    }
    Ok(text.to_owned())
}

fn expires_at(value: &Value, now_unix: i64) -> Result<Option<i64>, ApiError> {
    if value.is_null() {
        return Ok(None);
    }
    let time: Timestamp = value
        .as_str()
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| ApiError::invalid("expires_at: a time such as 2027-01-31T00:00:00Z, or null for never"))?;
    if time.as_second() <= now_unix {
        return Err(ApiError::invalid(
            "expires_at: that time has passed; to end a key now, revoke it",
        ));
    }
    Ok(Some(time.as_second()))
}

fn models(value: &Value) -> Result<Option<Vec<String>>, ApiError> {
    let wanted = || ApiError::invalid(format!("models: 1 to {MODELS_MAX} model names, or null for all"));
    if value.is_null() {
        return Ok(None);
    }
    let list = value
        .as_array()
        .filter(|list| (1..=MODELS_MAX).contains(&list.len()))
        .ok_or_else(wanted)?;
    let names: Option<Vec<String>> = list
        .iter()
        .map(|name| name.as_str().filter(|name| is_model(name)).map(str::to_owned))
        .collect();
    names.map(Some).ok_or_else(wanted)
}

fn is_model(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._:/@-".contains(&byte);
    (1..=128).contains(&name.len()) && name.bytes().all(plain)
}
