//! The runs of models that make an answer.

use serde::{Deserialize, Serialize};

use crate::domain::wire::usage::Usage;

/// The purpose of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunKind {
    /// The requested model works on the answer. It may have declined, and another one answered instead.
    Answer,
    /// Another model answers instead of one that declined.
    Fallback,
    /// The requested model shortens a long conversation.
    Compaction,
    /// A model advises the answering one.
    Advisor,
}

impl RunKind {
    /// Every kind.
    pub const ALL: [Self; 4] = [Self::Answer, Self::Fallback, Self::Compaction, Self::Advisor];

    /// The word in the consumption log.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Answer => "answer",
            Self::Fallback => "fallback",
            Self::Compaction => "compaction",
            Self::Advisor => "advisor",
        }
    }

    /// Whether the output of such a run is part of the answer, to which the request's output limit applies.
    pub const fn is_part_of_answer(self) -> bool {
        matches!(self, Self::Answer | Self::Fallback)
    }
}

/// One run of a model for an answer. Several runs, each of its own model, may make one answer: a Messages answer lists them in
/// `usage.iterations` (<https://platform.claude.com/docs/en/agents-and-tools/tool-use/advisor-tool>, "Usage and billing").
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// The purpose of the run.
    pub kind: RunKind,
    /// The model, by the provider's name; `None` for the requested model.
    pub model: Option<String>,
    /// The tokens that the run used.
    pub usage: Usage,
}

impl Run {
    /// A run of the requested model for the answer.
    pub fn answer(usage: Usage) -> Self {
        Self {
            kind: RunKind::Answer,
            model: None,
            usage,
        }
    }
}

/// The sum of the runs' usage.
pub(crate) fn total_usage(runs: &[Run]) -> Usage {
    runs.iter().fold(Usage::default(), |sum, run| sum.plus(&run.usage))
}
