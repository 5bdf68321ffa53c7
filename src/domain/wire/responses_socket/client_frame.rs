//! Reads a frame of a client, and turns a `response.create` frame into the body of the equivalent POST.

#[cfg(test)]
mod tests;

use std::{borrow::Cow, ops::Range};

use bytes::Bytes;

use crate::domain::wire::{
    json_scan::unescaped,
    json_skip::{skip_counted_value, skip_space, split_key},
};

/// The maximum number of members of a frame.
const MEMBERS_MAX: usize = 256;
/// The maximum length of a `stream_id`, in bytes.
const STREAM_ID_BYTES_MAX: usize = 256;

/// The members of a frame that the conversion to a body reads or drops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameMemberName {
    Type,
    StreamId,
    Stream,
    Background,
    Generate,
    PreviousResponseId,
    Input,
    Store,
    /// Any other member, which is copied to the body unchanged.
    Other,
}

impl FrameMemberName {
    fn from_key(key: &[u8]) -> Self {
        match key {
            b"type" => Self::Type,
            b"stream_id" => Self::StreamId,
            b"stream" => Self::Stream,
            b"background" => Self::Background,
            b"generate" => Self::Generate,
            b"previous_response_id" => Self::PreviousResponseId,
            b"input" => Self::Input,
            b"store" => Self::Store,
            _ => Self::Other,
        }
    }
}

/// A member of a frame, by its positions in the frame's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FrameMember {
    pub(super) name: FrameMemberName,
    /// The position of the key's opening quote.
    pub(super) start: usize,
    pub(super) value: Range<usize>,
}

/// The purpose of a client's frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientFrameKind {
    /// `response.create`, or a frame that cannot be read. An unreadable frame is refused like a POST with an invalid body.
    Create,
    /// `response.steer`, which weir does not support.
    Steer,
    /// `response.processed` and `response.interrupt`, which need no action.
    Ignored,
    /// Any other type, or none.
    Unknown,
}

/// The error for a `stream_id` that is not valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InvalidStreamId;

/// The message of a client, with the positions of its members.
#[derive(Clone, Debug)]
pub(crate) struct ClientFrame {
    text: Bytes,
    /// The members in order; a message for the client if the frame cannot be read.
    members: Result<Vec<FrameMember>, &'static str>,
}

impl ClientFrame {
    /// Reads the complete message of a client.
    pub(crate) fn read(text: Bytes) -> Self {
        let members = split_members(&text);
        Self { text, members }
    }

    /// Like [`Self::read`], but calls `on_step` each time it has read `values` more values. Returns `None` if `on_step` returns
    /// false.
    pub(crate) fn read_in_steps(text: Bytes, values: usize, mut on_step: impl FnMut() -> bool) -> Option<Self> {
        let (mut left, mut is_stopped) = (values, false);
        let members = split_counted_members(&text, &mut || {
            if left == 0 {
                left = values;
                is_stopped = !on_step();
            }
            left = left.saturating_sub(1);
            !is_stopped
        });
        (!is_stopped).then_some(Self { text, members })
    }

    /// Returns the complete message.
    pub(crate) fn text(&self) -> &Bytes {
        &self.text
    }

    /// Returns the reason why the frame cannot be turned into a body; `None` if it can be.
    pub(crate) fn fault(&self) -> Option<&'static str> {
        self.members.as_ref().err().copied()
    }

    /// Returns the purpose of the frame.
    pub(crate) fn kind(&self) -> ClientFrameKind {
        if self.members.is_err() {
            return ClientFrameKind::Create;
        }
        match self.text_of(FrameMemberName::Type).as_deref() {
            Some("response.create") => ClientFrameKind::Create,
            Some("response.steer") => ClientFrameKind::Steer,
            Some("response.processed" | "response.interrupt") => ClientFrameKind::Ignored,
            _ => ClientFrameKind::Unknown,
        }
    }

    /// Returns the name of the frame's lane; `None` for the default lane.
    ///
    /// # Errors
    /// The name is not a string of 1 to 256 letters, digits, `_`, `.` and `-`.
    pub(crate) fn stream_id(&self) -> Result<Option<Cow<'_, str>>, InvalidStreamId> {
        let value = self.value(FrameMemberName::StreamId);
        if value.is_none_or(|value| value == b"null") {
            return Ok(None);
        }
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
        let text = self.text_of(FrameMemberName::StreamId);
        let valid = text.filter(|text| (1..=STREAM_ID_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_allowed));
        valid.map(Some).ok_or(InvalidStreamId)
    }

    /// Whether the frame only prepares a conversation and does not call a model (`generate: false`).
    pub(crate) fn is_warm_up(&self) -> bool {
        is_false(self.value(FrameMemberName::Generate))
    }

    /// Whether only this socket can continue the response, because the provider does not store it (`store: false`).
    pub(crate) fn is_unstored(&self) -> bool {
        is_false(self.value(FrameMemberName::Store))
    }

    /// Returns the id of the response that the frame continues; `None` if the frame begins a conversation.
    pub(crate) fn previous_response_id(&self) -> Option<Cow<'_, str>> {
        self.text_of(FrameMemberName::PreviousResponseId)
    }

    /// Returns the items of `input`, as the elements of a JSON array without its brackets. A string becomes a message of the
    /// user. `None` if `input` is neither a string nor an array.
    pub(crate) fn input_items(&self) -> Option<Cow<'_, [u8]>> {
        match self.value(FrameMemberName::Input) {
            None | Some(b"null") => Some(Cow::Owned(Vec::new())),
            Some([b'[', inside @ .., b']']) => Some(Cow::Borrowed(inside.trim_ascii())),
            Some(text @ [b'"', ..]) => {
                let message = [&br#"{"type":"message","role":"user","content":"#[..], text, b"}"].concat();
                Some(Cow::Owned(message))
            }
            Some(_) => None,
        }
    }

    /// Returns the body of the POST. If `input` is given, it replaces both the frame's `input` and its reference to the response
    /// that the frame continues. `input` consists of the elements of a JSON array without its brackets. If the frame cannot be
    /// read, its text is returned unchanged.
    pub(crate) fn to_body(&self, input: Option<&[u8]>) -> Vec<u8> {
        let Ok(members) = &self.members else {
            return self.text.to_vec();
        };
        let mut body = Vec::with_capacity(self.text.len() + input.map_or(0, <[u8]>::len) + 32);
        body.push(b'{');
        for member in members.iter().filter(|member| self.is_kept(member, input.is_some())) {
            body.extend_from_slice(self.text.get(member.start..member.value.end).unwrap_or_default());
            body.push(b',');
        }
        if let Some(input) = input {
            body.extend_from_slice(br#""input":["#);
            body.extend_from_slice(input);
            body.extend_from_slice(b"],");
        }
        body.extend_from_slice(br#""stream":true}"#);
        body
    }

    fn is_kept(&self, member: &FrameMember, is_input_replaced: bool) -> bool {
        match member.name {
            FrameMemberName::Type | FrameMemberName::StreamId | FrameMemberName::Stream | FrameMemberName::Generate => {
                false
            }
            // Any value except `false` stays in the body, and is then refused like that of a POST.
            FrameMemberName::Background => !is_false(self.text.get(member.value.clone())),
            FrameMemberName::PreviousResponseId | FrameMemberName::Input => !is_input_replaced,
            FrameMemberName::Store | FrameMemberName::Other => true,
        }
    }

    /// Returns the value of a member as it is written; `None` if the frame has no such member.
    fn value(&self, name: FrameMemberName) -> Option<&[u8]> {
        let members = self.members.as_ref().ok()?;
        let member = members.iter().find(|member| member.name == name)?;
        self.text.get(member.value.clone())
    }

    /// Returns the text of a member; `None` if the member is missing or its value is not a string.
    fn text_of(&self, name: FrameMemberName) -> Option<Cow<'_, str>> {
        unescaped(self.value(name)?)
    }
}

pub(super) fn is_false(value: Option<&[u8]>) -> bool {
    value.is_some_and(|value| value == b"false")
}

/// Joins two lists of items. Each list consists of the elements of a JSON array without its brackets.
pub(crate) fn join_items(first: &[u8], second: &[u8]) -> Vec<u8> {
    let between: &[u8] = match first.is_empty() || second.is_empty() {
        true => b"",
        false => b",",
    };
    [first, between, second].concat()
}

/// Splits the text of one JSON object into its members.
///
/// # Errors
/// As [`split_counted_members`].
pub(super) fn split_members(text: &[u8]) -> Result<Vec<FrameMember>, &'static str> {
    split_counted_members(text, &mut || true)
}

/// Like [`split_members`], but calls `on_value` before each value in a member. Stops with an error if `on_value` returns false.
///
/// # Errors
/// The text is not one object or has too many members. Or other JSON parsers could read it differently, because a name contains
/// an escape or occurs twice. The error is a message for the client.
fn split_counted_members(text: &[u8], on_value: &mut impl FnMut() -> bool) -> Result<Vec<FrameMember>, &'static str> {
    let malformed = "the frame is not one JSON object, or is nested too deeply";
    let offset = |rest: &[u8]| text.len() - rest.len();
    let [b'{', inside @ ..] = skip_space(text) else {
        return Err(malformed);
    };
    let mut members: Vec<FrameMember> = Vec::new();
    let mut rest = skip_space(inside);
    let behind = loop {
        if let ([b'}', behind @ ..], true) = (rest, members.is_empty()) {
            break behind;
        }
        let start = offset(rest);
        let (key, value) = split_key(rest).ok_or(malformed)?;
        let behind = skip_counted_value(value, 1, on_value).ok_or(malformed)?;
        let name = FrameMemberName::from_key(key);
        if key.contains(&b'\\') {
            return Err("the name of a member of the frame contains an escape");
        }
        if name != FrameMemberName::Other && members.iter().any(|member| member.name == name) {
            return Err("a member of the frame occurs twice");
        }
        if members.len() >= MEMBERS_MAX {
            return Err("the frame has too many members");
        }
        let value = offset(value)..offset(behind);
        members.push(FrameMember { name, start, value });
        match skip_space(behind) {
            [b',', more @ ..] => rest = skip_space(more),
            [b'}', behind @ ..] => break behind,
            _ => return Err(malformed),
        }
    };
    match skip_space(behind).is_empty() {
        true => Ok(members),
        false => Err(malformed),
    }
}
