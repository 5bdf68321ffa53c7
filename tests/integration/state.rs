//! What lies at a provider's account belongs to the account here that made it: its other keys reach it, other accounts are told
//! that there is no such thing, and nothing is forwarded for them.

mod at_once;
mod maker;
mod names;

use maker::{event, provider, response};
use serde_json::Value as Json;

use crate::harness::client::{Response, find};
use crate::harness::models::{MESSAGES_MODEL, RESPONSES_MODEL};
use crate::harness::provider::Recorded;
use crate::harness::redis::RedisServer;
use crate::harness::request::Wire;
use crate::harness::shapes::assert_refusal;
use crate::harness::tools::skip;
use crate::harness::{RecordingProvider, Request, Weir, WeirBuilder, wait_until};

/// A key of an account that is made if it is not there.
fn key_of(weir: &Weir, account: &str) -> String {
    let made = weir.cli(
        &["account", "create", "--id", account, "--balance-usd", "10"],
        &["--json"],
    );
    let said = String::from_utf8_lossy(&made.stderr).into_owned();
    assert!(
        made.status.success() || said.contains("exists") || said.contains("already"),
        "{said}"
    );
    let key = weir.cli_json(&["key", "create", "--account", account, "--name", account]);
    key["key"].as_str().unwrap().to_owned()
}

/// A request with these members beside the model.
fn ask(wire: Wire, key: &str, members: &str) -> Request {
    let request = wire.request(key, "hi");
    let body = match wire {
        Wire::Messages => format!(
            r#"{{"model":"{MESSAGES_MODEL}","max_tokens":64,"messages":[{{"role":"user","content":"hi"}}],{members}}}"#
        ),
        Wire::Responses => format!(r#"{{"model":"{RESPONSES_MODEL}",{members}}}"#),
        Wire::Gemini => format!(r#"{{"contents":[{{"role":"user","parts":[{{"text":"hi"}}]}}],{members}}}"#),
    };
    request.body(body.as_bytes())
}

/// The members of a request that goes on from a response.
fn after(id: &str) -> String {
    format!(r#""input":"more","previous_response_id":"{id}""#)
}

#[track_caller]
fn assert_not_found(answer: &Response, id: &str) {
    assert_refusal(Wire::Responses, answer, 400, "previous_response_not_found");
    let error = &answer.json()["error"];
    assert_eq!(error["param"], "previous_response_id");
    assert_eq!(error["type"], "invalid_request_error");
    assert!(error["message"].as_str().unwrap().contains(id), "{error}");
}

#[test]
fn a_response_is_there_for_its_account_and_not_for_another() {
    let provider = provider();
    let weir = Weir::start(&provider.base_url());
    let (mine, mine_too, theirs) = (key_of(&weir, "a"), key_of(&weir, "a"), key_of(&weir, "b"));
    for stream in ["", r#""stream":true,"#] {
        let made = weir.exchange(&ask(Wire::Responses, &mine, &format!(r#"{stream}"input":"hi""#)));
        assert_eq!(made.status, 200);
        let id = format!("resp_{}", provider.count());
        let before = provider.count();
        let answer = weir.exchange(&ask(Wire::Responses, &theirs, &after(&id)));
        assert_not_found(&answer, &id);
        assert_eq!(provider.count(), before, "it was forwarded");
        for key in [&mine, &mine_too] {
            assert_eq!(
                weir.exchange(&ask(Wire::Responses, key, &after(&id))).status,
                200,
                "{id}"
            );
        }
    }
    let of_b = weir.cli_json(&["account", "show", "--id", "b"]);
    assert_eq!(of_b["spent_usd"], "0.00", "{of_b}");
    wait_until("the holds to end", || {
        weir.cli_json(&["account", "show", "--id", "b"])["running"] == 0
    });
    assert_eq!(provider.count(), 6);
}

#[test]
fn an_answer_that_was_not_kept_cannot_be_gone_on_from() {
    let provider = provider();
    let weir = Weir::start(&provider.base_url());
    let key = key_of(&weir, "a");
    let made = weir.exchange(&ask(Wire::Responses, &key, r#""input":"hi","store":false"#));
    assert_eq!(made.status, 200);
    assert_not_found(&weir.exchange(&ask(Wire::Responses, &key, &after("resp_1"))), "resp_1");
    assert_eq!(provider.count(), 1);
}

#[test]
fn what_an_answer_has_made_is_its_accounts_own() {
    let provider = provider();
    let weir = Weir::start(&provider.base_url());
    let (mine, theirs) = (key_of(&weir, "a"), key_of(&weir, "b"));
    for stream in ["", r#""stream":true,"#] {
        let made = weir.exchange(&ask(Wire::Responses, &mine, &format!(r#"{stream}"input":"hi""#)));
        assert_eq!(made.status, 200);
        let n = provider.count();
        let made = format!(r#"{stream}"thread":{{"type":"create"}}"#);
        assert_eq!(weir.exchange(&ask(Wire::Messages, &mine, &made)).status, 200);
        let m = provider.count();
        for (wire, members) in [
            (Wire::Responses, after(&format!("resp_{n}"))),
            (
                Wire::Responses,
                format!(r#""input":[{{"type":"item_reference","id":"rs_{n}"}}]"#),
            ),
            (
                Wire::Responses,
                format!(
                    r#""input":[{{"type":"item_reference","id":"ci_{n}"}},{{"type":"item_reference","id":"msg_{n}"}}]"#
                ),
            ),
            (
                Wire::Responses,
                format!(r#""input":[{{"type":"reasoning","id":"rs_{n}","summary":[]}}]"#),
            ),
            (
                Wire::Responses,
                format!(r#""input":"hi","tools":[{{"type":"code_interpreter","container":"cntr_{n}"}}]"#),
            ),
            (
                Wire::Responses,
                format!(r#""input":[{{"role":"user","content":[{{"type":"input_file","file_id":"cfile_{n}"}}]}}]"#),
            ),
            (
                Wire::Messages,
                format!(r#""thread":{{"type":"continue","previous_message_id":"msg_{m}"}}"#),
            ),
            (Wire::Messages, format!(r#""container":"container_{m}""#)),
            (
                Wire::Messages,
                format!(
                    r#""system":"s","messages":[{{"role":"user","content":[{{"type":"container_upload","file_id":"file_{m}a"}},{{"type":"container_upload","file_id":"file_{m}b"}}]}}]"#
                ),
            ),
        ] {
            let before = provider.count();
            let answer = weir.exchange(&ask(wire, &theirs, &members));
            assert!(matches!(answer.status, 400 | 404), "{members}: {}", answer.text());
            assert_eq!(provider.count(), before, "{members}");
            let answer = weir.exchange(&ask(wire, &mine, &members));
            assert_eq!(answer.status, 200, "{members}: {}", answer.text());
        }
        // What the model wrote into a call of a tool is nobody's.
        let forged = r#""system":"s","messages":[{"role":"user","content":[{"type":"container_upload","file_id":"file_of_nobody"}]}]"#;
        assert_eq!(weir.exchange(&ask(Wire::Messages, &mine, forged)).status, 404);
    }
}

#[test]
fn an_operator_lets_an_account_reach_any_state() {
    let provider = provider();
    let weir = Weir::start(&provider.base_url());
    let key = key_of(&weir, "a");
    let shown = || weir.cli_json(&["account", "show", "--id", "a"])["provider_state"].clone();
    assert_eq!(shown(), "own");
    let asked = ask(Wire::Responses, &key, &after("resp_77"));
    let counted = Request {
        target: "/v1/messages/count_tokens".to_owned(),
        ..ask(
            Wire::Messages,
            &key,
            r#""system":"s","messages":[{"role":"user","content":[{"type":"document","source":{"type":"file","file_id":"file_77"}}]}]"#,
        )
    };
    assert_eq!(
        (weir.exchange(&asked).status, weir.exchange(&counted).status),
        (400, 404)
    );
    let updated = weir.cli_json(&["account", "update", "--id", "a", "--provider-state", "any"]);
    assert_eq!((&updated["provider_state"], shown()), (&"any".into(), "any".into()));
    assert_eq!(
        (weir.exchange(&asked).status, weir.exchange(&counted).status),
        (200, 200)
    );
    let listed = String::from_utf8(weir.cli(&["account", "list"], &[]).stdout).unwrap();
    assert!(
        listed
            .lines()
            .any(|line| line.starts_with("a ") && line.contains("any")),
        "{listed}"
    );
    weir.cli_json(&["account", "update", "--id", "a", "--provider-state", "own"]);
    let other = ask(Wire::Responses, &key, &after("resp_78"));
    assert_eq!(weir.exchange(&other).status, 400);
    let made = weir.cli_json(&["account", "create", "--id", "c", "--provider-state", "any"]);
    assert_eq!(made["provider_state"], "any");
    let wrong = weir.cli(&["account", "update", "--id", "a", "--provider-state", "mine"], &[]);
    let said = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert!(
        !wrong.status.success() && said.contains("own") && said.contains("any"),
        "{said}"
    );
}

#[test]
fn every_node_knows_whose_it_is_and_without_the_store_nobody_guesses() {
    let Some(mut redis) = RedisServer::start() else {
        skip!("redis-server is not there: tests/run installs it");
    };
    let provider = provider();
    let node = || {
        WeirBuilder::new()
            .all_providers(&provider.base_url())
            .redis(&redis)
            .start()
    };
    let (first, second) = (node(), node());
    let (mine, theirs) = (key_of(&first, "a"), key_of(&first, "b"));
    assert_eq!(
        first.exchange(&ask(Wire::Responses, &mine, r#""input":"hi""#)).status,
        200
    );
    let next = ask(Wire::Responses, &mine, &after("resp_1"));
    wait_until("the other node knows", || second.exchange(&next).status == 200);
    for weir in [&first, &second] {
        let answer = weir.exchange(&ask(Wire::Responses, &theirs, &after("resp_1")));
        assert_not_found(&answer, "resp_1");
    }
    let stored = redis.stored_bytes();
    assert!(
        find(&stored, b"resp_1").is_none() && find(&stored, b"cntr_1").is_none(),
        "an id is stored in clear"
    );
    // Answered a moment before the store goes: this node knows it by itself.
    let last = first.exchange(&ask(Wire::Responses, &mine, r#""input":"hi""#));
    assert_eq!(last.status, 200);
    let id = last.json()["id"].as_str().unwrap().to_owned();
    let before = provider.count();
    redis.down();
    let unknown = first.exchange(&ask(Wire::Responses, &mine, &after("resp_none")));
    assert_refusal(Wire::Responses, &unknown, 503, "store_unavailable");
    assert_eq!(provider.count(), before, "it was forwarded on a guess");
    let known = first.exchange(&ask(Wire::Responses, &mine, &after(&id)));
    assert_eq!(known.status, 200, "{}", known.text());
}

#[test]
fn a_restart_of_the_embedded_store_keeps_whose_it_is() {
    let provider = provider();
    let mut weir = Weir::start(&provider.base_url());
    let (mine, theirs) = (key_of(&weir, "a"), key_of(&weir, "b"));
    assert_eq!(
        weir.exchange(&ask(Wire::Responses, &mine, r#""input":"hi""#)).status,
        200
    );
    weir.process().signal("TERM");
    wait_until("the end of the process", || weir.process().ended().is_some());
    weir.kill_and_restart();
    assert_not_found(
        &weir.exchange(&ask(Wire::Responses, &theirs, &after("resp_1"))),
        "resp_1",
    );
    assert_eq!(
        weir.exchange(&ask(Wire::Responses, &mine, &after("resp_1"))).status,
        200
    );
    weir.process().kill();
    let bytes = crate::harness::weir::all_bytes_below(&weir.folder().join("store"));
    assert!(find(&bytes, b"resp_1").is_none(), "an id is stored in clear");
}

#[test]
fn who_leaves_before_the_end_still_owns_what_was_made() {
    let provider = RecordingProvider::start(|request: &Recorded, answer| {
        let body: Json = serde_json::from_slice(&request.body).unwrap();
        if body["stream"] != true {
            return answer.json(&response(2).to_string());
        }
        answer.sse();
        event(
            answer,
            &serde_json::json!({ "type": "response.created", "sequence_number": 0,
            "response": { "id": "resp_1", "status": "in_progress", "output": [] } }),
        );
        answer.wait_peer_left(std::time::Duration::from_secs(10));
    });
    let weir = Weir::start(&provider.base_url());
    let key = key_of(&weir, "a");
    let request = ask(Wire::Responses, &key, r#""stream":true,"input":"hi""#);
    let mut client = weir.connect();
    client.write(&request.bytes(crate::harness::request::Upload::Length));
    let mut head = client.head_to("POST");
    assert!(matches!(
        client.piece(&mut head),
        crate::harness::client::Piece::Data(_)
    ));
    drop(client);
    let next = ask(Wire::Responses, &key, &after("resp_1"));
    wait_until("it is remembered", || weir.exchange(&next).status == 200);
}
