//! A key as it is printed for people.

use std::io::Write;

use serde_json::{Map, Value};

use crate::cli::limits::{DEFAULT, NOTIFY, listed};

/// How a quota that is not there is shown.
const UNLIMITED: &str = "Unlimited";

/// The quota and its period in few words.
pub(super) fn quota(key: &Value) -> String {
    let text = |field: &str| key.get(field).and_then(Value::as_str);
    match (text("quota_usd"), text("reset")) {
        (None, _) => UNLIMITED.to_owned(),
        (Some(quota), None | Some("none")) => quota.to_owned(),
        (Some(quota), Some(reset)) => format!("{quota} {reset}"),
    }
}

/// What is said of a field that has no value.
fn absent(field: &str) -> &'static str {
    match field {
        "models" => "all",
        "quota_usd" => UNLIMITED,
        "rpm" | "tpm" | "concurrency" | "finish_factor" | "former" => "none",
        NOTIFY => DEFAULT,
        "spent_usd" | "spent" | "held_usd" | "running" => "unknown",
        _ => "never",
    }
}

/// What was spent in the periods of now, in USD.
fn spent_in_words(spent: &Map<String, Value>) -> String {
    let periods = [
        ("day_usd", "today"),
        ("week_usd", "this week"),
        ("month_usd", "this month"),
        ("all_usd", "in all"),
    ];
    let said = periods.into_iter().filter_map(|(field, when)| {
        let usd = spent.get(field)?.as_str()?;
        Some(format!("{usd} USD {when}"))
    });
    said.collect::<Vec<_>>().join(", ")
}

/// The text of a key that was made just now.
pub(super) fn key_of(answer: &Value) -> Option<&str> {
    answer.get("key").and_then(Value::as_str)
}

/// `field: value` lines; a fresh key comes last, with a word of warning.
pub(super) fn print(answer: &Value, out: &mut impl Write) -> std::io::Result<()> {
    let Value::Object(fields) = answer else {
        return writeln!(out, "{answer}");
    };
    let is_shown = |field: &str| field != "key" && !field.ends_with("_nano_usd");
    for (field, value) in fields.iter().filter(|(field, _)| is_shown(field)) {
        let shown = match (value, field.as_str()) {
            (Value::Null, "revoked_at") => continue,
            (Value::Null, _) => absent(field).to_owned(),
            (Value::String(text), _) => text.clone(),
            (Value::Object(former), "former") => {
                let text = |field: &str| former.get(field).and_then(Value::as_str).unwrap_or_default();
                format!("ends in {}, works until {}", text("hint"), text("until"))
            }
            (Value::Object(spent), "spent") => spent_in_words(spent),
            (Value::Array(list), _) => listed(list),
            (other, _) => other.to_string(),
        };
        writeln!(out, "{field:<12} {shown}")?;
    }
    if let Some(key) = key_of(answer) {
        writeln!(out, "{:<12} {key}", "key")?;
        writeln!(
            out,
            "\nKeep the key now: it is not shown again, and weir stores only its SHA-256."
        )?;
    }
    Ok(())
}
