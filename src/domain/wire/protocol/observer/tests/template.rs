//! Events that are recognised by the one before say what they would have said when read.

use super::super::template::TextEventTemplate;
use super::*;

const START: &str = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_1\",\"model\":\"m\",\"usage\":{\"input_tokens\":5,\"output_tokens\":1}}}\n\n";

fn delta(text: &str) -> String {
    format!(
        "event: content_block_delta\ndata: {{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{{\"type\":\"text_delta\",\"text\":{}}}}}\n\n",
        serde_json::to_string(text).unwrap()
    )
}

fn template(observer: &Observer) -> &TextEventTemplate {
    let FramingState::Sse(EventStreamState { template, .. }) = &observer.frame else {
        panic!("no stream");
    };
    template
}

#[test]
fn a_delta_is_recognised_after_the_second_one() {
    let mut observer = Observer::new(Protocol::Messages, AnswerFraming::Sse);
    observer.push(START.as_bytes());
    observer.push(delta("one").as_bytes());
    assert_eq!(
        template(&observer).recognise(delta("two").as_bytes()),
        None,
        "the first content is more than text"
    );
    observer.push(delta("two").as_bytes());
    let next = delta("three");
    let recognised = template(&observer).recognise(next.as_bytes()).unwrap();
    assert_eq!(
        (recognised.text, recognised.number, recognised.rest),
        (b"three".as_slice(), None, b"".as_slice())
    );
    let before = observer.classes().clone();
    observer.push(next.as_bytes());
    assert_ne!(observer.classes(), &before, "and is counted");
}

#[test]
fn data_that_are_not_the_last_line_are_no_template() {
    let json = "{\"type\":\"content_block_delta\",\"delta\":{\"text\":\"abc\"}}";
    for event in [
        format!("data: {json}\nid: 1\n\n"),
        format!("data: {json}\nid: data: {json}\n\n"),
        format!("data:{json}\n\n"),
        format!("data: {json}\r\n\n"),
        format!("data: {json}\ndata: \n\n"),
    ] {
        let mut observer = Observer::new(Protocol::Messages, AnswerFraming::Sse);
        observer.push(delta("first").as_bytes());
        observer.push(event.as_bytes());
        observer.push(event.as_bytes());
        assert_eq!(template(&observer).recognise(event.as_bytes()), None, "{event:?}");
    }
}

const CREATED: &str = "event: response.created\ndata: {\"type\":\"response.created\",\"sequence_number\":0,\"response\":{\"id\":\"resp_1\",\"model\":\"m\",\"output\":[]}}\n\n";

/// A delta of the Responses protocol as its originator sends it, with filling that hides how long the text is.
fn numbered_delta(number: u64, text: &str, filling: &str) -> String {
    format!(
        "event: response.output_text.delta\ndata: {{\"type\":\"response.output_text.delta\",\"sequence_number\":{number},\"item_id\":\"msg_1\",\"output_index\":0,\"content_index\":0,\"delta\":{},\"logprobs\":[],\"obfuscation\":\"{filling}\"}}\n\n",
        serde_json::to_string(text).unwrap()
    )
}

#[test]
fn a_recognised_event_touches_nothing_that_lies_apart() {
    let numbered = |number, text| numbered_delta(number, text, "aB3");
    for (protocol, begin, events) in [
        (Protocol::Messages, START, [delta("one"), delta("two"), delta("three")]),
        (
            Protocol::Responses,
            CREATED,
            [numbered(8, "one"), numbered(9, "two"), numbered(10, "three")],
        ),
    ] {
        let begun = || {
            let mut observer = Observer::new(protocol, AnswerFraming::Sse);
            for event in [begin, events[0].as_str(), events[1].as_str()] {
                observer.push(event.as_bytes());
            }
            observer
        };
        let new = || Observer::new(protocol, AnswerFraming::Sse).reading;
        let (mut usual, mut apart) = (begun(), begun());
        apart.reading = new();
        let asked = |observer: &mut Observer| {
            observer.push(events[2].as_bytes());
            let counts = (
                observer.classes().clone(),
                observer.reports(),
                observer.state_name_count(),
                observer.last_number,
            );
            let answers = (observer.boundaries(), observer.is_complete(), observer.has_begun());
            (counts, answers, observer.first_content_seen())
        };
        assert_eq!(asked(&mut apart), asked(&mut usual));
        assert_eq!(format!("{:?}", apart.reading), format!("{:?}", new()), "{protocol:?}");
    }
}

#[test]
fn a_delta_of_the_responses_protocol_is_recognised_whatever_its_number_and_filling() {
    let mut observer = Observer::new(Protocol::Responses, AnswerFraming::Sse);
    observer.push(CREATED.as_bytes());
    observer.push(numbered_delta(8, "one", "aB3").as_bytes());
    observer.push(numbered_delta(9, "two", "aB3x").as_bytes());
    let next = numbered_delta(10, "three", "");
    let recognised = template(&observer).recognise(next.as_bytes()).unwrap();
    assert_eq!((recognised.text, recognised.number), (b"three".as_slice(), Some(10)));
    observer.push(next.as_bytes());
    let tail = observer.failure_tail(Break::ProviderCut).unwrap();
    let (_, said) = last_event(&tail);
    assert_eq!(said["sequence_number"], 11, "weir's own event counts on");
}

#[test]
fn a_delta_that_says_more_than_its_text_is_no_template() {
    for more in [
        "\"response\":{\"model\":\"other\"}",
        "\"code\":\"x\"",
        "\"item\":{\"type\":\"web_search_call\",\"id\":\"ws_1\"}",
        "\"error\":{\"type\":\"x\"}",
        "\"usage\":{\"output_tokens\":1}",
    ] {
        let event = format!("data: {{\"type\":\"response.output_text.delta\",\"delta\":\"abc\",{more}}}\n\n");
        let mut observer = Observer::new(Protocol::Responses, AnswerFraming::Sse);
        observer.push(numbered_delta(1, "first", "").as_bytes());
        observer.push(event.as_bytes());
        observer.push(event.as_bytes());
        assert_eq!(template(&observer).recognise(event.as_bytes()), None, "{event:?}");
    }
}

#[test]
fn only_events_that_say_more_than_text_are_reports() {
    let mut observer = Observer::new(Protocol::Messages, AnswerFraming::Sse);
    observer.push(START.as_bytes());
    observer.push(delta("one").as_bytes());
    assert_eq!(observer.reports(), 2, "the first content is more than text");
    for text in ["two", "an \"escape\"", "three"] {
        observer.push(delta(text).as_bytes());
    }
    let split = delta("in two pieces");
    let (first, second) = split.split_at(70);
    observer.push(first.as_bytes());
    observer.push(second.as_bytes());
    assert_eq!(observer.reports(), 2);
    observer.push(b"data: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":9}}\n\n");
    assert_eq!(observer.reports(), 3);
    for (protocol, framing, piece) in [
        (
            Protocol::Gemini,
            AnswerFraming::Sse,
            "data: {\"usageMetadata\":{}}\r\n\r\n",
        ),
        (Protocol::Gemini, AnswerFraming::JsonArray, "[{\"usageMetadata\":{}},"),
        (Protocol::Messages, AnswerFraming::Json, "{\"usage\":{"),
    ] {
        let mut observer = Observer::new(protocol, framing);
        observer.push(piece.as_bytes());
        assert_eq!(observer.reports(), 1, "{piece}");
    }
}

/// A chunk of the Gemini-style protocol that brings more text.
fn chunk(text: &str, counts: (u64, u64)) -> String {
    let (spoken, all) = counts;
    format!(
        "data: {{\"candidates\":[{{\"content\":{{\"parts\":[{{\"text\":{}}}],\"role\":\"model\"}},\"index\":0}}],\"usageMetadata\":{{\"promptTokenCount\":4,\"candidatesTokenCount\":{spoken},\"totalTokenCount\":{all},\"promptTokensDetails\":[{{\"modality\":\"TEXT\",\"tokenCount\":4}}]}},\"modelVersion\":\"m\"}}\r\n\r\n",
        serde_json::to_string(text).unwrap()
    )
}

#[test]
fn a_chunk_of_the_gemini_style_protocol_is_recognised_and_its_usage_is_taken() {
    let mut observer = Observer::new(Protocol::Gemini, AnswerFraming::Sse);
    observer.push(chunk("one", (1, 5)).as_bytes());
    observer.push(chunk("two", (9, 13)).as_bytes());
    let next = chunk("three", (10, 14));
    let recognised = template(&observer).recognise(next.as_bytes()).unwrap();
    assert_eq!(
        (recognised.text, recognised.rest),
        (b"three".as_slice(), b"".as_slice())
    );
    let before = observer.reports();
    observer.push(next.as_bytes());
    assert_eq!(observer.reports(), before + 1, "what it reports is another usage");
    assert_eq!(observer.observed().usage.unwrap().output_text, 10);
}

#[test]
fn a_chunk_that_says_more_than_its_text_is_no_template() {
    for more in [
        r#""promptFeedback":{"blockReason":"SAFETY"}"#,
        r#""error":{"code":503}"#,
        r#""candidates":[{"finishReason":"STOP"}]"#,
        r#""candidates":[{"content":{"parts":[{"functionCall":{"name":"f"}}]}}]"#,
        r#""candidates":[{"content":{"parts":[{"text":"more"}]}}]"#,
        r#""candidates":[{"groundingMetadata":{"webSearchQueries":["one"]}}]"#,
        r#""usageMetadata":{"promptTokenCount":5}"#,
    ] {
        let event = chunk("abc", (3, 7)).replace("\"modelVersion\"", &format!("{more},\"modelVersion\""));
        let mut observer = Observer::new(Protocol::Gemini, AnswerFraming::Sse);
        observer.push(chunk("first", (1, 5)).as_bytes());
        observer.push(event.as_bytes());
        assert_eq!(template(&observer).recognise(event.as_bytes()), None, "{event:?}");
    }
}

#[test]
fn the_newest_model_is_the_answers_whatever_was_recognised_before() {
    let model = |text: &str, model: &str| chunk(text, (1, 5)).replace("\"m\"", &format!("\"{model}\""));
    // Neither a text with an escape nor a chunk that is no JSON is learned.
    for other in [model("an \"escape\"", "other"), model("two", "other\":")] {
        let mut observer = Observer::new(Protocol::Gemini, AnswerFraming::Sse);
        observer.push(model("one", "first").as_bytes());
        observer.push(model("two", "first").as_bytes());
        observer.push(other.as_bytes());
        assert_eq!(observer.observed().model.as_deref(), Some("other"), "{other}");
        observer.push(model("three", "first").as_bytes());
        assert_eq!(observer.observed().model.as_deref(), Some("first"), "{other}");
    }
}

/// A chunk of `chat/completions` that adds text, with the members that hosts change.
fn chat_chunk(text: &str, created: u64, padding: &str) -> String {
    format!(
        "data: {{\"id\":\"c-1\",\"object\":\"chat.completion.chunk\",\"created\":{created},\"model\":\"m\",\"service_tier\":\"default\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":{}}},\"logprobs\":null,\"finish_reason\":null}}],\"usage\":null,\"obfuscation\":\"{padding}\"}}\n\n",
        serde_json::to_string(text).unwrap()
    )
}

#[test]
fn a_chunk_of_chat_completions_is_recognised_whatever_its_time_and_padding() {
    let member = |member: &str| chat_chunk("one", 1, "").replace("\"content\"", &format!("\"{member}\""));
    let call = r#""tool_calls":[{"index":0,"function":{"arguments":"one"}}]"#;
    let pieces_of_call = chat_chunk("one", 1, "").replace(r#""content":"one""#, call);
    for chunk in [
        member("content"),
        member("reasoning_content"),
        member("reasoning"),
        member("refusal"),
        pieces_of_call,
    ] {
        let mut observer = Observer::new(UpstreamProtocol::Chat, AnswerFraming::Sse);
        observer.push(chat_chunk("first", 1, "aB3").as_bytes());
        observer.push(chunk.as_bytes());
        let next = chunk
            .replace("one", "three")
            .replace("\"created\":1", "\"created\":1790000000")
            .replace("\"obfuscation\":\"\"", "\"obfuscation\":\"xYz\"");
        let recognised = template(&observer).recognise(next.as_bytes()).expect(&next);
        assert_eq!(
            (recognised.text, recognised.usage, recognised.rest),
            (b"three".as_slice(), None, b"".as_slice())
        );
        let (reports, classes) = (observer.reports(), observer.classes().clone());
        observer.push(next.as_bytes());
        assert_eq!(observer.reports(), reports, "{next}");
        assert_ne!(observer.classes(), &classes, "{next}");
    }
}

#[test]
fn a_chunk_of_chat_completions_that_says_more_than_its_text_is_no_template() {
    for (from, to) in [
        (r#""finish_reason":null"#, r#""finish_reason":"stop""#),
        (
            r#""usage":null"#,
            r#""usage":{"prompt_tokens":1,"completion_tokens":2}"#,
        ),
        (r#""usage":null"#, r#""usage":null,"error":{"code":503}"#),
        (r#""logprobs":null"#, r#""message":{"content":"more"}"#),
        (r#""content":"abc""#, r#""content":"abc","reasoning":"why""#),
        (r#""content":"abc""#, r#""content":"""#),
        (
            r#""content":"abc""#,
            r#""content":"a
c""#,
        ),
    ] {
        let event = chat_chunk("abc", 1, "").replace(from, to);
        let mut observer = Observer::new(UpstreamProtocol::Chat, AnswerFraming::Sse);
        observer.push(chat_chunk("first", 1, "").as_bytes());
        observer.push(event.as_bytes());
        observer.push(event.as_bytes());
        assert_eq!(template(&observer).recognise(event.as_bytes()), None, "{event:?}");
    }
}

#[test]
fn the_newest_model_and_tier_are_the_answers_whatever_was_recognised_before() {
    let mut observer = Observer::new(UpstreamProtocol::Chat, AnswerFraming::Sse);
    let usual = chat_chunk("two", 1, "");
    observer.push(chat_chunk("one", 1, "").as_bytes());
    observer.push(usual.as_bytes());
    let reports = observer.reports();
    let other = usual.replace("\"m\"", "\"other\"").replace("default", "flex");
    observer.push(other.replace("\"two\"", "\"an \\\"escape\\\"\"").as_bytes());
    assert!(observer.reports() > reports, "its price may be another");
    let said = observer.observed();
    let named = (said.model.as_deref(), said.modifiers.service_tier.as_deref());
    assert_eq!(named, (Some("other"), Some("flex")));
    observer.push(usual.as_bytes());
    let said = observer.observed();
    let named = (said.model.as_deref(), said.modifiers.service_tier.as_deref());
    assert_eq!(named, (Some("m"), Some("default")));
}

/// A chunk of `chat/completions`.
fn chat_chunks() -> impl Strategy<Value = String> {
    let text = prop_oneof![3 => "[a-z ]{0,12}", 1 => "[a-z\"\\\\\n é中{}]{0,6}"];
    let created = prop_oneof![6 => 0..3_u64, 1 => Just(999_999_999_999_999), 1 => Just(u64::MAX)];
    let same =
        (text, created, "[a-zA-Z0-9]{0,8}").prop_map(|(text, created, padding)| chat_chunk(&text, created, &padding));
    let data = prop::sample::select(vec![
        r#"{"choices":[{"delta":{"content":"abc"}}]}"#,
        r#"{"choices":[{"delta":{"content":"abc"},"finish_reason":"stop"}]}"#,
        r#"{"choices":[{"delta":{"content":"abc"},"finish_reason":""}],"p":"xx"}"#,
        r#"{"choices":[{"delta":{"content":"abc"},"finish_reason":""}],"p":"y"}"#,
        r#"{"choices":[{"delta":{"content":"a"}},{"delta":{"content":"b"}}]}"#,
        r#"{"choices":[{"delta":{"content":"abc"}}],"model":"other"}"#,
        r#"{"choices":[{"delta":{"content":"abc"}}],"model":"other","service_tier":"flex"}"#,
        r#"{"choices":[{"delta":{"content":"abc"}}],"service_tier":"flex"}"#,
        r#"{"choices":[{"delta":{"content":"abc"}}],"usage":{"prompt_tokens":5,"completion_tokens":1}}"#,
        r#"{"choices":[{"delta":{"content":"abc"}}],"usage":{"prompt_tokens":5,"completion_tokens":2}}"#,
        r#"{"choices":[{"delta":{"content":"abc"}}],"created":1,"x":{"created":2}}"#,
        r#"{"choices":[{"delta":{"content":"abc"}}],"created":1,"x":{"created":3}}"#,
        r#"{"choices":[{"delta":{"content":"abc"}}],"created":"1"}"#,
        r#"{"choices":[{"delta":{"content":"abc"}}],"error":null}"#,
        r#"{"choices":[{"delta":{"content":"abc"}}],"error":{"type":"server_error"}}"#,
        r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"ab"}}]}}]}"#,
        r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"name":"f","arguments":""}}]}}]}"#,
        r#"{"choices":[{"delta":{"content":[{"type":"text","text":"abc"}]}}]}"#,
        r#"{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":9},"service_tier":"default"}"#,
        r#"{"choices":[{"delta":{},"finish_reason":"length"}]}"#,
        "[DONE]",
    ]);
    let other = data.prop_map(|data| format!("data: {data}\n\n"));
    prop_oneof![6 => same, 3 => other, 1 => Just(": keep alive\n\n".to_owned())]
}

fn event() -> impl Strategy<Value = String> {
    let text = prop_oneof![
        3 => "[a-z ]{0,12}",
        1 => "[a-z\"\\\\\n é中]{0,6}",
    ];
    let same = |text: String| delta(&text);
    let other = prop::sample::select(vec![
        "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":1,\"delta\":{\"type\":\"thinking_delta\",\"thinking\":\"hm\"}}\n\n",
        "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":1,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"{}\"}}\n\n",
        "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"a\",\"thinking\":\"b\"}}\n\n",
        "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"a\"}} x\n\n",
        "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"a\"}\n\n",
        "event: content_block_delta\r\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"a\"}}\r\n\r\n",
        "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\ndata: \"delta\":{\"text\":\"abc\"}}\n\n",
        "data: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"abc\"}}\nid: 7\n\n",
        "data: {\"delta\":{\"text\":\"abc\"},\"type\":\"content_block_delta\"}\n\n",
        "event: content_block_delta\ndata: {\"delta\":{\"text\":\"abc\"}}\n\n",
        "event: ping\ndata: {\"type\":\"ping\"}\n\n",
        ": a comment\n\n",
        "\n",
        "\r",
        "data: [DONE]\n\n",
        "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":9}}\n\n",
        "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}\n\n",
        "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
    ]);
    prop_oneof![
        6 => text.prop_map(same),
        2 => other.prop_map(str::to_owned),
    ]
}

/// An event of the Responses protocol with this number.
fn numbered_event() -> impl Strategy<Value = String> {
    let number = prop_oneof![
        6 => 0..30_u64,
        1 => Just(999_999_999_999_999),
        1 => Just(1_000_000_000_000_000),
        1 => Just(u64::MAX),
    ];
    let text = prop_oneof![3 => "[a-z ]{0,12}", 1 => "[a-z\"\\\\\n é中]{0,6}"];
    let same =
        (number, text, "[a-zA-Z0-9]{0,8}").prop_map(|(number, text, filling)| numbered_delta(number, &text, &filling));
    let data = prop::sample::select(vec![
        r#"{"type":"response.output_text.delta","sequence_number":7,"delta":"abc","sequence_number":8}"#,
        r#"{"type":"response.output_text.delta","sequence_number":7,"delta":"abc","x":{"sequence_number":3}}"#,
        r#"{"type":"response.output_text.delta","delta":"abc","x":{"sequence_number":3}}"#,
        r#"{"type":"response.output_text.delta","delta":"abc","x":{"sequence_number":4}}"#,
        r#"{"type":"response.output_text.delta","delta":"abc","x\"sequence_number":4}"#,
        r#"{"type":"response.output_text.delta","delta":"abc","sequence_number":"6"}"#,
        r#"{"type":"response.output_text.delta","delta":"abc","sequence_number": 6}"#,
        r#"{"type":"response.output_text.delta","delta":"abc","sequence_number":6.5}"#,
        r#"{"type":"response.output_text.delta","delta":"abc","sequence_number":null}"#,
        r#"{"type":"response.output_text.delta","delta":"abc","obfuscation":"a\"b"}"#,
        r#"{"type":"response.output_text.delta","delta":{"a":"b"},"sequence_number":6}"#,
        r#"{"type":"response.output_text.delta","delta":"abc","sequence_number":6,"response":{"model":"other"}}"#,
        r#"{"type":"response.output_text.delta","delta":"abc","sequence_number":6,"item":{"type":"x","id":"ws_1"}}"#,
        r#"{"type":"response.function_call_arguments.delta","sequence_number":11,"delta":"{}"}"#,
        r#"{"type":"response.output_item.added","sequence_number":12,"item":{"type":"message","id":"msg_2"}}"#,
        r#"{"type":"response.output_item.done","sequence_number":13,"item":{"type":"web_search_call","id":"ws_2","action":{"type":"search"}}}"#,
        r#"{"type":"response.in_progress","response":{"id":"resp_2","model":"another","usage":{"input_tokens":3,"output_tokens":1}}}"#,
        r#"{"type":"response.completed","sequence_number":14,"response":{"status":"completed","usage":{"input_tokens":3,"output_tokens":9}}}"#,
        r#"{"type":"error","sequence_number":15,"code":"x"}"#,
        "[DONE]",
    ]);
    let other = data.prop_map(|data| format!("data: {data}\n\n"));
    prop_oneof![6 => same, 2 => other, 1 => Just("id: \"sequence_number\":5\n".to_owned())]
}

/// A chunk of the Gemini-style protocol.
fn chunks() -> impl Strategy<Value = String> {
    let text = prop_oneof![3 => "[a-z ]{0,12}", 1 => "[a-z\"\\\\\n é中{}]{0,6}"];
    let count = || prop_oneof![6 => 0..2000_u64, 1 => Just(999_999_999_999_999), 1 => Just(u64::MAX)];
    let ending = prop::sample::select(vec!["\r\n\r\n", "\n\n", "\r\r", "\r\n\n"]);
    let spaces = prop::sample::select(vec![":", ": ", ":  "]);
    let same = (text, count(), count(), ending, spaces).prop_map(|(text, spoken, all, ending, colon)| {
        let chunk = chunk(&text, (spoken, all)).replace("\r\n\r\n", ending);
        if text.contains('"') {
            chunk
        } else {
            chunk.replace("\":", &format!("\"{colon}"))
        }
    });
    let data = prop::sample::select(vec![
        r#"{"candidates":[{"content":{"parts":[{"text":"{}"}]}}],"usageMetadata":{}}"#,
        r#"{"candidates":[{"content":{"parts":[{"text":"a","thought":true}]}}],"usageMetadata":{"promptTokenCount":4,"thoughtsTokenCount":3}}"#,
        r#"{"candidates":[{"content":{"parts":[{"text":"a"}]}}],"usageMetadata":{"promptTokenCount":4,"candidatesTokenCount":3,"candidatesTokensDetails":[{"tokenCount":3}]}}"#,
        r#"{"candidates":[{"content":{"parts":[{"text":"a"}]}}],"usageMetadata":{"candidatesTokenCount":3},"x":{"usageMetadata":{"candidatesTokenCount":4}}}"#,
        r#"{"candidates":[{"content":{"parts":[{"text":"a"}]}}],"x":{"usageMetadata":{"candidatesTokenCount":4}}}"#,
        r#"{"candidates":[{"content":{"parts":[{"text":"a"}]}}],"x":{"usageMetadata":{"candidatesTokenCount":5}}}"#,
        r#"{"candidates":[{"content":{"parts":[{"text":"a"}]}}],"totalTokenCount":4,"usageMetadata":{"promptTokenCount":4}}"#,
        r#"{"candidates":[{"content":{"parts":[{"text":"a"}]}}],"totalTokenCount":5,"usageMetadata":{"promptTokenCount":4}}"#,
        r#"{"candidates":[{"content":{"parts":[{"text":"a"}]}}],"usageMetadata":{"candidatesTokenCount":007}}"#,
        r#"{"candidates":[{"content":{"parts":[{"text":"a"}]}}],"usageMetadata":{"candidatesTokenCount":7}}"#,
        r#"{"candidates":[{"content":{"parts":[{"text":"a"}]}}],"usageMetadata":null}"#,
        r#"{"candidates":[{"content":{"parts":[{"text":"a"}]}}],"usageMetadata":"x"}"#,
        r#"{"candidates":[{"content":{"parts":[{"text":"a"}]}}]}"#,
        r#"{"candidates":[{"content":{"parts":[{"functionCall":{"name":"f","args":{"candidatesTokenCount":3}}}]}}],"usageMetadata":{"promptTokenCount":4}}"#,
        r#"{"candidates":[{"content":{"parts":[{"text":""}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":4,"candidatesTokenCount":9}}"#,
        r#"{"error":{"code":503,"status":"UNAVAILABLE"}}"#,
    ]);
    let other = (data, prop::sample::select(vec!["\r\n\r\n", "\n\n"]))
        .prop_map(|(data, ending)| format!("data: {data}{ending}"));
    prop_oneof![6 => same, 3 => other, 1 => Just("id: \"usageMetadata\":{}\r\n".to_owned())]
}

/// Events that come in pieces of `size` bytes, and all at once, say what they say when they come byte by byte, which are never
/// recognised.
fn assert_same_when_read(
    protocol: impl Into<UpstreamProtocol> + Copy,
    events: &[String],
    size: usize,
    cut: usize,
) -> Result<(), TestCaseError> {
    let stream = events.concat();
    let whole = stream.len() - cut.min(stream.len());
    let stream = &stream.as_bytes()[..whole];
    let read = observe(protocol, AnswerFraming::Sse, stream, 1);
    for other in [
        observe(protocol, AnswerFraming::Sse, stream, size),
        observe(protocol, AnswerFraming::Sse, stream, stream.len().max(1)),
    ] {
        prop_assert_eq!(other.observed(), read.observed());
        prop_assert_eq!(other.created_state(), read.created_state());
        prop_assert_eq!(other.classes(), read.classes());
        prop_assert_eq!(other.first_content_seen(), read.first_content_seen());
        prop_assert_eq!(other.done_marker_tail(), read.done_marker_tail());
        let broken = Break::ProviderCut;
        prop_assert_eq!(other.failure_tail(broken), read.failure_tail(broken));
        prop_assert!(other.heap_bytes() <= HEAP_BYTES_MAX);
    }
    Ok(())
}

proptest! {
    #[test]
    fn recognised_events_say_what_they_say_when_read(events in prop::collection::vec(event(), 0..24), size in 1_usize..700, cut in 0_usize..40) {
        assert_same_when_read(Protocol::Messages, &events, size, cut)?;
    }

    #[test]
    fn recognised_numbers_say_what_they_say_when_read(events in prop::collection::vec(numbered_event(), 0..24), size in 1_usize..900, cut in 0_usize..40) {
        assert_same_when_read(Protocol::Responses, &events, size, cut)?;
    }

    #[test]
    fn recognised_usages_say_what_they_say_when_read(events in prop::collection::vec(chunks(), 0..24), size in 1_usize..900, cut in 0_usize..40) {
        assert_same_when_read(Protocol::Gemini, &events, size, cut)?;
    }

    #[test]
    fn recognised_chunks_of_chat_completions_say_what_they_say_when_read(events in prop::collection::vec(chat_chunks(), 0..24), size in 1_usize..900, cut in 0_usize..40) {
        assert_same_when_read(UpstreamProtocol::Chat, &events, size, cut)?;
        assert_same_when_read(UpstreamProtocol::Chat, &[events.concat().repeat(4)], size, 0)?;
    }

    #[test]
    fn the_same_chunks_again_and_again_say_what_they_say_when_read(events in prop::collection::vec(chunks(), 1..4), size in 1_usize..2000) {
        assert_same_when_read(Protocol::Gemini, &[events.concat().repeat(8)], size, 0)?;
    }
}
