//! Where a usage comes from, and what was reported beside it.

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use crate::domain::wire::usage::run::RunKind;

/// Where a row's usage comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UsageSource {
    /// The provider reported them at the end of its answer.
    Reported,
    /// The provider reported some of them before the answer broke off, or left some out of a whole one; the rest is
    /// estimated.
    Partial,
    /// Estimated from the text that passed.
    Estimated,
    /// The provider reported more than was asked for or can be: billed is the most that is accepted.
    Bounded,
}

impl UsageSource {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Reported, Self::Partial, Self::Estimated, Self::Bounded];

    /// The word in the consumption log.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Reported => "reported",
            Self::Partial => "partial",
            Self::Estimated => "estimated",
            Self::Bounded => "bounded",
        }
    }

    /// The source that this word stands for.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|source| source.as_str() == word)
    }
}

/// What makes the price differ from the list price, as reported by the provider.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Modifiers {
    /// The service tier, as the provider spells it: `flex`, `priority`, `batch`, `ON_DEMAND_PRIORITY`...
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_tier: Option<SmolStr>,
    /// The speed, such as `fast`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speed: Option<SmolStr>,
    /// The geography of the inference, such as `us`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub geo: Option<SmolStr>,
}

impl Modifiers {
    /// What changes the price of a run. An advisor has a service tier of its own, which the answer does not tell
    /// (<https://platform.claude.com/docs/en/agents-and-tools/tool-use/advisor-tool>, "Usage and billing"), and so with the
    /// speed; where the request is served holds for all of it.
    #[must_use]
    pub fn of_run(&self, run: RunKind) -> Self {
        match run {
            RunKind::Answer | RunKind::Fallback | RunKind::Compaction => self.clone(),
            RunKind::Advisor => Self {
                geo: self.geo.clone(),
                ..Self::default()
            },
        }
    }
}
