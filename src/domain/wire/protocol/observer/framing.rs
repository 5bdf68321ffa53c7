//! How an answer's body is divided into messages: as its head announces, and as its first bytes show, because some providers send
//! a wrong content type, or none.

use crate::domain::wire::{operation::Operation, protocol::Protocol};

/// The field names of server-sent events, with their colons.
const FIELDS: [&[u8]; 4] = [b"data:", b"event:", b"id:", b"retry:"];
/// The length of the longest of them.
const FIELD_BYTES_MAX: usize = 6;
const BYTE_ORDER_MARK: [u8; 3] = [0xEF, 0xBB, 0xBF];

/// How an answer's body is divided into messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AnswerFraming {
    /// Server-sent events.
    Sse,
    /// One JSON value.
    Json,
    /// A JSON array with one element per chunk (a Gemini stream without `alt=sse`).
    JsonArray,
    /// Anything else; not parsed.
    Opaque,
}

/// The framing of an answer to `operation` with this `content-type`.
pub(crate) fn framing_from_content_type(operation: Operation, content_type: Option<&str>) -> AnswerFraming {
    let media_type = content_type
        .unwrap_or_default()
        .split(';')
        .next()
        .unwrap_or_default()
        .trim();
    if media_type.eq_ignore_ascii_case("text/event-stream") {
        AnswerFraming::Sse
    } else if media_type.eq_ignore_ascii_case("application/json") {
        if operation == Operation::StreamGenerateContent {
            AnswerFraming::JsonArray
        } else {
            AnswerFraming::Json
        }
    } else {
        AnswerFraming::Opaque
    }
}

/// The first bytes of an answer, until they determine its framing.
#[derive(Clone, Debug)]
pub(super) struct FirstBytes {
    protocol: Protocol,
    announced: AnswerFraming,
    /// The framing of an answer whose first bytes are neither JSON nor an event.
    otherwise: AnswerFraming,
    seen: [u8; FIELD_BYTES_MAX],
    count: u8,
}

impl FirstBytes {
    /// For an answer that has not begun. `announced` is the framing by its head; `otherwise` is its framing if the first bytes
    /// are neither JSON nor an event.
    pub(super) fn new(protocol: Protocol, announced: AnswerFraming, otherwise: AnswerFraming) -> Self {
        Self {
            protocol,
            announced,
            otherwise,
            seen: [0; FIELD_BYTES_MAX],
            count: 0,
        }
    }

    /// Takes the bytes that determine the framing from the front of `rest`, and returns the framing once it is known. Drops white
    /// space and a byte order mark at the beginning, which have no meaning in any framing.
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

    /// The bytes that [`FirstBytes::take`] has taken and not dropped.
    pub(super) fn consumed(&self) -> &[u8] {
        self.seen.get(..usize::from(self.count)).unwrap_or_default()
    }

    fn framing(&self) -> Option<AnswerFraming> {
        match self.consumed() {
            [] => None,
            // An object instead of an array is read as an element.
            [b'{', ..] if self.announced == AnswerFraming::JsonArray => Some(AnswerFraming::JsonArray),
            [b'{', ..] => Some(AnswerFraming::Json),
            [b'[', ..] if self.protocol == Protocol::Gemini => Some(AnswerFraming::JsonArray),
            [b'[', ..] => Some(AnswerFraming::Json),
            [b':', ..] => Some(AnswerFraming::Sse),
            seen if FIELDS.contains(&seen) => Some(AnswerFraming::Sse),
            seen if FIELDS.iter().any(|field| field.starts_with(seen)) => None,
            _ => Some(self.otherwise),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ALL: [AnswerFraming; 4] = [
        AnswerFraming::Sse,
        AnswerFraming::Json,
        AnswerFraming::JsonArray,
        AnswerFraming::Opaque,
    ];

    fn framing(protocol: Protocol, otherwise: AnswerFraming, bytes: &[u8], size: usize) -> Option<AnswerFraming> {
        let mut first = FirstBytes::new(protocol, otherwise, otherwise);
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
            let mut first = FirstBytes::new(Protocol::Messages, AnswerFraming::Opaque, AnswerFraming::Opaque);
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
