//! Where a usage comes from, and what changes its price.

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use crate::domain::wire::usage::run::RunKind;

/// Where a row's usage comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UsageSource {
    /// The provider reported it at the end of its answer.
    Reported,
    /// The provider reported a part of it before the answer was interrupted, or omitted a part from a complete answer; the rest
    /// is estimated.
    Partial,
    /// Estimated from the text that passed.
    Estimated,
    /// The provider reported more than the limits allow; the accepted maximum is billed.
    Bounded,
}

impl UsageSource {
    /// Every source.
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

    /// The source with this word in the consumption log.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|source| source.as_str() == word)
    }
}

/// The properties of an answer that change its price, as reported by the provider.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PriceModifiers {
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

impl PriceModifiers {
    /// The modifiers of a run. An advisor has a service tier and a speed of its own, which the answer does not report
    /// (<https://platform.claude.com/docs/en/agents-and-tools/tool-use/advisor-tool>, "Usage and billing"); the geography is the
    /// same for all runs.
    #[must_use]
    pub fn for_run(&self, run: RunKind) -> Self {
        match run {
            RunKind::Answer | RunKind::Fallback | RunKind::Compaction => self.clone(),
            RunKind::Advisor => Self {
                geo: self.geo.clone(),
                ..Self::default()
            },
        }
    }
}
