//! The client's bytes do not depend on how the provider's bytes are split into pieces.

use proptest::prelude::*;

use super::{ClientBytes, client_bytes, forms, frame, recordings::Recording};
use crate::domain::{translation::answer::write::AnswerForm, wire::Protocol};

/// The maximum length of a stream that is split at each of its bytes.
const SMALL_BYTES_MAX: usize = 1_800;
/// Sizes of pieces.
const SIZES: [usize; 12] = [1, 2, 3, 4, 5, 7, 11, 16, 31, 64, 255, 1_024];

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
