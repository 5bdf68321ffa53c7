//! Reads a provider's answer as typed events.

mod chat;
mod gemini;
mod messages;
mod responses;

use std::borrow::Cow;

use serde_json::value::RawValue;

use crate::domain::{
    translation::{
        ChatTraits,
        answer::{AnswerEvent, AnswerFault},
    },
    wire::{
        UpstreamProtocol,
        json_pick::{PathSet, Picks},
        protocol::{
            InBandError,
            provider_error::{self, is_context_overflow, overflow_message},
        },
    },
};

/// The message for an error that the provider reports only in the answer's finish reason.
const BROKEN_OFF: &str = "the provider broke the answer off because of an error; send the request again";

/// A function that receives the typed events.
pub(crate) type Emit<'f> = dyn FnMut(AnswerEvent<'_>) -> Result<(), AnswerFault> + 'f;

/// The reader of one answer in its provider's protocol.
#[derive(Debug)]
pub(crate) enum AnswerEventReader {
    /// The reader of Messages answers.
    Messages(messages::MessagesAnswerReader),
    /// The reader of Responses answers.
    Responses(responses::ResponsesAnswerReader),
    /// The reader of Gemini answers.
    Gemini(gemini::GeminiAnswerReader),
    /// The reader of `chat/completions` answers.
    Chat(chat::ChatAnswerReader),
}

impl AnswerEventReader {
    /// Creates a reader for an answer that has not begun.
    pub(crate) fn new(protocol: UpstreamProtocol, chat: &ChatTraits) -> Self {
        match protocol {
            UpstreamProtocol::Messages => Self::Messages(messages::MessagesAnswerReader::default()),
            UpstreamProtocol::Responses => Self::Responses(responses::ResponsesAnswerReader::default()),
            UpstreamProtocol::Gemini => Self::Gemini(gemini::GeminiAnswerReader::default()),
            UpstreamProtocol::Chat => Self::Chat(chat::ChatAnswerReader::new(chat)),
        }
    }

    /// Reads an event of a stream. `name` is the value of the `event` field, or empty.
    ///
    /// # Errors
    /// The event does not conform to the protocol, or `emit` fails.
    pub(crate) fn on_event(&mut self, name: &str, data: &str, emit: &mut Emit<'_>) -> Result<(), AnswerFault> {
        match self {
            Self::Messages(reader) => reader.on_event(name, data, emit),
            Self::Responses(reader) => reader.on_event(name, data, emit),
            Self::Gemini(reader) => reader.on_event(data, emit),
            Self::Chat(reader) => reader.on_event(data, emit),
        }
    }

    /// Returns the paths to read in an event that is too large to be buffered; `None` if such an event cannot be read.
    pub(crate) fn large_event_paths(&self) -> Option<&'static PathSet> {
        let paths: &'static PathSet = &responses::LARGE_EVENT_PATHS;
        matches!(self, Self::Responses(_)).then_some(paths)
    }

    /// Whether an event that is too large to be buffered can be read in part, according to the members read so far. `name` is the
    /// value of the `event` field, or empty.
    pub(crate) fn can_skim(name: &str, picks: &Picks<'_>) -> bool {
        responses::ResponsesAnswerReader::can_skim(name, picks)
    }

    /// Reads only the members at [`AnswerEventReader::large_event_paths`] of an event that is too large to be buffered.
    ///
    /// # Errors
    /// The event has content that no other event repeats, or `emit` fails.
    pub(crate) fn on_large_event(
        &mut self,
        name: &str,
        picks: &Picks<'_>,
        emit: &mut Emit<'_>,
    ) -> Result<(), AnswerFault> {
        match self {
            Self::Responses(reader) => reader.on_large_event(name, picks, emit),
            Self::Messages(_) | Self::Gemini(_) | Self::Chat(_) => Err(AnswerFault::EventTooLarge),
        }
    }

    /// Reads a non-streaming answer.
    ///
    /// # Errors
    /// The body does not conform to the protocol, or `emit` fails.
    pub(crate) fn on_body(&mut self, body: &str, emit: &mut Emit<'_>) -> Result<(), AnswerFault> {
        match self {
            Self::Messages(reader) => reader.on_body(body, emit),
            Self::Responses(reader) => reader.on_body(body, emit),
            Self::Gemini(reader) => reader.on_event(body, emit),
            Self::Chat(reader) => reader.on_body(body, emit),
        }
    }

    /// Handles the proper end of a stream: emits the events that the protocol defers until then.
    ///
    /// # Errors
    /// `emit` fails.
    pub(crate) fn on_end(&mut self, emit: &mut Emit<'_>) -> Result<(), AnswerFault> {
        match self {
            Self::Chat(reader) => reader.on_end(emit),
            Self::Gemini(reader) => reader.on_end(emit),
            Self::Messages(_) | Self::Responses(_) => Ok(()),
        }
    }
}

/// Returns the failure that an event or body reports.
fn failure(data: &str) -> AnswerEvent<'static> {
    let content = provider_error::read(data.as_bytes()).unwrap_or_default();
    let word_status = |word: &String| {
        let (kind, code) = (word.clone(), Some(word.clone()));
        InBandError { kind, code }.status()
    };
    // The member for the code comes after the type and is more specific.
    let known = content
        .words
        .iter()
        .rev()
        .map(word_status)
        .find(|status| *status != 502);
    let is_overflow = content.is_context_overflow();
    let message = content
        .message
        .map_or(Cow::Borrowed("the provider reported an error"), Cow::Owned);
    AnswerEvent::Failed {
        status: known.unwrap_or(if is_overflow { 400 } else { 502 }),
        // Writers see only the message, so it must also contain the meaning of the code.
        message: match is_overflow && !is_context_overflow(&message) {
            true => Cow::Owned(overflow_message(&message).into_owned()),
            false => message,
        },
    }
}

/// Returns the failure that the value of an error member reports.
fn member_failure(error: &RawValue) -> AnswerEvent<'static> {
    failure(&format!(r#"{{"error":{}}}"#, error.get()))
}
