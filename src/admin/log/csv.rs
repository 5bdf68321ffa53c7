//! Formats rows of the log as CSV, with fixed columns and quoting by RFC 4180. No cell is evaluated as a formula by a
//! spreadsheet.

use std::{
    borrow::Cow,
    io::{self, Write},
};

use CsvCell::{Empty, Number, Text, Time};
use jiff::Timestamp;

use crate::domain::ledger::consumption::Row;

/// The value of a cell.
enum CsvCell<'a> {
    Text(Cow<'a, str>),
    Number(i128),
    /// A time in milliseconds since the Unix epoch.
    Time(i64),
    Empty,
}

/// The name of a column, and the function that returns the column's value in a row.
type CsvColumn = (&'static str, fn(&Row) -> CsvCell<'_>);

/// All columns in the order of the file. New columns are added at the end.
const COLUMNS: [CsvColumn; 42] = [
    ("time", |row| Time(row.time_ms)),
    ("request_id", |row| text(&row.request_id)),
    ("account", |row| text(&row.account)),
    ("key_id", |row| text(row.key_id.as_str())),
    ("protocol", |row| text(&row.protocol)),
    ("model_asked", |row| text(&row.model_asked)),
    ("model", |row| text(&row.model)),
    ("provider", |row| text(&row.provider)),
    ("status", |row| number(row.status)),
    ("outcome", |row| text(&row.outcome)),
    ("stream", |row| text(if row.stream { "true" } else { "false" })),
    ("input_uncached", |row| number(row.usage.input_uncached)),
    ("cache_read", |row| number(row.usage.cache_read)),
    ("cache_write_short", |row| number(row.usage.cache_write_short)),
    ("cache_write_long", |row| number(row.usage.cache_write_long)),
    ("output_text", |row| number(row.usage.output_text)),
    ("output_reasoning", |row| number(row.usage.output_reasoning)),
    ("tool_input", |row| number(row.usage.tool_input)),
    ("web_searches", |row| number(row.usage.web_searches)),
    ("web_fetches", |row| number(row.usage.web_fetches)),
    ("usage_source", |row| text(row.usage_source.as_str())),
    ("service_tier", |row| {
        optional_text(row.modifiers.service_tier.as_deref())
    }),
    ("speed", |row| optional_text(row.modifiers.speed.as_deref())),
    ("geo", |row| optional_text(row.modifiers.geo.as_deref())),
    ("price_version", |row| text(&row.price_version)),
    ("cost_nano_usd", |row| number(row.cost_nano_usd.nanos())),
    ("latency_ms", |row| number(row.latency_ms)),
    ("ttft_ms", |row| row.ttft_ms.map_or(Empty, number)),
    ("admitted_at", |row| Time(row.admitted_ms)),
    ("file_searches", |row| number(row.usage.file_searches)),
    ("code_interpreter_calls", |row| number(row.usage.code_interpreter_calls)),
    ("image_generations", |row| number(row.usage.image_generations)),
    ("parts", parts),
    ("tags", tags),
    ("hold_nano_usd", |row| {
        row.hold_nano_usd.map_or(Empty, |hold| number(hold.nanos()))
    }),
    ("attempts", |row| row.attempts.map_or(Empty, number)),
    ("input_audio", |row| number(row.usage.input_audio)),
    ("input_image", |row| number(row.usage.input_image)),
    ("cache_read_audio", |row| number(row.usage.cache_read_audio)),
    ("cache_read_image", |row| number(row.usage.cache_read_image)),
    ("output_audio", |row| number(row.usage.output_audio)),
    ("output_image", |row| number(row.usage.output_image)),
];

fn text(text: &str) -> CsvCell<'_> {
    Text(Cow::Borrowed(text))
}

fn optional_text(text: Option<&str>) -> CsvCell<'_> {
    Text(Cow::Borrowed(text.unwrap_or_default()))
}

fn number<'a>(number: impl Into<i128>) -> CsvCell<'a> {
    Number(number.into())
}

/// Returns the share of each model as JSON, in the same form as in JSON lines. Empty if one model served the request.
fn parts(row: &Row) -> CsvCell<'_> {
    // Encoding as JSON cannot fail here.
    let json = |row: &Row| serde_json::to_string(&row.parts).unwrap_or_default();
    if row.parts.is_empty() {
        Empty
    } else {
        Text(Cow::Owned(json(row)))
    }
}

fn tags(row: &Row) -> CsvCell<'_> {
    let tags: Vec<&str> = row.tags.iter().map(|tag| tag.as_str()).collect();
    Text(Cow::Owned(tags.join(" ")))
}

/// Returns the header line, with the names of the columns.
pub(super) fn header_line() -> Vec<u8> {
    format!("{}\r\n", COLUMNS.map(|(name, _)| name).join(",")).into_bytes()
}

/// Appends the line of a row to `out`.
pub(super) fn write_row(row: &Row, out: &mut Vec<u8>) -> io::Result<()> {
    for (place, (_, cell)) in COLUMNS.iter().enumerate() {
        if place > 0 {
            out.push(b',');
        }
        match cell(row) {
            Text(text) => write_text(&text, out),
            Number(number) => write!(out, "{number}")?,
            // RFC 3339, or the number of milliseconds if the calendar does not have the time.
            Time(unix_ms) => match Timestamp::from_millisecond(unix_ms) {
                Ok(time) => write!(out, "{time}")?,
                Err(_) => write!(out, "{unix_ms}")?,
            },
            Empty => {}
        }
    }
    out.extend_from_slice(b"\r\n");
    Ok(())
}

/// Appends a text as a cell. Clients and providers may have chosen the text. Therefore a text that a spreadsheet would evaluate
/// as a formula gets a leading `'`.
fn write_text(text: &str, out: &mut Vec<u8>) {
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
    use crate::{
        domain::{money::NanoUsd, wire::usage::Usage},
        store::ledger::contract::row,
    };

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
            write_text(text, &mut out);
            assert_eq!(out, written.as_bytes());
        }
    }

    #[test]
    fn a_line_has_a_cell_for_each_column() {
        let mut out = header_line();
        let row = Row {
            parts: Vec::new(),
            model_asked: "m".into(),
            usage: Usage {
                output_image: 1290,
                ..Usage::default()
            },
            ..row("a", 1, "req_1", 1_793_491_200_000, NanoUsd::from_nanos(7))
        };
        write_row(&row, &mut out).unwrap();
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
        // Columns that were added later are at the end.
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
        write_row(&row, &mut of_earlier).unwrap();
        assert!(of_earlier.ends_with(b",,,0,0,0,0,0,1290\r\n"));
    }
}
