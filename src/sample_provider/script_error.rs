//! Errors in scripts.

/// An error in a script; in a request, it leads to a 400.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScriptError {
    /// The mark has an unknown key.
    #[error("sample mark: key `{0}` is unknown, valid keys are {KEYS}")]
    UnknownKey(String),
    /// A value does not fit its key.
    #[error("sample script: value of `{key}` is invalid, it must be {expected}")]
    Value {
        key: &'static str,
        /// What would be valid.
        expected: &'static str,
    },
    /// A word of the mark does not have the form `key=value`.
    #[error("sample mark: `{0}` is not of the form key=value")]
    NotAPair(String),
    /// The end of the mark is missing.
    #[error("sample mark: `]]` is missing")]
    NotClosed,
}

const KEYS: &str = "deltas, delta_bytes, gap_ms, ttfb_ms, status, retry_after, cut_after, stall_after, \
    in_band_error_after, usage, encoding, content_type, close, half_event, native_errors, cache_read, cache_write, \
    hidden_tokens, prompt_cache, tool, tool_input, advisor, fallback";
