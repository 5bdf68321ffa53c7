//! Edits of an answer while it passes: the provider's `[[response]]`, applied to each message of the answer.
//!
//! An answer in one piece is held until it is whole. Of a stream only the event or element in progress is held, so that
//! each goes on as soon as it is complete. What is larger than a bound, broken, or not JSON passes as it came.

mod array;
mod event;

use self::{array::ElementRewriter, event::EventRewriter};
use crate::domain::{
    rules::{apply::edit_object, body::BodyRules, condition::RequestFacts},
    wire::protocol::Framing,
};

/// Bytes of an answer in one piece that are held at most; a longer one passes unedited.
pub(crate) const ANSWER_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Rewrites one answer. However the answer is split into pieces, the client gets the same bytes.
#[derive(Debug)]
pub struct ResponseRewriter {
    rules: BodyRules,
    frame: Frame,
}

#[derive(Debug)]
enum Frame {
    Sse(EventRewriter),
    Array(ElementRewriter),
    /// What is held of an answer in one piece.
    Whole(Vec<u8>),
    /// Everything passes as it comes.
    Untouched,
}

impl ResponseRewriter {
    /// A rewriter for the answer to one request. `None`: no edit can apply to it, so it need not pass here.
    pub fn new(rules: &BodyRules, facts: &RequestFacts<'_>, framing: Framing) -> Option<Self> {
        let frame = match framing {
            Framing::Sse => Frame::Sse(EventRewriter::default()),
            Framing::JsonArray => Frame::Array(ElementRewriter::default()),
            Framing::Json => Frame::Whole(Vec::new()),
            Framing::Opaque => return None,
        };
        let rules = rules.for_request(facts);
        (!rules.is_empty()).then_some(Self { rules, frame })
    }

    /// Takes the next piece of the answer, of any size, and gives what can go on to the client now.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        match &mut self.frame {
            Frame::Sse(events) => events.push(bytes, &self.rules, &mut out),
            Frame::Array(elements) => elements.push(bytes, &self.rules, &mut out),
            Frame::Whole(held) if held.len().saturating_add(bytes.len()) <= ANSWER_BYTES_MAX => {
                held.extend_from_slice(bytes);
            }
            Frame::Whole(held) => {
                out.append(held);
                out.extend_from_slice(bytes);
                self.frame = Frame::Untouched;
            }
            Frame::Untouched => out.extend_from_slice(bytes),
        }
        out
    }

    /// The answer is over, or broke off: gives the rest of it. An event that no blank line has ended goes unedited.
    pub fn finish(&mut self) -> Vec<u8> {
        match std::mem::replace(&mut self.frame, Frame::Untouched) {
            Frame::Sse(events) => events.into_held(),
            Frame::Array(elements) => elements.into_held(),
            Frame::Whole(held) => edit_object(&self.rules, &held).unwrap_or(held),
            Frame::Untouched => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests;
