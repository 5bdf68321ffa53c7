//! What a scan finds.

use std::ops::Range;

use super::{named_models::NamedModels, output_limits::OutputLimits, references::Reference, tape::Tape, turns::Turns};

/// What the top level of a request body says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scan {
    /// The value of `model`; none if the key is missing.
    pub model: Option<ModelSpan>,
    /// The value of `stream` if it is a boolean. Any other value is the provider's to refuse.
    pub stream: Option<bool>,
    /// The last non-negative integer, in tokens, of `max_tokens`, `max_output_tokens`, `max_completion_tokens` or
    /// `generationConfig.maxOutputTokens` (either spelling of both names: Gemini takes both).
    pub output_max: Option<u64>,
    /// What bounds the output that is billed.
    pub output_limits: OutputLimits,
    /// Whether there is a `contents` key, whatever its value.
    pub has_contents: bool,
    /// The member, if there is one, with which a Responses request would have an answer whose usage weir never sees:
    /// `background`, unless it is false, or `stream_options.include_usage`, unless it is true.
    pub unseen_usage: Option<&'static str>,
    /// The value of `store` if it is a boolean.
    pub store: Option<bool>,
    /// Whether there is a `thread` or a `diagnostics` object: the answer may be named by a later request.
    pub may_be_continued: bool,
    /// The bytes of the value of `prompt_cache_key` in the body, with both quotes.
    pub prompt_cache_key: Option<Range<usize>>,
    /// What the request names that lies at a provider's account; at most [`super::ScanLimits::references_max`].
    pub references: Vec<Reference>,
    /// The models that it names beside the one that is to answer.
    pub models: NamedModels,
    /// What the body costs to read, in tokens of o200k, estimated by `input_tokens`.
    pub input_tokens: u64,
    /// What it says of the conversation that it goes on with.
    pub turns: Turns,
    /// Whether it has a member that only the provider's account which made it can read or has cached.
    pub is_account_bound: bool,
    /// The tokens of the body, for its edits.
    pub tape: Tape,
}

/// The model a request names, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelSpan {
    /// The name, escapes decoded. May be empty or implausible: see [`crate::domain::wire::model_name::is_plausible`].
    pub text: String,
    /// The bytes of the value's token in the body, with both quotes: what an edit replaces.
    pub value: Range<usize>,
}
