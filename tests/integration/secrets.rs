//! Canaries: keys, prompts and answers in every possible place must be found nowhere they do not belong.

use crate::harness::client::find;
use crate::harness::redis::RedisServer;
use crate::harness::request::{ALL_WIRES, Upload, Wire};
use crate::harness::tools::skip;
use crate::harness::weir::{PROVIDER_KEY, all_bytes_below};
use crate::harness::{GEMINI_MODEL, RecordingProvider, Request, Weir, WeirBuilder};

const PROMPT: &str = "prompt-canary-fTq81LxM";
const ANSWER: &str = "answer-canary-Zk30PwUe";

/// Requests that carry the key everywhere a client could put it, by mistake or in malice.
fn everywhere(key: &str) -> Vec<Request> {
    let mut requests = Vec::new();
    for wire in ALL_WIRES {
        let good = wire.request(key, PROMPT);
        requests.push(good.clone());
        requests.push(wire.streaming(key, PROMPT));
        for name in ["x-api-key", "x-goog-api-key", "x-genai-api-key"] {
            requests.push(wire.without_credential(PROMPT).header(name, key));
        }
        for scheme in ["Bearer", "Basic", "Token"] {
            requests.push(
                wire.without_credential(PROMPT)
                    .header("authorization", &format!("{scheme} {key}")),
            );
        }
        for name in [
            "cookie",
            "referer",
            "proxy-authorization",
            "user-agent",
            "x-request-id",
            "origin",
        ] {
            requests.push(good.clone().header(name, key));
        }
        for query in ["key", "api_key", "access_token", "KEY", "%6b%65%79"] {
            let mut request = wire.without_credential(PROMPT);
            let joint = if request.target.contains('?') { '&' } else { '?' };
            request.target = format!("{}{joint}{query}={key}", request.target);
            requests.push(request);
        }
        requests.push(good.clone().body(format!(r#"{{"model":"{key}"}}"#).as_bytes()));
        requests.push(good.clone().body(format!(r#"{{"model":"{key}" broken"#).as_bytes()));
        requests.push(
            good.clone()
                .body(format!(r#"{{"{key}":1,"model":"x","model":"y"}}"#).as_bytes()),
        );
        requests.push(good.header("x-stainless-lang", key));
    }
    for path in [
        format!("/{key}"),
        format!("/v1/messages/{key}"),
        format!("/v1/models/{key}"),
        format!("/v1beta/models/{key}:generateContent"),
    ] {
        requests.push(Request::post(&path).header("x-api-key", key).json("{}"));
        requests.push(Request::get(&path).header("x-goog-api-key", key));
    }
    requests.push(Request::get(&format!("/v1beta/models/{GEMINI_MODEL}?key={key}")));
    requests.push(Request::new(key, "/v1/messages"));
    requests
}

#[track_caller]
fn assert_absent(what: &str, bytes: &[u8], secrets: &[&str]) {
    for secret in secrets {
        let Some(at) = find(bytes, secret.as_bytes()) else {
            continue;
        };
        let around = String::from_utf8_lossy(&bytes[at.saturating_sub(300)..(at + 200).min(bytes.len())]);
        panic!("{what} holds a secret: {}", around.replace(secret, "[the secret]"));
    }
}

/// Sends everything, then looks everywhere.
fn hunt(weir: &Weir, provider: &RecordingProvider, stored: &dyn Fn() -> Vec<u8>) {
    let key = weir.key();
    let digits = &key.text[key.text.len() - 49..key.text.len() - 6];
    let service = [key.text.as_str(), digits];
    let revoked = weir.key();
    weir.cli_json(&["key", "revoke", &revoked.id]);
    for text in [&key.text, &revoked.text] {
        for request in everywhere(text) {
            let mut client = weir.connect();
            client.write(&request.bytes(Upload::Length));
            let Some(head) = client.try_head_to(&request.method) else {
                continue;
            };
            let answer = client.rest(head);
            let head = format!("{:?}", answer.headers);
            // An error may repeat a model name or a path the client sent: then it goes to that very client only, but
            // never to a log, so the body is looked at for the provider's key alone.
            assert_absent("an answer", &answer.body, &[PROVIDER_KEY]);
            assert_absent(
                "an answer's head",
                head.as_bytes(),
                &[PROVIDER_KEY, &key.text, &revoked.text],
            );
        }
    }
    // What a client puts into its own body or into a header of no meaning is the provider's to read; the places a
    // credential is taken from are not.
    for request in provider.requests() {
        let credential_free: Vec<&str> = [
            "x-api-key",
            "x-goog-api-key",
            "x-genai-api-key",
            "authorization",
            "cookie",
            "referer",
            "proxy-authorization",
        ]
        .into_iter()
        .flat_map(|name| request.header_values(name))
        .collect();
        assert_absent(
            "a credential header at the provider",
            credential_free.join("\n").as_bytes(),
            &service,
        );
        assert_absent("the target at the provider", request.target.as_bytes(), &service);
    }
    let all = [
        PROVIDER_KEY,
        key.text.as_str(),
        digits,
        revoked.text.as_str(),
        PROMPT,
        ANSWER,
    ];
    assert_absent("the metrics", weir.metrics().as_bytes(), &all);
    assert_absent("a log", weir.logs().as_bytes(), &all);
    assert_absent("the store", &stored(), &all);
    assert_absent("the gateway's folder", &all_bytes_below(weir.folder()), &all);
    for words in [vec!["key", "list"], vec!["key", "show", key.id.as_str()]] {
        assert_absent(
            "the admin's answers",
            weir.cli_json(&words).to_string().as_bytes(),
            &all,
        );
    }
}

fn echoing_provider() -> RecordingProvider {
    RecordingProvider::start(|request, answer| {
        // A provider that answers with what it was sent, credentials included: bytes pass, and stay out of every log.
        let headers = [("content-type", "application/json"), ("x-echo", "yes")];
        let status = if request.target.contains("stream") { 200 } else { 400 };
        answer.full(
            status,
            &headers,
            format!(r#"{{"error":{{"message":"{ANSWER}","type":"x"}}}}"#).as_bytes(),
        );
    })
}

#[test]
fn canaries_appear_nowhere_with_the_embedded_store() {
    let provider = echoing_provider();
    let weir = WeirBuilder::new()
        .all_providers(&provider.base_url())
        .set("log.level", "trace")
        .start();
    hunt(&weir, &provider, &|| all_bytes_below(&weir.folder().join("store")));
}

#[test]
fn canaries_appear_nowhere_with_redis() {
    let Some(redis) = RedisServer::start() else {
        skip!("redis-server is not installed")
    };
    let provider = echoing_provider();
    let weir = WeirBuilder::new()
        .all_providers(&provider.base_url())
        .redis(&redis)
        .set("log.level", "debug")
        .start();
    hunt(&weir, &provider, &|| redis.stored_bytes());
}

#[test]
fn a_provider_that_repeats_our_credential_in_an_error_does_not_show_it_to_the_client() {
    let provider = RecordingProvider::start(|_, answer| {
        let body = format!(r#"{{"error":{{"message":"bad request with key {PROVIDER_KEY}","type":"x"}}}}"#);
        answer.full(
            400,
            &[("content-type", "application/json"), ("x-echo", PROVIDER_KEY)],
            body.as_bytes(),
        );
    });
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    for wire in ALL_WIRES {
        let answer = weir.exchange(&wire.request(&key, "hi"));
        assert_eq!(answer.status, 400, "{wire:?}");
        let head = format!("{:?}", answer.headers);
        assert_absent("the answer's head", head.as_bytes(), &[PROVIDER_KEY]);
        assert_absent("the answer's body", &answer.body, &[PROVIDER_KEY]);
    }
}

#[test]
fn metrics_admin_and_ops_are_not_reachable_on_the_public_listener() {
    let weir = Weir::start("http://127.0.0.1:9");
    let key = weir.key().text;
    for path in [
        "/metrics",
        "/readyz",
        "/livez",
        "/admin",
        "/v1/keys",
        "/keys",
        "/debug/pprof",
    ] {
        let request = Request::get(path).header("authorization", &format!("Bearer {key}"));
        assert_eq!(weir.exchange(&request).status, 404, "{path}");
    }
    assert_eq!(weir.exchange(&Wire::Messages.request("x", "hi")).status, 401);
}
