//! Providers that serve a WebSocket, gateways that use it, and what their requests must have in common.

use serde_json::{Value as Json, json};

use super::stage::{USAGE, continuation, create, last_prompt, response, user_item, words};
use crate::harness::rules::RuleFolder;
use crate::harness::socket_provider::{Act, Asked, SocketProvider, Way};
use crate::harness::websocket::WebSocket;
use crate::harness::{Steps, Weir, wait_until};

/// The words in a prompt before the step for which the answer waits in its middle.
const HELD: &str = "held until step ";
/// The length of a body above which it goes by POST.
pub(super) const FRAME_BYTES_MAX: usize = 8 << 20;
/// The code of the error with which a provider ends a WebSocket that is too old.
const AGE_REACHED: &str = "websocket_connection_limit_reached";

/// A provider with [`script`].
pub(super) fn socket_provider(steps: &Steps) -> SocketProvider {
    SocketProvider::start(steps, script)
}

/// A gateway that goes to this provider over WebSocket where it can.
pub(super) fn weir_over(provider: &SocketProvider) -> Weir {
    RuleFolder::over_websocket().into_weir_at(&provider.base_url()).start()
}

/// The error object of a request that the provider does not like.
pub(super) fn odd_input() -> Json {
    json!({"message": "The input is odd.", "type": "invalid_request_error", "param": "input", "code": "odd_input"})
}

fn age_reached() -> Json {
    json!({"message": "The connection is too old.", "type": "invalid_request_error", "param": null, "code": AGE_REACHED})
}

fn forgotten() -> Json {
    json!({"message": "No such response here.", "type": "invalid_request_error", "param": "previous_response_id",
        "code": "previous_response_not_found"})
}

fn failure() -> Json {
    json!({"message": "The model failed.", "type": "server_error", "param": null, "code": "server_error"})
}

/// Input, of that read from a cache, output, and of that reasoning: as the prompt orders it.
fn usage_of(prompt: &str) -> [u64; 4] {
    let [input, cached, output] = USAGE;
    match prompt {
        _ if prompt.contains("much from the cache") => [1000, 700, 20, 0],
        _ if prompt.contains("much thought") => [300, 0, 500, 450],
        _ => [input, cached, output, 0],
    }
}

/// The response to a prompt at its end, with its usage.
fn ended(number: usize, prompt: &str) -> Json {
    let status = match prompt {
        _ if prompt.contains("incomplete") => "incomplete",
        _ if prompt.contains("failing") => "failed",
        _ => "completed",
    };
    let mut response = response(number, prompt, status);
    let [input, cached, output, reasoning] = usage_of(prompt);
    response["usage"] = json!({
        "input_tokens": input, "input_tokens_details": {"cached_tokens": cached}, "output_tokens": output,
        "output_tokens_details": {"reasoning_tokens": reasoning}, "total_tokens": input + output,
    });
    response
}

/// The first event of a response.
fn created(number: usize) -> Json {
    let response = json!({"id": format!("resp_{number}"), "object": "response", "created_at": 1, "status": "in_progress",
        "model": "gpt", "output": [], "usage": null});
    json!({"type": "response.created", "sequence_number": 0, "response": response})
}

fn delta(sequence: usize, text: &str) -> Json {
    json!({"type": "response.output_text.delta", "sequence_number": sequence, "item_id": "msg", "output_index": 0,
        "content_index": 0, "delta": text})
}

/// What the provider says to a prompt: to a long one as if it were short.
pub(super) fn answer_to(prompt: &str) -> String {
    words(shortened(prompt))
}

fn shortened(prompt: &str) -> &str {
    match prompt.len() {
        0..1000 => prompt,
        _ => "a long text",
    }
}

/// The beginning and the end of the answer to a prompt; together they are a whole one.
pub(super) fn halves(number: usize, prompt: &str) -> [Vec<Act>; 2] {
    let prompt = shortened(prompt);
    let text = words(prompt);
    let (first, second) = text.split_at("You said:".len());
    let end = ended(number, prompt);
    let name = format!("response.{}", end["status"].as_str().unwrap());
    let mut rest = vec![delta(2, second)];
    let items = end["output"].as_array().unwrap().iter().enumerate();
    rest.extend(items.map(|(index, item)| {
        json!({"type": "response.output_item.done", "sequence_number": 3 + index, "output_index": index, "item": item})
    }));
    rest.push(json!({"type": name, "sequence_number": 99, "response": end}));
    let begin = vec![created(number), delta(1, first)];
    [begin, rest].map(|events| events.into_iter().map(Act::Event).collect())
}

/// What a prompt orders, in its words:
/// - before the answer: `close 1011 first`, `cut first`, `odd input`, `a failure first`, on a WebSocket only `close 1009 first` and
///   `too old first`, and `forgotten` if the request continues a response by its id;
/// - in its middle: `close N in the middle`, `cut in the middle`, `an error in the middle`, `silent in the middle`, `begun twice`, and
///   to wait for a step ([`held_until`]);
/// - behind it: `then close 1000`, `then too old`, `then a ping`, `then deaf` until the first step, `then another`: a
///   response that nobody asked for.
///
/// The response itself is as [`usage_of`] and [`response`] say, `incomplete` or `failing`. Responses have the numbers of their requests.
///
/// [`held_until`]: super::stage::held_until
pub(super) fn script(asked: &Asked) -> Vec<Act> {
    let prompt = last_prompt(&asked.body);
    let ordered = |orders: Vec<(&str, Vec<Act>)>| {
        let found = orders.into_iter().find(|(words, _)| prompt.contains(words));
        found.map(|(_, acts)| acts)
    };
    let mut first = vec![
        ("close 1011 first", vec![Act::Close(1011)]),
        ("cut first", vec![Act::Cut]),
        ("odd input", vec![Act::Error(400, odd_input())]),
        ("a failure first", vec![Act::Error(500, failure())]),
    ];
    if asked.way != Way::Post {
        first.push(("close 1009 first", vec![Act::Close(1009)]));
        first.push(("too old first", vec![Act::Error(400, age_reached()), Act::Close(1000)]));
    }
    if continued(asked).is_some() {
        first.push(("forgotten", vec![Act::Error(400, forgotten())]));
    }
    if let Some(acts) = ordered(first) {
        return acts;
    }
    let mut middle = ordered(vec![
        ("close 1000 in the middle", vec![Act::Close(1000)]),
        ("close 1009 in the middle", vec![Act::Close(1009)]),
        ("close 1011 in the middle", vec![Act::Close(1011)]),
        ("cut in the middle", vec![Act::Cut]),
        ("an error in the middle", vec![Act::Error(500, failure())]),
        ("silent in the middle", vec![Act::Silence]),
        (
            "begun twice",
            vec![Act::Event(created(asked.number + 1000)), Act::Silence],
        ),
    ])
    .unwrap_or_default();
    if let Some((_, step)) = prompt.split_once(HELD) {
        middle.push(Act::Wait(step.trim().parse().unwrap()));
    }
    let behind = ordered(vec![
        ("then close 1000", vec![Act::Close(1000)]),
        ("then too old", vec![Act::Error(400, age_reached()), Act::Close(1000)]),
        ("then a ping", vec![Act::Ping]),
        ("then deaf", vec![Act::WaitDeaf(1)]),
        ("then another", vec![Act::Event(created(asked.number + 1000))]),
    ])
    .unwrap_or_default();
    let [begin, end] = halves(asked.number, &prompt);
    [begin, middle, end, behind].concat()
}

/// The prompt of a request.
pub(super) fn prompt_of(asked: &Asked) -> String {
    last_prompt(&asked.body)
}

/// The id of the response that a request continues, if it leaves that to the provider.
pub(super) fn continued(asked: &Asked) -> Option<&str> {
    asked.body["previous_response_id"].as_str()
}

/// The requests so far with this prompt.
pub(super) fn asked_with(provider: &SocketProvider, prompt: &str) -> Vec<Asked> {
    let mut asked = provider.asked();
    asked.retain(|asked| prompt_of(asked) == prompt);
    asked
}

/// Checks that a continuation has everything that was said before, or reached the WebSocket on which the provider made the response
/// that it continues. `whole` has the items of the complete input.
#[track_caller]
pub(super) fn assert_carried(asked: &Asked, parent: &str, made_on: Way, whole: &[Json]) {
    match continued(asked) {
        None => assert_eq!(asked.body["input"], Json::from(whole), "the input is not whole"),
        Some(id) => {
            assert_eq!((id, asked.way), (parent, made_on), "it went elsewhere: {}", asked.body);
            assert_ne!(made_on, Way::Post, "no POST is continued by its id: {}", asked.body);
            let new = &whole[whole.len() - 1];
            let input = &asked.body["input"];
            let is_new = *input == new["content"] || *input == json!([new]);
            assert!(is_new, "{}", asked.body);
        }
    }
}

/// Waits until no WebSocket to the provider is open, at either side.
#[track_caller]
pub(super) fn wait_lines_closed(weir: &Weir, provider: &SocketProvider) {
    wait_until("the WebSockets to the provider to be closed", || {
        provider.open_lines() == 0 && weir.figure("weir_provider_sockets_open") == 0
    });
}

/// Waits until so many WebSockets to providers have ended for this reason.
#[track_caller]
pub(super) fn wait_line_ends(weir: &Weir, end: &str, count: usize) {
    let line = format!("weir_provider_sockets_total{{end=\"{end}\"}} {count}\n");
    wait_until(&line, || weir.metrics().contains(&line));
}

/// A conversation whose requests each continue the one before.
#[derive(Default)]
pub(super) struct Conversation {
    /// Everything that was said.
    items: Vec<Json>,
    /// The id of the last response, and the way of its request.
    last: Option<(String, Way)>,
}

impl Conversation {
    /// Everything that was said so far.
    pub(super) fn items(&self) -> &[Json] {
        &self.items
    }

    /// Says a prompt, which must be the first of its words, and checks how its request has reached the provider.
    #[track_caller]
    pub(super) fn say(&mut self, socket: &mut WebSocket, provider: &SocketProvider, prompt: &str) -> Asked {
        let frame = match &self.last {
            None => create(prompt),
            Some((id, _)) => continuation(id, prompt),
        };
        let turn = socket.ask(&frame).completed();
        assert_eq!(turn.text(), answer_to(prompt));
        self.items.push(user_item(prompt));
        let asked = asked_with(provider, prompt).pop().unwrap();
        if let Some((parent, way)) = &self.last {
            assert_carried(&asked, parent, *way, &self.items);
        }
        self.items.extend(turn.output());
        self.last = Some((turn.id(), asked.way));
        asked
    }
}
