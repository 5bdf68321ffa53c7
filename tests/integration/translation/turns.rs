//! An agent's three turns with a provider that only speaks `chat/completions`: a call of a tool, two at once, and an answer. The
//! provider gets its own ids and its own reasoning back, and each request begins with the one before.

use serde_json::{Value as Json, json};

use super::chat_answers::{ChatCall, ChatTurn};
use super::chat_provider::chat_provider;
use super::conversation::{Conversation, calls, reported, stop, text};
use super::stage::{REPORTED, Stage, TRANSLATION, Upstream, protocol};
use super::streams::folded;
use crate::harness::RecordingProvider;
use crate::harness::request::{ALL_WIRES, Wire};

const ONE_CALL: ChatTurn = ChatTurn {
    reasoning: &["I need ", "the weather."],
    text: &[],
    calls: &[ChatCall {
        id: "call_a",
        name: "weather",
        arguments: &["{\"city\":", "\"Rome\"}"],
    }],
};

/// With ids as some hosts make them: no client's protocol takes their characters.
const TWO_CALLS: ChatTurn = ChatTurn {
    reasoning: &["Two more."],
    text: &["And now ", "both."],
    calls: &[
        ChatCall {
            id: "functions.weather:1",
            name: "weather",
            arguments: &["{\"city\":", "\"Oslo\"", "}"],
        },
        ChatCall {
            id: "functions.time:2",
            name: "time",
            arguments: &["{", "\"city\":\"Oslo\"}"],
        },
    ],
};

const LAST: ChatTurn = ChatTurn {
    reasoning: &[],
    text: &["Rome is warmer."],
    calls: &[],
};

/// Calls a tool, then two at once, and then answers.
pub(super) fn agentic_provider() -> RecordingProvider {
    chat_provider(|body, answer| {
        let messages = body["messages"].as_array().unwrap();
        let turn = match messages.iter().filter(|message| message["role"] == "assistant").count() {
            0 => ONE_CALL,
            1 => TWO_CALLS,
            _ => LAST,
        };
        turn.answer(body, answer);
    })
}

/// Asks the next question; returns the answer in one piece.
fn ask(stage: &Stage, conversation: &Conversation, (wire, is_stream): (Wire, bool)) -> Json {
    let answer = stage.ask(wire, is_stream, &conversation.body());
    assert_eq!(answer.status, 200, "{wire:?}, stream: {is_stream}: {}", answer.text());
    let nothing_lost = format!("from={}, to=chat", protocol(wire));
    assert_eq!(answer.header(TRANSLATION), Some(nothing_lost.as_str()));
    let whole = match is_stream {
        true => folded(wire, &answer.text()),
        false => answer.json(),
    };
    assert_eq!(reported(wire, &whole), REPORTED, "{whole}");
    whole
}

/// The three turns.
fn converse(stage: &Stage, way: (Wire, bool)) {
    let (wire, _) = way;
    let mut conversation = Conversation::new(wire, "Where is it warmer?");
    let calling = match wire {
        Wire::Messages => "tool_use",
        Wire::Responses => "completed",
        Wire::Gemini => "STOP",
    };

    let first = ask(stage, &conversation, way);
    let called = calls(wire, &first);
    assert_eq!(called[0].id.as_deref(), Some("call_a"));
    assert_eq!(
        (&*called[0].name, &called[0].arguments),
        ("weather", &json!({"city": "Rome"}))
    );
    assert_eq!(stop(wire, &first), calling);
    conversation.add_answer(&first, &["18 degrees"]);

    let second = ask(stage, &conversation, way);
    assert_eq!(text(wire, &second), "And now both.");
    assert_eq!(stop(wire, &second), calling);
    let called = calls(wire, &second);
    for (call, name) in called.iter().zip(["weather", "time"]) {
        assert_eq!((&*call.name, &call.arguments), (name, &json!({"city": "Oslo"})));
        let fits = |character: char| character.is_ascii_alphanumeric() || matches!(character, '_' | '-');
        assert!(call.id.as_ref().is_some_and(|id| id.chars().all(fits)), "{call:?}");
    }
    conversation.add_answer(&second, &["3 degrees", "noon"]);

    let third = ask(stage, &conversation, way);
    assert_eq!(text(wire, &third), "Rome is warmer.");
    assert_ne!(stop(wire, &third), "tool_use");
}

/// What the provider gets with the third request.
fn expected_messages() -> Json {
    let call = |id: &str, name: &str, city: &str| {
        let arguments = json!({"city": city}).to_string();
        json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}})
    };
    let result = |id: &str, text: &str| json!({"role": "tool", "tool_call_id": id, "content": text});
    json!([
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Where is it warmer?"},
        {
            "role": "assistant",
            "content": null,
            "reasoning_content": "I need the weather.",
            "tool_calls": [call("call_a", "weather", "Rome")],
        },
        result("call_a", "18 degrees"),
        {
            "role": "assistant",
            "content": "And now both.",
            "reasoning_content": "Two more.",
            "tool_calls": [call("functions.weather:1", "weather", "Oslo"), call("functions.time:2", "time", "Oslo")],
        },
        result("functions.weather:1", "3 degrees"),
        result("functions.time:2", "noon"),
    ])
}

/// The text of a request up to the end of its messages.
fn beginning(body: &[u8]) -> String {
    let text = String::from_utf8(body.to_vec()).unwrap();
    let (beginning, _) = text.split_once("],\"tools\":").unwrap();
    beginning.to_owned()
}

#[test]
fn three_turns_give_the_provider_its_own_ids_and_reasoning_back_behind_an_unchanged_beginning() {
    let provider = agentic_provider();
    let stage = Stage::start(Upstream::Chat, &provider.base_url(), "strict");
    for wire in ALL_WIRES {
        for is_stream in [true, false] {
            let before = provider.count();
            converse(&stage, (wire, is_stream));
            let requests = provider.requests().split_off(before);
            let what = format!("{wire:?}, stream: {is_stream}");
            assert_eq!(requests.len(), 3, "{what}");
            let last: Json = serde_json::from_slice(&requests[2].body).unwrap();
            assert_eq!(last["messages"], expected_messages(), "{what}");
            for pair in requests.windows(2) {
                let (earlier, later) = (beginning(&pair[0].body), beginning(&pair[1].body));
                assert!(later.starts_with(&earlier), "{what}: {earlier}\n{later}");
            }
        }
    }
    let books = stage.weir.books(18);
    assert!(books.rows.iter().all(|row| row["usage_source"] == "reported"));
}

#[test]
fn reasoning_of_another_model_never_reaches_the_provider() {
    let provider = agentic_provider();
    let stage = Stage::start(Upstream::Chat, &provider.base_url(), "strict");
    for (wire, path) in [
        (Wire::Messages, "messages[1].content[0]"),
        (Wire::Responses, "input[1]"),
        (Wire::Gemini, "contents[1].parts[0].thoughtSignature"),
    ] {
        let mut conversation = Conversation::new(wire, "Where is it warmer?");
        let mut first = ask(&stage, &conversation, (wire, false));
        let (place, field) = match wire {
            Wire::Messages => (&mut first["content"][0], "signature"),
            Wire::Responses => (&mut first["output"][0], "encrypted_content"),
            Wire::Gemini => (&mut first["candidates"][0]["content"]["parts"][0], "thoughtSignature"),
        };
        assert!(place[field].is_string(), "{place}");
        // What another provider would have made.
        place[field] = "Zm9yZWlnbiByZWFzb25pbmc=".into();
        conversation.add_answer(&first, &["18 degrees"]);
        let answer = stage.ask(wire, false, &conversation.body());
        assert_eq!(answer.status, 200, "{wire:?}: {}", answer.text());
        let header = format!(r#"from={}, to=chat, dropped=("{path}")"#, protocol(wire));
        assert_eq!(answer.header(TRANSLATION), Some(header.as_str()), "{wire:?}");
        let sent: Json = serde_json::from_slice(&provider.last().body).unwrap();
        assert_eq!(sent["messages"][2]["role"], "assistant", "{sent}");
        assert_eq!(sent["messages"][2].get("reasoning_content"), None, "{sent}");
    }
}

#[test]
fn a_tool_of_a_namespace_that_is_called_by_its_bare_name_is_that_tool() {
    const BARE: ChatTurn = ChatTurn {
        reasoning: &[],
        text: &[],
        calls: &[ChatCall {
            id: "call_a",
            name: "exec",
            arguments: &["{\"input\":\"ls\"}"],
        }],
    };
    let provider = chat_provider(|body, answer| {
        let has_result = body.to_string().contains("Cargo.toml");
        (if has_result { LAST } else { BARE }).answer(body, answer);
    });
    let stage = Stage::start(Upstream::Chat, &provider.base_url(), "strict");
    let mut body = json!({
        "store": false,
        "tools": [{
            "type": "namespace",
            "name": "functions",
            "description": "Programs",
            "tools": [{"type": "custom", "name": "exec", "description": "Runs a program"}],
        }],
        "input": [{"role": "user", "content": "List the files."}],
    });
    let first = stage.ask(Wire::Responses, false, &body).json();
    let call = &first["output"][0];
    let named = ["type", "name", "namespace", "input"].map(|member| call[member].as_str().unwrap_or_default());
    assert_eq!(named, ["custom_tool_call", "exec", "functions", "ls"], "{first}");
    let input = body["input"].as_array_mut().unwrap();
    input.push(call.clone());
    input.push(json!({"type": "custom_tool_call_output", "call_id": call["call_id"], "output": "Cargo.toml"}));
    let second = stage.ask(Wire::Responses, false, &body);
    assert_eq!(second.status, 200, "{}", second.text());
    let sent: Json = serde_json::from_slice(&provider.last().body).unwrap();
    let called = &sent["messages"][1]["tool_calls"][0]["function"]["name"];
    assert_eq!(called, "functions__exec", "{sent}");
}
