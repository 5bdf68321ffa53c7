//! What in a request is the name of something at a provider, and what only looks like one.

use super::{ask, key_of, provider};
use crate::harness::models::{DEEPSEEK_MODEL, GEMINI_MODEL, RESPONSES_MODEL};
use crate::harness::request::Wire;
use crate::harness::shapes::{assert_bad_request, assert_refusal};
use crate::harness::{Request, Weir, WeirBuilder};

/// Members of a Responses request, and the place that is named to the client.
const RESPONSES: [(&str, &str); 20] = [
    (r#""input":"hi","conversation":"conv_1""#, "conversation"),
    (r#""input":"hi","conversation":{"id":"conv_1"}"#, "conversation"),
    (r#""input":"hi","prompt":{"id":"pmpt_1","version":"2"}"#, "prompt.id"),
    (
        r#""input":"hi","prompt_cache_options":{"comparison_response_id":"resp_77"}"#,
        "comparison_response_id",
    ),
    (r#""input":[{"type":"item_reference","id":"msg_77"}]"#, "input"),
    (r#""input":[{"role":"user","content":"a"},{"id":"msg_77"}]"#, "input"),
    (r#""input":[{"type":"reasoning","id":"rs_77","summary":[]}]"#, "input"),
    (
        r#""input":[{"id":"rs_77","encrypted_content":"","type":"reasoning","summary":[]}]"#,
        "input",
    ),
    (
        r#""input":[{"type":"reasoning","id":"rs_77","summary":[{"type":"summary_text","text":"I think."}]}]"#,
        "input",
    ),
    (
        r#""store":false,"input":[{"type":"reasoning","id":"rs_77","summary":[],"content":[]}]"#,
        "input",
    ),
    (r#""input":[{"type":"image_generation_call","id":"ig_77"}]"#, "input"),
    (
        r#""input":[{"type":"message","id":"msg_77","role":"assistant"}]"#,
        "input",
    ),
    (
        r#""prompt":{"variables":{"scan":{"type":"input_file","file_id":"file-77"}}}"#,
        "file_id",
    ),
    (
        r#""input":"hi","tools":[{"type":"shell","environment":{"type":"container_reference","container_id":"cntr_77"}}]"#,
        "container",
    ),
    (
        r#""input":"hi","tools":[{"type":"mcp","server_label":"s","tunnel_id":"tunnel_77"}]"#,
        "tunnel_id",
    ),
    (
        r#""input":[{"role":"user","content":[{"type":"input_file","file_id":"file-77"}]}]"#,
        "file_id",
    ),
    (
        r#""input":[{"role":"user","content":[{"type":"input_image","f\u0069le_id":"file-77"}]}]"#,
        "file_id",
    ),
    (
        r#""input":"hi","tools":[{"type":"file_search","vector_store_ids":["vs_77"]}]"#,
        "vector_store_ids",
    ),
    (
        r#""input":"hi","tools":[{"type":"code_interpreter","container":{"type":"auto","file_ids":["file-77"]}}]"#,
        "file_id",
    ),
    (
        r#""input":"hi","tools":[{"type":"code_interpreter","container":"cntr_77"}]"#,
        "container",
    ),
];

const MESSAGES: [(&str, &str); 7] = [
    (r#""container":"container_77""#, "container"),
    (r#""container":{"id":"container_77"}"#, "container"),
    (
        r#""container":{"skills":[{"type":"custom","skill_id":"skill_77"}]}"#,
        "skill_id",
    ),
    (
        r#""thread":{"type":"continue","previous_message_id":"msg_77"}"#,
        "thread.previous_message_id",
    ),
    (
        r#""diagnostics":{"previous_message_id":"msg_77"}"#,
        "diagnostics.previous_message_id",
    ),
    (
        r#""system":"s","messages":[{"role":"user","content":[{"type":"document","source":{"type":"file","file_id":"file_77"}}]}]"#,
        "file_id",
    ),
    (
        r#""system":"s","messages":[{"role":"user","content":[{"type":"container_upload","file_id":"file_77"}]}]"#,
        "file_id",
    ),
];

const GEMINI: [(&str, &str); 6] = [
    (r#""cachedContent":"cachedContents/77""#, "cachedContent"),
    (r#""cached_content":"cachedContents/77""#, "cachedContent"),
    (
        r#""systemInstruction":{"parts":[{"fileData":{"fileUri":"https://generativelanguage.googleapis.com/v1beta/files/77"}}]}"#,
        "fileUri",
    ),
    (
        r#""systemInstruction":{"parts":[{"file_data":{"file_uri":"files/77"}}]}"#,
        "fileUri",
    ),
    (
        r#""systemInstruction":{"parts":[{"fileData":{"fileUri":"gs://bucket/77"}}]}"#,
        "fileUri",
    ),
    (
        r#""tools":[{"fileSearch":{"fileSearchStoreNames":["fileSearchStores/77"]}}]"#,
        "fileSearchStoreNames",
    ),
];

#[test]
fn whatever_names_something_at_a_provider_is_not_found_and_goes_nowhere() {
    let provider = provider();
    let weir = Weir::start(&provider.base_url());
    let key = key_of(&weir, "b");
    for (wire, cases, kind) in [
        (Wire::Responses, RESPONSES.as_slice(), "not_found"),
        (Wire::Messages, &MESSAGES, "not_found_error"),
        (Wire::Gemini, &GEMINI, "NOT_FOUND"),
    ] {
        for (members, place) in cases {
            let answer = weir.exchange(&ask(wire, &key, members));
            assert_eq!(answer.status, 404, "{members}: {}", answer.text());
            assert_refusal(wire, &answer, 404, kind);
            let error = &answer.json()["error"];
            assert!(error["message"].as_str().unwrap().contains(place), "{members}: {error}");
            if place.starts_with("thread") {
                assert_eq!(error["details"]["error_code"], "thread_not_found", "{error}");
            }
        }
    }
    // Counting tokens tells of it, too.
    let wrapped = r#""generateContentRequest":{"cachedContent":"cachedContents/77"}"#;
    for (wire, target, members) in [
        (Wire::Messages, "/v1/messages/count_tokens".to_owned(), MESSAGES[5].0),
        (
            Wire::Gemini,
            format!("/v1beta/models/{GEMINI_MODEL}:countTokens"),
            wrapped,
        ),
    ] {
        let request = Request {
            target,
            ..ask(wire, &key, members)
        };
        assert_eq!(weir.exchange(&request).status, 404, "{members}");
    }
    assert_eq!(provider.connections(), 0);
}

#[test]
fn what_only_looks_like_a_name_passes() {
    let provider = provider();
    let weir = Weir::start(&provider.base_url());
    let key = key_of(&weir, "b");
    let call = r#"{"type":"tool_use","id":"toolu_1","name":"f","input":{"file_id":"file_77","container":"c"}}"#;
    for (wire, members) in [
        (Wire::Messages, format!(r#""system":"s","messages":[{{"role":"assistant","content":[{call}]}}]"#)),
        (
            Wire::Messages,
            r#""tools":[{"name":"f","input_schema":{"properties":{"file_id":{"default":"file_77"}}},"input_examples":[{"file_id":"file_77"}]}]"#.to_owned(),
        ),
        (Wire::Messages, r#""metadata":{"user_id":"u","file_id":"file_77"}"#.to_owned()),
        (Wire::Messages, r#""container":{"skills":[{"type":"anthropic","skill_id":"pptx"}]}"#.to_owned()),
        (Wire::Messages, r#""container":null,"previous_response_id":"resp_77""#.to_owned()),
        (Wire::Responses, r#""input":"hi","metadata":{"file_id":"file-77"},"previous_response_id":null"#.to_owned()),
        (
            Wire::Responses,
            r#""input":[{"type":"reasoning","id":"rs_77","summary":[],"encrypted_content":"e"},{"type":"message","id":"msg_77","role":"assistant","content":"a"},{"type":"function_call","id":"fc_77","call_id":"c","name":"f","arguments":"{}"}]"#.to_owned(),
        ),
        (
            Wire::Responses,
            r#""input":"hi","tools":[{"type":"code_interpreter","container":{"type":"auto"}},{"type":"function","name":"f","parameters":{"const":{"vector_store_ids":["a"]}}}]"#.to_owned(),
        ),
        (
            Wire::Gemini,
            r#""systemInstruction":{"parts":[{"fileData":{"fileUri":"https://www.youtube.com/watch?v=1"}},{"functionCall":{"name":"f","args":{"fileUri":"files/77"}}}]}"#.to_owned(),
        ),
        // Maps of the user's own, whatever their members are called.
        (
            Wire::Gemini,
            r#""systemInstruction":{"parts":[{"text":"t","partMetadata":{"fileUri":"files/77"}}]},"labels":{"cachedContent":"c"}"#.to_owned(),
        ),
        (
            Wire::Responses,
            r#""input":"hi","tools":[{"type":"mcp","server_label":"s","server_url":"https://a.test","headers":{"container":"c","file_id":"file-77"}}]"#.to_owned(),
        ),
        (
            Wire::Responses,
            r#""input":[{"type":"local_shell_call","id":"lsh_77","call_id":"c","action":{"type":"exec","command":["ls"],"env":{"container":"c","file_id":"file-77"}},"status":"completed"}]"#.to_owned(),
        ),
        (
            Wire::Responses,
            r#""input":[{"type":"file_search_call","id":"fs_77","queries":["q"],"status":"completed","results":[{"attributes":{"file_id":"file-77","container_id":"c"},"text":"t"}]}]"#.to_owned(),
        ),
        (
            Wire::Responses,
            r#""input":"hi","prompt":{"variables":{"file_id":"file-77","container":"c","id":"x"}},"text":{"format":{"type":"json_schema","schema":{"container":"c"}}}"#.to_owned(),
        ),
    ] {
        let answer = weir.exchange(&ask(wire, &key, &members));
        assert_eq!(answer.status, 200, "{members}: {}", answer.text());
    }
}

#[test]
fn reasoning_with_a_text_of_its_own_is_content() {
    let provider = provider();
    let weir = Weir::start(&provider.base_url());
    let key = key_of(&weir, "b");
    let item = |members: &str| format!(r#"{{"type":"reasoning","id":"rs_77",{members}}}"#);
    let text = item(r#""summary":[],"content":[{"type":"reasoning_text","text":"I think."}]"#);
    let summary = item(r#""summary":[{"type":"summary_text","text":"I think."}]"#);
    let nothing = item(r#""summary":[]"#);
    for (model, members, status) in [
        (RESPONSES_MODEL, format!(r#""input":[{text}]"#), 200),
        (RESPONSES_MODEL, format!(r#""store":false,"input":[{text}]"#), 200),
        (RESPONSES_MODEL, format!(r#""input":[{summary}],"store":false"#), 200),
        (RESPONSES_MODEL, format!(r#""input":[{summary}]"#), 404),
        (RESPONSES_MODEL, format!(r#""input":[{summary}],"store":true"#), 404),
        (RESPONSES_MODEL, format!(r#""store":false,"input":[{nothing}]"#), 404),
        // Keeps nothing, whatever it is told.
        (DEEPSEEK_MODEL, format!(r#""input":[{summary}]"#), 200),
        (DEEPSEEK_MODEL, format!(r#""input":[{summary}],"store":true"#), 200),
        (DEEPSEEK_MODEL, format!(r#""input":[{nothing}]"#), 404),
    ] {
        let body = format!(r#"{{"model":"{model}",{members}}}"#);
        let request = Wire::Responses.request(&key, "hi").body(body.as_bytes());
        let answer = weir.exchange(&request);
        assert_eq!(answer.status, status, "{body}: {}", answer.text());
        if status == 404 {
            assert_refusal(Wire::Responses, &answer, 404, "not_found");
        } else {
            assert_eq!(provider.last().body, body.as_bytes());
        }
    }
}

#[test]
fn as_much_state_may_be_named_as_the_setting_says() {
    let provider = provider();
    for (set, references_max) in [(None, 1024), (Some(3), 3), (Some(2000), 2000)] {
        let builder = WeirBuilder::new().all_providers(&provider.base_url());
        let builder = match set {
            Some(count) => builder.set("gateway.references_max", count),
            None => builder,
        };
        let weir = builder.start();
        let key = key_of(&weir, "b");
        let items = |count: usize| vec![r#"{"type":"item_reference","id":"msg_77"}"#; count].join(",");
        let asked =
            |count: usize| weir.exchange(&ask(Wire::Responses, &key, &format!(r#""input":[{}]"#, items(count))));
        // Looked up, and not found.
        assert_eq!(asked(references_max).status, 404, "{references_max}");
        let refused = asked(references_max + 1);
        assert_bad_request(Wire::Responses, &refused);
        let said = format!("names more than {references_max} files, items and other objects");
        assert!(refused.text().contains(&said), "{}", refused.text());
    }
    assert_eq!(provider.connections(), 0);
}
