//! The JSON of a request: what is refused (more of it: `hostile/bodies.rs`), and that every byte of what is taken stays as the
//! client wrote it.

use crate::harness::request::{Upload, Wire};
use crate::harness::shapes::assert_bad_request;
use crate::harness::{DEEPSEEK_MODEL, MESSAGES_MODEL, RESPONSES_MODEL, RecordingProvider, Request, Weir, WeirBuilder};

fn message(key: &str, body: &[u8]) -> Request {
    Request::post("/v1/messages")
        .header("x-api-key", key)
        .header("content-type", "application/json")
        .body(body)
}

#[test]
fn what_cannot_be_one_json_request_is_400_and_reaches_no_provider() {
    let provider = RecordingProvider::least();
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    let model = format!(r#""model":"{MESSAGES_MODEL}""#);
    let deep = |depth: usize| format!(r#"{{{model},"x":{}{}}}"#, "[".repeat(depth), "]".repeat(depth));
    for (what, body) in [
        ("nothing", String::new()),
        ("white space", " \r\n\t".to_owned()),
        ("no JSON", "hello".to_owned()),
        ("an array", format!("[{{{model}}}]")),
        ("a string", format!("{:?}", model)),
        ("a byte order mark", format!("\u{feff}{{{model}}}")),
        ("a second document", format!("{{{model}}}{{}}")),
        ("trailing letters", format!("{{{model}}}x")),
        ("a trailing NUL", format!("{{{model}}}\0")),
        ("an open object", format!("{{{model}")),
        ("an open string", format!(r#"{{{model},"x":"y"#)),
        ("NaN", format!(r#"{{{model},"x":NaN}}"#)),
        ("single quotes", format!("{{'model':'{MESSAGES_MODEL}'}}")),
        ("a trailing comma", format!("{{{model},}}")),
        ("no model", r#"{"max_tokens":1,"messages":[]}"#.to_owned()),
        ("a nested model", format!(r#"{{"x":{{{model}}}}}"#)),
        ("a model that is a number", r#"{"model":4}"#.to_owned()),
        ("a model that is null", r#"{"model":null}"#.to_owned()),
        ("model twice", format!(r#"{{{model},{model}}}"#)),
        (
            "model twice with another between",
            format!(r#"{{{model},"x":1,"model":"other"}}"#),
        ),
        ("model again, escaped", format!(r#"{{{model},"\u006dodel":"other"}}"#)),
        ("an escaped model first", format!(r#"{{"mod\u0065l":"other",{model}}}"#)),
        ("depth beyond the cap", deep(300)),
        ("depth beyond any stack", deep(200_000)),
    ] {
        for upload in [Upload::Length, Upload::Chunked(11)] {
            let mut client = weir.connect();
            client.write(&message(&key, body.as_bytes()).bytes(upload));
            let answer = client.response_to("POST");
            assert_eq!(answer.status, 400, "{what}, {upload:?}: {}", answer.text());
            assert_bad_request(Wire::Messages, &answer);
        }
    }
    let answer = weir.exchange(&Wire::Responses.request(&key, "x").body(b"{"));
    assert_bad_request(Wire::Responses, &answer);
    for body in ["", "[]", "{}", r#"{"contents":[]}x"#] {
        assert_bad_request(
            Wire::Gemini,
            &weir.exchange(&Wire::Gemini.request(&key, "x").body(body.as_bytes())),
        );
    }
    for line in weir.access_lines() {
        assert_eq!(line["outcome"], "refused", "{line}");
    }
    assert_eq!(provider.connections(), 0);
    assert_eq!(
        weir.exchange(&message(&key, deep(200).as_bytes())).status,
        200,
        "a depth under the cap is fine"
    );
}

/// A cut emoji in one result of a tool would otherwise end a whole session of an agent: every later request repeats it.
#[test]
fn half_a_surrogate_pair_passes_in_a_value_and_nowhere_that_weir_reads() {
    let provider = RecordingProvider::least();
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    let cut = r#""cut \ud83d""#;
    let model = format!(r#""model":"{MESSAGES_MODEL}""#);
    let taken = [
        (
            Wire::Messages,
            format!(
                r#"{{{model},"max_tokens":9,"system":{cut},"messages":[{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"t","content":{cut}}}]}}],"metadata":{{"user_id":"\ude00"}}}}"#
            ),
        ),
        (
            Wire::Responses,
            format!(
                r#"{{"model":"{RESPONSES_MODEL}","instructions":{cut},"prompt_cache_key":{cut},"input":[{{"type":"function_call_output","call_id":"c","output":{cut}}},{{"role":"user","content":[{{"type":"input_text","text":{cut}}}]}}]}}"#
            ),
        ),
        (
            Wire::Gemini,
            format!(r#"{{"contents":[{{"role":"user","parts":[{{"text":{cut}}}]}}]}}"#),
        ),
    ];
    for (wire, body) in &taken {
        for upload in [Upload::Length, Upload::Chunked(3)] {
            let request = wire.request(&key, "").body(body.as_bytes());
            let mut client = weir.connect();
            client.write(&request.bytes(upload));
            let answer = client.response_to("POST");
            assert_eq!(answer.status, 200, "{body}: {}", answer.text());
            assert_eq!(provider.last().body, body.as_bytes());
        }
    }
    let count = provider.count();
    for (wire, body) in [
        (Wire::Messages, r#"{"model":"claude\ud83d","messages":[]}"#.to_owned()),
        (Wire::Messages, format!(r#"{{{model},"messages":[],"\ud83d":1}}"#)),
        (
            Wire::Messages,
            format!(r#"{{{model},"messages":[],"mod\ud83del":"other"}}"#),
        ),
        (
            Wire::Messages,
            format!(r#"{{{model},"messages":[],"x":{{"a\udfff":1}}}}"#),
        ),
        (
            Wire::Messages,
            format!(r#"{{{model},"messages":[],"container":"c\ud83d"}}"#),
        ),
        (
            Wire::Responses,
            format!(r#"{{"model":"{RESPONSES_MODEL}","input":"hi","previous_response_id":"resp_1\ud83d"}}"#),
        ),
        (
            Wire::Responses,
            format!(r#"{{"model":"{RESPONSES_MODEL}","input":[{{"type":"item_reference\ud83d","id":"msg_1"}}]}}"#),
        ),
        (Wire::Gemini, r#"{"contents":[],"cachedContent":"c\ud83d"}"#.to_owned()),
    ] {
        let answer = weir.exchange(&wire.request(&key, "").body(body.as_bytes()));
        assert_bad_request(wire, &answer);
        assert!(answer.text().contains("surrogate"), "{}", answer.text());
    }
    assert_eq!(provider.count(), count);
}

#[test]
fn bytes_reach_the_provider_exactly_as_they_were_sent() {
    let provider = RecordingProvider::least();
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    let messages = [
        format!("  \r\n\t{{ \"model\" :\t\"{MESSAGES_MODEL}\" , \"max_tokens\" : 1 }}  \n "),
        format!(
            r#"{{"temperature":1.000,"top_p":1E-2,"max_tokens":1e2,"big":123456789012345678901234567890,"m":-0,"model":"{MESSAGES_MODEL}"}}"#
        ),
        format!(
            r#"{{"unknown":{{"model":"nested","a":[1,2,{{"b":null}}]}},"zebra":1,"alpha":2,"model":"{MESSAGES_MODEL}"}}"#
        ),
        format!(r#"{{"twice":1,"twice":2,"model":"{MESSAGES_MODEL}","twice":3}}"#),
        format!(r#"{{"model":"{MESSAGES_MODEL}","text":"\u00e9\u2028\/ \ud83d\ude00 é 😀 \u0000"}}"#),
        format!(r#"{{"Model":"other","MODEL":"other","model ":"other","model":"{MESSAGES_MODEL}"}}"#),
    ];
    for body in messages {
        for upload in [Upload::Length, Upload::Chunked(3)] {
            let mut client = weir.connect();
            client.write(&message(&key, body.as_bytes()).bytes(upload));
            let answer = client.response_to("POST");
            assert_eq!(answer.status, 200, "{body}: {}", answer.text());
            let got = String::from_utf8(provider.last().body).unwrap();
            // With chunked transfer, white space after the value may stay behind: it is read, not needed, never sent twice.
            let (got, sent) = if upload == Upload::Length {
                (got.as_str(), body.as_str())
            } else {
                (got.trim_end(), body.trim_end())
            };
            assert_eq!(got, sent, "{upload:?}");
        }
    }
    let gemini = r#"{ "contents" : [ {"parts":[{"text":"a\u00e9"}]} ], "x": 1.0e+1, "model":"ignored", "x": 2 }"#;
    assert_eq!(
        weir.exchange(&Wire::Gemini.request(&key, "").body(gemini.as_bytes()))
            .status,
        200
    );
    assert_eq!(String::from_utf8(provider.last().body).unwrap(), gemini);
}

#[test]
fn a_declared_edit_is_spliced_into_the_original_text() {
    let provider = RecordingProvider::least();
    let mut model = toml::Table::new();
    model.insert("name".to_owned(), "house-model".into());
    model.insert("providers".to_owned(), vec!["anthropic"].into());
    model.insert("protocols".to_owned(), vec!["messages"].into());
    model.insert("upstream_name".to_owned(), "their-model".into());
    model.insert("free".to_owned(), true.into());
    let mut weir = WeirBuilder::new().provider("anthropic", &provider.base_url());
    weir = weir.set_top("model", vec![model]);
    let weir = weir.start();
    let key = weir.key().text;
    let body = "{ \"max_tokens\":1.0,\r\n \"model\" :  \"house-model\" , \"x\":[1e0, \"house-model\"], \"x\":1 }\n";
    for upload in [Upload::Length, Upload::Chunked(13)] {
        let mut client = weir.connect();
        client.write(&message(&key, body.as_bytes()).bytes(upload));
        assert_eq!(client.response_to("POST").status, 200);
        let got = String::from_utf8(provider.last().body).unwrap();
        let expected = body.replacen("\"house-model\"", "\"their-model\"", 1);
        assert_eq!(got.trim_end(), expected.trim_end(), "{upload:?}");
    }
}

#[test]
fn a_providers_shipped_edits_are_applied_and_nothing_else_changes() {
    let provider = RecordingProvider::least();
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    let body = format!(
        "{{ \"top_k\" : 5 ,\"model\":\"{DEEPSEEK_MODEL}\",\r\n\"metadata\":{{\"user_id\":\"u\"}}, \"temperature\":1.50,\"x\":{{\"top_k\":1}} }}"
    );
    let request = message(&key, body.as_bytes())
        .header("anthropic-beta", "b")
        .header("anthropic-version", "2026-10-21");
    assert_eq!(weir.exchange(&request).status, 200);
    let got = provider.last();
    let text = String::from_utf8(got.body.clone()).unwrap();
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert!(
        value.get("top_k").is_none() && value.get("metadata").is_none(),
        "{text}"
    );
    assert!(text.contains(&format!("\"model\":\"{DEEPSEEK_MODEL}\"")), "{text}");
    assert!(text.ends_with("\"temperature\":1.50,\"x\":{\"top_k\":1} }"), "{text}");
    assert_eq!(got.header_values("content-length"), [text.len().to_string()]);
    assert!(got.header("anthropic-version").is_none() && got.header("anthropic-beta").is_none());
}

#[test]
fn what_a_providers_file_refuses_never_reaches_it() {
    let provider = RecordingProvider::least();
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    let body = format!(
        r#"{{"model":"{DEEPSEEK_MODEL}","messages":[{{"role":"user","content":[{{"type":"text","text":"a"}},{{"source":{{}},"type":"document"}}]}}]}}"#
    );
    let answer = weir.exchange(&message(&key, body.as_bytes()));
    assert_eq!(answer.status, 400);
    let text = String::from_utf8(answer.body.clone()).unwrap();
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["error"]["type"], "invalid_request_error", "{text}");
    let told = value["error"]["message"].as_str().unwrap();
    assert!(
        told.contains("`document`") && told.contains("messages[0].content[1]"),
        "{told}"
    );
    assert_eq!(provider.count(), 0);
}
