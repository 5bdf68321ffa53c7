//! What a request names that lies at a provider.

mod items;
mod paths;

use super::{LIMITS, Protocol, REFERENCES_MAX, ScanError, ScanLimits};
use crate::domain::wire::json_scan::{Reference, scan};
use crate::domain::wire::provider_state::{StateId, StateKind};

use Protocol::{Gemini, Messages, Responses};

/// What is named, in the order of the text.
fn named(protocol: Protocol, body: &str) -> Vec<(StateKind, String)> {
    let scan = scan(body.as_bytes(), protocol, &LIMITS).unwrap_or_else(|error| panic!("{body}: {error}"));
    let references = scan.references.iter();
    references
        .map(|found| (found.kind, found.text(body.as_bytes()).into_owned()))
        .collect()
}

fn one(kind: StateKind, id: &str) -> Vec<(StateKind, String)> {
    vec![(kind, id.to_owned())]
}

const NAMES: [(Protocol, &str, StateKind); 33] = [
    (Responses, r#"{"previous_response_id":"x"}"#, StateKind::Response),
    (
        Responses,
        r#"{"previous_r\u0065sponse_id":"\u0078"}"#,
        StateKind::Response,
    ),
    (Responses, r#"{"conversation":"x"}"#, StateKind::Conversation),
    (Responses, r#"{"conversation":{"id":"x"}}"#, StateKind::Conversation),
    (
        Responses,
        r#"{"prompt":{"id":"x","variables":{"a":"b"}}}"#,
        StateKind::Prompt,
    ),
    (
        Responses,
        r#"{"prompt":{"variables":{"file_id":"y","any":{"type":"input_file","file_id":"x"}}}}"#,
        StateKind::File,
    ),
    (
        Responses,
        r#"{"prompt_cache_options":{"comparison_response_id":"x"}}"#,
        StateKind::ComparedResponse,
    ),
    (Responses, r#"{"tools":[{"container":"x"}]}"#, StateKind::Container),
    (
        Responses,
        r#"{"tools":[{"type":"namespace","tools":[{"container":"x"}]}]}"#,
        StateKind::Container,
    ),
    (
        Responses,
        r#"{"tools":[{"environment":{"type":"container_reference","container_id":"x"}}]}"#,
        StateKind::Container,
    ),
    (
        Responses,
        r#"{"tools":[{"environment":{"skills":[{"skill_id":"skill_x"}]}}]}"#,
        StateKind::Skill,
    ),
    (
        Responses,
        r#"{"tools":[{"container":{"file_ids":["x"]}}]}"#,
        StateKind::File,
    ),
    (
        Responses,
        r#"{"tools":[{"input_image_mask":{"file_id":"x"}}]}"#,
        StateKind::File,
    ),
    (
        Responses,
        r#"{"tools":[{"vector_store_ids":["x"]}]}"#,
        StateKind::VectorStore,
    ),
    (
        Responses,
        r#"{"tools":[{"type":"mcp","tunnel_id":"x"}]}"#,
        StateKind::Tunnel,
    ),
    (
        Responses,
        r#"{"input":[{"type":"code_interpreter_call","id":"y","container_id":"x"}]}"#,
        StateKind::Container,
    ),
    (
        Responses,
        r#"{"input":[{"type":"additional_tools","role":"developer","tools":[{"container":"x"}]}]}"#,
        StateKind::Container,
    ),
    (
        Responses,
        r#"{"input":[{"type":"computer_call_output","output":{"file_id":"x"}}]}"#,
        StateKind::File,
    ),
    (
        Responses,
        r#"{"input":[{"role":"user","content":[{"type":"not_known_yet","nested":[{"file_id":"x"}]}]}]}"#,
        StateKind::File,
    ),
    (
        Messages,
        r#"{"thread":{"type":"continue","previous_message_id":"x"}}"#,
        StateKind::Thread,
    ),
    (
        Messages,
        r#"{"diagnostics":{"previous_message_id":"x"}}"#,
        StateKind::ComparedMessage,
    ),
    (Messages, r#"{"container":"x"}"#, StateKind::Container),
    (Messages, r#"{"container":{"id":"x"}}"#, StateKind::Container),
    (
        Messages,
        r#"{"container":{"skills":[{"skill_id":"skill_x"}]}}"#,
        StateKind::Skill,
    ),
    (
        Messages,
        r#"{"messages":[{"content":[{"source":{"file_id":"x"}}]}]}"#,
        StateKind::File,
    ),
    (
        Messages,
        r#"{"messages":[{"content":[{"content":[{"source":{"content":[{"source":{"file_id":"x"}}]}}]}]}]}"#,
        StateKind::File,
    ),
    (Gemini, r#"{"cachedContent":"x"}"#, StateKind::CachedContent),
    (
        Gemini,
        r#"{"generateContentRequest":{"cached_content":"x"}}"#,
        StateKind::CachedContent,
    ),
    (
        Gemini,
        r#"{"contents":[{"parts":[{"fileData":{"fileUri":"files/x"}}]}]}"#,
        StateKind::FileUri,
    ),
    (
        Gemini,
        r#"{"system_instruction":{"parts":{"file_data":{"file_uri":"files/x"}}}}"#,
        StateKind::FileUri,
    ),
    (
        Gemini,
        r#"{"contents":[{"parts":[{"functionResponse":{"response":{"fileUri":"y"},"parts":[{"file_data":{"file_uri":"files/x"}}]}}]}]}"#,
        StateKind::FileUri,
    ),
    (
        Gemini,
        r#"{"tools":[{"fileSearch":{"fileSearchStoreNames":["x"]}}]}"#,
        StateKind::FileSearchStore,
    ),
    (
        Gemini,
        r#"{"generate_content_request":{"tools":{"file_search":{"file_search_store_names":"x"}}}}"#,
        StateKind::FileSearchStore,
    ),
];

#[test]
fn each_name_is_found_where_it_stands() {
    for (protocol, body, kind) in NAMES {
        let id = match kind {
            StateKind::Skill => "skill_x",
            StateKind::FileUri => "files/x",
            _ => "x",
        };
        assert_eq!(named(protocol, body), one(kind, id), "{body}");
    }
    let two = r#"{"previous_response_id":"a","previous_response_id":"b"}"#;
    let ids: Vec<String> = named(Responses, two).into_iter().map(|(_, id)| id).collect();
    assert_eq!(ids, ["a", "b"], "both count, whichever a provider takes");
}

#[test]
fn a_reference_is_read_out_of_the_body() {
    let body = br#"{"a":"resp_1","b":"r\u0065sp"}"#;
    let reference = |at| Reference {
        kind: StateKind::Response,
        id: StateId::new(""),
        at,
    };
    assert_eq!(reference(5..13).text(body), "resp_1");
    assert_eq!(reference(18..29).text(body), "resp");
    assert_eq!(reference(500..600).text(body), "");
}

#[test]
fn what_is_no_name_is_none() {
    for (protocol, body) in [
        (
            Responses,
            r#"{"previous_response_id":null,"conversation":{},"prompt":null}"#,
        ),
        (Responses, r#"{"a":{"previous_response_id":"x","prompt":{"id":"x"}}}"#),
        (
            Responses,
            r#"{"metadata":{"file_id":"x","container":"x"},"container":"x"}"#,
        ),
        (
            Responses,
            r#"{"tools":[{"file_ids":[]},"x",{"container":{"type":"auto"}}],"a":["x"]}"#,
        ),
        (Responses, r#"{"file_id":"x","input":"x","id":"x"}"#),
        (Responses, r#"{"input":["x",["x"]]}"#),
        (
            Responses,
            r#"{"tools":[{"type":"mcp","headers":{"container":"x","file_id":"x"}}]}"#,
        ),
        (Responses, r#"{"tools":[{"type":"computer","environment":"browser"}]}"#),
        (
            Responses,
            r#"{"input":[{"type":"local_shell_call","id":"y","action":{"env":{"container":"x","file_id":"x","container_id":"x"}}}]}"#,
        ),
        (
            Responses,
            r#"{"input":[{"type":"file_search_call","id":"y","results":[{"attributes":{"file_id":"x"}}]}]}"#,
        ),
        (
            Responses,
            r#"{"prompt":{"variables":{"file_id":"x","id":"x","container":"x"}}}"#,
        ),
        (Messages, r#"{"container":"","previous_response_id":"x"}"#),
        (Messages, r#"{"metadata":{"file_id":"x"},"labels":{"container":"x"}}"#),
        (
            Messages,
            r#"{"messages":[{"content":[{"type":"tool_use","id":"t","input":{"file_id":"x","a":[{"container":"x"}]}}]}]}"#,
        ),
        (
            Messages,
            r#"{"tools":[{"input_schema":{"file_id":{"default":"x"}},"input_examples":[{"file_id":"x"}]}]}"#,
        ),
        (
            Messages,
            r#"{"container":{"skills":[{"type":"anthropic","skill_id":"pptx"}]}}"#,
        ),
        (Messages, r#"{"messages":[{"file_ids":null},["x"]],"file_id":"x"}"#),
        (Gemini, r#"{"a":{"cachedContent":"x"},"labels":{"cachedContent":"x"}}"#),
        (
            Gemini,
            r#"{"contents":[{"parts":[{"functionCall":{"args":{"fileUri":"files/x"}}},{"partMetadata":{"fileUri":"files/x"}}]}]}"#,
        ),
        (
            Gemini,
            r#"{"contents":[{"parts":[{"fileData":{"fileUri":"https://example.com/x"}}]}]}"#,
        ),
        (
            Gemini,
            r#"{"tools":[{"functionDeclarations":[{"parameters":{"fileSearchStoreNames":["x"]}}]}]}"#,
        ),
    ] {
        assert_eq!(named(protocol, body), [], "{body}");
    }
    // What stands behind the user's own data counts again.
    let behind = r#"{"messages":[{"content":[{"input":{"file_id":"y"}},{"file_id":"x"}]}]}"#;
    assert_eq!(named(Messages, behind), one(StateKind::File, "x"));
}

#[test]
fn an_identifier_that_no_text_can_hold_is_refused_and_other_values_are_not() {
    for (protocol, body) in [
        (Responses, r#"{"previous_response_id":"resp_\ud800"}"#),
        (Responses, r#"{"conversation":{"id":"\udc00conv"}}"#),
        (Responses, r#"{"input":[{"type":"item_reference\ud800","id":"x"}]}"#),
        (Responses, r#"{"input":[{"id":"x\ud83d"}]}"#),
        (Responses, r#"{"input":[{"role":"user\ud83d"}]}"#),
        (Responses, r#"{"tools":[{"container":{"file_ids":["x","\ud800"]}}]}"#),
        (Messages, r#"{"container":"\ud800"}"#),
        (
            Gemini,
            r#"{"contents":[{"parts":[{"fileData":{"fileUri":"files/\ud800"}}]}]}"#,
        ),
    ] {
        let error = scan(body.as_bytes(), protocol, &LIMITS).unwrap_err();
        let at = body.find("\\u").unwrap();
        let said = format!(
            "the body is not valid JSON at byte {at}: a name or an identifier contains only half of an escaped surrogate pair"
        );
        assert_eq!(error.to_string(), said, "{body}");
    }
    for (protocol, body) in [
        (Responses, r#"{"input":"cut \ud83d","instructions":"\ude00"}"#),
        (
            Responses,
            r#"{"input":[{"role":"user","content":[{"type":"input_text","text":"\ud83d"}]},{"type":"function_call_output","call_id":"c","output":"\ud83d"}]}"#,
        ),
        (
            Messages,
            r#"{"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"cut \ud83d"}]}],"metadata":{"user_id":"\ud83d"}}"#,
        ),
        (Gemini, r#"{"contents":[{"parts":[{"text":"\ud83d"}]}]}"#),
    ] {
        assert_eq!(named(protocol, body), [], "{body}");
    }
}

#[test]
fn names_are_counted_to_their_limit() {
    let files = |count: usize| {
        let ids: Vec<String> = (0..count).map(|number| format!("\"f{number}\"")).collect();
        format!(r#"{{"tools":[{{"container":{{"file_ids":[{}]}}}}]}}"#, ids.join(","))
    };
    let items = |count: usize| format!(r#"{{"input":[{}]}}"#, vec![r#"{"id":"x"}"#; count].join(","));
    for references_max in [1, 2, REFERENCES_MAX, 5000] {
        let limits = ScanLimits {
            references_max,
            ..LIMITS
        };
        for body in [files(references_max), items(references_max)] {
            let scan = scan(body.as_bytes(), Responses, &limits).unwrap();
            assert_eq!(scan.references.len(), references_max);
        }
        for body in [files(references_max + 1), items(references_max + 1)] {
            let error = scan(body.as_bytes(), Responses, &limits).unwrap_err();
            let at = body.rfind(r#""x"}]"#).or_else(|| body.rfind("\"f")).unwrap();
            assert_eq!(error, ScanError::TooManyReferences { at, references_max });
        }
    }
    // An item with content of its own takes no place.
    let limits = ScanLimits {
        references_max: 1,
        ..LIMITS
    };
    let message = r#"{"type":"message","id":"m","role":"assistant","content":"a"}"#;
    let body = format!(r#"{{"input":[{{"id":"x"}},{message},{message}]}}"#);
    assert_eq!(scan(body.as_bytes(), Responses, &limits).unwrap().references.len(), 1);
}
