//! Encodes and decodes the frames of the WebSocket protocol (RFC 6455), without I/O. Also computes the keys of a handshake and
//! reads a server's answer to it.
//!
//! [`FrameDecoder`] yields the payload of a message in the pieces in which it arrives, because buffering a complete message takes
//! memory that only the caller can budget. No extension is supported, so the reserved bits of a frame must be zero.

mod decoder;
mod header;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::{Bytes, BytesMut};
use ring::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY};

use crate::domain::wire::websocket::header::{CONTROL_BYTES_MAX, FrameHeader, Opcode};

pub use self::decoder::FrameDecoder;

/// The close code for a frame that violates the protocol (RFC 6455 section 7.4.1).
const PROTOCOL_ERROR: u16 = 1002;
/// The close code for a payload that does not match its type, for example text that is not UTF-8.
const INVALID_PAYLOAD: u16 = 1007;
/// The close code for a message that exceeds a limit.
const TOO_BIG: u16 = 1009;

/// The maximum length of the reason in a close frame, in bytes. The code takes the other two bytes of the payload.
const CLOSE_REASON_BYTES_MAX: usize = CONTROL_BYTES_MAX - 2;

/// The text that is hashed together with the client's key (RFC 6455 section 1.3).
const ACCEPT_SUFFIX: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// The length of a handshake's decoded key, in bytes.
const KEY_BYTES: usize = 16;

/// The side of a connection that decodes frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameRole {
    /// The server. Frames from the client must be masked.
    Server,
    /// The client. Frames from the server must not be masked.
    Client,
}

/// The type of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageKind {
    /// UTF-8 text.
    Text,
    /// Any bytes.
    Binary,
}

/// The type of a control frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlOpcode {
    /// The sender closes the connection.
    Close,
    /// The receiver must answer with a pong.
    Ping,
    /// The answer to a ping.
    Pong,
}

/// The start of a message, a piece of its payload, the end of a message, or a control frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FrameEvent {
    /// The header of a message's first frame has arrived.
    MessageStart {
        /// The type of the message.
        kind: MessageKind,
        /// The length of the payload in bytes; `None` if the message has several frames, because their lengths are not known yet.
        length: Option<u64>,
    },
    /// The next bytes of the current message's payload, unmasked and never empty. The last character of a text can continue in
    /// the next piece.
    Payload(Bytes),
    /// The current message is complete. If it is a text, its payload is valid UTF-8.
    MessageEnd,
    /// A ping with its payload, which the pong must repeat.
    Ping(Bytes),
    /// A pong with its payload.
    Pong(Bytes),
    /// The peer closes the connection. Contains the code and the reason; `None` if the close frame is empty.
    Close(Option<(u16, String)>),
}

/// The reason why the connection must be closed, which is also the content of the close frame for the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameFault {
    /// The code of the close frame (RFC 6455 section 7.4.1).
    pub code: u16,
    /// The reason in the close frame, at most 123 bytes.
    pub reason: &'static str,
}

impl FrameFault {
    const fn from_protocol_error(reason: &'static str) -> Self {
        Self {
            code: PROTOCOL_ERROR,
            reason,
        }
    }
}

/// The limits for each message that a [`FrameDecoder`] decodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameLimits {
    /// The maximum length of the payload of all frames of a message together, in bytes.
    pub message_bytes_max: u64,
    /// The maximum number of frames of a message.
    pub fragments_max: u32,
}

/// Writes the header of a text message that has a single frame. The caller writes the payload, which must be `payload_len` bytes
/// long and, if there is a `mask`, masked by [`mask_in_place`]. A client must mask its frames, a server must not.
pub fn write_text_header(out: &mut BytesMut, payload_len: u64, mask: Option<[u8; 4]>) {
    write_message_header(out, MessageKind::Text, payload_len, mask);
}

/// Writes the header of a message that has a single frame, as [`write_text_header`] does for a text.
pub fn write_message_header(out: &mut BytesMut, kind: MessageKind, payload_len: u64, mask: Option<[u8; 4]>) {
    let header = FrameHeader {
        is_final: true,
        opcode: Opcode::Message(kind),
        length: payload_len,
        mask,
    };
    header.write(out);
}

/// Writes a control frame. A payload of more than 125 bytes, which a control frame cannot contain, is truncated.
pub fn write_control(out: &mut BytesMut, opcode: ControlOpcode, payload: &[u8], mask: Option<[u8; 4]>) {
    let payload = payload.get(..CONTROL_BYTES_MAX).unwrap_or(payload);
    write_control_parts(out, opcode, [payload, &[]], mask);
}

/// Writes a close frame with a code and a reason. A reason of more than 123 bytes is truncated between two characters.
pub fn write_close(out: &mut BytesMut, code: u16, reason: &str, mask: Option<[u8; 4]>) {
    let ends = reason.char_indices().map(|(at, character)| at + character.len_utf8());
    let end = ends.take_while(|end| *end <= CLOSE_REASON_BYTES_MAX).last();
    let reason = reason.get(..end.unwrap_or_default()).unwrap_or_default();
    write_control_parts(
        out,
        ControlOpcode::Close,
        [&code.to_be_bytes(), reason.as_bytes()],
        mask,
    );
}

/// Writes a control frame whose payload consists of `parts`. Together, the parts must have at most [`CONTROL_BYTES_MAX`] bytes.
fn write_control_parts(out: &mut BytesMut, opcode: ControlOpcode, parts: [&[u8]; 2], mask: Option<[u8; 4]>) {
    let header = FrameHeader {
        is_final: true,
        opcode: Opcode::Control(opcode),
        length: parts.iter().map(|part| part.len() as u64).sum(),
        mask,
    };
    header.write(out);
    let start = out.len();
    for part in parts {
        out.extend_from_slice(part);
    }
    if let (Some(mask), Some(payload)) = (mask, out.get_mut(start..)) {
        mask_in_place(payload, mask, 0);
    }
}

/// Returns the `Sec-WebSocket-Accept` that a server sends for a client's `Sec-WebSocket-Key` (RFC 6455 section 4.2.2); `None` if
/// the key is not the base64 form of 16 bytes.
pub fn accept_key(key: &str) -> Option<String> {
    let encoded_length = KEY_BYTES.div_ceil(3) * 4;
    if key.len() != encoded_length || STANDARD.decode(key).ok()?.len() != KEY_BYTES {
        return None;
    }
    let mut digest = Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
    digest.update(key.as_bytes());
    digest.update(ACCEPT_SUFFIX);
    Some(STANDARD.encode(digest.finish()))
}

/// The meaning of a server's answer to a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandshakeAnswer {
    /// The connection is a WebSocket from now on.
    Accepted,
    /// The server answered with this HTTP status, which is not 101.
    Refused(u16),
    /// The answer is not HTTP/1.1, lacks a header that the handshake requires, or agrees to something that the client has not
    /// requested.
    Invalid,
}

impl HandshakeAnswer {
    /// Reads the head of an answer, up to its empty line. `accept` is the `Sec-WebSocket-Accept` for the key of the handshake.
    pub fn read(head: &[u8], accept: &str) -> Self {
        let Ok(text) = std::str::from_utf8(head) else {
            return Self::Invalid;
        };
        let mut lines = text.split("\r\n");
        let Some(status) = lines.next().and_then(read_status) else {
            return Self::Invalid;
        };
        if status != 101 {
            return Self::Refused(status);
        }
        let fields: Vec<(&str, &str)> = lines.filter_map(|line| line.split_once(':')).collect();
        let values = |name: &str| {
            let named = fields.iter().filter(move |(field, _)| field.eq_ignore_ascii_case(name));
            named.map(|(_, value)| value.trim()).collect::<Vec<_>>()
        };
        let has_option = |option: &str| {
            let connection = values("connection");
            let mut options = connection.iter().flat_map(|value| value.split(','));
            options.any(|named| named.trim().eq_ignore_ascii_case(option))
        };
        let is_websocket = matches!(values("upgrade").as_slice(), [name] if name.eq_ignore_ascii_case("websocket"));
        let is_accepted = matches!(values("sec-websocket-accept").as_slice(), [value] if *value == accept);
        let has_extras = !values("sec-websocket-extensions").is_empty() || !values("sec-websocket-protocol").is_empty();
        match is_websocket && is_accepted && has_option("upgrade") && !has_extras {
            true => Self::Accepted,
            false => Self::Invalid,
        }
    }
}

/// Reads the status of a status line, such as `HTTP/1.1 101 Switching Protocols`.
fn read_status(line: &str) -> Option<u16> {
    let mut words = line.split(' ');
    let is_http = words.next()?.starts_with("HTTP/1.");
    let status: u16 = words.next()?.parse().ok()?;
    (is_http && (100..600).contains(&status)).then_some(status)
}

/// A text message in one masked frame. The text is masked as it is written, so that no second copy of it is in memory.
#[derive(Debug)]
pub struct MaskedText {
    mask: [u8; 4],
    /// The length of the text in bytes, until the frame's header is written; `None` after that.
    header: Option<u64>,
    /// The parts of the text that have not been written.
    parts: VecDeque<Bytes>,
    /// The number of bytes of the text that have been written, modulo the length of the mask.
    offset: usize,
}

impl MaskedText {
    /// Creates a message whose text is `parts`, one after the other. Together they must be UTF-8.
    pub fn new(parts: impl IntoIterator<Item = Bytes>, mask: [u8; 4]) -> Self {
        let parts: VecDeque<Bytes> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        Self {
            mask,
            header: Some(parts.iter().map(|part| part.len() as u64).sum()),
            parts,
            offset: 0,
        }
    }

    /// Whether all of the frame has been written.
    pub fn is_written(&self) -> bool {
        self.header.is_none() && self.parts.is_empty()
    }

    /// Appends the next bytes of the frame to `out`: the header, if it has not been written, and at most `bytes_max` bytes of the
    /// text.
    pub fn write_next(&mut self, out: &mut BytesMut, bytes_max: usize) {
        if let Some(length) = self.header.take() {
            write_text_header(out, length, Some(self.mask));
        }
        let mut room = bytes_max;
        while room > 0
            && let Some(part) = self.parts.front_mut()
        {
            let piece = part.split_to(room.min(part.len()));
            if part.is_empty() {
                self.parts.pop_front();
            }
            room -= piece.len();
            let start = out.len();
            out.extend_from_slice(&piece);
            if let Some(text) = out.get_mut(start..) {
                mask_in_place(text, self.mask, self.offset);
            }
            self.offset = (self.offset + piece.len()) % self.mask.len();
        }
    }
}

/// Masks a piece of a frame's payload, or unmasks the piece if it is masked. `offset` is the position of the piece in the frame's
/// payload.
pub fn mask_in_place(payload: &mut [u8], mut mask: [u8; 4], offset: usize) {
    mask.rotate_left(offset % 4);
    let [a, b, c, d] = mask;
    let word_mask = u64::from_ne_bytes([a, b, c, d, a, b, c, d]);
    let (words, rest) = payload.as_chunks_mut::<8>();
    for word in words {
        *word = (u64::from_ne_bytes(*word) ^ word_mask).to_ne_bytes();
    }
    for (byte, mask) in rest.iter_mut().zip(mask.iter().cycle()) {
        *byte ^= mask;
    }
}

/// The error for bytes that cannot be part of a UTF-8 text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Utf8Fault;

/// A check of UTF-8 text that arrives in pieces. A piece can end in the middle of a character.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Utf8Check {
    /// The first `length` bytes are the beginning of a character whose other bytes have not arrived.
    begun: [u8; 4],
    length: usize,
}

impl Utf8Check {
    /// Checks the next piece of the text. Fails as soon as no further bytes could make the text valid.
    fn push(&mut self, piece: &[u8]) -> Result<(), Utf8Fault> {
        let mut rest = piece;
        while !self.is_complete() {
            let [byte, behind @ ..] = rest else { return Ok(()) };
            rest = behind;
            *self.begun.get_mut(self.length).ok_or(Utf8Fault)? = *byte;
            self.length += 1;
            let begun = self.begun.get(..self.length).unwrap_or_default();
            match std::str::from_utf8(begun) {
                Ok(_) => self.length = 0,
                Err(error) if error.error_len().is_none() => {}
                Err(_) => return Err(Utf8Fault),
            }
        }
        let Err(error) = std::str::from_utf8(rest) else {
            return Ok(());
        };
        // An error without a length means that the character at the end of the piece is not complete.
        if error.error_len().is_some() {
            return Err(Utf8Fault);
        }
        let begun = rest.get(error.valid_up_to()..).unwrap_or_default();
        for (to, from) in self.begun.iter_mut().zip(begun) {
            *to = *from;
        }
        self.length = begun.len();
        Ok(())
    }

    /// Whether the text so far ends with a complete character.
    const fn is_complete(&self) -> bool {
        self.length == 0
    }
}

#[cfg(test)]
mod handshake_answer_tests {
    use super::*;

    const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

    fn answer(fields: &[(&str, &str)]) -> HandshakeAnswer {
        let mut head = "HTTP/1.1 101 Switching Protocols\r\n".to_owned();
        for (name, value) in fields {
            head += &format!("{name}: {value}\r\n");
        }
        HandshakeAnswer::read((head + "\r\n").as_bytes(), ACCEPT)
    }

    #[test]
    fn only_an_answer_to_this_handshake_opens_a_websocket() {
        let good = [
            ("Upgrade", "WebSocket"),
            ("connection", "keep-alive, Upgrade"),
            ("Sec-WebSocket-Accept", ACCEPT),
            ("date", "now"),
        ];
        assert_eq!(answer(&good), HandshakeAnswer::Accepted);
        for missing in 0..3 {
            let mut fields = good.to_vec();
            fields.remove(missing);
            assert_eq!(answer(&fields), HandshakeAnswer::Invalid, "{fields:?}");
        }
        for wrong in [
            ("sec-websocket-accept", "other"),
            ("sec-websocket-extensions", "permessage-deflate"),
            ("sec-websocket-protocol", "chat"),
            ("upgrade", "h2c"),
        ] {
            let fields = [&good[..], &[wrong]].concat();
            assert_eq!(answer(&fields), HandshakeAnswer::Invalid, "{fields:?}");
        }
    }

    #[test]
    fn another_status_refuses_the_websocket() {
        let read = |head: &[u8]| HandshakeAnswer::read(head, ACCEPT);
        for status in [200, 401, 426, 503] {
            let head = format!("HTTP/1.1 {status} Any Words\r\nconnection: close\r\n\r\n");
            assert_eq!(read(head.as_bytes()), HandshakeAnswer::Refused(status));
        }
        for head in [
            "",
            "SSH-2.0-x\r\n\r\n",
            "HTTP/1.1\r\n\r\n",
            "HTTP/1.1 9999 x\r\n\r\n",
            "HTTP/2 101\r\n\r\n",
        ] {
            assert_eq!(read(head.as_bytes()), HandshakeAnswer::Invalid, "{head:?}");
        }
        assert_eq!(read(b"\xFF\r\n\r\n"), HandshakeAnswer::Invalid);
    }
}

#[cfg(test)]
mod masked_text_tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns the length in the header of a frame, the text that a server reads from the frame, and whether the message is
    /// complete.
    fn decoded(mut frame: BytesMut) -> (Option<u64>, Vec<u8>, bool) {
        let limits = FrameLimits {
            message_bytes_max: 1 << 20,
            fragments_max: 1,
        };
        let mut decoder = FrameDecoder::new(FrameRole::Server, limits);
        let (mut announced, mut text, mut is_complete) = (None, Vec::new(), false);
        while let Some(event) = decoder.next_event(&mut frame).expect("valid frames") {
            match event {
                FrameEvent::MessageStart { kind, length } => {
                    assert_eq!(kind, MessageKind::Text);
                    announced = length;
                }
                FrameEvent::Payload(piece) => text.extend_from_slice(&piece),
                FrameEvent::MessageEnd => is_complete = true,
                other => panic!("{other:?}"),
            }
        }
        (announced, text, is_complete)
    }

    proptest! {
        #[test]
        fn a_server_reads_the_parts_as_one_text_however_they_are_written(
            parts in prop::collection::vec("[a-zé€]{0,40}", 0..6),
            mask: [u8; 4],
            bytes_max in 1_usize..50,
        ) {
            let text = parts.concat();
            let mut message = MaskedText::new(parts.into_iter().map(Bytes::from), mask);
            let mut frame = BytesMut::new();
            let mut rounds = 0;
            while !message.is_written() {
                message.write_next(&mut frame, bytes_max);
                rounds += 1;
                prop_assert!(rounds <= text.len() + 1);
            }
            message.write_next(&mut frame, bytes_max);
            prop_assert_eq!(decoded(frame), (Some(text.len() as u64), text.into_bytes(), true));
        }
    }
}
