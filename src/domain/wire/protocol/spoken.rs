//! Where an answer has the text that the model has written. Output tokens are estimated from it if no usage is
//! reported.
//!
//! It is text, arguments of tool calls, and visible reasoning. Repetitions are ignored: the `done` events and the last
//! event of a Responses stream repeat everything before.

use crate::domain::wire::json_pick::Segment::{Each, Key};
use crate::domain::wire::json_pick::{Path, Segment, Take};

/// In a stream's events, and in a whole body.
pub(super) const MESSAGES: &[Path] = &[
    text(&[Key("delta"), Key("text")]),
    text(&[Key("delta"), Key("thinking")]),
    text(&[Key("delta"), Key("partial_json")]),
    text(&[Key("content_block"), Key("text")]),
    text(&[Key("content_block"), Key("thinking")]),
    text(&[Key("content_block"), Key("name")]),
    text(&[Key("content"), Each, Key("text")]),
    text(&[Key("content"), Each, Key("thinking")]),
    text(&[Key("content"), Each, Key("name")]),
    text(&[Key("content"), Each, Key("input")]),
];

/// In a stream's events every text comes as the `delta` of some event.
pub(super) const RESPONSES: &[Path] = &[
    text(&[Key("delta")]),
    text(&[Key("output"), Each, Key("content"), Each, Key("text")]),
    text(&[Key("output"), Each, Key("content"), Each, Key("refusal")]),
    text(&[Key("output"), Each, Key("summary"), Each, Key("text")]),
    text(&[Key("output"), Each, Key("name")]),
    text(&[Key("output"), Each, Key("arguments")]),
    text(&[Key("output"), Each, Key("input")]),
];

/// In every chunk.
pub(super) const GEMINI: &[Path] = &[
    text(&[Key("candidates"), Each, Key("content"), Key("parts"), Each, Key("text")]),
    text(&[
        Key("candidates"),
        Each,
        Key("content"),
        Key("parts"),
        Each,
        Key("functionCall"),
    ]),
    text(&[
        Key("candidates"),
        Each,
        Key("content"),
        Key("parts"),
        Each,
        Key("executableCode"),
    ]),
];

const fn text(segments: &'static [Segment]) -> Path {
    Path::new(segments, Take::Text)
}
