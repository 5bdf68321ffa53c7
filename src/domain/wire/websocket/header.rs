//! The header of a WebSocket frame (RFC 6455 section 5.2).

use bytes::{BufMut, BytesMut};

use super::{ControlOpcode, FrameFault, FrameRole, MessageKind};

/// The maximum length of a control frame's payload, in bytes (RFC 6455 section 5.5).
pub(super) const CONTROL_BYTES_MAX: usize = 125;

/// The bit of the first byte that marks the last frame of a message.
const FINAL: u8 = 0x80;
/// The bits of the first byte that only extensions use.
const RESERVED: u8 = 0x70;
/// The bits of the first byte that contain the opcode.
const OPCODE: u8 = 0x0F;
/// The bit of the second byte that marks a masked frame.
const MASKED: u8 = 0x80;
/// The bits of the second byte that contain the payload's length, or [`LENGTH_16`] or [`LENGTH_64`].
const LENGTH: u8 = 0x7F;
/// The value of the length bits if a length of two bytes follows.
const LENGTH_16: u8 = 126;
/// The value of the length bits if a length of eight bytes follows.
const LENGTH_64: u8 = 127;

/// The type of a frame, as its opcode states it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Opcode {
    /// The next frame of a message.
    Continuation,
    /// The first frame of a message.
    Message(MessageKind),
    /// A control frame.
    Control(ControlOpcode),
}

impl Opcode {
    /// Returns the opcode with this number; `None` for a reserved number.
    const fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            0x0 => Self::Continuation,
            0x1 => Self::Message(MessageKind::Text),
            0x2 => Self::Message(MessageKind::Binary),
            0x8 => Self::Control(ControlOpcode::Close),
            0x9 => Self::Control(ControlOpcode::Ping),
            0xA => Self::Control(ControlOpcode::Pong),
            _ => return None,
        })
    }

    const fn number(self) -> u8 {
        match self {
            Self::Continuation => 0x0,
            Self::Message(MessageKind::Text) => 0x1,
            Self::Message(MessageKind::Binary) => 0x2,
            Self::Control(ControlOpcode::Close) => 0x8,
            Self::Control(ControlOpcode::Ping) => 0x9,
            Self::Control(ControlOpcode::Pong) => 0xA,
        }
    }
}

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameHeader {
    /// Whether the frame is the last one of its message.
    pub(super) is_final: bool,
    pub(super) opcode: Opcode,
    /// The length of the payload, in bytes.
    pub(super) length: u64,
    /// The mask of the payload; `None` if the payload is not masked.
    pub(super) mask: Option<[u8; 4]>,
}

impl FrameHeader {
    /// Reads the header at the beginning of `bytes`. `role` is the side of the connection at which the bytes have arrived.
    /// Returns the header and the header's length in bytes; `None` if the header is not complete. An invalid header is an error
    /// as soon as its first invalid byte has arrived.
    pub(super) fn read(bytes: &[u8], role: FrameRole) -> Result<Option<(Self, usize)>, FrameFault> {
        let [first, rest @ ..] = bytes else { return Ok(None) };
        let (is_final, opcode) = read_first(*first)?;
        let [second, rest @ ..] = rest else { return Ok(None) };
        let is_masked = second & MASKED != 0;
        match role {
            FrameRole::Server if !is_masked => {
                return Err(FrameFault::from_protocol_error("a client's frame is not masked"));
            }
            FrameRole::Client if is_masked => {
                return Err(FrameFault::from_protocol_error("a server's frame is masked"));
            }
            FrameRole::Server | FrameRole::Client => {}
        }
        let short = second & LENGTH;
        if matches!(opcode, Opcode::Control(_)) && usize::from(short) > CONTROL_BYTES_MAX {
            return Err(FrameFault::from_protocol_error(
                "a control frame has more than 125 bytes",
            ));
        }
        let Some((length, rest)) = read_length(short, rest)? else {
            return Ok(None);
        };
        let (mask, rest) = match rest.split_first_chunk::<4>() {
            _ if !is_masked => (None, rest),
            Some((mask, rest)) => (Some(*mask), rest),
            None => return Ok(None),
        };
        let header = Self {
            is_final,
            opcode,
            length,
            mask,
        };
        Ok(Some((header, bytes.len() - rest.len())))
    }

    /// Writes the header.
    pub(super) fn write(&self, out: &mut BytesMut) {
        let final_bit = if self.is_final { FINAL } else { 0 };
        out.put_u8(final_bit | self.opcode.number());
        let mask_bit = if self.mask.is_some() { MASKED } else { 0 };
        if let Some(length) = u8::try_from(self.length).ok().filter(|length| *length < LENGTH_16) {
            out.put_u8(mask_bit | length);
        } else if let Ok(length) = u16::try_from(self.length) {
            out.put_u8(mask_bit | LENGTH_16);
            out.put_u16(length);
        } else {
            out.put_u8(mask_bit | LENGTH_64);
            out.put_u64(self.length);
        }
        if let Some(mask) = self.mask {
            out.put_slice(&mask);
        }
    }
}

/// Reads the first byte of a header: whether the frame is the last one of its message, and its opcode.
fn read_first(byte: u8) -> Result<(bool, Opcode), FrameFault> {
    if byte & RESERVED != 0 {
        return Err(FrameFault::from_protocol_error("a reserved bit is set"));
    }
    let opcode = Opcode::from_number(byte & OPCODE);
    let opcode = opcode.ok_or(FrameFault::from_protocol_error("an opcode is reserved"))?;
    let is_final = byte & FINAL != 0;
    if matches!(opcode, Opcode::Control(_)) && !is_final {
        return Err(FrameFault::from_protocol_error("a control frame is fragmented"));
    }
    Ok((is_final, opcode))
}

/// Reads the length of the payload. `short` is the value of the length bits in the second byte of the header, and `bytes` are the
/// bytes after it. Returns the length and the bytes after it; `None` if the length is not complete.
fn read_length(short: u8, bytes: &[u8]) -> Result<Option<(u64, &[u8])>, FrameFault> {
    let (length, rest, minimum) = match short {
        LENGTH_16 => match bytes.split_first_chunk::<2>() {
            Some((length, rest)) => (u64::from(u16::from_be_bytes(*length)), rest, u64::from(LENGTH_16)),
            None => return Ok(None),
        },
        LENGTH_64 => match bytes.split_first_chunk::<8>() {
            Some((length, rest)) => (u64::from_be_bytes(*length), rest, u64::from(u16::MAX) + 1),
            None => return Ok(None),
        },
        length => (u64::from(length), bytes, 0),
    };
    if length < minimum {
        return Err(FrameFault::from_protocol_error("a length is not in its shortest form"));
    }
    if i64::try_from(length).is_err() {
        return Err(FrameFault::from_protocol_error("the top bit of a length is set"));
    }
    Ok(Some((length, rest)))
}
