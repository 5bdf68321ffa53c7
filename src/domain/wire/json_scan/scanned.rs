//! The result of a scan.

use std::ops::Range;

use super::{
    named_models::NamedModels, output_limits::OutputLimits, references::Reference, tape::Tape, turns::ConversationTurns,
};

/// The facts that a scan has read from a request body.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scan {
    /// The value of `model`; `None` if the key is missing.
    pub model: Option<ModelSpan>,
    /// The value of `stream` if it is a boolean. It is up to the provider to refuse other values.
    pub stream: Option<bool>,
    /// The last non-negative integer, in tokens, of `max_tokens`, `max_output_tokens`, `max_completion_tokens` or
    /// `generationConfig.maxOutputTokens` (either spelling of both names: Gemini takes both).
    pub output_max: Option<u64>,
    /// The limits of the output that is billed.
    pub output_limits: OutputLimits,
    /// Whether the body has a `contents` key, with any value.
    pub has_contents: bool,
    /// A member of a Responses request that would hide the usage from weir: `background`, unless it is false, or
    /// `stream_options.include_usage`, unless it is true.
    pub unseen_usage: Option<&'static str>,
    /// The value of `store` if it is a boolean.
    pub store: Option<bool>,
    /// Whether the body has a `thread` or a `diagnostics` object: a later request may name the answer.
    pub may_be_continued: bool,
    /// The position of the value of `prompt_cache_key` in the body, with both quotes.
    pub prompt_cache_key: Option<Range<usize>>,
    /// The references to state at a provider; at most [`super::ScanLimits::references_max`].
    pub references: Vec<Reference>,
    /// The models that the body names in addition to the one that is to answer.
    pub models: NamedModels,
    /// The estimated input tokens, in tokens of o200k (see `input_tokens`).
    pub input_tokens: u64,
    /// The turns of the conversation.
    pub turns: ConversationTurns,
    /// Whether the body has a member that only one account at the provider can read or has cached.
    pub is_account_bound: bool,
    /// The tokens of the body, for its edits.
    pub tape: Tape,
}

/// The model that a request names, and the name's position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelSpan {
    /// The name, with escapes decoded. May be empty or implausible: see [`crate::domain::wire::model_name::is_plausible`].
    pub text: String,
    /// The position of the value in the body, with both quotes: the bytes that an edit replaces.
    pub value: Range<usize>,
}
