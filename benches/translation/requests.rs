//! What translation costs by itself, without a gateway: a large request, and an event of an answer.

use std::{hint::black_box, time::Instant};

use serde_json::{Value, json};
use weir::parts::{
    Protocol,
    translation::{PairAnswerForm, ProtocolPair, TranslationMode},
};

use crate::{
    events::events,
    roads::{PAIRS, Road},
    row::quantile,
    table::{Table, number},
};

/// The size to which the figures are scaled, and which the requests have at least.
const REQUEST_BYTES: usize = 100 * 1024;
/// The most that translation of so many bytes may take, in microseconds.
const REQUEST_AIM: f64 = 1_000.0;
/// Bytes of text in a delta.
const DELTA_BYTES: usize = 12;
/// What a prompt and the result of a tool say over and over.
const PROSE: &str = "The river rises in the hills and falls over a weir that measures \"what\" it carries.\n";

/// How much of everything.
#[derive(Clone, Copy)]
pub(crate) struct AloneScale {
    /// Requests that are translated.
    pub(crate) requests: usize,
    /// Deltas that are translated.
    pub(crate) deltas: usize,
}

/// Translates a request and the deltas of an answer for each pair, and prints a table.
pub(crate) fn measure(scale: AloneScale) -> Result<(), String> {
    let mut table = Table::new(&[
        "translation alone",
        "request (KiB)",
        "per 100 KiB (us)",
        "aim",
        "event of an answer (us)",
    ]);
    for (provider, client) in PAIRS {
        let road = Road { client, provider };
        let pair = ProtocolPair::new(client, provider, TranslationMode::Strict);
        let body = conversation(client).to_string();
        let mut micros = Vec::with_capacity(scale.requests);
        for _ in 0..scale.requests {
            let started = Instant::now();
            let translated = pair
                .translate_request(black_box(&body))
                .map_err(|bad| road.failed(&bad))?;
            micros.push(started.elapsed().as_secs_f64() * 1e6);
            black_box(translated);
        }
        let median = quantile(&micros, 0.5).expect("requests");
        let scaled = median * REQUEST_BYTES as f64 / body.len() as f64;
        let met = if scaled <= REQUEST_AIM { "met" } else { "missed" };
        table.row(&[
            road.name(),
            format!("{:.0}", body.len() as f64 / 1024.0),
            number(scaled),
            format!("{met}: at most {REQUEST_AIM:.0}"),
            number(event(&pair, road, scale.deltas)),
        ]);
    }
    table.print();
    println!(
        "Median of {} requests with many turns, calls and results; mean of {} text deltas. In one thread of this process.\n",
        scale.requests, scale.deltas
    );
    Ok(())
}

/// The microseconds that an event of an answer takes.
fn event(pair: &ProtocolPair, road: Road, deltas: usize) -> f64 {
    let events = events(road.provider, deltas, DELTA_BYTES);
    let mut answer = pair.begin_answer(None, PairAnswerForm::Stream, true);
    let mut out = String::new();
    for opening in &events.opening {
        answer.push(opening.as_bytes(), &mut out);
    }
    let started = Instant::now();
    for delta in &events.deltas {
        out.clear();
        answer.push(black_box(delta.as_bytes()), &mut out);
        black_box(&out);
    }
    let micros = started.elapsed().as_secs_f64() * 1e6;
    assert!(!out.is_empty(), "{}: nothing comes of a delta", road.name());
    micros / deltas as f64
}

/// A conversation of [`REQUEST_BYTES`] and a little more, as an agent sends it.
fn conversation(client: Protocol) -> Value {
    let mut turns: Vec<Value> = Vec::new();
    let mut bytes = 0;
    let mut number = 0;
    while bytes < REQUEST_BYTES {
        let more = turn(client, number);
        bytes += more.iter().map(|value| value.to_string().len()).sum::<usize>();
        turns.extend(more);
        number += 1;
    }
    turns.push(question(client, "And now?"));
    let schema = json!({ "type": "object", "properties": { "path": { "type": "string" } }, "required": ["path"] });
    match client {
        Protocol::Messages => json!({
            "model": "bench", "max_tokens": 4096, "stream": true, "system": PROSE,
            "tools": [{ "name": "read", "description": "Reads a file.", "input_schema": schema }],
            "messages": turns,
        }),
        Protocol::Responses => json!({
            "model": "bench", "max_output_tokens": 4096, "stream": true, "store": false, "instructions": PROSE,
            "tools": [{ "type": "function", "name": "read", "description": "Reads a file.", "parameters": schema }],
            "input": turns,
        }),
        Protocol::Gemini => json!({
            "systemInstruction": { "parts": [{ "text": PROSE }] },
            "tools": [{ "functionDeclarations": [{ "name": "read", "parametersJsonSchema": schema }] }],
            "contents": turns,
        }),
    }
}

/// A question.
fn question(client: Protocol, text: &str) -> Value {
    match client {
        Protocol::Messages => json!({ "role": "user", "content": [{ "type": "text", "text": text }] }),
        Protocol::Responses => {
            json!({ "type": "message", "role": "user", "content": [{ "type": "input_text", "text": text }] })
        }
        Protocol::Gemini => json!({ "role": "user", "parts": [{ "text": text }] }),
    }
}

/// A question, a call, its result and an answer.
fn turn(client: Protocol, number: usize) -> Vec<Value> {
    let (asked, result) = (PROSE.repeat(2), PROSE.repeat(20));
    let (id, path) = (
        format!("call_{number}"),
        json!({ "path": format!("src/part_{number}.rs") }),
    );
    let said = "It says what the river carries.";
    let first = question(client, &asked);
    match client {
        Protocol::Messages => vec![
            first,
            json!({ "role": "assistant", "content": [{ "type": "tool_use", "id": id, "name": "read", "input": path }] }),
            json!({ "role": "user", "content": [{ "type": "tool_result", "tool_use_id": id, "content": result }] }),
            json!({ "role": "assistant", "content": [{ "type": "text", "text": said }] }),
        ],
        Protocol::Responses => vec![
            first,
            json!({ "type": "function_call", "call_id": id, "name": "read", "arguments": path.to_string() }),
            json!({ "type": "function_call_output", "call_id": id, "output": result }),
            json!({ "type": "message", "role": "assistant", "content": [{ "type": "output_text", "text": said }] }),
        ],
        Protocol::Gemini => vec![
            first,
            json!({ "role": "model", "parts": [{ "functionCall": { "id": id, "name": "read", "args": path } }] }),
            json!({ "role": "user", "parts": [{ "functionResponse":
                { "id": id, "name": "read", "response": { "output": result } } }] }),
            json!({ "role": "model", "parts": [{ "text": said }] }),
        ],
    }
}
