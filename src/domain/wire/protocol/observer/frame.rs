//! The state of reading an answer's messages, by its framing.

use super::{
    AnswerFraming,
    answer_progress::{AnswerReader, BodyProgress},
    sink::DoneMarkerMatch,
    template::TextEventTemplate,
};
use crate::domain::wire::{json_array::ArrayFramer, sse::SseFramer};

/// The state of reading an answer's messages, by its framing.
#[derive(Debug)]
pub(super) enum FramingState {
    Sse(EventStreamState),
    Json(BodyProgress),
    JsonArray(ArrayFramer),
    /// The number of bytes so far.
    Opaque(u64),
}

/// The state of reading a stream of events.
#[derive(Debug, Default)]
pub(super) struct EventStreamState {
    pub(super) framer: SseFramer,
    pub(super) head: DoneMarkerMatch,
    pub(super) template: TextEventTemplate,
}

impl FramingState {
    pub(super) fn new(framing: AnswerFraming) -> Self {
        match framing {
            AnswerFraming::Sse => Self::Sse(EventStreamState::default()),
            AnswerFraming::Json => Self::Json(BodyProgress::Open),
            AnswerFraming::JsonArray => Self::JsonArray(ArrayFramer::new()),
            AnswerFraming::Opaque => Self::Opaque(0),
        }
    }

    /// Whether the bytes after the last complete message cannot belong to an error, whatever follows.
    pub(super) fn is_open_part_harmless(&self, reading: &AnswerReader) -> bool {
        match self {
            Self::Sse(EventStreamState { framer, .. }) => {
                let is_answers = || reading.answer.dialect.is_known_answer_event(&reading.picker);
                framer.is_between_events() || framer.has_open_data() && is_answers()
            }
            Self::Json(body) => *body != BodyProgress::Open,
            Self::JsonArray(framer) => framer.is_between_elements(),
            Self::Opaque(_) => false,
        }
    }
}
