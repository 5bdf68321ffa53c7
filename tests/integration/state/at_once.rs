//! The next turn comes as soon as the client has the answer's end: to another node, or to this one after it was killed. It
//! finds what the answer has made, at the credential that made it.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use serde_json::Value as Json;

use super::maker::{event, response, stream_response};
use super::{after, ask};
use crate::harness::answer::Answer;
use crate::harness::client::{Piece, Response};
use crate::harness::h2c::{self, EndStream, Length};
use crate::harness::models::RESPONSES_MODEL;
use crate::harness::provider::Recorded;
use crate::harness::redis::RedisServer;
use crate::harness::request::{Upload, Wire};
use crate::harness::rules::RuleFolder;
use crate::harness::slow_way::SlowWay;
use crate::harness::tools::{note, rounds, skip};
use crate::harness::{RecordingProvider, Request, Weir, WeirBuilder, wait_until};

/// Keeps what it answers with the credential that asked, as providers do, and knows nothing of it with any other.
fn keeper(answers: impl Fn(&Json, &Json, &mut Answer<'_>) + Send + Sync + 'static) -> RecordingProvider {
    let kept: Mutex<HashMap<String, String>> = Mutex::default();
    RecordingProvider::start(move |request: &Recorded, answer| {
        let body: Json = serde_json::from_slice(&request.body).unwrap();
        let secret = request.header("authorization").unwrap_or_default().to_owned();
        let mut kept = kept.lock().unwrap();
        let wrong = |id: &&str| kept.get(*id) != Some(&secret);
        if body["previous_response_id"].as_str().as_ref().is_some_and(wrong) {
            let error = br#"{"error":{"message":"not found","type":"invalid_request_error","param":"previous_response_id","code":"previous_response_not_found"}}"#;
            return answer.full(400, &[("content-type", "application/json")], error);
        }
        let made = response(kept.len() + 1);
        kept.insert(made["id"].as_str().unwrap().to_owned(), secret);
        drop(kept);
        answers(&body, &made, answer);
    })
}

fn answered_whole(asked: &Json, made: &Json, answer: &mut Answer<'_>) {
    if asked["stream"] == true {
        stream_response(made, answer);
    } else {
        answer.json(&made.to_string());
    }
}

/// A provider with two credentials.
fn two_credentials(provider: &RecordingProvider) -> RuleFolder {
    let base_url = provider.base_url();
    let text = format!(
        r#"
name = "one"
[auth]
style = "bearer"
[[credential]]
name = "a"
secret = "env:SECRET_A"
[[credential]]
name = "b"
secret = "env:SECRET_B"
[endpoints]
responses = "{base_url}/v1/responses"
[[model]]
name = "{RESPONSES_MODEL}"
free = true
"#
    );
    RuleFolder::new(&[("one", &text)])
}

fn with_secrets(rules: &RuleFolder) -> WeirBuilder {
    rules
        .weir()
        .variable("SECRET_A", "secret-a-in-full")
        .variable("SECRET_B", "secret-b-in-full")
}

/// The first turn, in one piece or as a stream.
fn begin(key: &str, stream: bool) -> Request {
    ask(Wire::Responses, key, &format!(r#""stream":{stream},"input":"hi""#))
}

/// The answer's identifier, wherever it stands first.
fn id_of(answer: &Response) -> String {
    assert_eq!(answer.status, 200, "{}", answer.text());
    let text = answer.text();
    let (_, rest) = text.split_once(r#""id":"resp_"#).unwrap_or_else(|| panic!("{text}"));
    format!("resp_{}", rest.split('"').next().unwrap())
}

#[test]
fn the_next_turn_at_another_node_is_served_at_once_with_the_same_credential() {
    let Some(redis) = RedisServer::start() else {
        skip!("redis-server is not there: tests/run installs it");
    };
    let provider = keeper(answered_whole);
    let rules = two_credentials(&provider);
    let nodes = [(); 2].map(|()| with_secrets(&rules).redis(&redis).start());
    let key = nodes[0].key().text;
    let mut clients = [nodes[0].connect(), nodes[1].connect()];
    let turns = rounds(100, 1000);
    let mut refused = 0;
    for turn in 0..turns {
        let (here, there) = (turn % 2, 1 - turn % 2);
        let id = id_of(&clients[here].exchange(&begin(&key, turn / 2 % 2 == 1)));
        let next = clients[there].exchange(&ask(Wire::Responses, &key, &after(&id)));
        refused += usize::from(next.status != 200);
    }
    note(&format!(
        "continuations over two nodes: {} of {turns} served",
        turns - refused
    ));
    assert_eq!(refused, 0, "of {turns} next turns at the other node");
    let mut secrets: Vec<_> = provider
        .requests()
        .iter()
        .map(|one| one.header("authorization").map(str::to_owned))
        .collect();
    secrets.sort_unstable();
    secrets.dedup();
    assert_eq!(secrets.len(), 2, "new sessions are shared between the credentials");
}

#[test]
fn an_answers_end_waits_for_a_slow_store_over_both_http_versions() {
    let Some(redis) = RedisServer::start() else {
        skip!("redis-server is not there: tests/run installs it");
    };
    let provider = keeper(answered_whole);
    let rules = two_credentials(&provider);
    let slow = SlowWay::to(redis.port(), Duration::from_millis(50));
    let far = with_secrets(&rules).redis_at(vec![slow.node()]).start();
    let near = with_secrets(&rules).redis(&redis).start();
    let key = near.key().text;
    for stream in [false, true] {
        let begun = begin(&key, stream);
        for http2 in [false, true] {
            let answer = match http2 {
                true => h2c::exchange(far.gateway, &begun, EndStream::OnLastFrame, Length::Said),
                false => far.exchange(&begun),
            };
            assert!(answer.complete, "stream: {stream}, HTTP/2: {http2}");
            let next = near.exchange(&ask(Wire::Responses, &key, &after(&id_of(&answer))));
            assert_eq!(next.status, 200, "stream: {stream}, HTTP/2: {http2}: {}", next.text());
        }
    }
}

#[test]
fn what_a_stream_names_is_known_to_other_nodes_while_it_runs() {
    let Some(redis) = RedisServer::start() else {
        skip!("redis-server is not there: tests/run installs it");
    };
    let provider = keeper(|asked, made, answer| {
        if asked["stream"] != true {
            return answer.json(&made.to_string());
        }
        answer.sse();
        event(
            answer,
            &serde_json::json!({ "type": "response.created", "sequence_number": 0,
            "response": { "id": made["id"], "status": "in_progress", "output": [] } }),
        );
        answer.wait_peer_left(Duration::from_secs(60));
    });
    let rules = two_credentials(&provider);
    let nodes = [(); 2].map(|()| with_secrets(&rules).redis(&redis).start());
    let key = nodes[0].key().text;
    let mut client = nodes[0].connect();
    client.write(&begin(&key, true).bytes(Upload::Length));
    let mut head = client.head_to("POST");
    assert!(matches!(client.piece(&mut head), Piece::Data(_)));
    let next = ask(Wire::Responses, &key, &after("resp_1"));
    wait_until("the other node to know", || nodes[1].exchange(&next).status == 200);
}

#[test]
fn a_killed_node_finds_what_it_has_answered_with() {
    let provider = keeper(answered_whole);
    let rules = two_credentials(&provider);
    let mut weir: Weir = with_secrets(&rules).start();
    let key = weir.key().text;
    let turns = rounds(6, 100);
    let mut lost = 0;
    for turn in 0..turns {
        let id = id_of(&weir.exchange(&begin(&key, turn % 2 == 1)));
        weir.kill_and_restart();
        let next = weir.exchange(&ask(Wire::Responses, &key, &after(&id)));
        lost += usize::from(next.status != 200);
    }
    note(&format!(
        "continuations after kill -9: {} of {turns} served",
        turns - lost
    ));
    assert_eq!(lost, 0, "of {turns} next turns after a kill");
}
