//! What weir appends to an answer that lacks its end.

use super::Observer;
use super::answer_progress::{AnswerProgress, Reading};
use super::frame::{Events, Frame};
use super::sink::DONE_MARKER;
use crate::domain::wire::protocol::Break;

impl Observer {
    /// The bytes to append to a complete stream: the `[DONE]` marker, where the protocol has one and the provider sent none.
    ///
    /// Providers of the Responses protocol send none, although clients here are promised it (docs/interface.md, Streams).
    pub fn closing(&self) -> Option<Vec<u8>> {
        let Frame::Sse(Events { framer, head, .. }) = &self.frame else {
            return None;
        };
        let AnswerProgress { dialect, facts } = &self.reading.answer;
        if !dialect.ends_with_done() || facts.done_marker || !self.is_complete() {
            return None;
        }
        if framer.has_open_data() && head.is_marker() {
            // It is there, but for the blank line without which no client acts on it.
            return Some(b"\n\n".to_vec());
        }
        let before: &[u8] = if framer.is_between_events() { b"" } else { b"\n\n" };
        Some([before, b"data: ", DONE_MARKER, b"\n\n"].concat())
    }

    /// The bytes to append so that the client sees the protocol's in-band error.
    ///
    /// `None` if the error cannot be expressed in band (a unary or opaque body, or a closed array); the connection must
    /// be broken then.
    pub fn failure_tail(&self, why: Break) -> Option<Vec<u8>> {
        let Reading { picker, answer } = &*self.reading;
        let AnswerProgress { dialect, facts } = answer;
        match &self.frame {
            Frame::Sse(Events { framer, .. }) => {
                let event = dialect.failure_event(why, facts, self.number);
                let is_inside_field = self.first_bytes.as_ref().is_some_and(|first| !first.taken().is_empty());
                // Two line ends: the first may belong to a CR before it, or to half a line.
                let before: &[u8] = if framer.is_between_events() && !is_inside_field {
                    b""
                } else {
                    b"\n\n"
                };
                Some([before, event.as_slice()].concat())
            }
            Frame::JsonArray(framer) => framer.failure_tail(picker, &dialect.failure_element(why)?),
            Frame::Json(_) | Frame::Opaque(_) => None,
        }
    }
}
