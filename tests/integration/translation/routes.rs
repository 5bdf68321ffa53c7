//! Which provider serves a translated model, who is told of it, and what stays as it is for models without `translate`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value as Json;

use super::chat_answers::ChatTurn;
use super::chat_provider::{chat_provider, check_head, refuse};
use super::conversation::text;
use super::stage::{MODEL, Stage, TRANSLATION, UPSTREAM_MODEL, Upstream, question};
use super::streams::folded;
use crate::harness::recordings::{events, unary, whole_stream};
use crate::harness::request::{ALL_WIRES, Wire};
use crate::harness::shapes::assert_refusal;
use crate::harness::{RecordingProvider, Request};

const HELLO: ChatTurn = ChatTurn {
    reasoning: &[],
    text: &["Hello from elsewhere"],
    calls: &[],
};

/// A model of weir.toml with these lines.
fn model(text: &str) -> toml::Value {
    let table: toml::Table = toml::from_str(text).unwrap();
    table.into()
}

fn json(body: &[u8]) -> Json {
    serde_json::from_slice(body).unwrap()
}

/// A provider of Messages that answers in one piece, or with 503 while it is broken.
fn messages_provider(is_broken: &Arc<AtomicBool>) -> RecordingProvider {
    let is_broken = Arc::clone(is_broken);
    RecordingProvider::start(move |_, answer| {
        let headers = [("content-type", "application/json")];
        match is_broken.load(Ordering::SeqCst) {
            true => answer.full(
                503,
                &headers,
                br#"{"type":"error","error":{"type":"api_error","message":"m"}}"#,
            ),
            false => answer.json(unary(Wire::Messages)),
        }
    })
}

#[test]
fn a_provider_of_the_clients_own_protocol_comes_first_and_a_translated_one_takes_over() {
    let is_broken = Arc::new(AtomicBool::new(false));
    let own = messages_provider(&is_broken);
    let other = chat_provider(|body, answer| HELLO.answer(body, answer));
    let files = [
        ("own", Upstream::Of(Wire::Messages).file("own", &own.base_url())),
        ("other", Upstream::Chat.file("other", &other.base_url())),
    ];
    let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (*name, text.as_str())).collect();
    // The operator prefers the one that has to be translated to.
    let listed = model(&format!(
        "name = \"{MODEL}\"\nproviders = [\"other\", \"own\"]\nupstream_names = {{ other = \"{UPSTREAM_MODEL}\" }}\ntranslate = \"strict\"\n"
    ));
    let stage = Stage::with(&files, vec![listed]);

    let request = stage.request(Wire::Messages, false, &question(Wire::Messages, "hi"));
    let answer = stage.weir.exchange(&request);
    assert_eq!((answer.status, &*answer.text()), (200, unary(Wire::Messages)));
    assert_eq!(answer.header(TRANSLATION), None);
    let got = own.last();
    assert_eq!(
        got.body, request.body,
        "a provider of the client's protocol gets its bytes"
    );
    assert_eq!(got.header("anthropic-version"), Some("2023-06-01"));
    assert_eq!(other.count(), 0);
    let line = stage.line(&answer);
    assert_eq!(
        (&line["provider"], line.get("translated")),
        (&"own".into(), None),
        "{line}"
    );

    is_broken.store(true, Ordering::SeqCst);
    let answer = stage.weir.exchange(&request);
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(text(Wire::Messages, &answer.json()), "Hello from elsewhere");
    assert_eq!(answer.header(TRANSLATION), Some("from=messages, to=chat"));
    assert_eq!((own.count(), other.count()), (2, 1));
    let line = stage.line(&answer);
    assert_eq!(
        (&line["provider"], &line["translated"], &line["attempts"]),
        (&"other".into(), &"messages->chat".into(), &2.into()),
        "{line}"
    );
    assert_eq!(stage.row(&answer)["provider"], "other");
    // The first attempt, at a provider that failed, costs nothing.
    stage.weir.books(2);
}

#[test]
fn each_attempt_is_translated_for_its_own_provider() {
    let broken = RecordingProvider::start(|request, answer| {
        if let Err(fault) = check_head(request) {
            return refuse(&fault, answer);
        }
        answer.full(503, &[("content-type", "application/json")], b"{}");
    });
    let other = chat_provider(|body, answer| HELLO.answer(body, answer));
    let files = [
        ("first", Upstream::Of(Wire::Messages).file("first", &broken.base_url())),
        ("second", Upstream::Chat.file("second", &other.base_url())),
    ];
    let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (*name, text.as_str())).collect();
    let listed = model(&format!(
        "name = \"{MODEL}\"\nproviders = [\"first\", \"second\"]\nupstream_name = \"{UPSTREAM_MODEL}\"\ntranslate = \"strict\"\n"
    ));
    let stage = Stage::with(&files, vec![listed]);
    for wire in [Wire::Responses, Wire::Gemini] {
        let answer = stage.ask(wire, true, &question(wire, "hi"));
        assert_eq!(answer.status, 200, "{wire:?}: {}", answer.text());
        assert_eq!(text(wire, &folded(wire, &answer.text())), "Hello from elsewhere");
        let (first, second) = (json(&broken.last().body), json(&other.last().body));
        assert_eq!(
            (&first["model"], &second["model"]),
            (&UPSTREAM_MODEL.into(), &UPSTREAM_MODEL.into())
        );
        assert!(
            first["max_tokens"].is_u64() && second.get("max_tokens").is_none(),
            "{first} {second}"
        );
        assert_eq!(stage.line(&answer)["attempts"], 2);
    }
}

/// A model that is translated, one that is only served in its provider's protocol, and one that the operator limits to Messages.
fn three_models() -> (RecordingProvider, RecordingProvider, Stage) {
    let own = messages_provider(&Arc::new(AtomicBool::new(false)));
    let other = chat_provider(|body, answer| HELLO.answer(body, answer));
    let files = [
        ("own", Upstream::Of(Wire::Messages).file("own", &own.base_url())),
        ("other", Upstream::Chat.file("other", &other.base_url())),
    ];
    let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (*name, text.as_str())).collect();
    let models = [
        format!(
            "name = \"{MODEL}\"\nproviders = [\"other\"]\nupstream_name = \"{UPSTREAM_MODEL}\"\ntranslate = \"strict\"\n"
        ),
        "name = \"plain\"\nproviders = [\"own\"]\nfree = true\n".to_owned(),
        format!(
            "name = \"narrow\"\nproviders = [\"other\"]\nupstream_name = \"{UPSTREAM_MODEL}\"\ntranslate = \"lossy\"\nprotocols = [\"messages\"]\nfree = true\n"
        ),
    ];
    let models = models.iter().map(|text| model(text)).collect();
    (own, other, Stage::with(&files, models))
}

#[test]
fn a_model_is_listed_in_the_protocols_that_it_is_served_in() {
    let (_own, _other, stage) = three_models();
    let names = |target: &str, wire: Wire, list: &str, member: &str| -> Vec<String> {
        let (name, value) = wire.key_header(&stage.key);
        let mut request = Request::get(target).header(name, &value);
        if wire == Wire::Messages {
            request = request.header("anthropic-version", "2023-06-01");
        }
        let answer = stage.weir.exchange(&request);
        assert_eq!(answer.status, 200, "{}", answer.text());
        let body = answer.json();
        let entries = body[list].as_array().unwrap().iter();
        entries
            .map(|entry| entry[member].as_str().unwrap().to_owned())
            .collect()
    };
    let all = [MODEL, "narrow", "plain"];
    assert_eq!(names("/v1/models", Wire::Messages, "data", "id"), all);
    assert_eq!(
        names("/v1/models", Wire::Responses, "data", "id"),
        all,
        "this form lists all models"
    );
    let served = format!("models/{MODEL}");
    assert_eq!(names("/v1beta/models", Wire::Gemini, "models", "name"), [served]);
    let shown = stage.weir.cli_json(&["models"]);
    let protocols = |name: &str| {
        let models = shown.as_array().unwrap();
        let model = models.iter().find(|model| model["name"] == name).unwrap();
        model["protocols"].clone()
    };
    assert_eq!(protocols(MODEL), serde_json::json!(["messages", "responses", "gemini"]));
    assert_eq!(protocols("plain"), serde_json::json!(["messages"]));
    assert_eq!(protocols("narrow"), serde_json::json!(["messages"]));
}

#[test]
fn a_model_without_translation_is_not_found_in_other_protocols() {
    let (own, other, stage) = three_models();
    for name in ["plain", "narrow"] {
        for (wire, kind) in [(Wire::Responses, "model_not_found"), (Wire::Gemini, "NOT_FOUND")] {
            for request in [
                wire.request_for(name, &stage.key, "hi"),
                wire.streaming_for(name, &stage.key, "hi"),
            ] {
                assert_refusal(wire, &stage.weir.exchange(&request), 404, kind);
            }
        }
    }
    assert_eq!((own.connections(), other.connections()), (0, 0));
    // In its own protocol it is served as ever.
    let answer = stage
        .weir
        .exchange(&Wire::Messages.request_for("plain", &stage.key, "hi"));
    assert_eq!((answer.status, &*answer.text()), (200, unary(Wire::Messages)));
    assert_eq!(answer.header(TRANSLATION), None);
    let answer = stage
        .weir
        .exchange(&Wire::Messages.request_for("narrow", &stage.key, "hi"));
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.header(TRANSLATION), Some("from=messages, to=chat"));
}

#[test]
fn the_tokens_of_a_translated_model_cannot_be_counted() {
    let (own, other, stage) = three_models();
    let counts = [
        (
            Wire::Messages,
            "/v1/messages/count_tokens?beta=true".to_owned(),
            "not_found_error",
        ),
        (Wire::Gemini, format!("/v1beta/models/{MODEL}:countTokens"), "NOT_FOUND"),
    ];
    for (wire, target, kind) in counts {
        let request = Request {
            target,
            ..stage.request(wire, false, &question(wire, "hi"))
        };
        let answer = stage.weir.exchange(&request);
        assert_refusal(wire, &answer, 404, kind);
        let line = stage.line(&answer);
        assert_eq!(line["refusal"], "count_tokens_unsupported", "{line}");
    }
    assert_eq!((own.connections(), other.connections()), (0, 0));
}

#[test]
fn a_provider_of_the_clients_own_protocol_is_never_translated_although_the_model_allows_it() {
    for wire in ALL_WIRES {
        let provider = RecordingProvider::start(move |_, answer| {
            answer.sse();
            events(wire).iter().for_each(|event| answer.chunk(event));
            answer.end();
        });
        let stage = Stage::start(Upstream::Of(wire), &provider.base_url(), "strict");
        let answer = stage.ask(wire, true, &question(wire, "hi"));
        assert_eq!((answer.status, answer.text()), (200, whole_stream(wire)));
        assert_eq!(answer.header(TRANSLATION), None, "{wire:?}");
        let body = provider.last().body;
        // As far as the client's bytes are concerned, only the model's name is another.
        let expected = stage.request(wire, true, &question(wire, "hi")).body;
        let expected = String::from_utf8(expected).unwrap().replace(MODEL, UPSTREAM_MODEL);
        assert_eq!(String::from_utf8(body).unwrap(), expected, "{wire:?}");
    }
}
