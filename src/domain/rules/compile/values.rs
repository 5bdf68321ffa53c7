//! Values of a provider file as JSON.

use crate::domain::rules::{
    apply::json_string,
    body::{JsonNumber, NumberBound, NumberRange},
};

/// `min` and `max`, of which at least one is required.
pub(super) fn bounds(min: Option<&toml::Value>, max: Option<&toml::Value>) -> Result<NumberRange, String> {
    let min = min.map(bound).transpose()?;
    let max = max.map(bound).transpose()?;
    match (&min, &max) {
        (None, None) => Err("keys `min` and `max` are missing: `clamp` needs one of them".to_owned()),
        (Some(min), Some(max)) if max.value.is_below(min.value) => Err("key `min` is greater than `max`".to_owned()),
        (Some(_), _) | (None, Some(_)) => Ok(NumberRange { min, max }),
    }
}

fn bound(value: &toml::Value) -> Result<NumberBound, String> {
    let text = match value {
        toml::Value::Integer(_) | toml::Value::Float(_) => json_text(value)?,
        _ => return Err("keys `min` and `max` are numbers".to_owned()),
    };
    let value = JsonNumber::read(&text).ok_or("keys `min` and `max` are numbers")?;
    Ok(NumberBound { text, value })
}

/// A value's JSON text.
pub(super) fn json_text(value: &toml::Value) -> Result<String, String> {
    let unfit = || "dates and non-finite numbers cannot be written as JSON".to_owned();
    match value {
        toml::Value::String(text) => Ok(json_string(text)),
        toml::Value::Integer(integer) => Ok(integer.to_string()),
        toml::Value::Float(float) => serde_json::Number::from_f64(*float)
            .map(|number| number.to_string())
            .ok_or_else(unfit),
        toml::Value::Boolean(truth) => Ok(truth.to_string()),
        toml::Value::Datetime(_) => Err(unfit()),
        toml::Value::Array(items) => {
            let items: Result<Vec<String>, String> = items.iter().map(json_text).collect();
            Ok(format!("[{}]", items?.join(",")))
        }
        toml::Value::Table(table) => {
            let member = |(name, value): (&String, &toml::Value)| {
                Ok::<String, String>(format!("{}:{}", json_string(name), json_text(value)?))
            };
            let members: Result<Vec<String>, String> = table.iter().map(member).collect();
            Ok(format!("{{{}}}", members?.join(",")))
        }
    }
}
