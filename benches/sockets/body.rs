//! The requests: as a POST, and as the message of a socket.

use serde_json::{Value, json};

use crate::{
    node::model_of,
    socket::{TEXT, frame},
};

/// What prompts are cut from.
const WORDS: &str = "The river rises in the hills and falls over a weir that measures what it carries. ";

/// The length of an item of a long conversation, in bytes.
const ITEM_BYTES: usize = 2_000;

/// The response that a message continues, and the lane in which it does.
#[derive(Clone, Copy)]
pub(crate) struct Continued {
    pub(crate) response: &'static str,
    pub(crate) lane: &'static str,
}

/// An item of the user with a text of this length.
pub(crate) fn prompt(bytes: usize) -> Value {
    json!({ "type": "message", "role": "user", "content": text(bytes) })
}

/// The items of a conversation of this length, in turns of the user and the assistant.
pub(crate) fn history(bytes: usize) -> Vec<Value> {
    let item = |number: usize| match number % 2 {
        0 => prompt(ITEM_BYTES),
        _ => json!({ "type": "message", "role": "assistant", "content": text(ITEM_BYTES) }),
    };
    (0..bytes / ITEM_BYTES).map(item).collect()
}

fn text(bytes: usize) -> String {
    WORDS.chars().cycle().take(bytes).collect()
}

/// The request as it goes over the wire by POST.
pub(crate) fn post(key: &str, input: &[Value]) -> Vec<u8> {
    let body = format!("{{{}}}", members(input));
    format!(
        "POST /v1/responses HTTP/1.1\r\nhost: gateway.test\r\nauthorization: Bearer {key}\r\naccept: text/event-stream\r\n\
         user-agent: weir-sockets\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// The request as a frame of a socket.
pub(crate) fn create(input: &[Value], continued: Option<Continued>) -> Vec<u8> {
    let continued = continued.map_or_else(String::new, |Continued { response, lane }| {
        format!("\"stream_id\":\"{lane}\",\"previous_response_id\":\"{response}\",")
    });
    let message = format!("{{\"type\":\"response.create\",{continued}{}}}", members(input));
    frame(TEXT, message.as_bytes())
}

/// The members that both have.
fn members(input: &[Value]) -> String {
    let body = json!({
        "model": model_of("responses"), "instructions": "You are a terse assistant.", "input": input,
        "max_output_tokens": 4096, "store": false, "stream": true,
    })
    .to_string();
    body[1..body.len() - 1].to_owned()
}
