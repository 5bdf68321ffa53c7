//! Calls whose pieces a provider interleaves reach the client one behind the other.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{
    client_bytes,
    clients::read_answer,
    content::{AnswerContent, answer_content},
    forms, frame, translation,
};
use crate::domain::{
    translation::answer::write::AnswerForm,
    wire::{Protocol, UpstreamProtocol, usage::Usage},
};

/// The number of calls.
const CALLS: usize = 3;
/// The arguments of each call in few pieces.
const FEW_PIECES: [&str; 2] = [r#"{"a":"}"#, r#""}"#];
/// The arguments of each call in more pieces.
const MORE_PIECES: [&str; 4] = [r#"{"a":"}\""#, r#"","b":"#, "[1", "]}"];
/// In an order of parts: a piece of text.
const TEXT: usize = CALLS;

/// An event that has this data.
fn event(data: &Value) -> String {
    format!("data: {data}\n\n")
}

/// A chunk of `chat/completions`.
fn chunk(delta: &Value, reason: Option<&str>) -> String {
    event(&json!({"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}))
}

/// A stream of calls with these pieces of arguments, whose parts come in this order. The first part of each call is its name.
fn interleaved(protocol: UpstreamProtocol, order: &[usize], pieces: &[&str]) -> String {
    let mut next = [0_usize; CALLS];
    let mut stream = match protocol {
        UpstreamProtocol::Messages => event(&json!({"type": "message_start", "message": {"content": []}})),
        UpstreamProtocol::Responses => event(&json!({"type": "response.created", "response": {"output": []}})),
        UpstreamProtocol::Gemini | UpstreamProtocol::Chat => chunk(&json!({"role": "assistant", "content": ""}), None),
    };
    for call in order.iter().copied() {
        if call == TEXT {
            stream.push_str(&chunk(&json!({"content": "t"}), None));
            continue;
        }
        let piece = next[call];
        next[call] += 1;
        let piece = piece.checked_sub(1).map(|index| pieces[index]);
        stream.push_str(&call_part(protocol, call, piece));
        if next[call] > pieces.len() {
            stream.push_str(&call_end(protocol, call, &pieces.concat()));
        }
    }
    stream.push_str(&match protocol {
        UpstreamProtocol::Messages => {
            event(&json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}}))
                + &event(&json!({"type": "message_stop"}))
        }
        UpstreamProtocol::Responses => {
            event(&json!({"type": "response.completed", "response": {"status": "completed", "output": []}}))
        }
        UpstreamProtocol::Gemini | UpstreamProtocol::Chat => chunk(&json!({}), Some("tool_calls")) + "data: [DONE]\n\n",
    });
    stream
}

/// The item of a call in Responses.
fn item(call: usize, arguments: &str) -> Value {
    let (id, call_id, name) = (format!("fc_{call}"), format!("call_{call}"), format!("tool{call}"));
    json!({"type": "function_call", "id": id, "call_id": call_id, "name": name, "arguments": arguments})
}

/// The beginning of a call, or a piece of its arguments.
fn call_part(protocol: UpstreamProtocol, call: usize, piece: Option<&str>) -> String {
    let (id, name) = (format!("call_{call}"), format!("tool{call}"));
    match (protocol, piece) {
        (UpstreamProtocol::Messages, None) => {
            let block = json!({"type": "tool_use", "id": id, "name": name, "input": {}});
            event(&json!({"type": "content_block_start", "index": call, "content_block": block}))
        }
        (UpstreamProtocol::Messages, Some(piece)) => {
            let delta = json!({"type": "input_json_delta", "partial_json": piece});
            event(&json!({"type": "content_block_delta", "index": call, "delta": delta}))
        }
        (UpstreamProtocol::Responses, None) => {
            event(&json!({"type": "response.output_item.added", "output_index": call, "item": item(call, "")}))
        }
        (UpstreamProtocol::Responses, Some(piece)) => {
            event(&json!({"type": "response.function_call_arguments.delta", "output_index": call, "delta": piece}))
        }
        (UpstreamProtocol::Gemini | UpstreamProtocol::Chat, None) => {
            let function = json!({"name": name, "arguments": ""});
            chunk(
                &json!({"tool_calls": [{"index": call, "id": id, "function": function}]}),
                None,
            )
        }
        (UpstreamProtocol::Gemini | UpstreamProtocol::Chat, Some(piece)) => {
            let function = json!({"arguments": piece});
            chunk(&json!({"tool_calls": [{"index": call, "function": function}]}), None)
        }
    }
}

/// What tells that a call is complete, where the protocol has it.
fn call_end(protocol: UpstreamProtocol, call: usize, arguments: &str) -> String {
    match protocol {
        UpstreamProtocol::Messages => event(&json!({"type": "content_block_stop", "index": call})),
        UpstreamProtocol::Responses => {
            event(&json!({"type": "response.output_item.done", "output_index": call, "item": item(call, arguments)}))
        }
        UpstreamProtocol::Gemini | UpstreamProtocol::Chat => String::new(),
    }
}

/// What a client gets of a stream in this form.
fn content(target: UpstreamProtocol, (client, form): (Protocol, AnswerForm), stream: &str) -> AnswerContent {
    let translation = translation(client, target);
    let pieces = [stream.as_bytes()];
    let answer = client_bytes(&translation, frame(form, true), true, pieces, &Usage::default());
    assert_eq!((answer.fault, answer.is_complete), (None, true), "{stream}");
    answer_content(client, &read_answer(client, form, &answer.text).object)
}

/// The calls in the order in which they begin.
fn expected_calls(order: &[usize], pieces: &[&str]) -> Vec<Value> {
    let arguments: Value = serde_json::from_str(&pieces.concat()).unwrap();
    let mut begun: Vec<usize> = Vec::new();
    for call in order.iter().copied() {
        if call != TEXT && !begun.contains(&call) {
            begun.push(call);
        }
    }
    let call =
        |call: usize| json!({"call": format!("tool{call}"), "arguments": arguments, "id": format!("call_{call}")});
    begun.into_iter().map(call).collect()
}

/// Calls `check` with each order in which the remaining parts of all calls can come behind the parts so far.
fn for_each_order(remaining: [usize; CALLS], order: &mut Vec<usize>, check: &mut dyn FnMut(&[usize])) {
    if remaining == [0; CALLS] {
        check(order);
        return;
    }
    for (call, parts) in remaining.into_iter().enumerate() {
        if parts > 0 {
            let mut fewer = remaining;
            fewer[call] -= 1;
            order.push(call);
            for_each_order(fewer, order, check);
            order.pop();
        }
    }
}

#[test]
fn calls_by_index_arrive_whole_in_every_interleaving() {
    let mut orders = 0;
    let parts = FEW_PIECES.len() + 1;
    for_each_order([parts; CALLS], &mut Vec::new(), &mut |order| {
        orders += 1;
        let stream = interleaved(UpstreamProtocol::Chat, order, &FEW_PIECES);
        for client in Protocol::ALL {
            let content = content(UpstreamProtocol::Chat, (client, AnswerForm::Stream), &stream);
            assert_eq!(content.items, expected_calls(order, &FEW_PIECES), "{order:?}");
            assert_eq!(content.end, "calls");
        }
    });
    assert_eq!(orders, 1_680);
}

/// The order in which the parts of all calls come, and texts between them.
fn orders(texts: usize) -> impl Strategy<Value = Vec<usize>> {
    let calls = (0..CALLS).flat_map(|call| std::iter::repeat_n(call, MORE_PIECES.len() + 1));
    let parts: Vec<usize> = calls.chain(std::iter::repeat_n(TEXT, texts)).collect();
    Just(parts).prop_shuffle()
}

proptest! {
    #[test]
    fn overlapping_calls_of_each_protocol_arrive_whole(order in orders(0)) {
        for target in [UpstreamProtocol::Messages, UpstreamProtocol::Responses, UpstreamProtocol::Chat] {
            let stream = interleaved(target, &order, &MORE_PIECES);
            for client in Protocol::ALL {
                for form in forms(client) {
                    let content = content(target, (client, *form), &stream);
                    prop_assert_eq!(content.items, expected_calls(&order, &MORE_PIECES));
                    prop_assert_eq!(content.end, "calls");
                }
            }
        }
    }

    #[test]
    fn text_between_the_pieces_of_calls_is_not_lost(order in orders(3)) {
        let stream = interleaved(UpstreamProtocol::Chat, &order, &MORE_PIECES);
        for client in Protocol::ALL {
            let content = content(UpstreamProtocol::Chat, (client, AnswerForm::Stream), &stream);
            let (texts, calls): (Vec<Value>, Vec<Value>) =
                content.items.into_iter().partition(|item| item.get("text").is_some());
            let texts: String = texts.iter().filter_map(|item| item["text"].as_str()).collect();
            prop_assert_eq!(texts, "ttt");
            prop_assert_eq!(calls, expected_calls(&order, &MORE_PIECES));
        }
    }
}
