//! A row of the consumption log, in answers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::{
    api::{
        schema::schema,
        values::{Moment, Nullable, nullable},
    },
    domain::{
        ledger::{consumption::Row, price_lines::ChargeLine, tag::Tag},
        wire::usage::Usage,
    },
};

/// A row of the log.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct LogRow {
    /// When the request ended.
    pub(crate) time: Option<Moment>,
    /// The row.
    #[serde(flatten)]
    pub(crate) row: Row,
    /// The lines of its charge, if requested; null: it was charged at prices that are no longer in force.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
    pub(crate) price_lines: Nullable<Vec<ChargeLine>>,
}

impl LogRow {
    /// A row with these lines of its charge.
    pub(crate) fn new(row: Row, price_lines: Nullable<Vec<ChargeLine>>) -> Self {
        Self {
            time: Moment::of_millis(row.time_ms),
            row,
            price_lines,
        }
    }
}

schema!(Tag, { "type": "string", "description": Tag::RULE });
schema!(ChargeLine, {
    "type": "object",
    "properties": {
        "model": { "type": "string", "description": "the model that consumed it, if there were several" },
        "counted": { "type": "string", "description": "a count of the row, or `request` for the fee of a request" },
        "count": { "type": "integer" },
        "price_usd": { "type": "string", "description": "the price per unit of `per`" },
        "per": { "enum": ["1M tokens", "call"] },
        "factor": { "type": "string", "description": "the factor on the price, unless it is 1" },
        "cost_usd": { "type": "string", "description": "exact, not rounded" },
    },
    "required": ["counted", "count", "price_usd", "per", "cost_usd"],
});
schema!(Usage, { "type": "object", "description": "Counts that are zero are left out.", "properties": counts() });
schema!(Row, { "type": "object", "properties": properties(), "required": required() });

/// The fields of every row.
fn required() -> Vec<&'static str> {
    "time_ms admitted_ms request_id account key_id protocol model_asked model provider status outcome stream usage_source \
     price_version cost_nano_usd latency_ms ttft_ms"
        .split(' ')
        .collect()
}

fn properties() -> Map<String, Value> {
    let kinds = [
        (
            "time_ms admitted_ms status cost_nano_usd latency_ms hold_nano_usd attempts",
            json!({ "type": "integer" }),
        ),
        (
            "request_id account key_id protocol model_asked model provider outcome usage_source service_tier speed geo price_version",
            json!({ "type": "string" }),
        ),
        ("stream", json!({ "type": "boolean" })),
        ("ttft_ms", json!({ "type": ["integer", "null"] })),
        ("tags", json!({ "type": "array", "items": { "type": "string" } })),
        ("parts", json!({ "type": "array", "items": { "type": "object" } })),
    ];
    let named = kinds
        .iter()
        .flat_map(|(names, kind)| names.split(' ').map(|name| (name.to_owned(), kind.clone())));
    counts().into_iter().chain(named).collect()
}

fn counts() -> Map<String, Value> {
    let count = |name: &str| (name.to_owned(), json!({ "type": "integer", "minimum": 0 }));
    Usage::NAMES.map(count).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A row's fields as stores keep them.
    const KEPT: &str = concat!(
        r#""time_ms":1793491200000,"admitted_ms":1793491199995,"request_id":"r","account":"a","#,
        r#""key_id":"key_0000000000000001","protocol":"messages","model_asked":"a \"model\"","model":"m","#,
        r#""provider":"p","status":200,"outcome":"complete","stream":true,"tags":["team=a"],"#,
        r#""input_uncached":9007199254740993,"usage_source":"reported","parts":[{"run":"advisor","model":"n","#,
        r#""output_text":1,"cost_nano_usd":1}],"speed":"fast","price_version":"1","cost_nano_usd":-7,"latency_ms":5,"#,
        r#""ttft_ms":null,"hold_nano_usd":9007199254740993,"attempts":3"#,
    );

    #[test]
    fn a_row_is_told_as_it_is_kept_between_its_time_and_its_lines_and_reads_back() {
        let row: Row = serde_json::from_str(&format!("{{{KEPT}}}")).unwrap();
        for (lines, end) in [
            (None, ""),
            (Some(None), ",\"price_lines\":null"),
            (Some(Some(Vec::new())), ",\"price_lines\":[]"),
        ] {
            let told = serde_json::to_string(&LogRow::new(row.clone(), lines.clone())).unwrap();
            assert_eq!(told, format!("{{\"time\":\"2026-11-01T00:00:00Z\",{KEPT}{end}}}"));
            let read: LogRow = serde_json::from_str(&told).unwrap();
            assert_eq!((read.row, read.price_lines), (row.clone(), lines));
        }
    }
}
