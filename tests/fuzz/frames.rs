//! The frames of a WebSocket connection, beside another parser of them.

use std::io::{self, Read, Write};

use bytes::BytesMut;
use tungstenite::error::{Error, ProtocolError};
use tungstenite::protocol::{Message, Role, WebSocket, WebSocketConfig};
use weir::parts::websocket::{FrameDecoder, FrameEvent, FrameFault, FrameLimits, FrameRole, MessageKind};

/// The most that a message may have, for both parsers.
const MESSAGE_BYTES_MAX: u32 = 4096;
/// What weir refuses and the other parser does not: lengths that have a shorter form, those of control frames among them, and close
/// codes, which it replaces.
const STRICTER: [&str; 3] = [
    "a length is not in its shortest form",
    "a control frame has more than 125 bytes",
    "a close code is invalid",
];

/// What has arrived as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Received {
    Text(Vec<u8>),
    Binary(Vec<u8>),
    Ping(Vec<u8>),
    Pong(Vec<u8>),
    Close,
}

/// Frames, the first byte telling who receives them: any split gives the same messages and the same fault, and the other parser
/// reads the same messages and refuses what weir refuses.
pub(crate) fn websocket(data: &[u8]) {
    let Some((first, data)) = data.split_first() else {
        return;
    };
    let role = match first % 2 {
        0 => FrameRole::Server,
        _ => FrameRole::Client,
    };
    let (messages, fault) = decoded(role, data, data.len().max(1));
    for step in [1, 7] {
        assert_eq!(decoded(role, data, step), (messages.clone(), fault), "by {step}");
    }
    let (others, is_refused) = others_messages(role, data);
    match fault {
        Some(fault) if STRICTER.contains(&fault.reason) => assert!(others.starts_with(&messages)),
        // The other parser finds some faults only with the end of the frame.
        Some(fault) => assert_eq!(others, messages, "{fault:?} {role:?} {data:?}"),
        None => assert_eq!((others, is_refused), (messages, false)),
    }
}

/// The messages and control frames that are complete, and the fault, when the bytes arrive in pieces of this size.
fn decoded(role: FrameRole, data: &[u8], step: usize) -> (Vec<Received>, Option<FrameFault>) {
    let limits = FrameLimits {
        message_bytes_max: u64::from(MESSAGE_BYTES_MAX),
        fragments_max: u32::MAX,
    };
    let (mut decoder, mut bytes) = (FrameDecoder::new(role, limits), BytesMut::new());
    let (mut messages, mut open) = (Vec::new(), None::<(MessageKind, Option<u64>, Vec<u8>)>);
    for piece in data.chunks(step) {
        bytes.extend_from_slice(piece);
        loop {
            match decoder.next_event(&mut bytes) {
                Ok(None) => break,
                Ok(Some(FrameEvent::MessageStart { kind, length })) => {
                    let before = open.replace((kind, length, Vec::new()));
                    assert!(before.is_none(), "a message began within another one");
                }
                Ok(Some(FrameEvent::Payload(piece))) => {
                    let (_, _, payload) = open.as_mut().expect("a payload belongs to a message");
                    payload.extend_from_slice(&piece);
                    assert!(!piece.is_empty() && payload.len() as u64 <= u64::from(MESSAGE_BYTES_MAX));
                }
                Ok(Some(FrameEvent::MessageEnd)) => {
                    let (kind, length, payload) = open.take().expect("an end belongs to a message");
                    assert!(length.is_none_or(|length| length == payload.len() as u64));
                    messages.push(match kind {
                        MessageKind::Text => {
                            Received::Text(String::from_utf8(payload).expect("a text is UTF-8").into_bytes())
                        }
                        MessageKind::Binary => Received::Binary(payload),
                    });
                }
                Ok(Some(FrameEvent::Ping(payload))) => messages.push(Received::Ping(payload.to_vec())),
                Ok(Some(FrameEvent::Pong(payload))) => messages.push(Received::Pong(payload.to_vec())),
                Ok(Some(FrameEvent::Close(_))) => messages.push(Received::Close),
                Err(fault) => {
                    assert_eq!(decoder.next_event(&mut bytes), Err(fault));
                    return (messages, Some(fault));
                }
            }
        }
    }
    (messages, None)
}

/// The bytes as a connection that takes everything and ends behind them.
struct Ending<'a>(&'a [u8]);

impl Read for Ending<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for Ending<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What the other parser reads up to a close frame, and whether it refuses what follows.
fn others_messages(role: FrameRole, data: &[u8]) -> (Vec<Received>, bool) {
    let role = match role {
        FrameRole::Server => Role::Server,
        FrameRole::Client => Role::Client,
    };
    let bytes_max = usize::try_from(MESSAGE_BYTES_MAX).ok();
    let config = WebSocketConfig::default()
        .read_buffer_size(4096)
        .max_message_size(bytes_max)
        .max_frame_size(bytes_max);
    let mut socket = WebSocket::from_raw_socket(Ending(data), role, Some(config));
    let mut messages = Vec::new();
    loop {
        let message = match socket.read() {
            Ok(Message::Text(text)) => Received::Text(text.as_bytes().to_vec()),
            Ok(Message::Binary(bytes)) => Received::Binary(bytes.to_vec()),
            Ok(Message::Ping(bytes)) => Received::Ping(bytes.to_vec()),
            Ok(Message::Pong(bytes)) => Received::Pong(bytes.to_vec()),
            Ok(Message::Close(_)) => {
                messages.push(Received::Close);
                return (messages, false);
            }
            Ok(Message::Frame(_)) => panic!("a frame by itself is only sent"),
            Err(Error::Protocol(ProtocolError::ResetWithoutClosingHandshake)) => return (messages, false),
            Err(_) => return (messages, true),
        };
        messages.push(message);
    }
}
