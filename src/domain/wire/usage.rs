//! The usage of a request, in a form that is the same for all protocols.

pub(in crate::domain) mod fields;

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

pub(in crate::domain) use crate::domain::wire::usage::fields::Modalities;

/// The usage of one request: tokens, and calls of tools that are billed by call.
///
/// The parts do not overlap: each token is in exactly one field, so the prices of all fields can be added up. Every count is
/// between 0 and [`COUNT_MAX`]. The module of each protocol converts the counts of the protocol's reports to the fields of this
/// type.
///
/// In JSON, parts that are zero are omitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct Usage {
    /// The input tokens that were neither read from nor written to a cache, without the audio and image tokens that the provider
    /// has counted separately.
    #[serde(skip_serializing_if = "is_zero")]
    pub input_uncached: u64,
    /// The input tokens read from a prompt cache, without the audio and image tokens that the provider has counted separately.
    #[serde(skip_serializing_if = "is_zero")]
    pub cache_read: u64,
    /// Input tokens written to a cache with short lifetime (Messages 5 minutes, Responses 30 minutes).
    #[serde(skip_serializing_if = "is_zero")]
    pub cache_write_short: u64,
    /// Input tokens written to a cache with long lifetime (Messages 1 hour, Responses 12 hours).
    #[serde(skip_serializing_if = "is_zero")]
    pub cache_write_long: u64,
    /// The output tokens of text and tool input, without reasoning, and without the audio and image tokens that the provider has
    /// counted separately.
    #[serde(skip_serializing_if = "is_zero")]
    pub output_text: u64,
    /// Output tokens spent on reasoning (thinking).
    #[serde(skip_serializing_if = "is_zero")]
    pub output_reasoning: u64,
    /// Input tokens that a provider's own tools put into the prompt (Gemini `toolUsePromptTokenCount`).
    #[serde(skip_serializing_if = "is_zero")]
    pub tool_input: u64,
    /// Web searches made by the provider's own tool.
    #[serde(skip_serializing_if = "is_zero")]
    pub web_searches: u64,
    /// Web pages fetched by the provider's own tool.
    #[serde(skip_serializing_if = "is_zero")]
    pub web_fetches: u64,
    /// Searches in stored files by the provider's own tool.
    #[serde(skip_serializing_if = "is_zero")]
    pub file_searches: u64,
    /// Calls of the provider's own code interpreter.
    #[serde(skip_serializing_if = "is_zero")]
    pub code_interpreter_calls: u64,
    /// Calls of the provider's own image generation.
    #[serde(skip_serializing_if = "is_zero")]
    pub image_generations: u64,
    /// Audio input tokens that were not read from a cache.
    #[serde(skip_serializing_if = "is_zero")]
    pub input_audio: u64,
    /// Image input tokens that were not read from a cache.
    #[serde(skip_serializing_if = "is_zero")]
    pub input_image: u64,
    /// Audio input tokens read from a prompt cache.
    #[serde(skip_serializing_if = "is_zero")]
    pub cache_read_audio: u64,
    /// Image input tokens read from a prompt cache.
    #[serde(skip_serializing_if = "is_zero")]
    pub cache_read_image: u64,
    /// Audio output tokens.
    #[serde(skip_serializing_if = "is_zero")]
    pub output_audio: u64,
    /// Image output tokens.
    #[serde(skip_serializing_if = "is_zero")]
    pub output_image: u64,
}

/// Implements access to the parts of a [`Usage`] as an array, in the order of its fields, and by name.
macro_rules! parts {
    ($($part:ident),+ $(,)?) => {
        impl Usage {
            /// The names of the parts in the consumption log.
            pub(crate) const NAMES: [&'static str; [$(stringify!($part)),+].len()] = [$(stringify!($part)),+];

            /// Returns the parts of the usage, in the order of the fields.
            pub(crate) fn parts(&self) -> [u64; Self::NAMES.len()] {
                let Self { $($part),+ } = *self;
                [$($part),+]
            }

            /// Creates a usage from its parts, in the order of the fields.
            pub(crate) const fn from_parts([$($part),+]: [u64; Self::NAMES.len()]) -> Self {
                Self { $($part),+ }
            }
        }
    };
}

parts!(
    input_uncached,
    cache_read,
    cache_write_short,
    cache_write_long,
    output_text,
    output_reasoning,
    tool_input,
    web_searches,
    web_fetches,
    file_searches,
    code_interpreter_calls,
    image_generations,
    input_audio,
    input_image,
    cache_read_audio,
    cache_read_image,
    output_audio,
    output_image,
);

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
pub(in crate::domain) fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// The maximum count, 2^53. Every JSON parser reads integers up to this one exactly. A larger number in a report is ignored.
pub(crate) const COUNT_MAX: u64 = 1 << 53;

impl Usage {
    /// The parts that are input tokens.
    #[cfg(test)]
    const INPUT: [&'static str; 9] = [
        "input_uncached",
        "input_audio",
        "input_image",
        "cache_read",
        "cache_read_audio",
        "cache_read_image",
        "cache_write_short",
        "cache_write_long",
        "tool_input",
    ];
    /// The parts that are output tokens.
    #[cfg(test)]
    const OUTPUT: [&'static str; 4] = ["output_text", "output_reasoning", "output_audio", "output_image"];

    /// Returns each part of the usage with its name.
    pub(crate) fn named_parts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Self::NAMES.into_iter().zip(self.parts())
    }

    /// Returns the number of all input tokens: uncached, read from or written to a cache, and added by tools.
    pub fn input_total(&self) -> u64 {
        let fresh = [self.input_uncached, self.input_audio, self.input_image, self.tool_input];
        let written = [self.cache_write_short, self.cache_write_long];
        sum_counts(&fresh)
            .saturating_add(sum_counts(&written))
            .saturating_add(self.cache_read_total())
    }

    /// Returns the number of all input tokens that were read from a cache.
    pub(crate) fn cache_read_total(&self) -> u64 {
        sum_counts(&[self.cache_read, self.cache_read_audio, self.cache_read_image])
    }

    /// Returns the number of all output tokens: text, reasoning, audio and images.
    pub fn output_total(&self) -> u64 {
        sum_counts(&[
            self.output_text,
            self.output_reasoning,
            self.output_audio,
            self.output_image,
        ])
    }

    /// Returns the sum of this usage and `other`, part by part.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        self.merge_parts(other, u64::saturating_add)
    }

    /// Returns the difference between this usage and `other`, part by part; zero where `other` is larger.
    #[must_use]
    pub fn minus(&self, other: &Self) -> Self {
        self.merge_parts(other, u64::saturating_sub)
    }

    /// Returns the usage with each part reduced to at most `most`.
    #[must_use]
    pub(crate) fn with_parts_at_most(&self, most: u64) -> Self {
        self.merge_parts(&Self::default(), |count, _| count.min(most))
    }

    /// Returns the usage with at most `most` calls of each tool.
    #[must_use]
    pub(crate) fn with_calls_at_most(&self, most: u64) -> Self {
        Self {
            web_searches: self.web_searches.min(most),
            web_fetches: self.web_fetches.min(most),
            file_searches: self.file_searches.min(most),
            code_interpreter_calls: self.code_interpreter_calls.min(most),
            image_generations: self.image_generations.min(most),
            ..*self
        }
    }

    /// Returns the usage with at most `most` input tokens. The cheapest parts are reduced first.
    #[must_use]
    pub(crate) fn with_input_at_most(&self, most: u64) -> Self {
        let mut held = *self;
        let parts = [
            &mut held.cache_read,
            &mut held.cache_read_image,
            &mut held.cache_read_audio,
            &mut held.tool_input,
            &mut held.cache_write_short,
            &mut held.cache_write_long,
            &mut held.input_uncached,
            &mut held.input_image,
            &mut held.input_audio,
        ];
        reduce_parts(parts, self.input_total().saturating_sub(most));
        held
    }

    /// Returns the usage with at most `most` output tokens. Reasoning is reduced first, images last.
    #[must_use]
    pub(crate) fn with_output_at_most(&self, most: u64) -> Self {
        let mut held = *self;
        let parts = [
            &mut held.output_reasoning,
            &mut held.output_text,
            &mut held.output_audio,
            &mut held.output_image,
        ];
        reduce_parts(parts, self.output_total().saturating_sub(most));
        held
    }

    fn merge_parts(&self, other: &Self, merge: impl Fn(u64, u64) -> u64) -> Self {
        let mut merged = self.parts();
        for (part, other) in merged.iter_mut().zip(other.parts()) {
            *part = merge(*part, other);
        }
        Self::from_parts(merged)
    }
}

fn sum_counts(counts: &[u64]) -> u64 {
    counts.iter().copied().fold(0, u64::saturating_add)
}

/// Subtracts `excess` from the parts, one after the other, until the excess is used up or all parts are zero.
fn reduce_parts<const N: usize>(parts: [&mut u64; N], mut excess: u64) {
    for part in parts {
        let off = excess.min(*part);
        *part -= off;
        excess -= off;
    }
}

/// The purpose of a run of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunKind {
    /// The requested model works on the answer. This kind includes a run in which the model declined, so that another model
    /// answered instead.
    Answer,
    /// Another model answers instead of a model that declined.
    Fallback,
    /// The requested model shortens a long conversation.
    Compaction,
    /// Another model advises the model that answers.
    Advisor,
}

impl RunKind {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Answer, Self::Fallback, Self::Compaction, Self::Advisor];

    /// Returns the name of the kind in the consumption log.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Answer => "answer",
            Self::Fallback => "fallback",
            Self::Compaction => "compaction",
            Self::Advisor => "advisor",
        }
    }

    /// Whether the output of a run of this kind is part of the answer, to which the request's output limit applies.
    pub const fn is_part_of_answer(self) -> bool {
        matches!(self, Self::Answer | Self::Fallback)
    }
}

/// One run of a model for an answer. Several runs, which can use different models, can contribute to one answer. A Messages
/// answer lists them in `usage.iterations` (<https://platform.claude.com/docs/en/agents-and-tools/tool-use/advisor-tool>, "Usage
/// and billing").
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// The purpose of the run.
    pub kind: RunKind,
    /// The provider's name for the model; `None` for the requested model.
    pub model: Option<String>,
    /// The usage of the run.
    pub usage: Usage,
}

impl Run {
    /// Creates a run of the requested model for the answer.
    pub fn answer(usage: Usage) -> Self {
        Self {
            kind: RunKind::Answer,
            model: None,
            usage,
        }
    }
}

/// Returns the sum of the runs' usage.
pub(crate) fn total_usage(runs: &[Run]) -> Usage {
    runs.iter().fold(Usage::default(), |sum, run| sum.plus(&run.usage))
}

/// How the usage in a row of the consumption log was determined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UsageSource {
    /// The provider reported the usage at the end of its answer.
    Reported,
    /// The provider reported only a part of the usage: the answer was interrupted, or the report of a complete answer lacks a
    /// part. The missing part is estimated.
    Partial,
    /// The usage is estimated from the text that has passed through weir.
    Estimated,
    /// The provider reported more than the limits allow. The accepted maximum is billed.
    Bounded,
}

impl UsageSource {
    /// All sources.
    pub const ALL: [Self; 4] = [Self::Reported, Self::Partial, Self::Estimated, Self::Bounded];

    /// Returns the name of the source in the consumption log.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Reported => "reported",
            Self::Partial => "partial",
            Self::Estimated => "estimated",
            Self::Bounded => "bounded",
        }
    }

    /// Returns the source with this name in the consumption log; `None` if there is no such source.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|source| source.as_str() == word)
    }
}

/// The properties of an answer that change its price, as reported by the provider.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PriceModifiers {
    /// The service tier, as the provider spells it: `flex`, `priority`, `batch`, `ON_DEMAND_PRIORITY`... `None` if not reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_tier: Option<SmolStr>,
    /// The speed, such as `fast`; `None` if not reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speed: Option<SmolStr>,
    /// The geography of the inference, such as `us`; `None` if not reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub geo: Option<SmolStr>,
}

impl PriceModifiers {
    /// Returns the modifiers of one run of an answer. An advisor has a service tier and a speed of its own, which the answer does
    /// not report (<https://platform.claude.com/docs/en/agents-and-tools/tool-use/advisor-tool>, "Usage and billing"). The
    /// geography is the same for all runs.
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

/// The parts of an answer that can raise its output above the request's output limit. After a call of a provider's own tool, the
/// model runs again, and the limit applies to each run separately. Images are not included in the limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnlimitedWork {
    /// The number of calls of the provider's own tools, such as searches and code execution.
    pub tool_calls: u64,
    /// The number of images in the answer.
    pub images: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_saturate() {
        let usage = Usage {
            input_uncached: u64::MAX,
            cache_read: 1,
            output_text: 2,
            output_reasoning: 3,
            ..Usage::default()
        };
        assert_eq!((usage.input_total(), usage.output_total()), (u64::MAX, 5));
    }

    #[test]
    fn every_token_is_input_or_output() {
        for (at, name) in Usage::NAMES.into_iter().enumerate() {
            let mut parts = [0; Usage::NAMES.len()];
            parts[at] = 7;
            let usage = Usage::from_parts(parts);
            let is_in = |names: &[&str], total| names.contains(&name) == (total == 7);
            assert!(is_in(&Usage::INPUT, usage.input_total()), "{name}");
            assert!(is_in(&Usage::OUTPUT, usage.output_total()), "{name}");
            let json = serde_json::to_value(usage).unwrap();
            assert_eq!(json, serde_json::json!({ name: 7 }));
        }
    }
}
