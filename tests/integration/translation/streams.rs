//! What a client makes of a stream: its events, checked by the rules of the protocol and folded into the answer in one piece.

use serde_json::{Value as Json, json};

use crate::harness::request::Wire;

/// The data of a stream's events, and whether `[DONE]` stands behind them. An event's name must be its type.
#[track_caller]
pub(super) fn events(stream: &str) -> (Vec<Json>, bool) {
    let stream = stream.replace("\r\n", "\n");
    let (mut events, mut is_marked) = (Vec::new(), false);
    for block in stream.split_terminator("\n\n") {
        assert!(!is_marked, "something behind the end: {block}");
        let field = |name: &str| block.lines().find_map(|line| line.strip_prefix(name));
        let data = field("data: ").unwrap_or_else(|| panic!("no data: {block:?}"));
        if data == "[DONE]" {
            is_marked = true;
            continue;
        }
        let event: Json = serde_json::from_str(data).unwrap_or_else(|error| panic!("{error}: {data}"));
        assert_eq!(event["type"].as_str(), field("event: "), "{block}");
        events.push(event);
    }
    (events, is_marked)
}

/// The types of events.
pub(super) fn types(events: &[Json]) -> Vec<&str> {
    events.iter().map(|event| event["type"].as_str().unwrap()).collect()
}

/// A complete stream, folded into the answer in one piece.
#[track_caller]
pub(super) fn folded(wire: Wire, stream: &str) -> Json {
    let (events, is_marked) = events(stream);
    assert_eq!(is_marked, wire == Wire::Responses, "{stream}");
    match wire {
        Wire::Messages => folded_message(&events),
        Wire::Responses => folded_response(&events),
        Wire::Gemini => folded_chunks(&events),
    }
}

/// Blocks come one behind the other, and the message ends with the last event.
fn folded_message(events: &[Json]) -> Json {
    assert_eq!(types(events).first(), Some(&"message_start"));
    assert_eq!(types(events).last(), Some(&"message_stop"));
    let mut message = events[0]["message"].clone();
    let mut content: Vec<Json> = Vec::new();
    let mut arguments = String::new();
    let mut is_open = false;
    for event in &events[1..events.len() - 1] {
        match event["type"].as_str().unwrap() {
            "ping" => {}
            "content_block_start" => {
                assert!(!is_open && event["index"] == content.len(), "{event}");
                is_open = true;
                content.push(event["content_block"].clone());
            }
            "content_block_delta" => {
                assert!(is_open && event["index"] == content.len() - 1, "{event}");
                add_delta(content.last_mut().unwrap(), &event["delta"], &mut arguments);
            }
            "content_block_stop" => {
                assert!(is_open && event["index"] == content.len() - 1, "{event}");
                is_open = false;
                let block = content.last_mut().unwrap();
                if block["type"] == "tool_use" {
                    block["input"] = serde_json::from_str(&arguments).unwrap();
                }
                arguments.clear();
            }
            "message_delta" => {
                assert!(!is_open, "{event}");
                message["stop_reason"] = event["delta"]["stop_reason"].clone();
                message["usage"] = event["usage"].clone();
            }
            other => panic!("an event of type {other}"),
        }
    }
    message["content"] = content.into();
    message
}

fn add_delta(block: &mut Json, delta: &Json, arguments: &mut String) {
    let piece = |name: &str| delta[name].as_str().unwrap().to_owned();
    match delta["type"].as_str().unwrap() {
        "text_delta" => append(&mut block["text"], &piece("text")),
        "thinking_delta" => append(&mut block["thinking"], &piece("thinking")),
        "signature_delta" => append(&mut block["signature"], &piece("signature")),
        "input_json_delta" => arguments.push_str(&piece("partial_json")),
        other => panic!("a delta of type {other}"),
    }
}

fn append(text: &mut Json, piece: &str) {
    let longer = format!("{}{piece}", text.as_str().unwrap());
    *text = longer.into();
}

/// The numbers of events are dense, each item begins and ends, and the last event repeats what the deltas have said.
fn folded_response(events: &[Json]) -> Json {
    for (number, event) in events.iter().enumerate() {
        assert_eq!(event["sequence_number"], number, "{event}");
    }
    let last = events.last().unwrap();
    assert_eq!(last["type"], "response.completed", "{last}");
    let response = last["response"].clone();
    for (index, item) in response["output"].as_array().unwrap().iter().enumerate() {
        let of_item: Vec<&Json> = events.iter().filter(|event| event["output_index"] == index).collect();
        let (first, end) = (of_item.first().unwrap(), of_item.last().unwrap());
        assert_eq!(first["type"], "response.output_item.added", "{item}");
        assert_eq!(end["type"], "response.output_item.done", "{item}");
        assert_eq!(first["item"]["id"], item["id"]);
        assert_eq!(&end["item"], item);
        let deltas: String = of_item.iter().filter_map(|event| event["delta"].as_str()).collect();
        let whole = match item["type"].as_str().unwrap() {
            "message" => &item["content"][0]["text"],
            "reasoning" => &item["summary"][0]["text"],
            "function_call" => &item["arguments"],
            other => panic!("an item of type {other}"),
        };
        assert_eq!(whole.as_str(), Some(deltas.as_str()), "{item}");
    }
    response
}

/// The parts of all chunks; the end and the usage stand in the last one, and nowhere else.
pub(super) fn folded_chunks(chunks: &[Json]) -> Json {
    let (last, others) = chunks.split_last().unwrap();
    let is_open = |chunk: &Json| chunk["candidates"][0].get("finishReason").is_none();
    assert!(others.iter().all(is_open) && !is_open(last), "{chunks:?}");
    let parts: Vec<Json> = chunks
        .iter()
        .flat_map(|chunk| chunk["candidates"][0]["content"]["parts"].as_array().unwrap().clone())
        .collect();
    json!({
        "candidates": [{
            "content": {"parts": parts, "role": "model"},
            "finishReason": last["candidates"][0]["finishReason"],
            "index": 0,
        }],
        "usageMetadata": last["usageMetadata"],
        "modelVersion": last["modelVersion"],
    })
}
