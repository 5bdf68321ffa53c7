//! Why a model stopped, for the access log: a word from a fixed list, never any other text of a provider.

/// Replaces every word that is not in the list.
const OTHER: &str = "other";

/// The words of the three protocols, and those that providers are known to add.
const WORDS: [&str; 47] = [
    // Messages: `stop_reason` (https://docs.claude.com/en/api/handling-stop-reasons).
    "end_turn",
    "max_tokens",
    "stop_sequence",
    "tool_use",
    "pause_turn",
    "refusal",
    "model_context_window_exceeded",
    // Added by providers that speak Messages.
    "sensitive",
    "network_error",
    "repetition_truncation",
    // Responses: `status`, and `incomplete_details.reason` (https://platform.openai.com/docs/api-reference/responses/object).
    "completed",
    "failed",
    "in_progress",
    "cancelled",
    "queued",
    "incomplete",
    "max_output_tokens",
    "max_messages",
    "content_filter",
    "steered",
    // GenerateContent: `finishReason` and `blockReason` (https://ai.google.dev/api/generate-content).
    "FINISH_REASON_UNSPECIFIED",
    "BLOCK_REASON_UNSPECIFIED",
    "STOP",
    "MAX_TOKENS",
    "SAFETY",
    "RECITATION",
    "LANGUAGE",
    "OTHER",
    "BLOCKLIST",
    "PROHIBITED_CONTENT",
    "SPII",
    "JAILBREAK",
    "MALFORMED_FUNCTION_CALL",
    "UNEXPECTED_TOOL_CALL",
    "TOO_MANY_TOOL_CALLS",
    "MISSING_THOUGHT_SIGNATURE",
    "MALFORMED_RESPONSE",
    "IMAGE_SAFETY",
    "IMAGE_PROHIBITED_CONTENT",
    "IMAGE_OTHER",
    "IMAGE_RECITATION",
    "NO_IMAGE",
    "ESCALATION",
    "CONTINUATION",
    "MODEL_ARMOR",
    "PUP_LIMITED_DISABLED",
    OTHER,
];

/// Returns `text` if it is in the list, else `other`.
pub(crate) fn known_or_other(text: &str) -> &'static str {
    WORDS.iter().find(|word| **word == text).copied().unwrap_or(OTHER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_protocols_words_stand_and_no_other_text_does() {
        for known in ["end_turn", "completed", "max_output_tokens", "MAX_TOKENS", "other"] {
            assert_eq!(known_or_other(known), known);
        }
        for unknown in ["", "End_Turn", "end_turn ", "the prompt\nwas", &"x".repeat(1 << 20)] {
            assert_eq!(known_or_other(unknown), "other");
        }
    }
}
