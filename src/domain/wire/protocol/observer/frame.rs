//! How far the messages of an answer have been read, by its framing.

use super::{
    Framing,
    answer_progress::{Body, Reading},
    sink::Head,
    template::Template,
};
use crate::domain::wire::{json_array::ArrayFramer, sse::SseFramer};

#[derive(Debug)]
pub(super) enum Frame {
    Sse(Events),
    Json(Body),
    JsonArray(ArrayFramer),
    /// With the bytes that have passed.
    Opaque(u64),
}

/// How far a stream of events has been read.
#[derive(Debug, Default)]
pub(super) struct Events {
    pub(super) framer: SseFramer,
    pub(super) head: Head,
    pub(super) template: Template,
}

impl Frame {
    pub(super) fn new(framing: Framing) -> Self {
        match framing {
            Framing::Sse => Self::Sse(Events::default()),
            Framing::Json => Self::Json(Body::Open),
            Framing::JsonArray => Self::JsonArray(ArrayFramer::new()),
            Framing::Opaque => Self::Opaque(0),
        }
    }

    /// Whether what has come behind the last whole message belongs to no error, whatever follows.
    pub(super) fn is_open_part_harmless(&self, reading: &Reading) -> bool {
        match self {
            Self::Sse(Events { framer, .. }) => {
                let is_answers = || reading.answer.dialect.is_answers(&reading.picker);
                framer.is_between_events() || framer.has_open_data() && is_answers()
            }
            Self::Json(body) => *body != Body::Open,
            Self::JsonArray(framer) => framer.is_between_elements(),
            Self::Opaque(_) => false,
        }
    }
}
