//! Rows as CSV: fixed columns, quoted as RFC 4180 says, and no cell that a spreadsheet takes for a formula.

use std::io::{self, Write};

use super::timestamp::time;
use crate::domain::ledger::consumption::{Part, Row, UsageSource};

/// The columns, in this order. New ones come at the end.
const COLUMNS: [&str; 34] = [
    "time",
    "request_id",
    "account",
    "key_id",
    "protocol",
    "model_asked",
    "model",
    "provider",
    "status",
    "outcome",
    "stream",
    "input_uncached",
    "cache_read",
    "cache_write_short",
    "cache_write_long",
    "output_text",
    "output_reasoning",
    "tool_input",
    "web_searches",
    "web_fetches",
    "usage_source",
    "service_tier",
    "speed",
    "geo",
    "price_version",
    "cost_nano_usd",
    "latency_ms",
    "ttft_ms",
    "admitted_at",
    "file_searches",
    "code_interpreter_calls",
    "image_generations",
    "parts",
    "tags",
];

pub(super) fn heading(out: &mut impl Write) -> io::Result<()> {
    write!(out, "{}\r\n", COLUMNS.join(","))
}

pub(super) fn record(row: &Row, out: &mut impl Write) -> io::Result<()> {
    let usage = &row.usage;
    let source = match row.usage_source {
        UsageSource::Reported => "reported",
        UsageSource::Partial => "partial",
        UsageSource::Estimated => "estimated",
    };
    let or_empty = |text: &Option<String>| cell(text.as_deref().unwrap_or_default());
    let cells: [String; COLUMNS.len()] = [
        time(row.time_ms),
        cell(&row.request_id),
        cell(&row.account),
        cell(row.key_id.as_str()),
        cell(&row.protocol),
        cell(&row.model_asked),
        cell(&row.model),
        cell(&row.provider),
        row.status.to_string(),
        cell(&row.outcome),
        row.stream.to_string(),
        usage.input_uncached.to_string(),
        usage.cache_read.to_string(),
        usage.cache_write_short.to_string(),
        usage.cache_write_long.to_string(),
        usage.output_text.to_string(),
        usage.output_reasoning.to_string(),
        usage.tool_input.to_string(),
        usage.web_searches.to_string(),
        usage.web_fetches.to_string(),
        source.to_owned(),
        or_empty(&row.modifiers.service_tier),
        or_empty(&row.modifiers.speed),
        or_empty(&row.modifiers.geo),
        cell(&row.price_version),
        row.cost_nano_usd.nanos().to_string(),
        row.latency_ms.to_string(),
        row.ttft_ms.map(|ms| ms.to_string()).unwrap_or_default(),
        time(row.admitted_ms),
        usage.file_searches.to_string(),
        usage.code_interpreter_calls.to_string(),
        usage.image_generations.to_string(),
        parts(&row.parts)?,
        cell(&row.tags.iter().map(|tag| tag.as_str()).collect::<Vec<_>>().join(" ")),
    ];
    write!(out, "{}\r\n", cells.join(","))
}

/// What each model consumed, as the JSON that the other form of the log has; empty where there was one model.
fn parts(parts: &[Part]) -> io::Result<String> {
    if parts.is_empty() {
        return Ok(String::new());
    }
    Ok(cell(&serde_json::to_string(parts)?))
}

/// A text as a cell. Some of them come from clients and providers: one that a spreadsheet would compute gets a `'` in front.
fn cell(text: &str) -> String {
    let guard = if text.starts_with(['=', '+', '-', '@', '\t', '\r']) {
        "'"
    } else {
        ""
    };
    if text.contains(['"', ',', '\r', '\n']) {
        format!("\"{guard}{}\"", text.replace('"', "\"\""))
    } else {
        format!("{guard}{text}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_quoted_where_they_must_be_and_are_never_formulas() {
        for (text, written) in [
            ("plain", "plain"),
            ("a,b", "\"a,b\""),
            ("say \"a\"", "\"say \"\"a\"\"\""),
            ("two\nlines", "\"two\nlines\""),
            ("=1+1", "'=1+1"),
            ("-x,y", "\"'-x,y\""),
            ("@cf/model", "'@cf/model"),
            ("", ""),
        ] {
            assert_eq!(cell(text), written);
        }
    }
}
