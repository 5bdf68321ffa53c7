//! The catalogue models the tests ask for; they stand in the shipped `lua-free-rules/`.

/// Served by the Messages originator (`anthropic`).
pub(crate) const MESSAGES_MODEL: &str = "claude-sonnet-5-5";
/// Served by the Responses originator (`openai`).
pub(crate) const RESPONSES_MODEL: &str = "gpt-5.6-sol";
/// Served by the Gemini provider (`gemini`).
pub(crate) const GEMINI_MODEL: &str = "gemini-3.8-flash";
/// Served by the further Messages provider (`deepseek`).
pub(crate) const DEEPSEEK_MODEL: &str = "deepseek-flash";
/// What Claude Code asks for by itself; served by the Messages originator, too.
pub(crate) const CLAUDE_CODE_MODEL: &str = "claude-opus-5-5";
