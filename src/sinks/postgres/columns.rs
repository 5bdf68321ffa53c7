//! The columns of the table `weir.log`, and the conversion between rows of the log and rows of the table.

use std::{fmt::Display, pin::Pin};

use jiff::Timestamp;
use serde_json::Value;
use smol_str::SmolStr;
use tokio_postgres::{
    Row as Found,
    binary_copy::BinaryCopyInWriter,
    types::{FromSql, ToSql, Type},
};

use crate::{
    domain::{
        keys::KeyId,
        ledger::{
            NodeId,
            consumption::{CostShare, PriceModifiers, RequestTransport, Row, UsageSource},
            ids::Tag,
        },
        money::NanoUsd,
        wire::usage::Usage,
    },
    journal::NumberedRow,
    sinks::postgres::PostgresError,
};

/// The columns' names and types, in the order in which rows are written. New columns are added at the end.
const COLUMNS: [(&str, Type); 47] = [
    ("node", Type::TEXT),
    ("number", Type::INT8),
    ("time", Type::TIMESTAMPTZ),
    ("admitted_at", Type::TIMESTAMPTZ),
    ("request_id", Type::TEXT),
    ("account", Type::TEXT),
    ("key_id", Type::TEXT),
    ("protocol", Type::TEXT),
    ("model_asked", Type::TEXT),
    ("model", Type::TEXT),
    ("provider", Type::TEXT),
    ("status", Type::INT4),
    ("outcome", Type::TEXT),
    ("stream", Type::BOOL),
    ("input_uncached", Type::INT8),
    ("cache_read", Type::INT8),
    ("cache_write_short", Type::INT8),
    ("cache_write_long", Type::INT8),
    ("output_text", Type::INT8),
    ("output_reasoning", Type::INT8),
    ("tool_input", Type::INT8),
    ("web_searches", Type::INT8),
    ("web_fetches", Type::INT8),
    ("file_searches", Type::INT8),
    ("code_interpreter_calls", Type::INT8),
    ("image_generations", Type::INT8),
    ("usage_source", Type::TEXT),
    ("service_tier", Type::TEXT),
    ("speed", Type::TEXT),
    ("geo", Type::TEXT),
    ("price_version", Type::TEXT),
    ("cost_nano_usd", Type::INT8),
    ("latency_ms", Type::INT8),
    ("ttft_ms", Type::INT8),
    ("parts", Type::JSONB),
    ("tags", Type::TEXT_ARRAY),
    ("hold_nano_usd", Type::INT8),
    ("attempts", Type::INT8),
    ("input_audio", Type::INT8),
    ("input_image", Type::INT8),
    ("cache_read_audio", Type::INT8),
    ("cache_read_image", Type::INT8),
    ("output_audio", Type::INT8),
    ("output_image", Type::INT8),
    ("transport", Type::TEXT),
    ("translated", Type::TEXT),
    ("losses", Type::TEXT_ARRAY),
];
/// The number of usage counts in the columns before `usage_source`. The other usage counts are in later columns.
const FIRST_COUNTS: usize = 12;
/// The latest possible time of a row, in milliseconds since the Unix epoch: 9999-12-30, nearly the last day that the calendar
/// supports.
const LATEST_MS: i64 = 253_402_128_000_000;

/// Returns the columns' names as a list in SQL.
pub(super) fn names() -> String {
    COLUMNS.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}

/// Returns the columns' types, in the order of the names.
pub(super) fn types() -> Vec<Type> {
    COLUMNS.into_iter().map(|(_, kind)| kind).collect()
}

/// Converts a time for the table. A time that is too early or too late for the name of a partition is replaced with the nearest
/// supported time.
pub(super) fn moment(unix_ms: i64) -> Timestamp {
    Timestamp::from_millisecond(unix_ms.clamp(0, LATEST_MS)).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// Writes one row of the log to a COPY of the table.
pub(super) async fn write(
    writer: Pin<&mut BinaryCopyInWriter>,
    node: &NodeId,
    numbered: &NumberedRow,
) -> Result<(), PostgresError> {
    let row = &numbered.row;
    let number = to_signed(numbered.number);
    let (time, admitted) = (moment(row.time_ms), moment(row.admitted_ms));
    let node = node.as_str();
    let texts = [
        &row.request_id,
        &row.account,
        row.key_id.as_str(),
        &row.protocol,
        &row.model_asked,
        &row.model,
        &row.provider,
    ]
    .map(text);
    let (status, outcome) = (i32::from(row.status), text(&row.outcome));
    let usage = row.usage.parts().map(to_signed);
    let source = row.usage_source.as_str();
    let modifiers = [&row.modifiers.service_tier, &row.modifiers.speed, &row.modifiers.geo];
    let modifiers = modifiers.map(|given| given.as_deref().map(text));
    let (version, cost) = (text(&row.price_version), row.cost_nano_usd.nanos());
    let (latency, ttft) = (to_signed(row.latency_ms), row.ttft_ms.map(to_signed));
    let parts = (!row.parts.is_empty()).then(|| parts(&row.parts)).transpose()?;
    let tags: Vec<&str> = row.tags.iter().map(Tag::as_str).collect();
    let hold = row.hold_nano_usd.map(NanoUsd::nanos);
    let attempts = row.attempts.map(i64::from);
    let (transport, translated) = (row.transport.named(), row.translated.as_deref().map(text));
    let losses: Vec<String> = row.losses.iter().map(|loss| text(loss)).collect();
    let losses = Some(losses).filter(|losses| !losses.is_empty());
    let mut values: Vec<&(dyn ToSql + Sync)> = Vec::with_capacity(COLUMNS.len());
    values.extend([&node as &(dyn ToSql + Sync), &number, &time, &admitted]);
    values.extend(texts.iter().map(|text| text as &(dyn ToSql + Sync)));
    values.extend([&status as &(dyn ToSql + Sync), &outcome, &row.stream]);
    let (first, later) = usage.split_at(FIRST_COUNTS);
    values.extend(first.iter().map(|count| count as &(dyn ToSql + Sync)));
    values.push(&source);
    values.extend(modifiers.iter().map(|given| given as &(dyn ToSql + Sync)));
    values.extend([&version as &(dyn ToSql + Sync), &cost, &latency, &ttft, &parts, &tags]);
    values.extend([&hold as &(dyn ToSql + Sync), &attempts]);
    values.extend(later.iter().map(|count| count as &(dyn ToSql + Sync)));
    values.extend([&transport as &(dyn ToSql + Sync), &translated, &losses]);
    Ok(writer.write(&values).await?)
}

/// Replaces zero bytes in a string, because Postgres does not accept them.
pub(super) fn text(given: &str) -> String {
    given.replace('\0', "\u{fffd}")
}

/// Converts a count to a signed number. It always fits: counts are at most 2^53, and a journal's numbers are below 2^63.
fn to_signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn parts(parts: &[CostShare]) -> Result<Value, PostgresError> {
    let clean = |part: &CostShare| CostShare {
        model: text(&part.model),
        priced_as: part.priced_as.as_deref().map(text),
        price_version: part.price_version.as_deref().map(text),
        ..part.clone()
    };
    let clean: Vec<CostShare> = parts.iter().map(clean).collect();
    serde_json::to_value(clean).map_err(|error| PostgresError::Row(error.to_string()))
}

/// Reads the lane and the row of the log from a row of the table. This or an earlier version of weir has written the row with
/// [`write()`]. `found` must have all columns of its table.
pub(super) fn read(found: &Found) -> Result<(NodeId, NumberedRow), PostgresError> {
    let mut usage = Usage::default().parts();
    for (into, name) in usage.iter_mut().zip(Usage::NAMES) {
        *into = optional::<i64>(found, name)?.map_or(0, i64::unsigned_abs);
    }
    let parts = match get::<Option<Value>>(found, "parts")? {
        Some(parts) => serde_json::from_value(parts).map_err(|error| unreadable(&error))?,
        None => Vec::new(),
    };
    let tags = get::<Vec<&str>>(found, "tags")?;
    let key = KeyId::parse(get(found, "key_id")?);
    let attempts = optional::<i64>(found, "attempts")?.map(u32::try_from);
    let losses = optional::<Vec<&str>>(found, "losses")?.unwrap_or_default();
    let row = Row {
        time_ms: get::<Timestamp>(found, "time")?.as_millisecond(),
        admitted_ms: get::<Timestamp>(found, "admitted_at")?.as_millisecond(),
        request_id: text_of(found, "request_id")?,
        account: text_of(found, "account")?,
        key_id: key.map_err(|error| unreadable(&error))?,
        protocol: text_of(found, "protocol")?,
        model_asked: text_of(found, "model_asked")?,
        model: text_of(found, "model")?,
        provider: text_of(found, "provider")?,
        status: u16::try_from(get::<i32>(found, "status")?).map_err(|error| unreadable(&error))?,
        outcome: text_of(found, "outcome")?,
        stream: get(found, "stream")?,
        tags: tags.into_iter().filter_map(Tag::parse).collect(),
        usage: Usage::from_parts(usage),
        usage_source: {
            let word: &str = get(found, "usage_source")?;
            UsageSource::parse(word).ok_or_else(|| unreadable(&format_args!("usage_source {word:?}")))?
        },
        parts,
        modifiers: PriceModifiers {
            service_tier: get::<Option<&str>>(found, "service_tier")?.map(SmolStr::new),
            speed: get::<Option<&str>>(found, "speed")?.map(SmolStr::new),
            geo: get::<Option<&str>>(found, "geo")?.map(SmolStr::new),
        },
        price_version: text_of(found, "price_version")?,
        cost_nano_usd: NanoUsd::from_nanos(get(found, "cost_nano_usd")?),
        latency_ms: count(found, "latency_ms")?,
        ttft_ms: get::<Option<i64>>(found, "ttft_ms")?.map(i64::unsigned_abs),
        hold_nano_usd: optional(found, "hold_nano_usd")?.map(NanoUsd::from_nanos),
        attempts: attempts.transpose().map_err(|error| unreadable(&error))?,
        transport: transport(found)?,
        translated: optional::<&str>(found, "translated")?.map(SmolStr::new),
        losses: losses.into_iter().map(SmolStr::new).collect(),
    };
    let node: &str = get(found, "node")?;
    let node = NodeId::parse(node).ok_or_else(|| unreadable(&format_args!("node {node:?}")))?;
    let number = count(found, "number")?;
    Ok((node, NumberedRow { number, row }))
}

fn text_of(found: &Found, name: &str) -> Result<SmolStr, PostgresError> {
    Ok(get::<&str>(found, name)?.into())
}

fn get<'a, T: FromSql<'a>>(found: &'a Found, name: &str) -> Result<T, PostgresError> {
    found.try_get(name).map_err(|error| unreadable(&error))
}

fn transport(found: &Found) -> Result<RequestTransport, PostgresError> {
    let Some(word) = optional::<&str>(found, "transport")? else {
        return Ok(RequestTransport::Http);
    };
    RequestTransport::parse(word).ok_or_else(|| unreadable(&format_args!("transport {word:?}")))
}

/// Returns the value in a column. `None` if it is null, or if the column is missing because `weir log init` has not been run
/// since the column was added.
fn optional<'a, T: FromSql<'a>>(found: &'a Found, name: &str) -> Result<Option<T>, PostgresError> {
    let is_there = found.columns().iter().any(|column| column.name() == name);
    if is_there { get(found, name) } else { Ok(None) }
}

fn count(found: &Found, name: &str) -> Result<u64, PostgresError> {
    get::<i64>(found, name).map(i64::unsigned_abs)
}

fn unreadable(what: &dyn Display) -> PostgresError {
    PostgresError::Row(what.to_string())
}
