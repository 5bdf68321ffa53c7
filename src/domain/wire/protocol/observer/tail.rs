//! The bytes that weir appends to an answer without an end.

use super::Observer;
use super::answer_progress::{AnswerProgress, AnswerReader};
use super::frame::{EventStreamState, FramingState};
use super::sink::DONE_MARKER;
use crate::domain::wire::protocol::Break;

impl Observer {
    /// The bytes to append to a complete stream: the `[DONE]` marker, if the protocol has one and the provider did not send it.
    ///
    /// Providers of the Responses protocol do not send it, but weir promises it to clients (docs/interface.md, Streams).
    pub fn done_marker_tail(&self) -> Option<Vec<u8>> {
        let FramingState::Sse(EventStreamState { framer, head, .. }) = &self.frame else {
            return None;
        };
        let AnswerProgress { dialect, facts } = &self.reading.answer;
        if !dialect.ends_with_done() || facts.done_marker || !self.is_complete() {
            return None;
        }
        if framer.has_open_data() && head.is_marker() {
            // The marker has arrived without its blank line, which clients need.
            return Some(b"\n\n".to_vec());
        }
        let before: &[u8] = if framer.is_between_events() { b"" } else { b"\n\n" };
        Some([before, b"data: ", DONE_MARKER, b"\n\n"].concat())
    }

    /// The bytes to append so that the client sees the protocol's in-band error.
    ///
    /// `None` if the answer cannot contain it (a body that is not a stream, an opaque one, or a closed array): then the
    /// connection must be closed.
    pub fn failure_tail(&self, why: Break) -> Option<Vec<u8>> {
        let AnswerReader { picker, answer } = &*self.reading;
        let AnswerProgress { dialect, facts } = answer;
        match &self.frame {
            FramingState::Sse(EventStreamState { framer, .. }) => {
                let event = dialect.failure_event(why, facts, self.last_number);
                let is_inside_field = self
                    .first_bytes
                    .as_ref()
                    .is_some_and(|first| !first.consumed().is_empty());
                // Two line ends: the first may complete a CR before it, or end an incomplete line.
                let before: &[u8] = if framer.is_between_events() && !is_inside_field {
                    b""
                } else {
                    b"\n\n"
                };
                Some([before, event.as_slice()].concat())
            }
            FramingState::JsonArray(framer) => framer.failure_tail(picker, &dialect.failure_element(why)?),
            FramingState::Json(_) | FramingState::Opaque(_) => None,
        }
    }
}
