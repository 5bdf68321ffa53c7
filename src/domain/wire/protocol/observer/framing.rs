//! How an answer's body is divided into messages: as its head announces, and as its first bytes tell, because some
//! providers name the wrong content type, or none.

use crate::domain::wire::{operation::Operation, protocol::Protocol};

/// The field names of server-sent events, with their colons.
const FIELDS: [&[u8]; 4] = [b"data:", b"event:", b"id:", b"retry:"];
/// The longest of them.
const FIELD_BYTES_MAX: usize = 6;
const BYTE_ORDER_MARK: [u8; 3] = [0xEF, 0xBB, 0xBF];

/// How an answer's body is divided into messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Framing {
    /// Server-sent events.
    Sse,
    /// One JSON value.
    Json,
    /// A JSON array with one element per chunk (Gemini stream without `alt=sse`).
    JsonArray,
    /// Anything else; not parsed.
    Opaque,
}

/// The framing of an answer to `operation` that has this `content-type`.
pub(crate) fn framing_of(operation: Operation, content_type: Option<&str>) -> Framing {
    let media_type = content_type
        .unwrap_or_default()
        .split(';')
        .next()
        .unwrap_or_default()
        .trim();
    if media_type.eq_ignore_ascii_case("text/event-stream") {
        Framing::Sse
    } else if media_type.eq_ignore_ascii_case("application/json") {
        if operation == Operation::StreamGenerateContent {
            Framing::JsonArray
        } else {
            Framing::Json
        }
    } else {
        Framing::Opaque
    }
}

/// The first bytes of an answer, until they tell its framing.
#[derive(Clone, Debug)]
pub(super) struct FirstBytes {
    protocol: Protocol,
    announced: Framing,
    /// The framing of an answer whose first bytes are neither JSON nor an event.
    otherwise: Framing,
    seen: [u8; FIELD_BYTES_MAX],
    count: u8,
}

impl FirstBytes {
    /// For an answer of which nothing has arrived. Its head announces a framing; `otherwise` is its framing if its first
    /// bytes do not tell one.
    pub(super) fn new(protocol: Protocol, announced: Framing, otherwise: Framing) -> Self {
        Self {
            protocol,
            announced,
            otherwise,
            seen: [0; FIELD_BYTES_MAX],
            count: 0,
        }
    }

    /// Takes the bytes that the framing depends on from the front of `rest`, and returns the framing once it is known.
    /// White space and a byte order mark at the beginning mean nothing in any framing.
    pub(super) fn take(&mut self, rest: &mut &[u8]) -> Option<Framing> {
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

    /// What [`FirstBytes::take`] has taken, but for what means nothing.
    pub(super) fn taken(&self) -> &[u8] {
        self.seen.get(..usize::from(self.count)).unwrap_or_default()
    }

    fn framing(&self) -> Option<Framing> {
        match self.taken() {
            [] => None,
            // In an array's place an object is read as an element.
            [b'{', ..] if self.announced == Framing::JsonArray => Some(Framing::JsonArray),
            [b'{', ..] => Some(Framing::Json),
            [b'[', ..] if self.protocol == Protocol::Gemini => Some(Framing::JsonArray),
            [b'[', ..] => Some(Framing::Json),
            [b':', ..] => Some(Framing::Sse),
            seen if FIELDS.contains(&seen) => Some(Framing::Sse),
            seen if FIELDS.iter().any(|field| field.starts_with(seen)) => None,
            _ => Some(self.otherwise),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ALL: [Framing; 4] = [Framing::Sse, Framing::Json, Framing::JsonArray, Framing::Opaque];

    fn framing(protocol: Protocol, otherwise: Framing, bytes: &[u8], size: usize) -> Option<Framing> {
        let mut first = FirstBytes::new(protocol, otherwise, otherwise);
        bytes.chunks(size).find_map(|mut chunk| first.take(&mut chunk))
    }

    #[test]
    fn json_and_events_are_known_by_their_first_bytes_whatever_was_announced() {
        for otherwise in ALL {
            let object = match otherwise {
                Framing::JsonArray => Framing::JsonArray,
                _ => Framing::Json,
            };
            for (protocol, bytes, expected) in [
                (Protocol::Messages, "{\"type\"", object),
                (Protocol::Messages, " \r\n\n{", object),
                (Protocol::Responses, "[1]", Framing::Json),
                (Protocol::Gemini, "\n[{", Framing::JsonArray),
                (Protocol::Gemini, "{", object),
                (Protocol::Messages, "event: message_start", Framing::Sse),
                (Protocol::Messages, "\u{feff}data: {}", Framing::Sse),
                (Protocol::Responses, "id:1", Framing::Sse),
                (Protocol::Responses, "retry: 3", Framing::Sse),
                (Protocol::Gemini, ": keep-alive", Framing::Sse),
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
        assert_eq!(framing(Protocol::Messages, Framing::Sse, b"  \n", 1), None);
        assert_eq!(framing(Protocol::Messages, Framing::Json, b"even", 1), None);
    }

    proptest! {
        #[test]
        fn any_split_gives_the_same_framing(
            start in prop::sample::select(vec!["", " ", "\n\n", "\u{feff}"]),
            text in prop::sample::select(vec!["data:", "event:x", "id:", "{}", "[", "datum", "evil", "<", ":", "retry:1"]),
            size in 1_usize..8,
        ) {
            let bytes = [start, text].concat();
            let whole = framing(Protocol::Gemini, Framing::Opaque, bytes.as_bytes(), 100);
            prop_assert!(whole.is_some());
            prop_assert_eq!(framing(Protocol::Gemini, Framing::Opaque, bytes.as_bytes(), size), whole);
        }

        #[test]
        fn what_was_taken_and_what_is_left_are_all_that_means_something(
            bytes in prop::collection::vec(any::<u8>(), 1..40),
            size in 1_usize..8,
        ) {
            let mut first = FirstBytes::new(Protocol::Messages, Framing::Opaque, Framing::Opaque);
            let mut read = Vec::new();
            let mut known = false;
            for mut chunk in bytes.chunks(size) {
                if !known && first.take(&mut chunk).is_some() {
                    known = true;
                    read.extend_from_slice(first.taken());
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
