//! Edits an answer while it passes through weir: applies the provider's `[[response]]` edits to each message of the answer.
//!
//! A non-streaming answer is buffered until it is complete. Of a stream, only the current event or array element is buffered, and
//! it is passed on as soon as it is complete. Anything that is too large, broken, or not JSON passes unedited.

#[cfg(test)]
mod tests;

use std::ops::Range;

use crate::domain::{
    rules::{apply::edit_object, body::BodyRules, condition::RequestFacts},
    wire::{
        json_scan::{JsonEnd, JsonEndProgress},
        protocol::AnswerFraming,
    },
};

/// The maximum number of bytes of a non-streaming answer that are buffered. A longer answer passes unedited.
pub(crate) const ANSWER_BYTES_MAX: usize = 16 * 1024 * 1024;
/// A rewriter of one answer. The result does not depend on how the answer is split into pieces.
#[derive(Debug)]
pub struct ResponseRewriter {
    rules: BodyRules,
    frame: FramingRewriter,
}

#[derive(Debug)]
enum FramingRewriter {
    Sse(EventRewriter),
    Array(ElementRewriter),
    /// A non-streaming answer, with the bytes buffered so far.
    Whole(Vec<u8>),
    /// The rest of an answer, which passes unedited.
    Untouched,
}

impl ResponseRewriter {
    /// Returns a rewriter for the answer to one request; `None` if no edit can apply to the answer.
    pub fn new(rules: &BodyRules, facts: &RequestFacts<'_>, framing: AnswerFraming) -> Option<Self> {
        let frame = match framing {
            AnswerFraming::Sse => FramingRewriter::Sse(EventRewriter::default()),
            AnswerFraming::JsonArray => FramingRewriter::Array(ElementRewriter::default()),
            AnswerFraming::Json => FramingRewriter::Whole(Vec::new()),
            AnswerFraming::Opaque => return None,
        };
        let rules = rules.for_request(facts);
        (!rules.is_empty()).then_some(Self { rules, frame })
    }

    /// Takes the next piece of the answer, which can have any size. Returns the bytes that can now be sent to the client.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        match &mut self.frame {
            FramingRewriter::Sse(events) => events.push(bytes, &self.rules, &mut out),
            FramingRewriter::Array(elements) => elements.push(bytes, &self.rules, &mut out),
            FramingRewriter::Whole(held) if held.len().saturating_add(bytes.len()) <= ANSWER_BYTES_MAX => {
                held.extend_from_slice(bytes);
            }
            FramingRewriter::Whole(held) => {
                out.append(held);
                out.extend_from_slice(bytes);
                self.frame = FramingRewriter::Untouched;
            }
            FramingRewriter::Untouched => out.extend_from_slice(bytes),
        }
        out
    }

    /// Ends the answer, whether it is complete or broken off, and returns its remaining bytes. An event without its final blank
    /// line is not edited.
    pub fn finish(&mut self) -> Vec<u8> {
        match std::mem::replace(&mut self.frame, FramingRewriter::Untouched) {
            FramingRewriter::Sse(events) => events.into_held(),
            FramingRewriter::Array(elements) => elements.into_held(),
            FramingRewriter::Whole(held) => edit_object(&self.rules, &held).unwrap_or(held),
            FramingRewriter::Untouched => Vec::new(),
        }
    }
}

/// A rewriter for a streamed JSON array. It buffers one object at a time. The object is an element of the array or, if the
/// provider sends an error instead of an array, the error.
#[derive(Debug, Default)]
struct ElementRewriter {
    position: ElementPosition,
    buffered: Vec<u8>,
}

#[derive(Debug, Default)]
enum ElementPosition {
    /// Between two objects: brackets, commas and white space.
    #[default]
    Between,
    /// In an object, which is buffered.
    Buffered(JsonEnd),
    /// The position is in an object that is too large to buffer. The object passes unedited.
    TooLarge(JsonEnd),
    /// The answer contains a byte that does not belong to an array of objects. This byte and all later bytes pass unedited.
    Lost,
}

impl ElementRewriter {
    fn push(&mut self, bytes: &[u8], rules: &BodyRules, out: &mut Vec<u8>) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let used = match &mut self.position {
                ElementPosition::Lost => {
                    out.extend_from_slice(rest);
                    return;
                }
                ElementPosition::Between => {
                    let is_between = |byte: &u8| matches!(byte, b'[' | b']' | b',' | b' ' | b'\t' | b'\r' | b'\n');
                    let used = rest.iter().take_while(|byte| is_between(byte)).count();
                    out.extend_from_slice(rest.get(..used).unwrap_or_default());
                    self.position = match rest.get(used) {
                        Some(b'{') => ElementPosition::Buffered(JsonEnd::new()),
                        Some(_) => ElementPosition::Lost,
                        None => ElementPosition::Between,
                    };
                    used
                }
                ElementPosition::Buffered(end) => {
                    let room = EVENT_BYTES_MAX.saturating_sub(self.buffered.len());
                    let piece = rest.get(..room).unwrap_or(rest);
                    let (used, is_whole) = advance(end, piece);
                    self.buffered.extend_from_slice(piece.get(..used).unwrap_or_default());
                    if is_whole {
                        let edited = edit_object(rules, &self.buffered);
                        out.extend_from_slice(edited.as_deref().unwrap_or(&self.buffered));
                        self.buffered.clear();
                        self.position = ElementPosition::Between;
                    } else if room <= rest.len() {
                        out.append(&mut self.buffered);
                        self.position = ElementPosition::TooLarge(std::mem::take(end));
                    }
                    used
                }
                ElementPosition::TooLarge(end) => {
                    let (used, is_whole) = advance(end, rest);
                    out.extend_from_slice(rest.get(..used).unwrap_or_default());
                    if is_whole {
                        self.position = ElementPosition::Between;
                    }
                    used
                }
            };
            rest = rest.get(used..).unwrap_or_default();
        }
    }

    fn into_held(self) -> Vec<u8> {
        self.buffered
    }
}

/// Returns the number of bytes of `piece` that belong to the current object, and whether the current object ends in `piece`.
/// `end` is the search for the end of this object.
fn advance(end: &mut JsonEnd, piece: &[u8]) -> (usize, bool) {
    match end.push(piece) {
        JsonEndProgress::More => (piece.len(), false),
        JsonEndProgress::CompleteAt(at) => (at, true),
    }
}

/// The maximum number of bytes of one stream event or array element that are buffered. A longer one passes unedited.
pub(crate) const EVENT_BYTES_MAX: usize = 1024 * 1024;

const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// A rewriter for server-sent events, which buffers one event at a time. It replaces only the JSON of an event's `data` line.
/// Names, comments, unknown fields and line ends stay unchanged.
#[derive(Debug, Default)]
struct EventRewriter {
    held: Vec<u8>,
    /// The start of the current line in `held`.
    line_start: usize,
    data: DataLines,
    /// Whether the last byte was a CR that ended a line. If a LF follows, it is part of the same line end.
    after_cr: bool,
    /// Whether the current event is too large and passes unedited.
    is_passing: bool,
    /// Whether a line of the stream has already ended. A byte order mark is skipped only in the first line.
    has_begun: bool,
    /// Whether the current line already contains a byte.
    is_line_begun: bool,
}

/// The `data` lines of the current event.
#[derive(Debug, Default)]
enum DataLines {
    #[default]
    None,
    /// The event has one `data` line so far. The range is the position of this line's value in the buffered bytes.
    One(Range<usize>),
    /// Several lines, which are not edited.
    Several,
}

impl EventRewriter {
    fn push(&mut self, bytes: &[u8], rules: &BodyRules, out: &mut Vec<u8>) {
        let mut rest = bytes;
        while let Some(first) = rest.first() {
            if std::mem::take(&mut self.after_cr) && *first == b'\n' {
                // This LF is part of the previous line's end, so it is buffered or passed on after that line.
                self.hold_or_pass(b"\n", out);
                self.line_start = self.held.len();
                rest = rest.get(1..).unwrap_or_default();
                continue;
            }
            let Some(end) = memchr::memchr2(b'\n', b'\r', rest) else {
                self.hold_or_pass(rest, out);
                self.is_line_begun = true;
                return;
            };
            let (line, stop) = (
                rest.get(..end).unwrap_or_default(),
                rest.get(end..=end).unwrap_or_default(),
            );
            self.hold_or_pass(line, out);
            let is_blank = line.is_empty() && !self.is_line_begun;
            let text = self.line_start..self.held.len();
            self.hold_or_pass(stop, out);
            self.after_cr = stop == b"\r";
            self.is_line_begun = false;
            if is_blank {
                self.on_event_end(rules, out);
            } else if !self.is_passing {
                self.on_line_end(text, out);
            }
            rest = rest.get(end + 1..).unwrap_or_default();
        }
    }

    /// Buffers `bytes`, or passes them on if the event is too large.
    fn hold_or_pass(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        if !self.is_passing && self.held.len().saturating_add(bytes.len()) > EVENT_BYTES_MAX {
            out.append(&mut self.held);
            self.is_passing = true;
        }
        if self.is_passing || (self.held.is_empty() && bytes == b"\n") {
            // If nothing is buffered, a single LF passes at once.
            out.extend_from_slice(bytes);
        } else {
            self.held.extend_from_slice(bytes);
        }
    }

    fn on_line_end(&mut self, text: Range<usize>, out: &mut Vec<u8>) {
        let mut start = text.start;
        let mut line = self.held.get(text.clone()).unwrap_or_default();
        if !std::mem::replace(&mut self.has_begun, true) && line.starts_with(BYTE_ORDER_MARK) {
            start += BYTE_ORDER_MARK.len();
            line = line.get(BYTE_ORDER_MARK.len()..).unwrap_or_default();
        }
        if line == b"data" || line.starts_with(b"data:") {
            let value = line.strip_prefix(b"data:").unwrap_or_default();
            let skipped = line.len() - value.len() + usize::from(value.first() == Some(&b' '));
            self.data = match self.data {
                DataLines::None => DataLines::One(start + skipped..text.end),
                DataLines::One(_) | DataLines::Several => DataLines::Several,
            };
        }
        let is_comment_alone = text.start == 0 && line.first() == Some(&b':');
        if is_comment_alone {
            // A comment before any other line of an event, such as a heartbeat, is passed on at once.
            out.append(&mut self.held);
        }
        self.line_start = self.held.len();
    }

    fn on_event_end(&mut self, rules: &BodyRules, out: &mut Vec<u8>) {
        self.has_begun = true;
        let data = std::mem::take(&mut self.data);
        if let (false, DataLines::One(place)) = (self.is_passing, data) {
            let value = self.held.get(place.clone()).unwrap_or_default();
            if let Some(edited) = edit_object(rules, value) {
                self.held.splice(place, edited);
            }
        }
        out.append(&mut self.held);
        self.is_passing = false;
        self.line_start = 0;
    }

    fn into_held(self) -> Vec<u8> {
        self.held
    }
}
