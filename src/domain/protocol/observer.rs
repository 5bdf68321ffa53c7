//! The observer: looks at an answer's bytes as they pass and knows what they said, in bounded memory.

use crate::domain::operation::Operation;
use crate::domain::protocol::Protocol;
use crate::domain::usage::Usage;

/// How an answer's body is cut into messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Framing {
    /// Server-sent events.
    Sse,
    /// One JSON value.
    Json,
    /// A JSON array with one element per chunk (Gemini stream without `alt=sse`).
    JsonArray,
    /// Anything else: not looked at.
    Opaque,
}

/// The framing of an answer to `operation` that has this `content-type`.
pub fn framing_of(operation: Operation, content_type: Option<&str>) -> Framing {
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

/// Why a stream cannot go on although its status line said 200.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MidStreamFailure {
    /// What happened.
    pub kind: FailureKind,
    /// What the client is told; any text, it is escaped where it is put in.
    pub message: String,
}

/// What ended a stream too early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FailureKind {
    /// The provider closed or reset the connection.
    ProviderCut,
    /// The provider was silent for longer than allowed.
    ProviderTimeout,
    /// weir failed.
    Internal,
}

/// What an answer has said so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// The usage that the provider reported, if it reported any.
    pub usage: Option<Usage>,
    /// The protocol's own word for why the answer ended (`end_turn`, `completed`, `STOP`, ...).
    pub finish_reason: Option<String>,
    /// The error that the provider put into the answer.
    pub in_band_error: Option<InBandError>,
    /// The model that says it answered.
    pub model: Option<String>,
    /// Whether the answer's end was seen (see [`Observer::is_complete`]).
    pub complete: bool,
    /// Whether `data: [DONE]` was seen.
    pub saw_done_marker: bool,
}

/// An error that came inside an answer. Never holds the message: that is the provider's text, and may quote the prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InBandError {
    /// The error's type (Messages, Responses) or status (Gemini).
    pub kind: String,
    /// The error's code, when it has one.
    pub code: Option<String>,
}

/// Watches one answer. Any split of the same bytes into chunks gives the same result.
///
/// Memory is bounded whatever the size of an event or a line, and in steady state a chunk allocates nothing.
#[derive(Debug)]
pub struct Observer {
    protocol: Protocol,
    framing: Framing,
}

impl Observer {
    /// An observer of an answer that has not begun.
    pub fn new(protocol: Protocol, framing: Framing) -> Self {
        Self { protocol, framing }
    }

    /// Looks at the next bytes of the body.
    pub fn push(&mut self, chunk: &[u8]) {
        let _ = (chunk, self.protocol);
    }

    /// Whether generated content (text, thinking, a tool call) has passed. Pings, comments, blank lines and `message_start` are none.
    pub fn first_content_seen(&self) -> bool {
        false
    }

    /// Whether the protocol's own end was seen; an opaque answer is always complete.
    pub fn is_complete(&self) -> bool {
        self.framing == Framing::Opaque
    }

    /// What the answer has said so far.
    pub fn observed(&self) -> Observed {
        Observed {
            complete: self.is_complete(),
            ..Observed::default()
        }
    }

    /// The bytes to append now, so that the client sees the protocol's own in-band error.
    ///
    /// `None` when it cannot be said in band (a unary or an opaque body, an array that is closed): break the connection then.
    pub fn failure_tail(&self, failure: &MidStreamFailure) -> Option<Vec<u8>> {
        let _ = failure;
        None
    }
}
