//! Determines how an answer's body is divided into messages. The head of the answer announces the framing, but the first bytes
//! decide, because some providers send a wrong content type, or none.

use crate::domain::wire::{
    UpstreamProtocol,
    json_pick::ArrayFramer,
    operation::{Operation, UpstreamOperation},
    protocol::{
        Break,
        observer::{
            Observer,
            sink::{AnswerProgress, AnswerReader, BodyProgress, DONE_MARKER, DoneMarkerMatch},
            template::TextEventTemplate,
        },
    },
    sse::SseFramer,
};

/// The field names of server-sent events, with their colons.
const FIELDS: [&[u8]; 4] = [b"data:", b"event:", b"id:", b"retry:"];
/// The length of the longest field name in [`FIELDS`], in bytes.
const FIELD_BYTES_MAX: usize = 6;
const BYTE_ORDER_MARK: [u8; 3] = [0xEF, 0xBB, 0xBF];

/// How an answer's body is divided into messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AnswerFraming {
    /// The body is a stream of server-sent events.
    Sse,
    /// The body is one JSON value.
    Json,
    /// The body is a JSON array with one element per chunk (a Gemini stream without `alt=sse`).
    JsonArray,
    /// The body is something else, which is not parsed.
    Opaque,
}

/// Returns the framing that `content_type` announces for an answer to `operation`.
pub(crate) fn framing_from_content_type(
    operation: impl Into<UpstreamOperation>,
    content_type: Option<&str>,
) -> AnswerFraming {
    let media_type = content_type
        .unwrap_or_default()
        .split(';')
        .next()
        .unwrap_or_default()
        .trim();
    if media_type.eq_ignore_ascii_case("text/event-stream") {
        AnswerFraming::Sse
    } else if media_type.eq_ignore_ascii_case("application/json") {
        if operation.into() == UpstreamOperation::Client(Operation::StreamGenerateContent) {
            AnswerFraming::JsonArray
        } else {
            AnswerFraming::Json
        }
    } else {
        AnswerFraming::Opaque
    }
}

/// The first bytes of an answer, which are collected until they determine its framing.
#[derive(Clone, Debug)]
pub(super) struct FirstBytes {
    protocol: UpstreamProtocol,
    announced: AnswerFraming,
    /// The framing of an answer whose first bytes are neither JSON nor an event.
    otherwise: AnswerFraming,
    seen: [u8; FIELD_BYTES_MAX],
    count: u8,
}

impl FirstBytes {
    /// Starts the collection for an answer that has not begun. `announced` is the framing that the head announces; `otherwise` is
    /// the framing if the first bytes are neither JSON nor an event.
    pub(super) fn new(protocol: UpstreamProtocol, announced: AnswerFraming, otherwise: AnswerFraming) -> Self {
        Self {
            protocol,
            announced,
            otherwise,
            seen: [0; FIELD_BYTES_MAX],
            count: 0,
        }
    }

    /// Takes bytes from the front of `rest` until they determine the framing, and returns the framing once it is known. White
    /// space and a byte order mark at the beginning are dropped, because they have no meaning in any framing.
    pub(super) fn consume(&mut self, rest: &mut &[u8]) -> Option<AnswerFraming> {
        while let Some((first, behind)) = rest.split_first() {
            let is_blank = first.is_ascii_whitespace() || BYTE_ORDER_MARK.contains(first);
            if self.count > 0 || !is_blank {
                let place = self.seen.get_mut(usize::from(self.count))?;
                *place = *first;
                self.count += 1;
            }
            *rest = behind;
            if let Some(framing) = self.framing() {
                return Some(framing);
            }
        }
        None
    }

    /// Returns the bytes that [`FirstBytes::consume`] has taken and not dropped.
    pub(super) fn consumed(&self) -> &[u8] {
        self.seen.get(..usize::from(self.count)).unwrap_or_default()
    }

    fn framing(&self) -> Option<AnswerFraming> {
        match self.consumed() {
            [] => None,
            // An object that comes instead of an array is read as an element of the array.
            [b'{', ..] if self.announced == AnswerFraming::JsonArray => Some(AnswerFraming::JsonArray),
            [b'{', ..] => Some(AnswerFraming::Json),
            [b'[', ..] if self.protocol == UpstreamProtocol::Gemini => Some(AnswerFraming::JsonArray),
            [b'[', ..] => Some(AnswerFraming::Json),
            [b':', ..] => Some(AnswerFraming::Sse),
            seen if FIELDS.contains(&seen) => Some(AnswerFraming::Sse),
            seen if FIELDS.iter().any(|field| field.starts_with(seen)) => None,
            _ => Some(self.otherwise),
        }
    }
}

/// The state of reading an answer's messages, for each framing.
#[derive(Debug)]
pub(super) enum FramingState {
    Sse(EventStreamState),
    Json(BodyProgress),
    JsonArray(ArrayFramer),
    /// The body is not parsed. Contains the number of bytes that have arrived.
    Opaque(u64),
}

/// The state of reading a stream of server-sent events.
#[derive(Debug, Default)]
pub(super) struct EventStreamState {
    pub(super) framer: SseFramer,
    pub(super) head: DoneMarkerMatch,
    pub(super) template: TextEventTemplate,
}

impl FramingState {
    pub(super) fn new(framing: AnswerFraming) -> Self {
        match framing {
            AnswerFraming::Sse => Self::Sse(EventStreamState::default()),
            AnswerFraming::Json => Self::Json(BodyProgress::Open),
            AnswerFraming::JsonArray => Self::JsonArray(ArrayFramer::new()),
            AnswerFraming::Opaque => Self::Opaque(0),
        }
    }

    /// Whether it is already certain that the bytes after the last complete message do not belong to an error.
    pub(super) fn is_open_part_harmless(&self, reading: &AnswerReader) -> bool {
        match self {
            Self::Sse(EventStreamState { framer, .. }) => {
                let is_answers = || reading.answer.dialect.is_known_answer_event(&reading.picker);
                framer.is_between_events() || framer.has_open_data() && is_answers()
            }
            Self::Json(body) => *body != BodyProgress::Open,
            Self::JsonArray(framer) => framer.is_between_elements(),
            Self::Opaque(_) => false,
        }
    }
}

/// The boundaries of the messages in a piece of an answer. A message is an event of a stream, an element of an array, or the body
/// of a non-streaming answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MessageBoundaries {
    /// The offset of the first message that is an error. Everything after it is treated as part of the error. 0 if the error
    /// began in an earlier piece; `None` if there is no error.
    pub error_from: Option<usize>,
    /// The offset of the message that is not complete, if it could still be an error. 0 if it began in an earlier piece; the end
    /// of the piece if there is no such message.
    pub open_from: usize,
}

impl MessageBoundaries {
    /// Returns the boundaries as offsets in a longer piece, which consists of `bytes` bytes from earlier pieces followed by this
    /// piece. The earlier bytes were held back, and no message ends in them.
    pub(crate) fn shifted_by(self, bytes: usize) -> Self {
        let moved = |at: usize| if at == 0 { 0 } else { at + bytes };
        Self {
            error_from: self.error_from.map(moved),
            open_from: moved(self.open_from),
        }
    }

    /// Returns the boundaries at the start of a piece. `has_failed` is true if an earlier message was an error.
    pub(super) fn at_piece_start(has_failed: bool) -> Self {
        Self {
            error_from: has_failed.then_some(0),
            open_from: 0,
        }
    }

    /// Records that a message ends at offset `at` of the piece.
    pub(super) fn end_message(&mut self, at: usize, is_error: bool) {
        if is_error && self.error_from.is_none() {
            self.error_from = Some(self.open_from);
        }
        self.open_from = at;
    }
}

impl Observer {
    /// Returns the bytes to append to a complete stream: the `[DONE]` marker, if the protocol has one and the provider did not
    /// send it; otherwise `None`.
    ///
    /// Providers of the Responses protocol do not send the marker, but weir promises it to clients (docs/interface.md, Streams).
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

    /// Returns the bytes to append to an answer so that the client gets the protocol's in-band error.
    ///
    /// `None` if the answer cannot contain the error, because it is non-streaming, opaque, or a closed array. The connection must
    /// then be closed.
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
                // Two line ends are sent, because the first may complete a CR before it, or end an incomplete line.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::wire::Protocol;
    use proptest::prelude::*;

    const ALL: [AnswerFraming; 4] = [
        AnswerFraming::Sse,
        AnswerFraming::Json,
        AnswerFraming::JsonArray,
        AnswerFraming::Opaque,
    ];

    fn framing(protocol: Protocol, otherwise: AnswerFraming, bytes: &[u8], size: usize) -> Option<AnswerFraming> {
        let mut first = FirstBytes::new(protocol.into(), otherwise, otherwise);
        bytes.chunks(size).find_map(|mut chunk| first.consume(&mut chunk))
    }

    #[test]
    fn json_and_events_are_known_by_their_first_bytes_whatever_was_announced() {
        for otherwise in ALL {
            let object = match otherwise {
                AnswerFraming::JsonArray => AnswerFraming::JsonArray,
                _ => AnswerFraming::Json,
            };
            for (protocol, bytes, expected) in [
                (Protocol::Messages, "{\"type\"", object),
                (Protocol::Messages, " \r\n\n{", object),
                (Protocol::Responses, "[1]", AnswerFraming::Json),
                (Protocol::Gemini, "\n[{", AnswerFraming::JsonArray),
                (Protocol::Gemini, "{", object),
                (Protocol::Messages, "event: message_start", AnswerFraming::Sse),
                (Protocol::Messages, "\u{feff}data: {}", AnswerFraming::Sse),
                (Protocol::Responses, "id:1", AnswerFraming::Sse),
                (Protocol::Responses, "retry: 3", AnswerFraming::Sse),
                (Protocol::Gemini, ": keep-alive", AnswerFraming::Sse),
                (Protocol::Messages, "<html>", otherwise),
                (Protocol::Messages, "null", otherwise),
                (Protocol::Messages, "dated", otherwise),
                (Protocol::Messages, "\u{1f}\u{8b}", otherwise),
            ] {
                assert_eq!(
                    framing(protocol, otherwise, bytes.as_bytes(), 100),
                    Some(expected),
                    "{bytes:?}"
                );
            }
        }
        assert_eq!(framing(Protocol::Messages, AnswerFraming::Sse, b"  \n", 1), None);
        assert_eq!(framing(Protocol::Messages, AnswerFraming::Json, b"even", 1), None);
    }

    proptest! {
        #[test]
        fn any_split_gives_the_same_framing(
            start in prop::sample::select(vec!["", " ", "\n\n", "\u{feff}"]),
            text in prop::sample::select(vec!["data:", "event:x", "id:", "{}", "[", "datum", "evil", "<", ":", "retry:1"]),
            size in 1_usize..8,
        ) {
            let bytes = [start, text].concat();
            let whole = framing(Protocol::Gemini, AnswerFraming::Opaque, bytes.as_bytes(), 100);
            prop_assert!(whole.is_some());
            prop_assert_eq!(framing(Protocol::Gemini, AnswerFraming::Opaque, bytes.as_bytes(), size), whole);
        }

        #[test]
        fn what_was_taken_and_what_is_left_are_all_that_means_something(
            bytes in prop::collection::vec(any::<u8>(), 1..40),
            size in 1_usize..8,
        ) {
            let mut first = FirstBytes::new(Protocol::Messages.into(), AnswerFraming::Opaque, AnswerFraming::Opaque);
            let mut read = Vec::new();
            let mut known = false;
            for mut chunk in bytes.chunks(size) {
                if !known && first.consume(&mut chunk).is_some() {
                    known = true;
                    read.extend_from_slice(first.consumed());
                }
                if known {
                    read.extend_from_slice(chunk);
                }
            }
            if known {
                prop_assert!(bytes.ends_with(&read));
                let blank = &bytes[..bytes.len() - read.len()];
                prop_assert!(blank.iter().all(|byte| byte.is_ascii_whitespace() || BYTE_ORDER_MARK.contains(byte)));
            }
        }
    }
}
