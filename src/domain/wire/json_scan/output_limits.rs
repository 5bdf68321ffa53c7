//! The output limits in a request, by each protocol's own names. Its bill is held to them.
//!
//! Only the protocol's own name counts, and an ambiguous value does not count. Otherwise a request could name a small
//! number that limits its bill but not its answer.

use crate::domain::wire::protocol::Protocol;

/// What a body says of its output, under all names.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OutputLimits {
    pub(super) max_tokens: Limit,
    pub(super) max_output_tokens: Limit,
    pub(super) generation_config: Limit,
    pub(super) candidates: Limit,
}

/// What was said under one name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Limit {
    #[default]
    Absent,
    /// The largest of the positive integers.
    Number(u64),
    /// Something else, at least once: `null`, a text, a fraction, a zero, which some servers take for no limit.
    Unclear,
}

impl Limit {
    /// Takes another value in; `None`: it is no integer.
    pub(super) fn note(&mut self, integer: Option<u64>) {
        *self = match (*self, integer) {
            (Self::Unclear, _) | (_, None | Some(0)) => Self::Unclear,
            (Self::Absent, Some(number)) => Self::Number(number),
            (Self::Number(before), Some(number)) => Self::Number(before.max(number)),
        };
    }

    fn number(self) -> Option<u64> {
        match self {
            Self::Number(number) => Some(number),
            Self::Absent | Self::Unclear => None,
        }
    }
}

impl OutputLimits {
    /// The output tokens of the whole answer, reasoning included, that a request in this protocol allows; `None` where it
    /// sets no limit that is beyond doubt. In a Messages request it holds for each run of the model, and is the largest one
    /// where a model of `fallbacks` has its own; in a Gemini-style one all candidates are counted.
    pub fn of(&self, protocol: Protocol) -> Option<u64> {
        match protocol {
            Protocol::Messages => self.max_tokens.number(),
            Protocol::Responses => self.max_output_tokens.number(),
            Protocol::Gemini => {
                let candidates = match self.candidates {
                    Limit::Absent => 1,
                    Limit::Number(candidates) => candidates,
                    Limit::Unclear => return None,
                };
                Some(self.generation_config.number()?.saturating_mul(candidates))
            }
        }
    }
}
