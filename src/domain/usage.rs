//! The canonical usage record: what a request consumed, whatever the protocol it was reported in.

/// What one request consumed, in tokens (and calls, for the two tools that are counted by call).
///
/// The parts do not overlap: each token is in exactly one field, so a price per field can be summed.
/// Every count is between 0 and [`COUNT_MAX`]; how each protocol's own fields add up to these is in its module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Input tokens that were neither read from nor written to a cache.
    pub input_uncached: u64,
    /// Input tokens read from a prompt cache.
    pub cache_read: u64,
    /// Input tokens written to a cache of short life (Messages 5 minutes, Responses 30 minutes).
    pub cache_write_short: u64,
    /// Input tokens written to a cache of long life (Messages 1 hour, Responses 12 hours).
    pub cache_write_long: u64,
    /// Output tokens other than reasoning: text and tool input.
    pub output_text: u64,
    /// Output tokens spent on reasoning (thinking).
    pub output_reasoning: u64,
    /// Input tokens that a provider's own tools put into the prompt (Gemini `toolUsePromptTokenCount`).
    pub tool_input: u64,
    /// Web searches made by the provider's own tool.
    pub web_searches: u64,
    /// Web pages fetched by the provider's own tool.
    pub web_fetches: u64,
}

/// The largest count that is believed (2^53, the largest integer that every JSON reader keeps exact); anything above becomes this.
pub const COUNT_MAX: u64 = 1 << 53;

impl Usage {
    /// All input tokens: uncached, read, written and put in by tools.
    pub fn input_total(&self) -> u64 {
        [
            self.input_uncached,
            self.cache_read,
            self.cache_write_short,
            self.cache_write_long,
            self.tool_input,
        ]
        .into_iter()
        .fold(0, u64::saturating_add)
    }

    /// All output tokens: text and reasoning.
    pub fn output_total(&self) -> u64 {
        self.output_text.saturating_add(self.output_reasoning)
    }
}
