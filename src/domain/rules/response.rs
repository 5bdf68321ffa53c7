//! Edits an answer while it passes: applies the provider's `[[response]]` edits to each message of the answer.
//!
//! An answer in one piece is held until it is complete. Of a stream, only the current event or element is held and passed on as
//! soon as it is complete. Anything that is too large, broken, or not JSON passes unedited.

mod array;
mod event;

use self::{array::ElementRewriter, event::EventRewriter};
use crate::domain::{
    rules::{apply::edit_object, body::BodyRules, condition::RequestFacts},
    wire::protocol::AnswerFraming,
};

/// Maximum bytes to hold of an answer in one piece; a longer one passes unedited.
pub(crate) const ANSWER_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Rewrites one answer. The result does not depend on how the answer is split into pieces.
#[derive(Debug)]
pub struct ResponseRewriter {
    rules: BodyRules,
    frame: FramingRewriter,
}

#[derive(Debug)]
enum FramingRewriter {
    Sse(EventRewriter),
    Array(ElementRewriter),
    /// The held bytes of an answer in one piece.
    Whole(Vec<u8>),
    /// Everything passes unedited.
    Untouched,
}

impl ResponseRewriter {
    /// A rewriter for the answer to one request; `None` if no edit can apply to it.
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

    /// Takes the next piece of the answer, of any size, and returns the bytes that can be sent to the client now.
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

    /// The answer has ended or broken off: returns the rest of it. An event without its final blank line is not edited.
    pub fn finish(&mut self) -> Vec<u8> {
        match std::mem::replace(&mut self.frame, FramingRewriter::Untouched) {
            FramingRewriter::Sse(events) => events.into_held(),
            FramingRewriter::Array(elements) => elements.into_held(),
            FramingRewriter::Whole(held) => edit_object(&self.rules, &held).unwrap_or(held),
            FramingRewriter::Untouched => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests;
