//! Writes a client's answer from typed events.

mod gemini;
mod messages;
mod responses;

use crate::domain::{
    translation::{
        answer::{AnswerEvent, AnswerFault, AnswerLosses},
        reasoning::ReasoningMaker,
        tool_names::ToolNames,
    },
    wire::{Protocol, usage::Usage},
};

/// The form of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum AnswerForm {
    /// A stream of server-sent events.
    Stream,
    /// A non-streaming answer: one JSON object.
    Whole,
    /// A stream in the form of a JSON array, which Gemini clients can request.
    Array,
}

impl AnswerForm {
    /// Whether the client gets the answer in pieces.
    const fn is_stream(self) -> bool {
        match self {
            Self::Stream | Self::Array => true,
            Self::Whole => false,
        }
    }
}

/// The data that a writer needs in addition to the content of an answer.
#[derive(Clone, Debug)]
pub(crate) struct AnswerFrame {
    /// The form of the answer.
    pub(crate) form: AnswerForm,
    /// The answer's id without its prefix, which depends on the protocol.
    pub(crate) id: String,
    /// The model's name as the client requested it.
    pub(crate) model: String,
    /// The time at which the answer began, in seconds since the Unix epoch.
    pub(crate) created_unix: i64,
    /// The estimated number of input tokens, for protocols in which an answer states this number before the provider reports it.
    pub(crate) input_estimate: u64,
    /// Whether the client gets the model's visible reasoning.
    pub(crate) shows_reasoning: bool,
    /// The maker of the reasoning.
    pub(crate) maker: ReasoningMaker,
    /// The names of the client's tools. The translation of the answer uses them to restore the client's names in calls.
    pub(crate) names: ToolNames,
    /// The body of the client's request; a Responses answer repeats some of its members.
    pub(crate) request: String,
}

/// The writer of one answer in its client's protocol.
#[derive(Debug)]
pub(crate) enum AnswerEventWriter {
    /// The writer of Messages answers.
    Messages(Box<messages::MessagesAnswerWriter>),
    /// The writer of Responses answers.
    Responses(Box<responses::ResponsesAnswerWriter>),
    /// The writer of Gemini answers.
    Gemini(Box<gemini::GeminiAnswerWriter>),
}

impl AnswerEventWriter {
    /// Creates a writer for an answer that has not begun.
    pub(crate) fn new(protocol: Protocol, frame: AnswerFrame) -> Self {
        match protocol {
            Protocol::Messages => Self::Messages(Box::new(messages::MessagesAnswerWriter::new(frame))),
            Protocol::Responses => Self::Responses(Box::new(responses::ResponsesAnswerWriter::new(frame))),
            Protocol::Gemini => Self::Gemini(Box::new(gemini::GeminiAnswerWriter::new(frame))),
        }
    }

    /// Writes an event. The bytes of a stream are appended to `out`; a non-streaming answer is written by
    /// [`AnswerEventWriter::finish`].
    ///
    /// # Errors
    /// The retained text is too long, or the answer cannot be written.
    pub(crate) fn on_event(&mut self, event: AnswerEvent<'_>, out: &mut String) -> Result<(), AnswerFault> {
        match self {
            Self::Messages(writer) => writer.on_event(event, out),
            Self::Responses(writer) => writer.on_event(event, out),
            Self::Gemini(writer) => writer.on_event(event, out),
        }
    }

    /// Returns the kinds of content that the client does not get.
    pub(crate) fn losses(&self) -> &AnswerLosses {
        match self {
            Self::Messages(writer) => writer.losses(),
            Self::Responses(writer) => writer.losses(),
            Self::Gemini(writer) => writer.losses(),
        }
    }

    /// Ends a complete answer: writes the usage that is billed, and the last events or the body. `ended_unix` is the time at
    /// which the answer ended, in seconds since the Unix epoch.
    pub(crate) fn finish(&mut self, usage: &Usage, ended_unix: i64, out: &mut String) {
        match self {
            Self::Messages(writer) => writer.finish(usage, out),
            Self::Responses(writer) => writer.finish(usage, ended_unix, out),
            Self::Gemini(writer) => writer.finish(usage, out),
        }
    }

    /// Ends a failed stream with the error that corresponds to this HTTP status.
    pub(crate) fn fail(&mut self, status: u16, message: &str, out: &mut String) {
        match self {
            Self::Messages(writer) => writer.fail(status, message, out),
            Self::Responses(writer) => writer.fail(status, message, out),
            Self::Gemini(writer) => writer.fail(status, message, out),
        }
    }
}
