//! Several credentials, several places, several providers: who serves a request, and who serves it next.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::harness::answer::Answer;
use crate::harness::provider::Recorded;
use crate::harness::redis::RedisServer;
use crate::harness::request::Wire;
use crate::harness::rules::RuleFolder;
use crate::harness::shapes::assert_refusal;
use crate::harness::tools::skip;
use crate::harness::{RecordingProvider, Request, Weir, WeirBuilder, wait_until};

const OK: &str = r#"{"id":"msg_1","type":"message","role":"assistant","content":[{"type":"text","text":"hi"}],"stop_reason":"end_turn","usage":{"input_tokens":1,"output_tokens":1}}"#;

fn error(answer: &mut Answer<'_>, status: u16, headers: &[(&str, &str)]) {
    let mut all = vec![("content-type", "application/json")];
    all.extend_from_slice(headers);
    answer.full(status, &all, br#"{"type":"error","error":{"type":"e","message":"m"}}"#);
}

/// The secret that a request came with.
fn secret(request: &Recorded) -> String {
    request
        .header("authorization")
        .unwrap_or_default()
        .trim_start_matches("Bearer ")
        .to_owned()
}

/// A provider file with credentials `a` and `b`.
fn two_credentials(name: &str, base_url: &str, more: &str) -> String {
    format!(
        r#"
name = "{name}"
{more}
[auth]
style = "bearer"
[[credential]]
name = "a"
secret = "env:SECRET_A"
[[credential]]
name = "b"
secret = "env:SECRET_B"
[endpoints]
messages = "{base_url}/v1/messages"
responses = "{base_url}/v1/responses"
[[model]]
name = "{name}-model"
free = true
aliases = ["{name}-alias"]
"#
    )
}

fn with_secrets(builder: WeirBuilder) -> WeirBuilder {
    builder
        .variable("SECRET_A", "secret-a-in-full")
        .variable("SECRET_B", "secret-b-in-full")
}

fn ask(key: &str, model: &str) -> Request {
    Wire::Messages.request_for(model, key, "hi")
}

/// Who answered, by the access log.
fn record(weir: &Weir, answer: &crate::harness::client::Response) -> serde_json::Value {
    weir.access_line(answer.header("x-weir-request-id").unwrap())
}

#[test]
fn a_limited_credential_rests_and_the_other_serves() {
    let provider = RecordingProvider::start(|request, answer| match secret(request).as_str() {
        "secret-a-in-full" => error(answer, 429, &[("retry-after", "60")]),
        _ => answer.json(OK),
    });
    let rules = RuleFolder::new(&[("one", &two_credentials("one", &provider.base_url(), ""))]);
    let weir = with_secrets(rules.weir()).start();
    let key = weir.key().text;
    for _ in 0..20 {
        assert_eq!(weir.exchange(&ask(&key, "one-model")).status, 200);
    }
    let limited = provider
        .requests()
        .iter()
        .filter(|one| secret(one) == "secret-a-in-full")
        .count();
    assert_eq!(limited, 1, "it is not asked again while it rests");
    let listed = weir.cli(&["provider", "list"], &[]);
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(listed.contains("a (cools down ") && listed.contains("on "), "{listed}");
    assert!(
        weir.metrics()
            .contains("weir_provider_credentials_cooling_down{provider=\"one\"} 1")
    );
}

#[test]
fn a_refused_credential_is_replaced_and_the_last_one_is_503() {
    let good = Arc::new(AtomicUsize::new(1));
    let now = Arc::clone(&good);
    let provider = RecordingProvider::start(move |request, answer| match secret(request).as_str() {
        "secret-b-in-full" if now.load(Ordering::SeqCst) == 1 => answer.json(OK),
        _ => error(answer, 401, &[]),
    });
    let rules = RuleFolder::new(&[("one", &two_credentials("one", &provider.base_url(), ""))]);
    let weir = with_secrets(rules.weir()).start();
    let key = weir.key().text;
    for _ in 0..10 {
        assert_eq!(weir.exchange(&ask(&key, "one-model")).status, 200);
    }
    good.store(0, Ordering::SeqCst);
    let answer = weir.exchange(&ask(&key, "one-model"));
    assert_refusal(Wire::Messages, &answer, 503, "api_error");
    assert!(
        weir.metrics()
            .contains("weir_provider_credential_refused_total{provider=\"one\"} 2")
    );
}

#[test]
fn an_overloaded_provider_is_asked_again_with_growing_pauses() {
    let count = AtomicUsize::new(0);
    let provider = RecordingProvider::start(move |_, answer| match count.fetch_add(1, Ordering::SeqCst) % 3 {
        2 => answer.json(OK),
        _ => error(answer, 529, &[]),
    });
    let retry = "[retry]\nstatuses = [529]\nattempts = 3\nbackoff_ms = 20\nbudget_percent = 200";
    let text = two_credentials("one", &provider.base_url(), "").replace("[auth]", &format!("{retry}\n[auth]"));
    let rules = RuleFolder::new(&[("one", &text)]);
    let weir = with_secrets(rules.weir()).start();
    let key = weir.key().text;
    for round in 1..=10 {
        let answer = weir.exchange(&ask(&key, "one-model"));
        assert_eq!((answer.status, provider.count()), (200, 3 * round));
        assert_eq!(record(&weir, &answer)["attempts"], 3);
        let bodies: BTreeSet<Vec<u8>> = provider.requests().into_iter().map(|one| one.body).collect();
        assert_eq!(bodies.len(), 1, "the same body each time");
    }
}

#[test]
fn a_pause_that_is_too_long_is_left_to_the_client() {
    let provider = RecordingProvider::start(|_, answer| error(answer, 503, &[("retry-after", "40")]));
    let rules = RuleFolder::new(&[("one", &two_credentials("one", &provider.base_url(), ""))]);
    let weir = with_secrets(rules.weir()).start();
    let answer = weir.exchange(&ask(&weir.key().text, "one-model"));
    assert_eq!((answer.status, answer.header("retry-after")), (503, Some("40")));
    assert_eq!(provider.count(), 1);
}

#[test]
fn another_provider_serves_with_its_own_name_and_rules() {
    let first = RecordingProvider::start(|_, answer| error(answer, 500, &[]));
    let second = RecordingProvider::answering(OK);
    let edits = "[[body]]\nop = \"set\"\npath = \"house\"\nvalue = \"second\"\n";
    let rules = RuleFolder::new(&[
        ("one", &two_credentials("one", &first.base_url(), "")),
        ("two", &(two_credentials("two", &second.base_url(), "") + edits)),
    ]);
    let model: toml::Table = toml::from_str(
        "name = \"either\"\nfree = true\nproviders = [\"one\", \"two\"]\nupstream_name = \"up-one\"\nupstream_names = { two = \"up-two\" }",
    )
    .unwrap();
    let weir = with_secrets(rules.weir())
        .set_top("model", vec![toml::Value::Table(model)])
        .start();
    let answer = weir.exchange(&ask(&weir.key().text, "either"));
    assert_eq!(answer.status, 200);
    let line = record(&weir, &answer);
    assert_eq!((&line["provider"], &line["model"]), (&"two".into(), &"either".into()));
    assert_eq!(first.count(), 2, "once more at the first, within its budget");
    let text = |request: Recorded| String::from_utf8(request.body).unwrap();
    assert!(text(first.last()).contains("up-one") && !text(first.last()).contains("house"));
    let sent = text(second.last());
    assert!(
        sent.contains("\"up-two\"") && sent.contains("\"house\":\"second\""),
        "{sent}"
    );
}

#[test]
fn a_dead_place_costs_no_request_and_is_left_out() {
    let alive = RecordingProvider::answering(OK);
    // A port that was free a moment ago, and on which nobody listens.
    let dead = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let origins = format!(
        "[[origin]]\nurl = \"http://{dead}\"\n[[origin]]\nurl = \"{}\"\n",
        alive.base_url()
    );
    let rules = RuleFolder::new(&[(
        "one",
        &(two_credentials("one", "https://unused.example", "") + &origins),
    )]);
    let weir = with_secrets(rules.weir()).start();
    let key = weir.key().text;
    for _ in 0..20 {
        assert_eq!(weir.exchange(&ask(&key, "one-model")).status, 200);
    }
    assert_eq!(alive.count(), 20);
    assert!(
        weir.metrics()
            .contains("weir_provider_backends_ejected{provider=\"one\"} 1")
    );
    let host = alive.base_url().replace("http://", "");
    assert_eq!(alive.last().header("host"), Some(host.as_str()));
}

#[test]
fn a_session_keeps_its_credential() {
    let provider = RecordingProvider::answering(OK);
    let rules = RuleFolder::new(&[("one", &two_credentials("one", &provider.base_url(), ""))]);
    let weir = with_secrets(rules.weir()).start();
    let key = weir.key().text;
    let mut used = BTreeSet::new();
    for session in 0..12 {
        let mut of_session = BTreeSet::new();
        for _ in 0..4 {
            let request = ask(&key, "one-model").header("x-claude-code-session-id", &format!("s{session}"));
            assert_eq!(weir.exchange(&request).status, 200);
            of_session.insert(secret(&provider.last()));
        }
        assert_eq!(of_session.len(), 1, "session {session}");
        used.extend(of_session);
    }
    assert_eq!(used.len(), 2, "sessions are shared between the credentials");
}

#[test]
fn state_at_the_provider_is_not_looked_for_elsewhere() {
    let provider = RecordingProvider::start(|request, answer| {
        match String::from_utf8_lossy(&request.body).contains("previous_response_id") {
            true => error(answer, 429, &[("retry-after", "1")]),
            false => answer.json(r#"{"id":"resp_1","object":"response","status":"completed","output":[]}"#),
        }
    });
    let rules = RuleFolder::new(&[("one", &two_credentials("one", &provider.base_url(), ""))]);
    let weir = with_secrets(rules.weir()).start();
    let key = weir.key().text;
    let begun = Wire::Responses.request_for("one-model", &key, "hi");
    assert_eq!(weir.exchange(&begun).status, 200);
    let body = r#"{"model":"one-model","input":"hi","previous_response_id":"resp_1"}"#;
    let request = Wire::Responses.request_for("one-model", &key, "hi");
    let request = Request {
        body: body.as_bytes().to_vec(),
        ..request
    };
    assert_eq!(weir.exchange(&request).status, 429);
    assert_eq!(provider.count(), 2);
}

#[test]
fn what_a_provider_keeps_is_asked_for_with_the_credential_that_it_was_made_with_on_every_node() {
    let Some(redis) = RedisServer::start() else {
        skip!("redis-server is not there: tests/run installs it");
    };
    // It keeps what it answers with the credential that asked, as providers do.
    let kept: Mutex<Vec<String>> = Mutex::default();
    let provider = RecordingProvider::start(move |request, answer| {
        let mut kept = kept.lock().unwrap();
        let body: serde_json::Value = serde_json::from_slice(&request.body).unwrap();
        if let Some(id) = body["previous_response_id"].as_str() {
            let number: usize = id.trim_start_matches("resp_").parse().unwrap();
            if kept[number] != secret(request) {
                return error(answer, 404, &[]);
            }
        }
        let number = kept.len();
        kept.push(secret(request));
        answer.json(&format!(
            r#"{{"id":"resp_{number}","object":"response","status":"completed","output":[],"usage":{{"input_tokens":1,"output_tokens":1,"total_tokens":2}}}}"#
        ));
    });
    let rules = RuleFolder::new(&[("one", &two_credentials("one", &provider.base_url(), ""))]);
    let first = with_secrets(rules.weir()).redis(&redis).start();
    let second = with_secrets(rules.weir()).redis(&redis).start();
    let key = first.key().text;
    let mut used = BTreeSet::new();
    for number in 0..12 {
        let begun = Wire::Responses.request_for("one-model", &key, "hi");
        let answer = first.exchange(&begun);
        let id = answer.json()["id"].as_str().unwrap().to_owned();
        let with = secret(&provider.last());
        let body = format!(r#"{{"model":"one-model","input":"more","previous_response_id":"{id}"}}"#);
        let next = Request {
            body: body.into_bytes(),
            ..begun
        };
        // The node that answered knows at once, the other once it is written.
        assert_eq!(first.exchange(&next).status, 200);
        assert_eq!(secret(&provider.last()), with, "{number}: the same node");
        wait_until("the other node knows", || {
            second.exchange(&next).status == 200 && secret(&provider.last()) == with
        });
        used.insert(with);
    }
    assert_eq!(used.len(), 2, "new sessions are shared between the credentials");
}

#[test]
fn aliases_and_the_fallback_answer_and_the_record_keeps_what_was_asked() {
    let provider = RecordingProvider::answering(OK);
    let fallback = "[fallback]\npatterns = [\"one-*\"]\nmodel = \"one-model\"\nprotocols = [\"messages\"]\n";
    let one = two_credentials("one", &provider.base_url(), "") + fallback;
    let two = two_credentials("two", &provider.base_url(), "");
    let rules = RuleFolder::new(&[("one", &one), ("two", &two)]);
    let weir = with_secrets(rules.weir()).start();
    let key = weir.key().text;
    for asked in ["one-alias", "one-of-1999", "one-model"] {
        let answer = weir.exchange(&ask(&key, asked));
        assert_eq!(answer.status, 200, "{asked}");
        let line = record(&weir, &answer);
        assert_eq!(
            (&line["model_asked"], &line["model"]),
            (&asked.into(), &"one-model".into())
        );
        assert!(
            String::from_utf8(provider.last().body)
                .unwrap()
                .contains("\"one-model\"")
        );
    }
    assert_eq!(
        weir.exchange(&Wire::Responses.request_for("one-of-1999", &key, "hi"))
            .status,
        404
    );
    let narrow = weir.key_with(&["--models", "two-model"]).text;
    assert_eq!(weir.exchange(&ask(&narrow, "one-of-1999")).status, 403);
}

#[test]
fn an_operator_switches_a_provider_off_and_on_without_a_restart() {
    let provider = RecordingProvider::answering(OK);
    let rules = RuleFolder::new(&[("one", &two_credentials("one", &provider.base_url(), ""))]);
    let mut weir = with_secrets(rules.weir()).start();
    let key = weir.key().text;
    assert_eq!(weir.exchange(&ask(&key, "one-model")).status, 200);
    assert!(weir.cli(&["provider", "disable", "one"], &[]).status.success());
    let answer = weir.exchange(&ask(&key, "one-model"));
    assert_eq!((answer.status, answer.header("x-should-retry")), (503, Some("false")));
    assert!(
        !weir
            .exchange(&Request::get("/v1/models").header("authorization", &format!("Bearer {key}")))
            .text()
            .contains("one-model")
    );
    weir.kill_and_restart();
    assert_eq!(
        weir.exchange(&ask(&key, "one-model")).status,
        503,
        "a restart keeps the switch"
    );
    let enabled = weir.cli_json(&["provider", "enable", "one"]);
    assert_eq!(enabled["changed"], true);
    assert_eq!(weir.exchange(&ask(&key, "one-model")).status, 200);
    assert_eq!(provider.count(), 2);
    let unknown = weir.cli(&["provider", "disable", "two"], &[]);
    assert!(!unknown.status.success());
}

#[test]
fn an_error_that_means_a_refused_credential_is_not_the_clients_business() {
    let provider = RecordingProvider::start(|_, answer| {
        answer.full(
            400,
            &[("content-type", "application/json")],
            br#"{"error":{"code":400,"message":"API key of acme not valid","details":[{"reason":"API_KEY_INVALID"}]}}"#,
        );
    });
    let rule = "[[error]]\nstatus = 400\ncontains = \"API_KEY_INVALID\"\nmeans = \"credential_refused\"\n";
    let rules = RuleFolder::new(&[("one", &(two_credentials("one", &provider.base_url(), "") + rule))]);
    let weir = with_secrets(rules.weir()).start();
    let answer = weir.exchange(&ask(&weir.key().text, "one-model"));
    assert_refusal(Wire::Messages, &answer, 503, "api_error");
    assert!(!answer.text().contains("acme"), "{}", answer.text());
    assert_eq!(record(&weir, &answer)["outcome"], "credential_refused");
    let asked: BTreeSet<String> = provider.requests().iter().map(secret).collect();
    assert_eq!((provider.count(), asked.len()), (2, 2), "the other credential is tried");
    assert!(
        weir.metrics()
            .contains("weir_provider_credentials_cooling_down{provider=\"one\"} 2")
    );
    let logs = weir.logs();
    for name in ["a", "b"] {
        assert_eq!(
            logs.matches(&format!("credential={name}")).count()
                + logs.matches(&format!("\"credential\":\"{name}\"")).count(),
            1,
            "{logs}"
        );
    }
}

#[test]
fn a_provider_with_errors_at_the_root_has_refusals_there_too() {
    let dead = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let text = two_credentials("one", &format!("http://{dead}"), "refusals = \"native_root\"");
    let rules = RuleFolder::new(&[("one", &text)]);
    let weir = with_secrets(rules.weir()).start();
    let key = weir.key().text;
    let answer = weir.exchange(&ask(&key, "one-model"));
    let body = answer.json();
    assert_eq!(answer.status, 503);
    assert_eq!(
        (&body["code"], &body["type"]),
        (&"503".into(), &"api_error".into()),
        "{body}"
    );
    assert!(body["message"].is_string() && body.get("error").is_none());
    let other = weir.exchange(&Wire::Responses.request_for("one-model", &key, "hi"));
    assert!(
        other.json()["error"]["message"].is_string(),
        "only Messages has that shape"
    );
    wait_until("both are in the log", || weir.access_lines().len() >= 2);
}
