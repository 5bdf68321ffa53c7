//! One answer may be the work of several runs, each of its own model: a Messages answer lists them in `usage.iterations`
//! (<https://platform.claude.com/docs/en/agents-and-tools/tool-use/advisor-tool>, "Usage and billing").

use serde::{Deserialize, Serialize};

use crate::domain::wire::usage::Usage;

/// What a model was run for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunKind {
    /// The model that was asked for, at the answer. It may be one that declined, with another one in its place.
    Answer,
    /// Another model in the place of one that declined.
    Fallback,
    /// The model that was asked for, at making a long conversation shorter.
    Compaction,
    /// A model whose advice the answering one asked for.
    Advisor,
}

impl RunKind {
    /// All of them.
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

    /// Whether its output is the answer's text, which the request's limit of output holds for.
    pub const fn speaks(self) -> bool {
        matches!(self, Self::Answer | Self::Fallback)
    }
}

/// One run of a model for an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// What the model was run for.
    pub kind: RunKind,
    /// The model, by the provider's name for it; `None`: the one that was asked for.
    pub model: Option<String>,
    /// The tokens that the run used.
    pub usage: Usage,
}

impl Run {
    /// A run of the model that was asked for.
    pub fn answer(usage: Usage) -> Self {
        Self {
            kind: RunKind::Answer,
            model: None,
            usage,
        }
    }
}

/// The sum of the runs' usage.
pub(crate) fn total(runs: &[Run]) -> Usage {
    runs.iter().fold(Usage::default(), |sum, run| sum.plus(&run.usage))
}
