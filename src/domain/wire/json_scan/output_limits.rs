//! The output limits of a request, which limit its bill.

use crate::domain::wire::protocol::Protocol;

/// The output limits of a request, under all names. They limit its bill.
///
/// Only the name of the request's own protocol counts, and an ambiguous value does not count. Otherwise a request could set a
/// small number that limits its bill but not its answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OutputLimits {
    pub(super) max_tokens: OutputLimit,
    pub(super) max_output_tokens: OutputLimit,
    pub(super) generation_config: OutputLimit,
    pub(super) candidates: OutputLimit,
}

/// The values under one name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum OutputLimit {
    #[default]
    Absent,
    /// The largest value; all are positive integers.
    Number(u64),
    /// Another value, at least once: `null`, a text, a fraction, or zero, which some servers read as unlimited.
    Unclear,
}

impl OutputLimit {
    /// Adds a value; `None` if it is not an integer.
    pub(super) fn add(&mut self, integer: Option<u64>) {
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
    /// The maximum output tokens of the answer, reasoning included, of a request in this protocol; `None` without an unambiguous
    /// limit. In a Messages request, the limit is for each run of the model, and is the largest one if a model of `fallbacks` has
    /// its own; in a Gemini-style request, it covers all candidates.
    pub fn for_protocol(&self, protocol: Protocol) -> Option<u64> {
        match protocol {
            Protocol::Messages => self.max_tokens.number(),
            Protocol::Responses => self.max_output_tokens.number(),
            Protocol::Gemini => {
                let candidates = match self.candidates {
                    OutputLimit::Absent => 1,
                    OutputLimit::Number(candidates) => candidates,
                    OutputLimit::Unclear => return None,
                };
                Some(self.generation_config.number()?.saturating_mul(candidates))
            }
        }
    }
}
