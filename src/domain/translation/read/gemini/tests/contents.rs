//! Instructions, texts, reasoning, calls, results and media.

use base64::{Engine, engine::general_purpose::STANDARD};

use super::*;
use crate::domain::translation::reasoning::ReasoningState;

/// The signature that a client gets for a state, as the writer of answers encodes it.
fn signature(state: &ReasoningState<'_>, maker: &ReasoningMaker) -> String {
    STANDARD.encode(state.wrap(maker, "").unwrap())
}

fn thought(text: &str) -> ReasoningState<'_> {
    ReasoningState::Text { text: text.into() }
}

#[test]
fn instructions_are_texts_in_both_spellings_and_forms() {
    for (members, expected) in [
        (
            r#""systemInstruction":{"role":"user","parts":[{"text":"a"},{"text":""},{"text":"b"}]}"#,
            vec!["a", "b"],
        ),
        (r#""system_instruction":{"parts":{"text":"a"}}"#, vec!["a"]),
        (r#""systemInstruction":"a""#, vec!["a"]),
        (r#""systemInstruction":{}"#, vec![]),
    ] {
        let body = with_members(members);
        let reading = strict(&body).unwrap();
        assert_eq!(reading.conversation.system, expected, "{members}");
        assert!(reading.losses().is_empty(), "{members}");
    }
    for (members, path) in [
        (
            r#""systemInstruction":{"parts":[{"inlineData":{"mimeType":"image/png","data":""}}]}"#,
            "systemInstruction.parts[0]",
        ),
        (
            r#""systemInstruction":{"parts":[{"text":"a","new":1}]}"#,
            "systemInstruction.parts[0].new",
        ),
        (r#""system_instruction":{"new":1}"#, "system_instruction.new"),
        (r#""systemInstruction":1"#, "systemInstruction"),
    ] {
        assert_eq!(refused_path(lossy(&with_members(members))), path);
    }
}

#[test]
fn roles_are_the_user_s_and_the_model_s() {
    let body = with_contents(
        r#"{"parts":[{"text":"a"}]},{"role":"","parts":[{"text":"b"}]},{"role":"model","parts":[{"text":"c"}]},
        {"role":"model"},{"role":"user","parts":[{"text":""},{"text":"d"},{}]}"#,
    );
    let reading = strict(&body).unwrap();
    assert_eq!(reading.blocks(), ["User: a", "User: b", "Assistant: c", "User: d"]);
    assert_eq!(reading.conversation.turns[2].blocks[0].path, "contents[4].parts[1]");
    for (contents, path) in [
        (r#"{"role":"system","parts":[]}"#, "contents[0].role"),
        (r#"{"parts":[{"text":"a","new":{"x":1}}]}"#, "contents[0].parts[0].new"),
        (
            r#"{"parts":[{"audioTranscription":{"text":"a"}}]}"#,
            "contents[0].parts[0].audioTranscription",
        ),
        (r#"{"parts":[],"new":1}"#, "contents[0].new"),
        (r#"{"parts":"a"}"#, "contents[0].parts"),
        (r#"{"parts":[{"text":1}]}"#, "contents[0].parts[0].text"),
    ] {
        assert_eq!(refused_path(lossy(&with_contents(contents))), path);
    }
    assert_eq!(refused_path(lossy("{}")), "contents");
    assert_eq!(refused_path(lossy("[]")), "");
}

#[test]
fn the_pieces_of_a_stream_become_one_text() {
    let body = with_contents(
        r#"{"parts":[{"text":"say"},{"text":"it"}]},{"role":"model","parts":[{"text":"Hel"},{"text":"lo"}]},
        {"role":"model","parts":[{"text":" wor"}]},{"role":"model","parts":[{"text":"ld"},{"text":""}]}"#,
    );
    assert_eq!(
        strict(&body).unwrap().blocks(),
        ["User: say", "User: it", "Assistant: Hello world"]
    );
}

#[test]
fn options_of_a_part_are_dropped() {
    for name in [
        "videoMetadata",
        "mediaResolution",
        "mediaProcessing",
        "audioMetadata",
        "documentMetadata",
        "spreadsheetMetadata",
        "speechMetadata",
        "partMetadata",
    ] {
        let body = with_contents(&format!(r#"{{"parts":[{{"text":"a","{name}":{{"x":1}}}}]}}"#));
        let reading = strict(&body).unwrap();
        assert_eq!(reading.losses(), [format!("dropped contents[0].parts[0].{name}")]);
    }
    let body = with_contents(r#"{"parts":[{"text":"a","video_metadata":{"fps":1},"thought":true}]}"#);
    let reading = strict(&body).unwrap();
    assert_eq!(reading.blocks(), ["User: a"]);
    assert_eq!(
        reading.losses(),
        [
            "dropped contents[0].parts[0].thought",
            "dropped contents[0].parts[0].video_metadata"
        ]
    );
}

#[test]
fn reasoning_of_the_same_maker_returns_before_its_part() {
    let first = signature(&thought("first"), &maker());
    let last = signature(&thought("last"), &maker());
    let url_safe = first.replace('+', "-").replace('/', "_").replace('=', "");
    let body = with_contents(&format!(
        r#"{{"role":"model","parts":[{{"text":"fir","thought":true}}]}},
        {{"role":"model","parts":[{{"text":"st","thought":true}},{{"text":"I look.","thought_signature":"{url_safe}"}},
         {{"functionCall":{{"name":"f"}},"thoughtSignature":"{last}"}}]}}"#
    ));
    let reading = strict(&body).unwrap();
    assert_eq!(
        reading.blocks(),
        [
            format!("Assistant: {:?}", thought("first")),
            "Assistant: I look.".to_owned(),
            format!("Assistant: {:?}", thought("last")),
            "Assistant: call call_0_0 f {}".to_owned(),
        ]
    );
    assert!(reading.losses().is_empty(), "{:?}", reading.losses());
    let path = &reading.conversation.turns[0].blocks[0].path;
    assert_eq!(path, "contents[1].parts[1].thought_signature");
}

#[test]
fn a_state_may_stand_on_an_empty_text_or_leave_its_text_to_the_thought() {
    let empty = signature(&thought("why"), &maker());
    let visible = thought("seen").wrap(&maker(), "seen").unwrap();
    let body = with_contents(&format!(
        r#"{{"role":"model","parts":[{{"text":"","thoughtSignature":"{empty}"}},
        {{"text":"seen","thought":true,"thoughtSignature":"{visible}"}}]}}"#
    ));
    let reading = strict(&body).unwrap();
    assert_eq!(
        reading.blocks(),
        [
            format!("Assistant: {:?}", thought("why")),
            format!("Assistant: {:?}", thought("seen"))
        ]
    );
    assert!(reading.losses().is_empty());
    // The client has not returned the text.
    let body = with_contents(&format!(
        r#"{{"role":"model","parts":[{{"text":"a","thoughtSignature":"{visible}"}}]}}"#
    ));
    let reading = strict(&body).unwrap();
    assert_eq!(reading.blocks(), ["Assistant: a"]);
    assert_eq!(reading.losses(), ["dropped contents[0].parts[0].thoughtSignature"]);
}

#[test]
fn foreign_reasoning_is_dropped_and_reported() {
    let other = signature(&thought("why"), &ReasoningMaker::new("groq", "gpt-oss-120b", "b"));
    let body = with_contents(&format!(
        r#"{{"role":"model","parts":[{{"text":"hm","thought":true}},{{"text":"a","thoughtSignature":"Q2tNQg=="}},
        {{"functionCall":{{"name":"f"}},"thoughtSignature":"{other}"}},{{"text":"so","thought":true}}]}},
        {{"parts":[{{"text":"b","thoughtSignature":"x"}}]}}"#
    ));
    let reading = strict(&body).unwrap();
    assert_eq!(
        reading.blocks(),
        ["Assistant: a", "Assistant: call call_0_0 f {}", "User: b"]
    );
    assert_eq!(
        reading.losses(),
        [
            "dropped contents[0].parts[1].thoughtSignature",
            "dropped contents[0].parts[0]",
            "dropped contents[0].parts[2].thoughtSignature",
            "dropped contents[0].parts[3]",
            "dropped contents[1].parts[0].thoughtSignature",
        ]
    );
    // Nothing has to follow it.
    let body = with_contents(r#"{"role":"model","parts":[{"text":"hm","thought":true}]}"#);
    assert_eq!(strict(&body).unwrap().losses(), ["dropped contents[0].parts[0]"]);
}

#[test]
fn placeholders_of_signatures_are_no_loss() {
    for placeholder in [
        "skip_thought_signature_validator",
        "context_engineering_is_the_way_to_go",
    ] {
        let padded = STANDARD.encode(placeholder);
        for field in [placeholder, padded.as_str(), padded.trim_end_matches('='), ""] {
            let part = format!(r#"{{"functionCall":{{"name":"f"}},"thoughtSignature":"{field}"}}"#);
            let body = with_contents(&format!(r#"{{"role":"model","parts":[{part}]}}"#));
            let reading = strict(&body).unwrap();
            assert_eq!(reading.blocks(), ["Assistant: call call_0_0 f {}"], "{field}");
            assert!(reading.losses().is_empty(), "{field}");
        }
    }
}

#[test]
fn calls_without_ids_get_them_by_position_and_results_belong_to_them_by_name_and_order() {
    let body = with_contents(
        r#"{"parts":[{"text":"go"}]},
        {"role":"model","parts":[{"text":"t","thought":true},{"functionCall":{"name":"f","args":{"n": 1}}},
         {"function_call":{"name":"a b"}},{"functionCall":{"name":"f","args":null}}]},
        {"role":"function","parts":[{"functionResponse":{"name":"f","response":{"output":"1"}}},
         {"functionResponse":{"id":"f_1_made_up","name":"a b","response":{"output":"2"}}},
         {"functionResponse":{"name":"f","response":{"output":"3"}}}]},
        {"role":"model","parts":[{"functionCall":{"name":"f"}}]},
        {"role":"user","parts":[{"functionResponse":{"name":"f"}}]}"#,
    );
    let other = provider_name(None, "a b");
    let expected = [
        "User: go".to_owned(),
        r#"Assistant: call call_1_0 f {"n": 1}"#.to_owned(),
        format!("Assistant: call call_1_1 {other} {{}}"),
        "Assistant: call call_1_2 f {}".to_owned(),
        r#"User: result call_1_0 f ["1"]"#.to_owned(),
        format!(r#"User: result call_1_1 {other} ["2"]"#),
        r#"User: result call_1_2 f ["3"]"#.to_owned(),
        "Assistant: call call_3_0 f {}".to_owned(),
        "User: result call_3_0 f []".to_owned(),
    ];
    assert_eq!(strict(&body).unwrap().blocks(), expected);
    let short = read_for(&body, TranslationMode::Strict, CallIdForm::NineAlphanumeric).unwrap();
    let ids: Vec<String> = short
        .blocks()
        .iter()
        .filter_map(|line| line.split(' ').nth(2).map(str::to_owned))
        .collect();
    assert!(ids.iter().all(|id| id.len() == 9), "{ids:?}");
    assert_eq!((&ids[0], &ids[1], &ids[2]), (&ids[3], &ids[4], &ids[5]));
}

#[test]
fn results_belong_to_calls_by_id_in_any_order() {
    let body = with_contents(
        r#"{"role":"model","parts":[{"functionCall":{"name":"f","id":"c1"}},{"functionCall":{"name":"f","id":"c2"}}]},
        {"parts":[{"functionResponse":{"id":"c2","name":"f"}},{"functionResponse":{"id":"c1"}}]},
        {"role":"model","parts":[{"functionCall":{"name":"g","id":"c1"}}]},
        {"parts":[{"functionResponse":{"id":"c1","name":"g"}}]}"#,
    );
    assert_eq!(
        strict(&body).unwrap().blocks(),
        [
            "Assistant: call c1 f {}",
            "Assistant: call c2 f {}",
            "User: result c2 f []",
            "User: result c1 f []",
            "Assistant: call c1 g {}",
            "User: result c1 g []",
        ]
    );
}

#[test]
fn a_result_that_the_client_repeats_is_left_out() {
    let results: Vec<String> = ["c1", "c2", "c1", "c2"]
        .iter()
        .map(|id| format!(r#"{{"functionResponse":{{"id":"{id}","name":"f","response":{{"output":"of {id}"}}}}}}"#))
        .collect();
    let body = with_contents(&format!(
        r#"{{"role":"model","parts":[{{"functionCall":{{"name":"f","id":"c1"}}}},
        {{"functionCall":{{"name":"f","id":"c2"}}}}]}},{{"parts":[{}]}}"#,
        results.join(",")
    ));
    let reading = strict(&body).unwrap();
    assert_eq!(
        reading.blocks(),
        [
            "Assistant: call c1 f {}",
            "Assistant: call c2 f {}",
            r#"User: result c1 f ["of c1"]"#,
            r#"User: result c2 f ["of c2"]"#,
        ]
    );
    assert_eq!(
        reading.losses(),
        ["dropped contents[1].parts[2]", "dropped contents[1].parts[3]"]
    );
}

#[test]
fn a_result_without_a_call_is_refused() {
    let call = r#"{"role":"model","parts":[{"functionCall":{"name":"f","id":"c1"}},{"functionCall":{"name":"g"}}]}"#;
    for results in [
        r#"{"functionResponse":{"name":"h"}}"#,
        r#"{"functionResponse":{"id":"c9","name":"f"}}"#,
        r#"{"functionResponse":{"response":{"output":"x"}}}"#,
        r#"{"functionResponse":{"id":"c9"}}"#,
    ] {
        let body = with_contents(&format!(r#"{call},{{"parts":[{results}]}}"#));
        assert_eq!(refused_path(lossy(&body)), "contents[1].parts[0].functionResponse");
    }
    for (first, second) in [
        (
            r#"{"functionResponse":{"id":"c1","response":{"output":"a"}}}"#,
            r#"{"function_response":{"id":"c1","response":{"output":"b"}}}"#,
        ),
        (
            r#"{"functionResponse":{"id":"c1"}}"#,
            r#"{"function_response":{"id":"c1","parts":[{"inlineData":{"mimeType":"image/png","data":"eA=="}}]}}"#,
        ),
        (
            r#"{"function_response":{"name":"g"}}"#,
            r#"{"function_response":{"name":"g"}}"#,
        ),
    ] {
        let body = with_contents(&format!(r#"{call},{{"parts":[{first},{second}]}}"#));
        assert_eq!(refused_path(lossy(&body)), "contents[1].parts[1].function_response");
    }
    // A call of an earlier turn does not wait for a result by name.
    let body = with_contents(&format!(
        r#"{call},{{"parts":[{{"text":"no"}}]}},{{"role":"model","parts":[{{"functionCall":{{"name":"f"}}}}]}},
        {{"parts":[{{"functionResponse":{{"name":"g"}}}}]}}"#
    ));
    assert_eq!(refused_path(lossy(&body)), "contents[3].parts[0].functionResponse");
}

#[test]
fn responses_become_the_text_that_the_tool_gave() {
    for (response, expected) in [
        (r#"{"output":"a\nb"}"#, r#" ["a\nb"]"#),
        (r#"{"result":"a"}"#, r#" ["a"]"#),
        (r#"{"result": {"x": 1.0}}"#, r#" ["{\"x\": 1.0}"]"#),
        (r#"{"error":"bad"}"#, r#" error ["bad"]"#),
        (r#"{"error":{"code":5},"output":null}"#, r#" error ["{\"code\":5}"]"#),
        (r#"{"output":"a","exit": 1}"#, r#" ["{\"output\":\"a\",\"exit\": 1}"]"#),
        (
            r#"{"error":"bad","output":"a"}"#,
            r#" ["{\"error\":\"bad\",\"output\":\"a\"}"]"#,
        ),
        (r#"{"temperature":12}"#, r#" ["{\"temperature\":12}"]"#),
        (r#"{"x":null}"#, r#" ["{\"x\":null}"]"#),
        ("{ }", " []"),
        ("null", " []"),
    ] {
        let body = with_contents(&format!(
            r#"{{"role":"model","parts":[{{"functionCall":{{"name":"f"}}}}]}},
            {{"parts":[{{"functionResponse":{{"name":"f","response":{response}}}}}]}}"#
        ));
        let reading = strict(&body).unwrap();
        assert_eq!(
            reading.blocks()[1],
            format!("User: result call_0_0 f{expected}"),
            "{response}"
        );
        assert!(reading.losses().is_empty());
    }
}

#[test]
fn a_result_can_have_media_and_options() {
    let call = r#"{"role":"model","parts":[{"functionCall":{"name":"f"}}]}"#;
    let body = with_contents(&format!(
        r#"{call},{{"parts":[{{"functionResponse":{{"name":"f","response":{{"output":"a"}},"scheduling":"SILENT",
        "will_continue":true,"parts":[{{"inlineData":{{"mimeType":"image/png","data":"aGk="}},"mediaResolution":{{}}}}]}}}}]}}"#
    ));
    let reading = strict(&body).unwrap();
    assert_eq!(
        reading.blocks()[1],
        r#"User: result call_0_0 f ["a", "Image  image/png aGk="]"#
    );
    assert_eq!(
        reading.losses(),
        [
            "dropped contents[1].parts[0].functionResponse.parts[0].mediaResolution",
            "dropped contents[1].parts[0].functionResponse.scheduling",
            "dropped contents[1].parts[0].functionResponse.will_continue",
        ]
    );
    for (response, path) in [
        (r#""parts":[{"text":"a"}]"#, ".parts[0]"),
        (
            r#""parts":[{"fileData":{"fileUri":"files/x"}}]"#,
            ".parts[0].fileData.fileUri",
        ),
        (r#""response":["a"]"#, ".response"),
        (r#""new":1"#, ".new"),
    ] {
        let body = with_contents(&format!(
            r#"{call},{{"parts":[{{"functionResponse":{{"name":"f",{response}}}}}]}}"#
        ));
        assert_eq!(
            refused_path(lossy(&body)),
            format!("contents[1].parts[0].functionResponse{path}")
        );
    }
}

#[test]
fn incomplete_calls_and_wrong_roles_are_refused() {
    for (role, part, path) in [
        ("model", r#"{"functionCall":{"args":{}}}"#, ".functionCall.name"),
        (
            "model",
            r#"{"functionCall":{"name":"f","args":"{}"}}"#,
            ".functionCall.args",
        ),
        (
            "model",
            r#"{"functionCall":{"name":"f","willContinue":true}}"#,
            ".functionCall.willContinue",
        ),
        (
            "model",
            r#"{"functionCall":{"name":"f","partialArgs":[]}}"#,
            ".functionCall.partialArgs",
        ),
        ("user", r#"{"functionCall":{"name":"f"}}"#, ".functionCall"),
        ("model", r#"{"functionResponse":{"name":"f"}}"#, ".functionResponse"),
        ("model", r#"{"inlineData":{"mimeType":"image/png","data":"aGk="}}"#, ""),
    ] {
        let body = with_contents(&format!(r#"{{"role":"{role}","parts":[{part}]}}"#));
        assert_eq!(
            refused_path(lossy(&body)),
            format!("contents[0].parts[0]{path}"),
            "{part}"
        );
    }
}

#[test]
fn media_is_kept_with_its_bytes_or_its_address() {
    for (part, expected) in [
        (
            r#"{"inlineData":{"mimeType":"image/png","data":"aGk="}}"#,
            "Image  image/png aGk=",
        ),
        (
            r#"{"inline_data":{"mime_type":"audio/pcm;rate=1","data":"_-8"}}"#,
            "Audio  audio/pcm;rate=1 /+8=",
        ),
        (
            r#"{"inlineData":{"mimeType":"video/mp4","data":"aGk="}}"#,
            "Video  video/mp4 aGk=",
        ),
        (
            r#"{"inlineData":{"mimeType":"application/pdf","data":"JVBERi0=","displayName":"a.pdf"}}"#,
            "Document a.pdf application/pdf JVBERi0=",
        ),
        (
            r#"{"inlineData":{"mimeType":"text/plain","data":"aGk="}}"#,
            "Document  text/plain aGk=",
        ),
        (
            r#"{"fileData":{"file_uri":"https://x/y","mime_type":"image/png"}}"#,
            r#"Image  Some("image/png") https://x/y"#,
        ),
        (
            r#"{"fileData":{"fileUri":"https://x/y.pdf"}}"#,
            "Document  None https://x/y.pdf",
        ),
    ] {
        let body = with_contents(&format!(r#"{{"parts":[{part}]}}"#));
        let reading = strict(&body).unwrap();
        assert_eq!(reading.blocks(), [format!("User: {expected}")]);
        assert!(reading.losses().is_empty());
    }
    for (part, path) in [
        (r#"{"fileData":{"fileUri":"gs://b/c.mp4"}}"#, "fileData.fileUri"),
        (r#"{"file_data":{"file_uri":"files/x"}}"#, "file_data.file_uri"),
        (
            r#"{"fileData":{"fileUri":"https://generativelanguage.googleapis.com/v1beta/files/x"}}"#,
            "fileData.fileUri",
        ),
        (r#"{"fileData":{"mimeType":"image/png"}}"#, "fileData.fileUri"),
        (r#"{"fileData":{"fileUri":"https://x/y","new":1}}"#, "fileData.new"),
        (r#"{"inlineData":{"data":"aGk="}}"#, "inlineData.mimeType"),
        (
            r#"{"inlineData":{"mimeType":"image/png","data":"aGk=","new":1}}"#,
            "inlineData.new",
        ),
    ] {
        let body = with_contents(&format!(r#"{{"parts":[{part}]}}"#));
        assert_eq!(refused_path(lossy(&body)), format!("contents[0].parts[0].{path}"));
    }
}

#[test]
fn what_another_provider_s_tools_did_is_refused_or_becomes_text() {
    for (part, name, expected) in [
        (
            r#"{"executableCode":{"language":"PYTHON","code":"print(1)"}}"#,
            "executableCode",
            "\n[executableCode] PYTHON print(1)\n",
        ),
        (
            r#"{"code_execution_result":{"outcome":"OUTCOME_OK","output":"1"}}"#,
            "code_execution_result",
            "\n[codeExecutionResult] OUTCOME_OK 1\n",
        ),
        (
            r#"{"toolCall":{"id":"t","toolType":"GOOGLE_SEARCH_WEB","args":{"q":1}}}"#,
            "toolCall",
            "\n[toolCall] GOOGLE_SEARCH_WEB {\"q\":1}\n",
        ),
        (
            r#"{"toolResponse":{"id":"t","response":{}}}"#,
            "toolResponse",
            "\n[toolResponse] {}\n",
        ),
    ] {
        let body = with_contents(&format!(r#"{{"role":"model","parts":[{{"text":"a"}},{part}]}}"#));
        let path = format!("contents[0].parts[1].{name}");
        assert_eq!(refused_path(strict(&body)), path);
        let reading = lossy(&body).unwrap();
        assert_eq!(reading.blocks(), [format!("Assistant: a{expected}")]);
        assert_eq!(reading.losses(), [format!("dropped {path}")]);
    }
}
