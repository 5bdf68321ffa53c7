//! Tests of `passing_mask`: whatever the protocol, the framing and the pieces.

use proptest::prelude::*;

use super::*;
use crate::domain::wire::protocol::{AnswerFraming, Observer, Protocol};

const CREDENTIAL: &str = "sk-ab12CD34ef56GH78ij90KL12mn34OP56wxyz";

/// An answer: how it is framed, what comes of it before an error, the error's beginning and its end around a text, and what
/// comes behind it.
#[derive(Clone, Copy, Debug)]
struct Shape {
    protocol: Protocol,
    framing: AnswerFraming,
    /// Around a text.
    answer: [&'static str; 2],
    error: [&'static str; 2],
    end: &'static str,
}

const fn shape(
    protocol: Protocol,
    framing: AnswerFraming,
    answer: [&'static str; 2],
    error: [&'static str; 2],
    end: &'static str,
) -> Shape {
    Shape {
        protocol,
        framing,
        answer,
        error,
        end,
    }
}

const MESSAGES_DELTA: [&str; 2] = [
    "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"",
    "\"}}\n\n",
];
const RESPONSES_DELTA: [&str; 2] = [
    "data: {\"type\":\"response.output_text.delta\",\"sequence_number\":1,\"delta\":\"",
    "\"}\r\n\r\n",
];
const GEMINI_CHUNK: [&str; 2] = [
    "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"",
    "\"}],\"role\":\"model\"}}]}\r\n\r\n",
];
const GEMINI_ELEMENT: [&str; 2] = [
    "[{\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"",
    "\"}],\"role\":\"model\"}}]}\n,",
];

/// Every form in which a provider can say an error behind the head of a success.
const SHAPES: [Shape; 19] = [
    shape(
        Protocol::Messages,
        AnswerFraming::Sse,
        MESSAGES_DELTA,
        [
            "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\",\"message\":\"",
            "\"}}\n\n",
        ],
        "",
    ),
    shape(
        Protocol::Messages,
        AnswerFraming::Sse,
        MESSAGES_DELTA,
        ["data: {\"error\":{\"message\":\"", "\"},\"type\":\"error\"}\r\r"],
        ": the end\n\n",
    ),
    shape(
        Protocol::Messages,
        AnswerFraming::Sse,
        MESSAGES_DELTA,
        ["data: {\"msg\":\"", "\",\"code\":500,\"success\":false}\n\n"],
        "data: {\"type\":\"message_stop\"}\n\n",
    ),
    shape(
        Protocol::Messages,
        AnswerFraming::Sse,
        MESSAGES_DELTA,
        ["data: {\"message\":\"", "\",\"type\":\"invalid_request_error\"}\n\n"],
        "",
    ),
    shape(
        Protocol::Messages,
        AnswerFraming::Sse,
        MESSAGES_DELTA,
        ["event: error\ndata: no JSON: ", "\n\n"],
        "",
    ),
    shape(
        Protocol::Messages,
        AnswerFraming::Sse,
        MESSAGES_DELTA,
        [
            "event: error\ndata: {\"type\":\"error\",\ndata: \"error\":{\"message\":\"",
            "\"}}",
        ],
        "",
    ),
    shape(
        Protocol::Responses,
        AnswerFraming::Sse,
        RESPONSES_DELTA,
        [
            "event: response.failed\ndata: {\"type\":\"response.failed\",\"response\":{\"id\":\"resp_1\",\"error\":{\"code\":\"server_error\",\"message\":\"",
            "\"}}}\n\n",
        ],
        "data: [DONE]\n\n",
    ),
    shape(
        Protocol::Responses,
        AnswerFraming::Sse,
        RESPONSES_DELTA,
        [
            "data: {\"message\":\"",
            "\",\"code\":\"invalid_api_key\",\"type\":\"error\"}\n\n",
        ],
        "",
    ),
    shape(
        Protocol::Responses,
        AnswerFraming::Sse,
        RESPONSES_DELTA,
        ["id: 1\ndata: {\"error\":{\"message\":\"", "\",\"code\":null}}\n\n"],
        "data: [DONE]\n\n",
    ),
    shape(
        Protocol::Gemini,
        AnswerFraming::Sse,
        GEMINI_CHUNK,
        [
            "data: {\"error\":{\"code\":503,\"message\":\"",
            "\",\"status\":\"UNAVAILABLE\"}}\r\n\r\n",
        ],
        "",
    ),
    shape(
        Protocol::Gemini,
        AnswerFraming::Sse,
        GEMINI_CHUNK,
        ["data: {\"note\":\"", "\",\"error\":{\"code\":503}}\n\n"],
        "",
    ),
    shape(
        Protocol::Gemini,
        AnswerFraming::JsonArray,
        GEMINI_ELEMENT,
        [
            "{\"error\":{\"code\":503,\"message\":\"",
            "\",\"status\":\"UNAVAILABLE\"}}",
        ],
        "]",
    ),
    shape(
        Protocol::Gemini,
        AnswerFraming::JsonArray,
        ["", ""],
        [
            "{\"error\":{\"code\":503,\"message\":\"",
            "\",\"status\":\"UNAVAILABLE\"}}",
        ],
        "\n",
    ),
    shape(
        Protocol::Messages,
        AnswerFraming::Json,
        ["", ""],
        ["{\"type\":\"error\",\"error\":{\"message\":\"", "\"}}"],
        "",
    ),
    shape(
        Protocol::Messages,
        AnswerFraming::Json,
        ["", ""],
        ["{\"msg\":\"", "\",\"code\":500,\"success\":false}"],
        " \n",
    ),
    shape(
        Protocol::Responses,
        AnswerFraming::Json,
        ["", ""],
        ["{\"error\":{\"message\":\"", "\"}}"],
        "",
    ),
    shape(
        Protocol::Responses,
        AnswerFraming::Json,
        ["", ""],
        ["{\"instructions\":\"", "\",\"status\":\"failed\"}"],
        "",
    ),
    shape(
        Protocol::Gemini,
        AnswerFraming::Json,
        ["", ""],
        ["{\"error\":{\"message\":\"", "\"}}"],
        "",
    ),
    shape(
        Protocol::Messages,
        AnswerFraming::Opaque,
        ["", ""],
        ["<html>", "</html>"],
        "",
    ),
];

/// What resembles the credential, what only begins to, and what does not.
const ECHOES: [&str; 16] = [
    CREDENTIAL,
    "sk-ab12CD",
    "34ef56GH78ij90KL12",
    "56wxyzsk-ab12CD3",
    "sk-ab***wxyz",
    "sk-ab**********************wxyz",
    "sk-a\u{2026}wxyz",
    "sk-ab\u{2022}\u{2022}\u{2022}wxyz",
    "sk-ab\\u2026yz",
    "sk...yz",
    "****wxyz",
    "sk-ab12...",
    "sk-ab",
    "**bold** and 78ij90K",
    "wait...",
    "",
];

fn text() -> impl Strategy<Value = String> {
    let plain = "[ !#-\\[\\]-~]{0,24}";
    let echo = prop::sample::select(&ECHOES[..]);
    (plain, echo.clone(), plain, echo, plain).prop_map(|(a, b, c, d, e)| [a.as_str(), b, &c, d, &e].concat())
}

fn masked(text: &str) -> Vec<u8> {
    let mut text = text.as_bytes().to_vec();
    mask_in_place(&mut text, &CredentialSearch::new(CREDENTIAL.as_bytes()));
    text
}

/// What passes of an answer in pieces of these sizes, over and over. `look` sees after each piece how many bytes have come and how
/// many have passed.
fn passed(shape: &Shape, answer: &[u8], sizes: &[usize], mut look: impl FnMut(usize, usize)) -> Vec<u8> {
    let mut observer = Observer::new(shape.protocol, shape.framing);
    let (mut mask, mut out, mut at) = (PassingMask::default(), Vec::new(), 0);
    for size in sizes.iter().cycle() {
        let piece = &answer[at..(at + size).min(answer.len())];
        if piece.is_empty() {
            break;
        }
        at += piece.len();
        observer.push(piece);
        match mask.push(piece, observer.boundaries(), CREDENTIAL) {
            MaskedPiece::First(length) => out.extend_from_slice(&piece[..length]),
            MaskedPiece::Instead(bytes) => out.extend(bytes),
        }
        look(at, out.len());
    }
    assert_eq!(observer.framing(), shape.framing, "{shape:?}");
    out.extend(mask.finish(CREDENTIAL));
    out
}

/// Whether the bytes have the credential, or much of it.
fn tells(bytes: &[u8]) -> bool {
    CREDENTIAL
        .as_bytes()
        .windows(8)
        .any(|run| memmem::find(bytes, run).is_some())
}

proptest! {
    #[test]
    fn errors_are_masked_and_everything_else_stays_at_any_split(
        shape in prop::sample::select(&SHAPES[..]),
        said in text(),
        told in text(),
        sizes in prop::collection::vec(1_usize..60, 1..12),
    ) {
        let [before, behind] = shape.answer;
        let answer = match before {
            "" => String::new(),
            before => [before, &said, behind].concat(),
        };
        let [before, behind] = shape.error;
        let error = [before, &told, behind, shape.end].concat();
        let expected = [answer.as_bytes(), &masked(&error)].concat();
        let whole = [answer.as_bytes(), error.as_bytes()].concat();
        let mut early = None;
        let out = passed(&shape, &whole, &sizes, |come, out| {
            // A message that is no error has passed when its end has come.
            if come >= answer.len() && out < answer.len() {
                early = Some((come, out));
            }
        });
        prop_assert_eq!(early, None);
        prop_assert!(!tells(&out[answer.len()..]), "{}", String::from_utf8_lossy(&out));
        prop_assert_eq!(String::from_utf8_lossy(&out), String::from_utf8_lossy(&expected));
    }

    #[test]
    fn an_answer_never_waits_for_what_is_no_part_of_the_credential(
        shape in prop::sample::select(&SHAPES[..]),
        said in "[ !#&-),:-@]{0,80}",
        size in 1_usize..40,
    ) {
        let [before, behind] = shape.answer;
        let answer = [before, &said, behind].concat();
        if !before.is_empty() {
            let known = match shape.protocol {
                // Their events are known by their type.
                Protocol::Messages | Protocol::Responses => before.len() - 8,
                Protocol::Gemini => before.len(),
            };
            passed(&shape, answer.as_bytes(), &[size], |come, out| {
                if come > known && come <= before.len() + said.len() {
                    assert_eq!(come, out, "{answer}");
                }
                assert!(come - out < 8, "{answer}");
            });
        }
    }
}

#[test]
fn events_of_a_known_type_pass_at_once_whatever_they_say() {
    for (at, [before, behind]) in [(0, MESSAGES_DELTA), (6, RESPONSES_DELTA)] {
        let event = [before, CREDENTIAL, "***", behind].concat();
        let known = event.find("_delta\"").or_else(|| event.find(".delta\"")).unwrap() + 7;
        let out = passed(&SHAPES[at], event.as_bytes(), &[1], |come, out| {
            assert!(come < known || come == out, "{come} {out}");
        });
        assert_eq!(out, event.as_bytes());
    }
}

#[test]
fn a_long_message_waits_within_a_limit_and_keeps_all_but_the_credential() {
    let shape = SHAPES.iter().find(|shape| shape.answer == GEMINI_CHUNK).unwrap();
    let long = "some words of it ".repeat(20_000);
    let [before, behind] = GEMINI_CHUNK;
    let (part, _) = CREDENTIAL.split_at(8);
    let event = |inner: &str| [before, part, &long, inner, &long, behind].concat();
    for size in [1_000, 16_384, 500_000] {
        let whole = event(CREDENTIAL);
        let out = passed(shape, whole.as_bytes(), &[size], |come, out| {
            assert!(come - out <= WAITING_BYTES_MAX, "{come} {out}");
        });
        let hidden = event(&"*".repeat(CREDENTIAL.len()));
        assert!(out == hidden.as_bytes(), "{size}");
    }
}

#[test]
fn a_long_run_of_fillers_passes() {
    let shape = SHAPES.iter().find(|shape| shape.answer == GEMINI_CHUNK).unwrap();
    let [before, behind] = GEMINI_CHUNK;
    let event = [before, &"*".repeat(3 * WAITING_BYTES_MAX), behind].concat();
    let out = passed(shape, event.as_bytes(), &[10_000], |come, out| {
        assert!(come - out <= WAITING_BYTES_MAX, "{come} {out}");
    });
    assert!(out == event.as_bytes());
}
