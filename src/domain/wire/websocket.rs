//! Encodes and decodes the frames of the WebSocket protocol (RFC 6455), without I/O, and computes the accept key of a handshake.
//!
//! [`FrameDecoder`] yields the payload of a message in the pieces in which it arrives, because gathering a message takes memory
//! that only the caller can budget. No extension is supported, so the reserved bits of a frame must be zero.

mod decoder;
mod handshake_answer;
mod header;
mod masked_text;
mod payload;
#[cfg(test)]
mod tests;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::{Bytes, BytesMut};
use ring::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY};

use self::header::{CONTROL_BYTES_MAX, FrameHeader, Opcode};

pub use self::decoder::FrameDecoder;
pub use self::handshake_answer::HandshakeAnswer;
pub use self::masked_text::MaskedText;
pub use self::payload::mask_in_place;

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
/// and, if there is a `mask`, masked by [`mask_in_place`]. A client must mask its frames, a server must not.
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

/// Writes a control frame. A payload of more than 125 bytes, which a control frame cannot carry, is cut.
pub fn write_control(out: &mut BytesMut, opcode: ControlOpcode, payload: &[u8], mask: Option<[u8; 4]>) {
    let payload = payload.get(..CONTROL_BYTES_MAX).unwrap_or(payload);
    write_control_parts(out, opcode, [payload, &[]], mask);
}

/// Writes a close frame with a code and a reason. A reason of more than 123 bytes is cut between two characters.
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

/// Writes a control frame whose payload is `parts`, together at most [`CONTROL_BYTES_MAX`] bytes.
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
