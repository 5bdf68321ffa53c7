//! Rows as CSV: fixed columns, quoted as RFC 4180 says, and no cell that a spreadsheet takes for a formula.

use std::{
    fmt::Display,
    io::{self, Write},
};

use jiff::Timestamp;

use crate::domain::{ledger::consumption::Row, money::NanoUsd};

/// How many counts of a usage stand among the first columns; the others are the last ones.
const FIRST_COUNTS: usize = 12;
/// The columns, in this order. New ones come at the end.
const COLUMNS: [&str; 42] = [
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
    "hold_nano_usd",
    "attempts",
    "input_audio",
    "input_image",
    "cache_read_audio",
    "cache_read_image",
    "output_audio",
    "output_image",
];

/// The first line.
pub(super) fn heading() -> Vec<u8> {
    format!("{}\r\n", COLUMNS.join(",")).into_bytes()
}

/// Adds a line.
pub(super) fn record(row: &Row, out: &mut Vec<u8>) -> io::Result<()> {
    let usage = &row.usage;
    time(row.time_ms, out)?;
    for text in [
        row.request_id.as_str(),
        &row.account,
        row.key_id.as_str(),
        &row.protocol,
        &row.model_asked,
        &row.model,
        &row.provider,
    ] {
        out.push(b',');
        cell(text, out);
    }
    write!(out, ",{},", row.status)?;
    cell(&row.outcome, out);
    out.extend_from_slice(if row.stream { b",true" } else { b",false" });
    for count in [
        usage.input_uncached,
        usage.cache_read,
        usage.cache_write_short,
        usage.cache_write_long,
        usage.output_text,
        usage.output_reasoning,
        usage.tool_input,
        usage.web_searches,
        usage.web_fetches,
    ] {
        write!(out, ",{count}")?;
    }
    let modifiers = &row.modifiers;
    let modifiers = [&modifiers.service_tier, &modifiers.speed, &modifiers.geo];
    let modifiers = modifiers.map(|text| text.as_deref().unwrap_or_default());
    for text in [row.usage_source.as_str()]
        .into_iter()
        .chain(modifiers)
        .chain([row.price_version.as_str()])
    {
        out.push(b',');
        cell(text, out);
    }
    write!(out, ",{},{},", row.cost_nano_usd.nanos(), row.latency_ms)?;
    number(row.ttft_ms, out)?;
    out.push(b',');
    time(row.admitted_ms, out)?;
    write!(
        out,
        ",{},{},{},",
        usage.file_searches, usage.code_interpreter_calls, usage.image_generations
    )?;
    // What each model consumed, as the JSON that the other form of the log has; empty where there was one model.
    if !row.parts.is_empty() {
        cell(&serde_json::to_string(&row.parts)?, out);
    }
    out.push(b',');
    if !row.tags.is_empty() {
        let tags: Vec<&str> = row.tags.iter().map(|tag| tag.as_str()).collect();
        cell(&tags.join(" "), out);
    }
    for known in [row.hold_nano_usd.map(NanoUsd::nanos), row.attempts.map(i64::from)] {
        out.push(b',');
        number(known, out)?;
    }
    for count in usage.parts().iter().skip(FIRST_COUNTS) {
        write!(out, ",{count}")?;
    }
    out.extend_from_slice(b"\r\n");
    Ok(())
}

/// A number, or nothing where there is none.
fn number(known: Option<impl Display>, out: &mut Vec<u8>) -> io::Result<()> {
    known.map_or(Ok(()), |number| write!(out, "{number}"))
}

/// RFC 3339, or the number itself where it is no time.
fn time(unix_ms: i64, out: &mut Vec<u8>) -> io::Result<()> {
    match Timestamp::from_millisecond(unix_ms) {
        Ok(time) => write!(out, "{time}"),
        Err(_) => write!(out, "{unix_ms}"),
    }
}

/// A text as a cell. Some of them come from clients and providers: one that a spreadsheet would compute gets a `'` in front.
fn cell(text: &str, out: &mut Vec<u8>) {
    let is_quoted = text.contains(['"', ',', '\r', '\n']);
    if is_quoted {
        out.push(b'"');
    }
    if text.starts_with(['=', '+', '-', '@', '\t', '\r']) {
        out.push(b'\'');
    }
    if is_quoted {
        out.extend_from_slice(text.replace('"', "\"\"").as_bytes());
        out.push(b'"');
    } else {
        out.extend_from_slice(text.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{domain::wire::usage::Usage, store::ledger::contract::row};

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
            let mut out = Vec::new();
            cell(text, &mut out);
            assert_eq!(out, written.as_bytes());
        }
    }

    #[test]
    fn a_line_has_a_cell_for_each_column() {
        let mut out = heading();
        let row = Row {
            parts: Vec::new(),
            model_asked: "m".into(),
            usage: Usage {
                output_image: 1290,
                ..Usage::default()
            },
            ..row("a", 1, "req_1", 1_793_491_200_000, NanoUsd::from_nanos(7))
        };
        record(&row, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
        assert_eq!((lines[0].len(), lines[1].len()), (COLUMNS.len(), COLUMNS.len()));
        let of = |column: &str| {
            let at = lines[0].iter().position(|name| *name == column).unwrap();
            lines[1][at]
        };
        assert_eq!(
            (
                of("time"),
                of("request_id"),
                of("cost_nano_usd"),
                of("admitted_at"),
                of("tags")
            ),
            ("2026-11-01T00:00:00Z", "req_1", "7", "2026-10-31T23:59:59.995Z", "")
        );
        assert_eq!(
            (of("usage_source"), of("price_version"), of("ttft_ms")),
            ("reported", "1", "")
        );
        // Columns that came later stand at the end.
        assert_eq!(lines[0][33..36], ["tags", "hold_nano_usd", "attempts"]);
        assert_eq!(lines[0][36..], Usage::NAMES[12..]);
        assert_eq!(lines[1][36..], ["0", "0", "0", "0", "0", "1290"]);
        assert_eq!((of("hold_nano_usd"), of("attempts")), ("9007199254740993", "3"));
        let mut of_earlier = Vec::new();
        let row = Row {
            hold_nano_usd: None,
            attempts: None,
            ..row
        };
        record(&row, &mut of_earlier).unwrap();
        assert!(of_earlier.ends_with(b",,,0,0,0,0,0,1290\r\n"));
    }
}
