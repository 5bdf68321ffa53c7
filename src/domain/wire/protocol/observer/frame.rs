//! How far the messages of an answer have been read, by its framing.

use super::{Framing, answer_progress::Body, sink::Head, template::Template};
use crate::domain::wire::{json_array::ArrayFramer, json_pick::Picker, protocol::dialect::Dialect, sse::SseFramer};

#[derive(Debug)]
pub(super) enum Frame {
    Sse {
        framer: SseFramer,
        head: Head,
        template: Template,
    },
    Json(Body),
    JsonArray(ArrayFramer),
    /// With the bytes that have passed.
    Opaque(u64),
}

impl Frame {
    pub(super) fn new(framing: Framing) -> Self {
        match framing {
            Framing::Sse => Self::Sse {
                framer: SseFramer::new(),
                head: Head::default(),
                template: Template::default(),
            },
            Framing::Json => Self::Json(Body::Open),
            Framing::JsonArray => Self::JsonArray(ArrayFramer::new()),
            Framing::Opaque => Self::Opaque(0),
        }
    }

    /// Whether what has come behind the last whole message belongs to no error, whatever follows.
    pub(super) fn is_open_part_harmless(&self, picker: &Picker, dialect: &Dialect) -> bool {
        match self {
            Self::Sse { framer, .. } => {
                framer.is_between_events() || framer.has_open_data() && dialect.is_answers(picker)
            }
            Self::Json(body) => *body != Body::Open,
            Self::JsonArray(framer) => framer.is_between_elements(),
            Self::Opaque(_) => false,
        }
    }
}
