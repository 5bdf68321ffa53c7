//! Tests of what ends a stream: the `[DONE]` marker.

use super::*;

const DONE: &[u8] = b"data: [DONE]\n\n";

fn responses() -> impl Iterator<Item = (String, Vec<u8>)> {
    let streams = names().into_iter().filter(|name| {
        let (protocol, framing) = kind_of(name);
        protocol == Protocol::Responses && framing == AnswerFraming::Sse
    });
    streams.map(|name| (name.clone(), stream(&name)))
}

#[test]
fn the_marker_is_there_once_behind_every_whole_responses_stream() {
    for (name, bytes) in responses() {
        let ended = observe(Protocol::Responses, AnswerFraming::Sse, &bytes, 7).is_complete();
        let told = memchr::memmem::find_iter(&bytes, b"data: [DONE]").count();
        for size in [1, 7, 100_000] {
            let closing = observe(Protocol::Responses, AnswerFraming::Sse, &bytes, size).done_marker_tail();
            assert_eq!(closing.is_some(), ended && told == 0, "{name}");
            let whole = [bytes.as_slice(), closing.as_deref().unwrap_or_default()].concat();
            assert_eq!(
                memchr::memmem::find_iter(&whole, b"data: [DONE]").count(),
                usize::from(ended).max(told),
                "{name}"
            );
            let after = observe(Protocol::Responses, AnswerFraming::Sse, &whole, size);
            assert_eq!(after.observed().saw_done_marker, ended, "{name}");
            assert_eq!(after.done_marker_tail(), None, "{name}");
        }
    }
}

#[test]
fn a_stream_that_is_cut_gets_no_marker_anywhere() {
    for (name, bytes) in responses() {
        for cut in 0..bytes.len() {
            let observer = observe(Protocol::Responses, AnswerFraming::Sse, &bytes[..cut], 50);
            assert!(
                observer.is_complete() || observer.done_marker_tail().is_none(),
                "{name} {cut}"
            );
        }
    }
}

#[test]
fn the_marker_stands_alone_whatever_is_unfinished_before_it() {
    const LAST: &str = "event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{}}";
    for (behind, closing) in [
        ("", "\n\ndata: [DONE]\n\n"),
        ("\n", "\n\ndata: [DONE]\n\n"),
        ("\n\n", "data: [DONE]\n\n"),
        ("\r\n\r\n", "data: [DONE]\n\n"),
        ("\n\n: a comment\n", "\n\ndata: [DONE]\n\n"),
        ("\n\ndata: [DONE]", "\n\n"),
        ("\n\ndata:[DONE]\n", "\n\n"),
        ("\n\ndata: [DONE]\n\n", ""),
        ("\r\rdata: [DONE]\r\r", ""),
    ] {
        for size in [1, 2, 3, 1000] {
            let bytes = [LAST, behind].concat();
            let found = observe(Protocol::Responses, AnswerFraming::Sse, bytes.as_bytes(), size).done_marker_tail();
            assert_eq!(found.unwrap_or_default(), closing.as_bytes(), "{behind:?} {size}");
        }
    }
}

#[test]
fn a_failure_that_the_provider_tells_is_an_end_too() {
    for last in ["response.failed", "response.incomplete", "error"] {
        let bytes = format!("event: {last}\ndata: {{\"type\":\"{last}\"}}\n\n");
        let closing = observe(Protocol::Responses, AnswerFraming::Sse, bytes.as_bytes(), 9).done_marker_tail();
        assert_eq!(closing.as_deref(), Some(DONE), "{last}");
    }
}

#[test]
fn no_other_protocol_or_framing_has_a_marker() {
    for name in names() {
        let (protocol, framing) = kind_of(&name);
        if (protocol, framing) != (Protocol::Responses, AnswerFraming::Sse) {
            assert_eq!(
                observe(protocol, framing, &stream(&name), 9).done_marker_tail(),
                None,
                "{name}"
            );
        }
    }
    assert_eq!(
        observe(Protocol::Responses, AnswerFraming::Opaque, b"x", 1).done_marker_tail(),
        None
    );
}

#[test]
fn an_array_that_breaks_off_can_always_be_ended_before_its_bracket() {
    for name in names().into_iter().filter(|name| name.starts_with("gemini-array")) {
        let bytes = stream(&name);
        let end = bytes.iter().rposition(|byte| *byte == b']').unwrap();
        for cut in 0..=bytes.len() {
            let observer = observe(Protocol::Gemini, AnswerFraming::JsonArray, &bytes[..cut], 13);
            let tail = observer.failure_tail(Break::ProviderCut);
            assert_eq!(tail.is_some(), cut <= end && bytes.starts_with(b"["), "{name} {cut}");
        }
    }
}
