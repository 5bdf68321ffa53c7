//! Checks the body of a request that creates or changes a key.

use serde_json::{Map, Value};

use super::{fields, reply::AdminError};
use crate::domain::{keys::change::KeyUpdate, ledger::FinishFactor, money::NanoUsd, wire::model_name};

/// The fields that can be set. State, key and hint have operations of their own.
const FIELDS: [&str; 12] = [
    "account",
    "concurrency",
    "expires_at",
    "finish_factor",
    "models",
    "name",
    "notify_percent",
    "on_exhausted",
    "quota_usd",
    "reset",
    "rpm",
    "tpm",
];

const NAME_CHARS_MAX: usize = 128;
const MODELS_MAX: usize = 1000;

pub(super) struct Wanted {
    /// The account of a new key.
    pub(super) account: Option<String>,
    pub(super) update: KeyUpdate,
}

/// Reads the body of a create or update; unknown fields are refused with the nearest valid name.
pub(super) fn read(body: &Map<String, Value>, now_unix: i64) -> Result<Wanted, AdminError> {
    let mut wanted_account = None;
    let mut update = KeyUpdate::default();
    for (field, value) in body {
        match field.as_str() {
            "name" => update.name = Some(fields::line(field, value, NAME_CHARS_MAX)?),
            "account" => wanted_account = Some(fields::account(field, value.as_str().unwrap_or_default())?),
            "expires_at" => update.expires_at = Some(expires_at(value, now_unix)?),
            "models" => update.models = Some(models(value)?),
            "quota_usd" => update.terms.quota = Some(quota(value)?),
            "reset" => update.terms.reset = Some(choice(field, value, "none, daily, weekly or monthly")?),
            "on_exhausted" => update.terms.on_exhausted = Some(choice(field, value, "finish or cut")?),
            "notify_percent" => update.terms.notify = Some(fields::thresholds(field, value)?),
            "finish_factor" => update.terms.finish_factor = Some(finish_factor(value)?),
            other if fields::rate(&mut update.terms.rates, other, value)? => {}
            other => return Err(fields::unknown(other, &FIELDS)),
        }
    }
    Ok(Wanted {
        account: wanted_account,
        update,
    })
}

/// Zero is a quota: the key is there, and nothing is served.
fn quota(value: &Value) -> Result<Option<NanoUsd>, AdminError> {
    if value.is_null() {
        return Ok(None);
    }
    let quota = fields::usd("quota_usd", value)?;
    if quota < NanoUsd::ZERO {
        return Err(AdminError::invalid("quota_usd: zero or more, or null for unlimited"));
    }
    Ok(Some(quota))
}

fn finish_factor(value: &Value) -> Result<FinishFactor, AdminError> {
    if value.is_null() {
        return Ok(FinishFactor::NONE);
    }
    value.as_u64().and_then(FinishFactor::new).ok_or_else(|| {
        AdminError::invalid(format!(
            "finish_factor: a whole number from 1 to {}, or null for no bound",
            FinishFactor::MAX
        ))
    })
}

fn choice<T: std::str::FromStr>(field: &str, value: &Value, choices: &str) -> Result<T, AdminError> {
    value
        .as_str()
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| AdminError::invalid(format!("{field}: {choices}")))
}

fn expires_at(value: &Value, now_unix: i64) -> Result<Option<i64>, AdminError> {
    if value.is_null() {
        return Ok(None);
    }
    let text = value.as_str().unwrap_or_default();
    let at = fields::moment("expires_at", text)?.div_euclid(1000);
    if at <= now_unix {
        return Err(AdminError::invalid(
            "expires_at: that time has passed; to end a key now, revoke it",
        ));
    }
    Ok(Some(at))
}

fn models(value: &Value) -> Result<Option<Vec<String>>, AdminError> {
    let wanted = || AdminError::invalid(format!("models: 1 to {MODELS_MAX} model names, or null for all"));
    if value.is_null() {
        return Ok(None);
    }
    let list = value
        .as_array()
        .filter(|list| (1..=MODELS_MAX).contains(&list.len()))
        .ok_or_else(wanted)?;
    let names: Option<Vec<String>> = list
        .iter()
        .map(|name| {
            name.as_str()
                .filter(|name| model_name::is_plausible(name))
                .map(str::to_owned)
        })
        .collect();
    names.map(Some).ok_or_else(wanted)
}
