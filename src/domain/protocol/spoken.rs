//! Where in an answer the text is that a model has written: what its output tokens are counted by, where no usage is
//! reported.
//!
//! Text, arguments of tool calls, and the reasoning that the provider shows. What an answer says again (the `done` events
//! and the last event of a Responses stream repeat all that went before) is not listened to.

use crate::domain::json_pick::Segment::{Each, Key};
use crate::domain::json_pick::{Path, Segment, Take};

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
