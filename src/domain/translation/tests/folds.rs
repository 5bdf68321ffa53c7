//! A written stream, a non-streaming answer, and the provider's answer with and without a stream all say the same, however the
//! provider's bytes are split into pieces.

use proptest::prelude::*;
use serde_json::Value;

use super::{
    ClientBytes, TARGETS, client_bytes,
    clients::read_answer,
    content::{answer_content, opaque_text},
    forms, frame,
    recordings::{Recording, for_each_case},
};
use crate::domain::{
    translation::answer::{AnswerFault, write::AnswerForm},
    wire::{Protocol, UpstreamProtocol},
};

/// The maximum length of a stream that is split at each of its bytes.
const SMALL_BYTES_MAX: usize = 1_800;
/// Sizes of pieces.
const SIZES: [usize; 12] = [1, 2, 3, 4, 5, 7, 11, 16, 31, 64, 255, 1_024];

/// The positions behind each event of a stream, and that before the first.
fn event_ends(stream: &str) -> Vec<usize> {
    let blank_lines = ["\n\n", "\r\n\r\n"].into_iter();
    let ends = blank_lines.flat_map(|blank| stream.match_indices(blank).map(move |(at, _)| at + blank.len()));
    std::iter::once(0).chain(ends).collect()
}

/// Checks what the client's final object says against what the provider has said.
fn check_content(recording: &Recording, (client, shows): (Protocol, bool), object: &Value) {
    let mut content = answer_content(client, object);
    let expected = &recording.expected;
    if expected.content.iter().all(|item| item.get("id").is_none()) {
        // The provider has no ids of calls; some clients get one of weir's.
        for item in &mut content.items {
            item.as_object_mut().unwrap().remove("id");
        }
    }
    let visible = expected.content.iter();
    let visible: Vec<&Value> = visible.filter(|item| shows || item.get("thought").is_none()).collect();
    assert_eq!(content.items.iter().collect::<Vec<_>>(), visible);
    assert_eq!(content.end, expected.end);
    let states = content.states.iter();
    let opaque: Vec<String> = states
        .filter_map(|state| opaque_text(recording.protocol, state))
        .collect();
    assert_eq!(opaque, expected.opaque);
}

#[test]
fn every_protocol_has_its_recordings() {
    let count = |protocol: UpstreamProtocol| {
        let recordings = Recording::all().iter();
        recordings.filter(|recording| recording.protocol == protocol).count()
    };
    assert_eq!(TARGETS.map(count), [7, 9, 7, 11]);
    for recording in Recording::all() {
        let is_error = recording.expected.error.is_some();
        assert_eq!(recording.body.is_none(), is_error, "{}", recording.name);
    }
}

#[test]
fn a_written_stream_accumulates_to_the_non_streaming_answer() {
    for_each_case(|recording, client, shows| {
        let whole = recording.stream_answer(client, (AnswerForm::Whole, shows));
        if let Some(error) = &recording.expected.error {
            // Nothing is written, so that the client gets an error answer.
            let fault = AnswerFault::ProviderFailed { status: error.status };
            assert_eq!((whole.fault, whole.text.as_str()), (Some(fault), ""));
            return;
        }
        assert_eq!((whole.fault, whole.is_complete), (None, true));
        let whole = read_answer(client, AnswerForm::Whole, &whole.text);
        for form in forms(client) {
            let answer = recording.stream_answer(client, (*form, shows));
            assert_eq!(read_answer(client, *form, &answer.text), whole, "{form:?}");
        }
    });
}

#[test]
fn each_client_gets_what_the_provider_has_said() {
    for_each_case(|recording, client, shows| {
        if recording.expected.error.is_some() {
            return;
        }
        for form in forms(client) {
            let wish = (*form, shows);
            let answers = [
                recording.stream_answer(client, wish),
                recording.body_answer(client, wish).unwrap(),
            ];
            for answer in answers {
                assert_eq!((answer.fault, answer.is_complete), (None, true), "{form:?}");
                let answer = read_answer(client, *form, &answer.text);
                check_content(recording, (client, shows), &answer.object);
            }
        }
    });
}

#[test]
fn an_error_in_the_stream_reaches_each_client_in_its_own_form() {
    for_each_case(|recording, client, shows| {
        let Some(expected) = &recording.expected.error else {
            return;
        };
        for form in forms(client).iter().filter(|form| **form != AnswerForm::Whole) {
            let answer = recording.stream_answer(client, (*form, shows));
            assert_eq!((answer.fault, answer.is_complete), (None, true), "{form:?}");
            let error = read_answer(client, *form, &answer.text).error.unwrap();
            assert_eq!(error["message"], expected.message.as_str(), "{form:?}");
            if client == Protocol::Gemini {
                assert_eq!(error["code"], expected.status);
            }
        }
    });
}

#[test]
fn an_answer_that_ends_early_is_never_complete_for_the_client() {
    for_each_case(|recording, client, shows| {
        let (translation, usage) = (recording.translation(client), &recording.expected.usage);
        for end in event_ends(&recording.stream) {
            let begun = &recording.stream.as_bytes()[..end];
            let answer = client_bytes(&translation, frame(AnswerForm::Stream, shows), true, [begun], usage);
            let read = read_answer(client, AnswerForm::Stream, &answer.text);
            let is_good = answer.is_complete && recording.expected.error.is_none();
            assert_eq!(read.error.is_none(), is_good, "{end}: {}", answer.text);
            let whole = client_bytes(&translation, frame(AnswerForm::Whole, shows), true, [begun], usage);
            assert_eq!(whole.text.is_empty(), !is_good, "{end}: {}", whole.text);
        }
    });
}

/// What a client gets of the recording's stream in these pieces.
fn in_pieces<'p>(
    recording: &Recording,
    (client, form): (Protocol, AnswerForm),
    pieces: impl IntoIterator<Item = &'p [u8]>,
) -> ClientBytes {
    let usage = &recording.expected.usage;
    client_bytes(&recording.translation(client), frame(form, true), true, pieces, usage)
}

/// The bytes cut at these positions.
fn cut<'b>(bytes: &'b [u8], positions: &[usize]) -> Vec<&'b [u8]> {
    let mut positions: Vec<usize> = positions.iter().map(|position| position % (bytes.len() + 1)).collect();
    positions.sort_unstable();
    let mut pieces = Vec::new();
    let mut begin = 0;
    for end in positions.into_iter().chain([bytes.len()]) {
        pieces.push(&bytes[begin..end]);
        begin = end;
    }
    pieces
}

#[test]
fn pieces_of_any_size_become_the_same_bytes() {
    for recording in Recording::all() {
        for client in Protocol::ALL {
            for form in forms(client) {
                let whole = recording.stream_answer(client, (*form, true));
                let body = recording.body_answer(client, (*form, true));
                for size in SIZES {
                    let label = format!("{} for {} by {size}", recording.name, client.as_str());
                    let pieces = recording.stream.as_bytes().chunks(size);
                    assert_eq!(in_pieces(recording, (client, *form), pieces), whole, "{label}");
                    let Some(text) = &recording.body else { continue };
                    let (translation, usage) = (recording.translation(client), &recording.expected.usage);
                    let pieces = text.as_bytes().chunks(size);
                    let again = client_bytes(&translation, frame(*form, true), false, pieces, usage);
                    assert_eq!(Some(again), body, "{label}");
                }
            }
        }
    }
}

#[test]
fn a_small_stream_that_is_split_anywhere_becomes_the_same_bytes() {
    let is_small = |recording: &&Recording| recording.stream.len() <= SMALL_BYTES_MAX;
    let small: Vec<&Recording> = Recording::all().iter().filter(is_small).collect();
    assert!(small.len() >= 10, "{}", small.len());
    for recording in small {
        let bytes = recording.stream.as_bytes();
        for client in Protocol::ALL {
            let wish = (client, AnswerForm::Stream);
            let whole = in_pieces(recording, wish, [bytes]);
            for position in 0..=bytes.len() {
                let split = in_pieces(recording, wish, cut(bytes, &[position]));
                assert_eq!(split, whole, "{} at {position}", recording.name);
            }
        }
    }
}

proptest! {
    #[test]
    fn a_stream_in_any_pieces_becomes_the_same_bytes(
        number in any::<prop::sample::Index>(),
        positions in prop::collection::vec(any::<usize>(), 0..8),
    ) {
        let recording = number.get(Recording::all());
        let bytes = recording.stream.as_bytes();
        for client in Protocol::ALL {
            for form in forms(client) {
                let split = in_pieces(recording, (client, *form), cut(bytes, &positions));
                prop_assert_eq!(split, in_pieces(recording, (client, *form), [bytes]), "{}", recording.name);
            }
        }
    }
}
