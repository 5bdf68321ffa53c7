//! What would end the exchange before its usage is known, or hide it: asked for in the body or in the query, it is refused
//! by name, and nothing reaches a provider.

use crate::harness::models::{GEMINI_MODEL, RESPONSES_MODEL};
use crate::harness::request::Wire;
use crate::harness::shapes::assert_refusal;
use crate::harness::{RecordingProvider, Request, Weir};

fn responses(key: &str, members: &str) -> Request {
    Wire::Responses
        .request(key, "hi")
        .body(format!(r#"{{"model":"{RESPONSES_MODEL}","input":"hi",{members}}}"#).as_bytes())
}

#[test]
fn an_answer_to_be_fetched_later_is_refused_and_its_place_is_named() {
    let provider = RecordingProvider::recorded();
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    for (members, place) in [
        (r#""background":true"#, "background"),
        (r#""stream":true,"background":true"#, "background"),
        (r#""b\u0061ckground":true"#, "background"),
        // Whatever a provider might take for true, and whichever of two it might take.
        (r#""background":1"#, "background"),
        (r#""background":"true""#, "background"),
        (r#""background":{}"#, "background"),
        (r#""background":true,"background":false"#, "background"),
        (r#""background":false,"background":true"#, "background"),
        (
            r#""stream":true,"stream_options":{"include_usage":false}"#,
            "stream_options.include_usage",
        ),
    ] {
        let answer = weir.exchange(&responses(&key, members));
        assert_refusal(Wire::Responses, &answer, 400, "unsupported_parameter");
        let error = &answer.json()["error"];
        assert_eq!(error["param"], place, "{members}");
        assert_eq!(error["type"], "invalid_request_error", "{members}");
        assert!(error["message"].as_str().unwrap().contains(place), "{error}");
    }
    assert_eq!(provider.connections(), 0);
    let log = weir.cli_json(&["log", "query"]);
    assert!(log.as_array().is_some_and(Vec::is_empty), "it cost something: {log}");
}

#[test]
fn what_says_no_to_the_background_passes_as_it_came() {
    let provider = RecordingProvider::recorded();
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    for members in [
        r#""background":false"#,
        r#""background":null"#,
        r#""stream_options":{"include_obfuscation":false}"#,
        r#""stream_options":{"include_usage":true}"#,
        r#""stream_options":null"#,
        r#""metadata":{"background":true,"include_usage":false}"#,
        r#""tools":[{"type":"function","name":"f","parameters":{"background":true}}]"#,
    ] {
        let request = responses(&key, members);
        assert_eq!(weir.exchange(&request).status, 200, "{members}");
        assert_eq!(provider.last().body, request.body, "{members}");
    }
    // In the other protocols the word has no meaning.
    for wire in [Wire::Messages, Wire::Gemini] {
        let mut request = wire.request(&key, "hi");
        request.body = String::from_utf8(request.body)
            .unwrap()
            .replacen('{', r#"{"background":true,"#, 1)
            .into_bytes();
        assert_eq!(weir.exchange(&request).status, 200, "{wire:?}");
    }
}

#[test]
fn of_a_gemini_query_only_alt_passes_and_what_changes_the_answer_is_refused_by_name() {
    let provider = RecordingProvider::recorded();
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    let ask = |version: &str, verb: &str, query: &str| {
        weir.exchange(&Request {
            target: format!("/{version}/models/{GEMINI_MODEL}:{verb}?{query}"),
            ..Wire::Gemini.request(&key, "hi")
        })
    };
    for version in ["v1beta", "v1"] {
        for (query, name) in [
            ("fields=candidates", "fields"),
            ("alt=sse&fields=candidates.content", "fields"),
            ("$fields=candidates", "$fields"),
            ("%24fields=candidates", "$fields"),
            ("f%69elds=candidates", "fields"),
            ("$alt=media", "$alt"),
            ("alt=sse&$alt=json", "$alt"),
            ("callback=f", "callback"),
            ("$callback=f", "$callback"),
            ("fields", "fields"),
        ] {
            for verb in ["streamGenerateContent", "countTokens"] {
                if verb == "countTokens" && query.contains("alt=sse") {
                    continue;
                }
                let answer = ask(version, verb, query);
                assert_refusal(Wire::Gemini, &answer, 400, "INVALID_ARGUMENT");
                let said = answer.text();
                assert!(said.contains(&format!("`{name}`")), "{query}: {said}");
            }
        }
    }
    assert_eq!(provider.connections(), 0);
    for (query, passed) in [
        ("alt=sse&x=1&prettyPrint=false", "?alt=sse"),
        ("uploadType=media&alt=json", "?alt=json"),
        ("$.xgafv=1&alt=sse&quotaUser=me&ALT=xml", "?alt=sse"),
        ("x=1", ""),
        ("&&", ""),
    ] {
        assert_eq!(ask("v1beta", "streamGenerateContent", query).status, 200, "{query}");
        let target = provider.last().target;
        assert!(
            target.ends_with(&format!(":streamGenerateContent{passed}")),
            "{query}: {target}"
        );
    }
}

#[test]
fn a_header_that_filters_the_answer_or_detaches_it_never_passes() {
    let provider = RecordingProvider::recorded();
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    let names = [
        "X-Goog-FieldMask",
        "x_goog_fieldmask",
        "X-HTTP-Method-Override",
        "X-DashScope-Async",
    ];
    for wire in crate::harness::request::ALL_WIRES {
        let request = names
            .iter()
            .fold(wire.request(&key, "hi"), |request, name| request.header(name, "enable"));
        assert_eq!(weir.exchange(&request).status, 200, "{wire:?}");
        let got = provider.last();
        for name in names {
            assert_eq!(got.header(&name.to_ascii_lowercase()), None, "{wire:?}: {name}");
        }
    }
}
