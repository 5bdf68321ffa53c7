//! Decodes the frames that arrive at one side of a WebSocket connection.

use bytes::{Buf, BytesMut};

use super::header::{FrameHeader, Opcode};
use super::{ControlOpcode, FrameEvent, FrameFault, FrameLimits, FrameRole, INVALID_PAYLOAD, MessageKind, TOO_BIG};
use crate::domain::wire::websocket::{Utf8Check, mask_in_place};

/// The fault of a text message that is not UTF-8.
const NOT_UTF8: FrameFault = FrameFault {
    code: INVALID_PAYLOAD,
    reason: "a text is not UTF-8",
};

/// A decoder for the frames that arrive at one side of a connection. The events do not depend on how the bytes are split into
/// pieces, except that each piece of a payload is an event of its own.
#[derive(Debug)]
pub struct FrameDecoder {
    role: FrameRole,
    limits: FrameLimits,
    /// The control frame whose header has been read; `None` between control frames.
    control: Option<ControlFrame>,
    /// The message whose end has not been read; `None` between messages.
    message: Option<PartialMessage>,
    /// The reason why no more frames are decoded: `Ok` after a close frame of the peer, `Err` after a fault. `None` while frames
    /// are decoded.
    end: Option<Result<(), FrameFault>>,
}

/// A control frame whose payload has not arrived completely.
#[derive(Clone, Copy, Debug)]
struct ControlFrame {
    opcode: ControlOpcode,
    /// The length of the payload, in bytes.
    length: usize,
    mask: Option<[u8; 4]>,
}

/// A message whose end has not been read.
#[derive(Debug)]
struct PartialMessage {
    /// The length of the payload of all frames that have begun, in bytes.
    length: u64,
    /// The number of frames that have begun.
    fragments: u32,
    /// The check of a text; `None` for a binary message.
    text: Option<Utf8Check>,
    /// The frame whose payload is being read; `None` between frames.
    frame: Option<DataFrame>,
}

/// A data frame whose payload is being read.
#[derive(Debug)]
struct DataFrame {
    is_final: bool,
    /// The number of bytes of the payload that have not been read.
    remaining: u64,
    /// The mask, rotated so that its first byte belongs to the next byte of the payload.
    mask: Option<[u8; 4]>,
}

impl FrameDecoder {
    /// Returns a decoder for a new connection. `role` is weir's side of the connection.
    pub fn new(role: FrameRole, limits: FrameLimits) -> Self {
        Self {
            role,
            limits,
            control: None,
            message: None,
            end: None,
        }
    }

    /// Takes the next event from the front of `bytes`, which contains the bytes that have arrived and have not been taken yet.
    /// Returns `None` if the next event needs more bytes. A message can end without further bytes, so the caller calls this
    /// method until it returns `None`. An incomplete header or control frame remains in `bytes`, where it occupies less than 125
    /// bytes.
    ///
    /// A piece of a payload is not copied: it is unmasked in `bytes` and split off. After a close frame or a fault, all further
    /// bytes are discarded.
    ///
    /// # Errors
    /// The peer has violated the protocol or exceeded a limit, and the connection must be closed. Further calls return the same
    /// fault.
    pub fn next_event(&mut self, bytes: &mut BytesMut) -> Result<Option<FrameEvent>, FrameFault> {
        if self.end.is_none() {
            let event = self.decode(bytes);
            match &event {
                Ok(Some(FrameEvent::Close(_))) => self.end = Some(Ok(())),
                Ok(_) => return event,
                Err(fault) => self.end = Some(Err(*fault)),
            }
            bytes.clear();
            return event;
        }
        bytes.clear();
        self.end.unwrap_or(Ok(())).map(|()| None)
    }

    fn decode(&mut self, bytes: &mut BytesMut) -> Result<Option<FrameEvent>, FrameFault> {
        loop {
            if let Some(control) = self.control {
                if bytes.len() < control.length {
                    return Ok(None);
                }
                self.control = None;
                return control.read_payload(bytes).map(Some);
            }
            if let Some(message) = &mut self.message
                && let Some(frame) = &mut message.frame
            {
                if let Some(piece) = frame.take_piece(bytes) {
                    message.check_piece(&piece)?;
                    return Ok(Some(FrameEvent::Payload(piece.freeze())));
                }
                if frame.remaining > 0 {
                    return Ok(None);
                }
                let is_last = frame.is_final;
                message.frame = None;
                if is_last {
                    message.check_end()?;
                    self.message = None;
                    return Ok(Some(FrameEvent::MessageEnd));
                }
            }
            let Some((header, length)) = FrameHeader::read(bytes, self.role)? else {
                return Ok(None);
            };
            bytes.advance(length);
            if let Some(start) = self.begin_frame(header)? {
                return Ok(Some(start));
            }
        }
    }

    /// Handles the header of the next frame. Returns the start of a message if the frame is a message's first one.
    fn begin_frame(&mut self, header: FrameHeader) -> Result<Option<FrameEvent>, FrameFault> {
        match header.opcode {
            Opcode::Control(opcode) => {
                self.control = Some(ControlFrame {
                    opcode,
                    // `FrameHeader::read` refuses a control frame of more than 125 bytes.
                    length: usize::try_from(header.length).unwrap_or_default(),
                    mask: header.mask,
                });
                Ok(None)
            }
            Opcode::Message(kind) => {
                if self.message.is_some() {
                    let reason = "a message begins before the end of the previous one";
                    return Err(FrameFault::from_protocol_error(reason));
                }
                self.message
                    .insert(PartialMessage::new(kind))
                    .begin_frame(header, self.limits)?;
                let length = header.is_final.then_some(header.length);
                Ok(Some(FrameEvent::MessageStart { kind, length }))
            }
            Opcode::Continuation => {
                let reason = "a continuation frame does not follow a frame of its message";
                let message = self.message.as_mut().ok_or(FrameFault::from_protocol_error(reason))?;
                message.begin_frame(header, self.limits)?;
                Ok(None)
            }
        }
    }
}

impl PartialMessage {
    fn new(kind: MessageKind) -> Self {
        Self {
            length: 0,
            fragments: 0,
            text: (kind == MessageKind::Text).then(Utf8Check::default),
            frame: None,
        }
    }

    fn begin_frame(&mut self, header: FrameHeader, limits: FrameLimits) -> Result<(), FrameFault> {
        self.length = self.length.saturating_add(header.length);
        if self.length > limits.message_bytes_max {
            let reason = "a message is too large";
            return Err(FrameFault { code: TOO_BIG, reason });
        }
        self.fragments = self.fragments.saturating_add(1);
        if self.fragments > limits.fragments_max {
            let reason = "a message has too many fragments";
            return Err(FrameFault { code: TOO_BIG, reason });
        }
        self.frame = Some(DataFrame {
            is_final: header.is_final,
            remaining: header.length,
            mask: header.mask,
        });
        Ok(())
    }

    fn check_piece(&mut self, piece: &[u8]) -> Result<(), FrameFault> {
        match &mut self.text {
            Some(text) => text.push(piece).map_err(|_| NOT_UTF8),
            None => Ok(()),
        }
    }

    /// Checks that the text does not end in the middle of a character.
    fn check_end(&self) -> Result<(), FrameFault> {
        match &self.text {
            Some(text) if !text.is_complete() => Err(NOT_UTF8),
            Some(_) | None => Ok(()),
        }
    }
}

impl DataFrame {
    /// Removes the next piece of the payload from the front of `bytes`, and returns it unmasked. Returns `None` if `bytes`
    /// contains nothing of the payload.
    fn take_piece(&mut self, bytes: &mut BytesMut) -> Option<BytesMut> {
        let remaining = usize::try_from(self.remaining).unwrap_or(usize::MAX);
        let length = remaining.min(bytes.len());
        if length == 0 {
            return None;
        }
        let mut piece = bytes.split_to(length);
        if let Some(mask) = &mut self.mask {
            mask_in_place(&mut piece, *mask, 0);
            mask.rotate_left(length % 4);
        }
        self.remaining -= length as u64;
        Some(piece)
    }
}

impl ControlFrame {
    /// Removes the payload from the front of `bytes`, and returns the frame's event. `bytes` must contain the complete payload.
    fn read_payload(self, bytes: &mut BytesMut) -> Result<FrameEvent, FrameFault> {
        let mut payload = bytes.split_to(self.length);
        if let Some(mask) = self.mask {
            mask_in_place(&mut payload, mask, 0);
        }
        Ok(match self.opcode {
            ControlOpcode::Close => FrameEvent::Close(read_close(&payload)?),
            ControlOpcode::Ping => FrameEvent::Ping(payload.freeze()),
            ControlOpcode::Pong => FrameEvent::Pong(payload.freeze()),
        })
    }
}

/// Reads the code and the reason of a close frame's payload; `None` if the payload is empty.
fn read_close(payload: &[u8]) -> Result<Option<(u16, String)>, FrameFault> {
    let [high, low, reason @ ..] = payload else {
        return match payload {
            [] => Ok(None),
            _ => Err(FrameFault::from_protocol_error("a close code has one byte")),
        };
    };
    let code = u16::from_be_bytes([*high, *low]);
    if !can_be_sent(code) {
        return Err(FrameFault::from_protocol_error("a close code is invalid"));
    }
    let reason = std::str::from_utf8(reason).map_err(|_| FrameFault {
        code: INVALID_PAYLOAD,
        reason: "a close reason is not UTF-8",
    })?;
    Ok(Some((code, reason.to_owned())))
}

/// Whether a close frame can contain this code (RFC 6455 section 7.4, and the codes that IANA registered later). The codes 1005,
/// 1006 and 1015 denote connections that end without a close frame.
const fn can_be_sent(code: u16) -> bool {
    matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999)
}
