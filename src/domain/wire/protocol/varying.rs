//! The paths of the text in an answer, and the members that differ between events that only add text.

use memchr::memmem;

use crate::domain::wire::json_pick::{
    PickPath, PickRule,
    PickSegment::{self, Each, Key},
};

/// The maximum number of digits of a number that can differ from event to event. Every parser reads a number of this length
/// without loss of precision.
const DIGITS_MAX: usize = 15;

/// A member whose value can differ from event to event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct VaryingMember {
    /// The member's key as it is written, including its quotes.
    pub(super) key: &'static [u8],
    /// The kind of the member's value.
    pub(super) value: VaryingKind,
}

/// The kind of a value that can differ from event to event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VaryingKind {
    /// The text of the answer, a string.
    Text,
    /// The sequence number of the event.
    Number,
    /// Padding, a string that hides the length of the text.
    Filling,
    /// A number in the usage of the event, or another number that weir does not read.
    Count,
}

/// The properties of an event that only adds text and, possibly, usage.
#[derive(Clone, Copy, Debug)]
pub(super) struct TextDelta {
    /// The members that can differ in the next event that only adds text.
    pub(super) varying: &'static [VaryingMember],
    /// The usage in the event; `None` if it has none.
    pub(super) usage: Option<VerbatimMember>,
}

/// A member whose value in an event is found by the member's key and the value's length, without being parsed.
#[derive(Clone, Copy, Debug)]
pub(super) struct VerbatimMember {
    /// The member's key as it is written, including its quotes.
    pub(super) key: &'static [u8],
    /// The length of the member's value in bytes.
    pub(super) length: usize,
}

impl VerbatimMember {
    /// Returns the offset of the member's value in an event. `None` if the key is missing or repeated, or is not followed by a
    /// colon, at most one space and an object.
    pub(super) fn find(&self, event: &[u8]) -> Option<usize> {
        let value_at = offset_after_key(event, self.key, b":")?;
        let after_space = value_at + usize::from(event.get(value_at) == Some(&b' '));
        let end = after_space.checked_add(self.length)?;
        (event.get(after_space) == Some(&b'{') && end <= event.len()).then_some(after_space)
    }
}

/// Returns the offset after a key and after the bytes `then`, which must follow the key. `None` if the key is missing or
/// repeated, or `then` does not follow it.
fn offset_after_key(event: &[u8], key: &[u8], then: &[u8]) -> Option<usize> {
    let at = memmem::find(event, key)?.checked_add(key.len())?;
    let rest = event.get(at..)?;
    (memmem::find(rest, key).is_none() && rest.starts_with(then)).then_some(at + then.len())
}

impl VaryingMember {
    /// Returns the offset, length and kind of the member's value in an event. `None` if the key is missing or repeated, or the
    /// value is written in an unexpected way.
    pub(super) fn find(&self, event: &[u8]) -> Option<(usize, usize, VaryingKind)> {
        let before: &[u8] = match self.value {
            VaryingKind::Number | VaryingKind::Count => b":",
            VaryingKind::Text | VaryingKind::Filling => b":\"",
        };
        let mut at = offset_after_key(event, self.key, before)?;
        if self.value == VaryingKind::Count && event.get(at) == Some(&b' ') {
            at += 1;
        }
        let value = event.get(at..)?;
        let length = self.value.length(value)?;
        let next = value.get(length)?;
        let ends = match self.value {
            VaryingKind::Number | VaryingKind::Count => matches!(next, b',' | b'}'),
            VaryingKind::Text | VaryingKind::Filling => *next == b'"',
        };
        ends.then_some((at, length, self.value))
    }
}

impl VaryingKind {
    /// Returns the length of a value of this kind at the beginning of `bytes`; `None` if they do not begin with a complete one.
    #[inline]
    pub(super) fn length(self, bytes: &[u8]) -> Option<usize> {
        match self {
            Self::Text | Self::Filling => bytes
                .iter()
                .position(|byte| matches!(byte, b'"' | b'\\' | b'\n' | b'\r')),
            Self::Number | Self::Count => {
                let digits = bytes.iter().position(|byte| !byte.is_ascii_digit())?;
                (1..=DIGITS_MAX).contains(&digits).then_some(digits)
            }
        }
    }
}

/// The paths of the text that the model writes, in the events and complete bodies of the Messages protocol: text, arguments of
/// tool calls, and visible reasoning. If no usage is reported, the output tokens are estimated from this text.
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

/// The paths of the text that the model writes, in the events and complete bodies of the Responses protocol. In a stream, every
/// text is the `delta` of some event. The `done` events and the last event repeat the text and are ignored.
pub(super) const RESPONSES: &[PickPath] = &[
    text_path(&[Key("delta")]),
    text_path(&[Key("output"), Each, Key("content"), Each, Key("text")]),
    text_path(&[Key("output"), Each, Key("content"), Each, Key("refusal")]),
    text_path(&[Key("output"), Each, Key("summary"), Each, Key("text")]),
    text_path(&[Key("output"), Each, Key("name")]),
    text_path(&[Key("output"), Each, Key("arguments")]),
    text_path(&[Key("output"), Each, Key("input")]),
];

/// The paths of the text that the model writes, in the chunks of the Gemini-style protocol.
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

/// The paths of the text that the model writes, in the chunks and complete bodies of the `chat/completions` protocol.
pub(super) const CHAT: &[PickPath] = &[
    text_path(&[Key("choices"), Each, Key("delta"), Key("content")]),
    text_path(&[Key("choices"), Each, Key("delta"), Key("reasoning_content")]),
    text_path(&[Key("choices"), Each, Key("delta"), Key("reasoning")]),
    text_path(&[Key("choices"), Each, Key("delta"), Key("refusal")]),
    text_path(&[
        Key("choices"),
        Each,
        Key("delta"),
        Key("tool_calls"),
        Each,
        Key("function"),
        Key("name"),
    ]),
    text_path(&[
        Key("choices"),
        Each,
        Key("delta"),
        Key("tool_calls"),
        Each,
        Key("function"),
        Key("arguments"),
    ]),
    text_path(&[Key("choices"), Each, Key("message"), Key("content")]),
    text_path(&[Key("choices"), Each, Key("message"), Key("reasoning_content")]),
    text_path(&[Key("choices"), Each, Key("message"), Key("reasoning")]),
    text_path(&[Key("choices"), Each, Key("message"), Key("refusal")]),
    text_path(&[
        Key("choices"),
        Each,
        Key("message"),
        Key("tool_calls"),
        Each,
        Key("function"),
        Key("name"),
    ]),
    text_path(&[
        Key("choices"),
        Each,
        Key("message"),
        Key("tool_calls"),
        Each,
        Key("function"),
        Key("arguments"),
    ]),
];

const fn text_path(segments: &'static [PickSegment]) -> PickPath {
    PickPath::new(segments, PickRule::Text)
}
