//! How an answer begins, and what its first bytes tell of it.

use super::*;

const ANNOUNCED: [AnswerFraming; 4] = [
    AnswerFraming::Sse,
    AnswerFraming::Json,
    AnswerFraming::JsonArray,
    AnswerFraming::Opaque,
];

#[test]
fn an_answer_begins_with_its_first_event_that_is_neither_a_ping_nor_an_error() {
    use Protocol::{Gemini, Messages, Responses};
    let start = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{}}\n\n";
    let ping = "event: ping\ndata: {\"type\": \"ping\"}\n\n";
    let error = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}\n\n";
    for (protocol, bytes, begun) in [
        (Messages, String::new(), false),
        (Messages, ": comment\n\n".to_owned(), false),
        (Messages, ping.to_owned(), false),
        (Messages, "event: ping\ndata: {}\n\n".to_owned(), false),
        (Messages, error.to_owned(), false),
        (Messages, format!("{ping}{error}"), false),
        (Messages, start.to_owned(), true),
        (Messages, format!(": c\n\n{ping}{start}"), true),
        (Messages, start.trim_end_matches("}\n\n").to_owned(), false),
        // It lacks only its blank line.
        (Messages, format!("{}\n", start.trim_end()), true),
        (Messages, "data: hello\n\n".to_owned(), false),
        (Responses, "data: {\"type\":\"response.created\"}\n\n".to_owned(), true),
        (
            Responses,
            "data: {\"type\":\"error\",\"code\":\"server_error\"}\n\n".to_owned(),
            false,
        ),
        (
            Responses,
            "data: {\"type\":\"response.failed\",\"response\":{}}\n\n".to_owned(),
            false,
        ),
        (Responses, "data: [DONE]\n\n".to_owned(), false),
        (Gemini, "data: {}\r\n\r\n".to_owned(), false),
        (Gemini, "data: {\"modelVersion\":\"m\"}\r\n\r\n".to_owned(), true),
        (Gemini, "data: {\"error\":{\"code\":503}}\r\n\r\n".to_owned(), false),
        (Gemini, "[{\"usageMetadata\":{}}".to_owned(), true),
        (Gemini, "[{}".to_owned(), false),
        (Gemini, "[{\"error\":{\"code\":503}}".to_owned(), false),
        (Gemini, "[{\"candidates\":[".to_owned(), false),
    ] {
        for size in [1, 3, 1000] {
            let observer = observe(protocol, AnswerFraming::Sse, bytes.as_bytes(), size);
            assert_eq!(observer.has_begun(), begun, "{protocol:?} {bytes:?} {size}");
        }
    }
}

#[test]
fn an_answer_of_an_unknown_coding_is_read_only_if_it_looks_like_one() {
    for (bytes, framing) in [
        ("data: {}\n\n", AnswerFraming::Sse),
        ("{}", AnswerFraming::Json),
        ("\u{1f}\u{9d}coded", AnswerFraming::Opaque),
    ] {
        let mut observer = Observer::for_unknown_coding(Protocol::Messages.into(), AnswerFraming::Sse);
        observer.push(bytes.as_bytes());
        assert_eq!(observer.framing(), framing, "{bytes:?}");
    }
}

#[test]
fn a_failure_tail_ends_a_field_that_has_hardly_begun() {
    let mut observer = Observer::new(Protocol::Messages, AnswerFraming::Sse);
    observer.push(b"da");
    let tail = observer.failure_tail(Break::ProviderCut).unwrap();
    assert!(tail.starts_with(b"\n\nevent: error\n"));
}

/// A stream, and how its head announces it.
fn announced_streams() -> impl Strategy<Value = (String, AnswerFraming)> {
    let pairs = names()
        .into_iter()
        .flat_map(|name| ANNOUNCED.map(|announced| (name.clone(), announced)));
    // A bare object in an array's place is read as its element, and else as a body.
    let is_told_apart = |(name, announced): &(String, AnswerFraming)| {
        let (_, framing) = kind_of(name);
        let is_array = stream(name).trim_ascii_start().starts_with(b"[");
        (framing != AnswerFraming::JsonArray || is_array)
            && (framing != AnswerFraming::Json || *announced != AnswerFraming::JsonArray)
    };
    prop::sample::select(pairs.filter(is_told_apart).collect::<Vec<_>>())
}

proptest! {
    #[test]
    fn the_first_bytes_and_not_the_head_decide_what_is_read(
        (name, announced) in announced_streams(),
        size in 1_usize..200,
    ) {
        let (protocol, framing) = kind_of(&name);
        let bytes = stream(&name);
        let right = observe(protocol, framing, &bytes, 4096);
        let sniffed = observe(protocol, announced, &bytes, size);
        prop_assert_eq!(sniffed.framing(), framing);
        prop_assert_eq!(sniffed.observed(), right.observed());
        prop_assert_eq!(sniffed.output_estimate(), right.output_estimate());
    }

    #[test]
    fn any_split_begins_at_the_same_byte(
        name in prop::sample::select(names()),
        length in any::<prop::sample::Index>(),
        size in 1_usize..50,
    ) {
        let (protocol, framing) = kind_of(&name);
        let bytes = stream(&name);
        let start = &bytes[..length.index(bytes.len())];
        let whole = observe(protocol, framing, start, usize::MAX);
        let split = observe(protocol, framing, start, size);
        prop_assert_eq!(split.has_begun(), whole.has_begun());
        prop_assert_eq!(split.is_framing_known(), whole.is_framing_known());
    }
}
