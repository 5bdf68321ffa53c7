//! The paths of the text that the model writes.

use crate::domain::wire::json_pick::PickSegment::{Each, Key};
use crate::domain::wire::json_pick::{PickPath, PickRule, PickSegment};

/// The paths of the text that the model writes, in a stream's events and in a complete body: text, arguments of tool calls, and
/// visible reasoning. Output tokens are estimated from it if no usage is reported.
pub(super) const MESSAGES: &[PickPath] = &[
    text_path(&[Key("delta"), Key("text")]),
    text_path(&[Key("delta"), Key("thinking")]),
    text_path(&[Key("delta"), Key("partial_json")]),
    text_path(&[Key("content_block"), Key("text")]),
    text_path(&[Key("content_block"), Key("thinking")]),
    text_path(&[Key("content_block"), Key("name")]),
    text_path(&[Key("content"), Each, Key("text")]),
    text_path(&[Key("content"), Each, Key("thinking")]),
    text_path(&[Key("content"), Each, Key("name")]),
    text_path(&[Key("content"), Each, Key("input")]),
];

/// The same for Responses. In a stream, every text is the `delta` of some event; the `done` events and the last event repeat it
/// and are ignored.
pub(super) const RESPONSES: &[PickPath] = &[
    text_path(&[Key("delta")]),
    text_path(&[Key("output"), Each, Key("content"), Each, Key("text")]),
    text_path(&[Key("output"), Each, Key("content"), Each, Key("refusal")]),
    text_path(&[Key("output"), Each, Key("summary"), Each, Key("text")]),
    text_path(&[Key("output"), Each, Key("name")]),
    text_path(&[Key("output"), Each, Key("arguments")]),
    text_path(&[Key("output"), Each, Key("input")]),
];

/// The same for Gemini, in every chunk.
pub(super) const GEMINI: &[PickPath] = &[
    text_path(&[Key("candidates"), Each, Key("content"), Key("parts"), Each, Key("text")]),
    text_path(&[
        Key("candidates"),
        Each,
        Key("content"),
        Key("parts"),
        Each,
        Key("functionCall"),
    ]),
    text_path(&[
        Key("candidates"),
        Each,
        Key("content"),
        Key("parts"),
        Each,
        Key("executableCode"),
    ]),
];

const fn text_path(segments: &'static [PickSegment]) -> PickPath {
    PickPath::new(segments, PickRule::Text)
}
