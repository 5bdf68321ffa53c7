//! Translation between protocols: requests of three protocols, answers of four, and the carriers of reasoning.

use std::collections::BTreeMap;

use serde_json::value::{RawValue, to_raw_value};
use weir::parts::Protocol;
use weir::parts::translation::{
    PairAnswer, PairAnswerForm, PairRequest, ProtocolPair, TranslationMode, UpstreamProtocol, Usage,
};

/// An object whose members stay text, however deep they are.
type Members = BTreeMap<String, Box<RawValue>>;

const CLIENTS: [Protocol; 3] = [Protocol::Messages, Protocol::Responses, Protocol::Gemini];
const PROVIDERS: [UpstreamProtocol; 4] = [
    UpstreamProtocol::Messages,
    UpstreamProtocol::Responses,
    UpstreamProtocol::Gemini,
    UpstreamProtocol::Chat,
];
/// What a client can ask for. The first byte of an answer's input chooses one.
const FORMS: [(Protocol, PairAnswerForm); 7] = [
    (Protocol::Messages, PairAnswerForm::Stream),
    (Protocol::Responses, PairAnswerForm::Stream),
    (Protocol::Gemini, PairAnswerForm::Stream),
    (Protocol::Messages, PairAnswerForm::Whole),
    (Protocol::Responses, PairAnswerForm::Whole),
    (Protocol::Gemini, PairAnswerForm::Whole),
    (Protocol::Gemini, PairAnswerForm::Array),
];
/// Where a host has its reasoning, as `[chat]` of a provider's file says it.
const REASONING: [&str; 4] = ["reasoning_content", "reasoning", "content", "none"];
/// The deepest nesting of a request: weir lets none deeper in by default.
const DEPTH_MAX: usize = 256;
/// The maximum length of a translated request, apart from what grows with the client's bytes.
const REQUEST_BYTES: usize = 16 * 1024;
/// The maximum number of bytes that a provider gets for each byte of the client.
const REQUEST_FACTOR: usize = 100;
/// The maximum length of a refusal's message, apart from what it repeats of the request.
const REFUSAL_BYTES: usize = 1024;
/// The maximum length of the header that says what was not carried over.
const HEADER_BYTES: usize = 1024 + 24;
/// The maximum length of a translated answer, apart from what grows with the provider's bytes.
const ANSWER_BYTES: usize = 16 * 1024;
/// The maximum number of bytes that a client gets for each byte of the provider.
const ANSWER_FACTOR: usize = 200;
/// A request with tools that the answer names in other ways than a function.
const TOOLS: &str = r#"{"model":"big","input":"Go","tools":[
    {"type":"function","name":"get","parameters":{"type":"object"}},
    {"type":"custom","name":"exec","format":{"type":"grammar","syntax":"lark","definition":"start: WORD"}},
    {"type":"namespace","name":"mcp","tools":[{"type":"function","name":"read","parameters":{}}]},
    {"type":"local_shell"},{"type":"apply_patch"}]}"#;

/// The first byte of an answer's input: for the client and form with this number, of a provider that answers in this way.
pub(crate) fn answer_mark(form: usize, is_stream: bool, reasoning: &str) -> u8 {
    let reasoning = REASONING.iter().position(|word| *word == reasoning);
    let reasoning = reasoning.expect("a place of reasoning");
    let mark = form + FORMS.len() * (usize::from(!is_stream) + 2 * reasoning);
    u8::try_from(mark).expect("few forms")
}

/// How many forms of answer there are.
pub(crate) const fn answer_forms() -> usize {
    FORMS.len()
}

/// A request: refused, or JSON of bounded length for each provider, and reported in a bounded header. What strict lets through,
/// lossy does in the same way.
pub(crate) fn translated_request(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if nesting(text) > DEPTH_MAX {
        return;
    }
    for client in CLIENTS {
        for provider in PROVIDERS {
            check_request(client, provider, text);
        }
    }
}

/// An answer of a Messages provider.
pub(crate) fn messages_answer(data: &[u8]) {
    check_answer(UpstreamProtocol::Messages, data);
}

/// An answer of a Responses provider.
pub(crate) fn responses_answer(data: &[u8]) {
    check_answer(UpstreamProtocol::Responses, data);
}

/// An answer of a Gemini provider.
pub(crate) fn gemini_answer(data: &[u8]) {
    check_answer(UpstreamProtocol::Gemini, data);
}

/// An answer of a provider of `chat/completions`.
pub(crate) fn chat_answer(data: &[u8]) {
    check_answer(UpstreamProtocol::Chat, data);
}

/// Reasoning state: the first line is the visible text, the rest a state in JSON or any field of a client. A state comes back as
/// it was, whatever a client sends is a state of the provider or foreign, and a request with it is translated or refused.
pub(crate) fn reasoning_carrier(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (visible, rest) = text.split_once('\n').unwrap_or(("", text));
    let pair = ProtocolPair::new(Protocol::Messages, UpstreamProtocol::Chat, TranslationMode::Strict);
    let carrier = pair.wrap_state(rest, visible);
    for field in [Some(rest), carrier.as_deref()].into_iter().flatten() {
        let state = pair.unwrap_state(field, visible);
        assert!(state.is_some() || field == rest, "weir reads what it has wrapped");
        if let Some(state) = state {
            let again = pair.wrap_state(&state, visible).expect("a state that was carried");
            assert_eq!(pair.unwrap_state(&again, visible).as_ref(), Some(&state));
            assert!(field == rest || field == again, "{field} {again}");
        }
        for (client, request) in CLIENTS.into_iter().zip(requests_with(visible, field)) {
            for provider in PROVIDERS {
                check_request(client, provider, &request);
            }
        }
    }
}

/// How deep brackets nest at most; those in strings count, too.
fn nesting(text: &str) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    for byte in text.bytes() {
        match byte {
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    deepest
}

fn check_request(client: Protocol, provider: UpstreamProtocol, text: &str) {
    let translate = |mode| ProtocolPair::new(client, provider, mode).translate_request(text);
    let (strict, lossy) = (translate(TranslationMode::Strict), translate(TranslationMode::Lossy));
    for request in [&strict, &lossy] {
        match request {
            Ok(PairRequest { body, header, .. }) => {
                members(body);
                assert!(body.len() <= REQUEST_BYTES + text.len() * REQUEST_FACTOR);
                assert!(header.len() <= HEADER_BYTES, "{header}");
                assert!(header.bytes().all(|byte| matches!(byte, b' '..=b'~')), "{header}");
            }
            Err(refusal) => assert!(!refusal.is_empty() && refusal.len() <= REFUSAL_BYTES + text.len() * 4),
        }
    }
    if let Ok(strict) = strict {
        let lossy = lossy.expect("lossy refuses nothing that strict accepts");
        assert_eq!((lossy.body, lossy.header), (strict.body, strict.header));
    }
}

/// The members of an object.
#[track_caller]
fn members(text: &str) -> Members {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// A request of each client, in the order of [`CLIENTS`], whose history has reasoning with this visible text and opaque field.
fn requests_with(visible: &str, field: &str) -> [String; 3] {
    let [visible, field] = [visible, field].map(|text| to_raw_value(text).expect("a string"));
    let messages = format!(
        r#"{{"model":"big","max_tokens":9,"tools":[{{"name":"f","input_schema":{{"type":"object"}}}}],"messages":[
        {{"role":"user","content":"a"}},
        {{"role":"assistant","content":[{{"type":"thinking","thinking":{visible},"signature":{field}}},
        {{"type":"redacted_thinking","data":{field}}},{{"type":"tool_use","id":"t","name":"f","input":{{}}}}]}},
        {{"role":"user","content":[{{"type":"tool_result","tool_use_id":"t","content":"b"}}]}}]}}"#
    );
    let responses = format!(
        r#"{{"model":"big","tools":[{{"type":"function","name":"f","parameters":{{"type":"object"}}}}],"input":[
        {{"role":"user","content":"a"}},
        {{"type":"reasoning","summary":[{{"type":"summary_text","text":{visible}}}],"encrypted_content":{field}}},
        {{"type":"function_call","call_id":"t","name":"f","arguments":"{{}}"}},
        {{"type":"function_call_output","call_id":"t","output":"b"}}]}}"#
    );
    let gemini = format!(
        r#"{{"tools":[{{"functionDeclarations":[{{"name":"f"}}]}}],"contents":[
        {{"role":"user","parts":[{{"text":"a"}}]}},
        {{"role":"model","parts":[{{"text":{visible},"thought":true}},
        {{"functionCall":{{"name":"f","args":{{}}}},"thoughtSignature":{field}}}]}},
        {{"role":"user","parts":[{{"functionResponse":{{"name":"f","response":{{"output":"b"}}}}}}]}}]}}"#
    );
    [messages, responses, gemini]
}

/// An answer: any split gives the client the same bytes, their number is bounded, and they obey the client's protocol.
fn check_answer(provider: UpstreamProtocol, data: &[u8]) {
    let Some((mark, body)) = data.split_first() else { return };
    let mark = usize::from(*mark);
    let (client, form) = FORMS[mark % FORMS.len()];
    let is_stream = (mark / FORMS.len()).is_multiple_of(2);
    let reasoning = REASONING[mark / FORMS.len() / 2 % REASONING.len()];
    let pair = ProtocolPair::new(client, provider, TranslationMode::Lossy).with_chat_reasoning(reasoning);
    let pair = pair.expect("a place of reasoning");
    let request = (client == Protocol::Responses).then(|| pair.translate_request(TOOLS).expect("known tools"));
    let begin = || pair.begin_answer(request.as_ref(), form, is_stream);
    let whole = written(begin(), [body]);
    assert_eq!(written(begin(), body.chunks(1)), whole, "byte by byte");
    assert_eq!(written(begin(), uneven(body)), whole, "in pieces");
    let (text, is_complete) = whole;
    assert!(text.len() <= ANSWER_BYTES + body.len() * ANSWER_FACTOR);
    match (form, client) {
        (PairAnswerForm::Whole, _) if !is_complete => assert_eq!(text, ""),
        (PairAnswerForm::Whole, _) => drop(members(&text)),
        (PairAnswerForm::Array, _) => {
            let chunks: Vec<Members> = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
            check_chunks(&chunks, is_complete);
        }
        (PairAnswerForm::Stream, Protocol::Gemini) => {
            // Nothing but one line of data in each event: no mark of the end, and no comment.
            let frames = frames(&text, "\r\n\r\n").into_iter();
            let chunks = frames.map(|frame| {
                assert!(!frame.contains(['\n', '\r']), "{frame}");
                members(frame.strip_prefix("data: ").unwrap_or_else(|| panic!("{frame}")))
            });
            check_chunks(&chunks.collect::<Vec<_>>(), is_complete);
        }
        (PairAnswerForm::Stream, Protocol::Messages | Protocol::Responses) => {
            check_events(client, &text, is_complete);
        }
    }
}

/// What the client gets of an answer that comes in these pieces, and whether it is complete.
fn written<'p>(mut answer: PairAnswer, pieces: impl IntoIterator<Item = &'p [u8]>) -> (String, bool) {
    let mut text = String::new();
    pieces.into_iter().for_each(|piece| answer.push(piece, &mut text));
    let is_complete = answer.end(&Usage::default(), &mut text);
    (text, is_complete)
}

/// Pieces whose sizes come from the data itself.
fn uneven(data: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = data;
    std::iter::from_fn(move || {
        let size = usize::from(*rest.first()? % 17 + 1).min(rest.len());
        let (piece, after) = rest.split_at(size);
        rest = after;
        Some(piece)
    })
}

/// What stands before each of these line ends, of which the last stands at the end.
#[track_caller]
fn frames<'t>(text: &'t str, end: &str) -> Vec<&'t str> {
    let mut frames: Vec<&str> = text.split(end).collect();
    assert_eq!(frames.pop(), Some(""), "{text}");
    frames
}

/// Gemini's chunks: an error can only be the last one, and an answer that is not complete ends with one.
#[track_caller]
fn check_chunks(chunks: &[Members], is_complete: bool) {
    let (last, others) = chunks.split_last().expect("a chunk");
    assert!(others.iter().all(|chunk| !chunk.contains_key("error")), "{others:?}");
    assert!(is_complete || last.contains_key("error"), "{last:?}");
}

/// The events of Messages and Responses: each has one line of JSON, its type is its name, and an answer that is not complete ends
/// with an error. The mark behind a complete Responses stream is no event.
#[track_caller]
fn check_events(client: Protocol, text: &str, is_complete: bool) {
    let unmarked = match client {
        Protocol::Responses => text.strip_suffix("data: [DONE]\n\n").unwrap_or(text),
        Protocol::Messages | Protocol::Gemini => text,
    };
    let mut last = String::new();
    for frame in frames(unmarked, "\n\n") {
        let (name, data) = frame.split_once("\ndata: ").unwrap_or_else(|| panic!("{frame}"));
        assert!(!data.contains(['\n', '\r']), "{frame}");
        let kind: String = serde_json::from_str(members(data)["type"].get()).expect("a type");
        assert_eq!(name.strip_prefix("event: "), Some(kind.as_str()), "{frame}");
        last = kind;
    }
    let failure = match client {
        Protocol::Responses => "response.failed",
        Protocol::Messages | Protocol::Gemini => "error",
    };
    assert!(is_complete || last == failure, "{text}");
}
