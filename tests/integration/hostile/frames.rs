//! Frames of HTTP/2 (RFC 9113 section 4) as the files of cases write them.

use serde::Deserialize;

use super::pieces::{Piece, bytes, filled};

/// The client's connection preface, and an empty SETTINGS frame behind it.
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// A frame, as often as is said.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Frame {
    frame: Kind,
    #[serde(default)]
    flags: u8,
    #[serde(default)]
    stream: u32,
    /// The header fields, in order, as HPACK literals that nobody has to remember (RFC 7541 section 6.2.2).
    #[serde(default)]
    fields: Vec<(String, String)>,
    /// Further fields, behind these: how many, and how many bytes their values have.
    long_fields: Option<(usize, usize)>,
    /// What stands behind the fields.
    #[serde(default)]
    payload: Vec<Piece>,
    /// The length that the frame says it has, if that is not the payload's.
    length: Option<u32>,
    #[serde(default = "once")]
    times: usize,
}

/// A frame's type.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(super) enum Kind {
    Data = 0,
    Headers = 1,
    Priority = 2,
    RstStream = 3,
    Settings = 4,
    PushPromise = 5,
    Ping = 6,
    Goaway = 7,
    WindowUpdate = 8,
    Continuation = 9,
    Unknown = 0x42,
}

fn once() -> usize {
    1
}

impl Frame {
    /// The bytes of all of them, `ahead` of the stream that they name. `{key}` in a field's value is the client's key.
    pub(super) fn bytes(&self, ahead: u32, words: &[(&str, &str)]) -> Vec<u8> {
        let mut payload = Vec::new();
        for (name, value) in &self.fields {
            literal(&mut payload, name, &filled(value, words));
        }
        let (count, length) = self.long_fields.unwrap_or_default();
        for number in 0..count {
            literal(&mut payload, &format!("x-{number}"), &"v".repeat(length));
        }
        payload.extend(bytes(&self.payload, words));
        let length = self
            .length
            .unwrap_or(u32::try_from(payload.len()).unwrap())
            .to_be_bytes();
        let mut frame = length[1..].to_vec();
        frame.extend_from_slice(&[self.frame as u8, self.flags]);
        frame.extend_from_slice(&(self.stream + ahead).to_be_bytes());
        frame.extend_from_slice(&payload);
        frame.repeat(self.times)
    }
}

fn literal(to: &mut Vec<u8>, name: &str, value: &str) {
    to.push(0);
    for text in [name, value] {
        length(to, text.len());
        to.extend_from_slice(text.as_bytes());
    }
}

/// An integer with a prefix of seven bits (RFC 7541 section 5.1).
fn length(to: &mut Vec<u8>, mut value: usize) {
    if value < 127 {
        return to.push(u8::try_from(value).unwrap());
    }
    to.push(127);
    value -= 127;
    while value >= 128 {
        to.push(u8::try_from(value % 128).unwrap() | 0x80);
        value /= 128;
    }
    to.push(u8::try_from(value).unwrap());
}

/// The types of the frames in what a server has sent.
pub(super) fn types(mut bytes: &[u8]) -> Vec<u8> {
    let mut types = Vec::new();
    while let [high, middle, low, kind, ..] = bytes {
        types.push(*kind);
        let length = u32::from_be_bytes([0, *high, *middle, *low]);
        bytes = bytes.get(9 + usize::try_from(length).unwrap()..).unwrap_or_default();
    }
    types
}
