//! Recognizes errors which say that the prompt is longer than the model's context. Agents shorten the conversation because of them.

use std::borrow::Cow;

/// Parts of hosts' messages, in lower case, which say that the prompt is longer than the model's context. The comments name the
/// hosts; the tests have the messages, and say where they are published.
const OVERFLOW_WORDS: [&str; 18] = [
    // OpenAI's chat/completions and the hosts that repeat its words: DeepSeek, OpenRouter, vLLM. Also Mistral, Together, Fireworks,
    // Ollama, LM Studio, and NVIDIA.
    "context length",
    // OpenAI and others, where the code is in the text.
    "context_length_exceeded",
    // OpenAI's Responses, MiniMax.
    "context window",
    // OpenAI.
    "exceed the configured limit",
    // Anthropic.
    "context limit",
    // Anthropic, Fireworks.
    "prompt is too long",
    // Google.
    "input token count",
    // llama.cpp.
    "context size",
    // Moonshot.
    "model token limit",
    // z.ai, with the code 1261.
    "prompt exceeds max length",
    // DashScope.
    "range of input length should be",
    // Groq, Cerebras.
    "reduce the length of the messages",
    // xAI until 2026, and since then.
    "maximum prompt length",
    "input_too_large",
    // vLLM, where it has got tokens.
    "maximum model length",
    // Together and other hosts with text-generation-inference.
    "`max_new_tokens` must be <=",
    // Amazon Bedrock.
    "input is too long",
    // GitHub Models.
    "total length of all messages is too long",
];
/// Names of the maximum of an answer, in lower case.
const OUTPUT_WORDS: [&str; 4] = [
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "maxoutputtokens",
];
/// Names of the prompt, in lower case.
const INPUT_WORDS: [&str; 3] = ["input", "prompt", "messages"];
/// What follows the number of input tokens in a message that also states the requested output.
const BEHIND_INPUT: [&str; 4] = [" input tokens", " in the messages", " in your prompt", " of text input"];
/// What precedes the number of input tokens in such a message.
const BEFORE_INPUT: [&str; 2] = ["context limit: ", "input token count ("];
/// What precedes the number of tokens of the model's context in such a message.
const BEFORE_CONTEXT: [&str; 4] = [
    "maximum context length is ",
    "maximum context length (",
    "context length is only ",
    " > ",
];

/// The words in a message for which clients of Messages shorten the conversation.
const OVERFLOW_PHRASE: &str = "prompt is too long";

/// Whether a provider's message says that the prompt is longer than the model's context. A requested maximum of the answer that
/// alone is too large is no such error, because a shorter conversation would not help.
pub(crate) fn is_context_overflow(message: &str) -> bool {
    let message = message.to_ascii_lowercase();
    let has = |words: &[&str]| words.iter().any(|words| message.contains(words));
    let is_about_output = has(&OUTPUT_WORDS) && !has(&INPUT_WORDS);
    has(&OVERFLOW_WORDS) && !is_about_output && !is_small_input(&message)
}

/// Returns the message of a context overflow with the words for which clients of Messages shorten the conversation. They are put
/// before a message that does not have them.
pub(crate) fn overflow_message(message: &str) -> Cow<'_, str> {
    match message.to_ascii_lowercase().contains(OVERFLOW_PHRASE) {
        true => Cow::Borrowed(message),
        false => Cow::Owned(format!("{OVERFLOW_PHRASE}: {message}")),
    }
}

/// Whether a message states that the input takes less than half of the model's context, so that the requested output is what does
/// not fit.
fn is_small_input(message: &str) -> bool {
    let behind = BEHIND_INPUT.iter().find_map(|mark| number_before(message, mark));
    let input = behind.or_else(|| BEFORE_INPUT.iter().find_map(|mark| number_after(message, mark)));
    let context = BEFORE_CONTEXT.iter().find_map(|mark| number_after(message, mark));
    match (input, context) {
        (Some(input), Some(context)) => input < context / 2,
        _ => false,
    }
}

/// The number right before the first place of `mark`; `None` if there is none.
fn number_before(message: &str, mark: &str) -> Option<u64> {
    let (before, _) = message.split_once(mark)?;
    number(before.rsplit(is_no_digit).next()?)
}

/// The number right behind the first place of `mark`; `None` if there is none.
fn number_after(message: &str, mark: &str) -> Option<u64> {
    let (_, behind) = message.split_once(mark)?;
    number(behind.split(is_no_digit).next()?)
}

const fn is_no_digit(character: char) -> bool {
    !character.is_ascii_digit() && character != ','
}

/// Reads a number whose digits may be grouped by commas.
fn number(digits: &str) -> Option<u64> {
    digits.replace(',', "").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A host, its message about a prompt that is too long, and where the message is published: a repository, an issue of one, or
    /// a page of documentation.
    const OVERFLOWS: [(&str, &str, &str); 29] = [
        (
            "OpenAI, Responses",
            "Your input exceeds the context window of this model. Please adjust your input and try again.",
            "badlogic/pi-mono",
        ),
        (
            "OpenAI, chat/completions",
            "This model's maximum context length is 128000 tokens. However, your messages resulted in 204308 tokens. Please reduce the length of the messages.",
            "webtimemachine/wtm2 issue 579",
        ),
        (
            "OpenAI, chat/completions",
            "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 311384 tokens. Please reduce the length of the messages.",
            "letta-ai/letta",
        ),
        (
            "OpenAI, with a maximum of the answer",
            "This model's maximum context length is 4097 tokens. However, you requested 4295 tokens (3245 in the messages, 1050 in the completion). Please reduce the length of the messages or completion.",
            "yakGPT/yakGPT issue 13",
        ),
        (
            "Anthropic",
            "prompt is too long: 208310 tokens > 200000 maximum",
            "anthropics/claude-code issue 12186",
        ),
        (
            "Anthropic, with a maximum of the answer",
            "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000, decrease input length or `max_tokens` and try again",
            "badlogic/pi-mono",
        ),
        (
            "Google",
            "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).",
            "badlogic/pi-mono",
        ),
        (
            "DeepSeek",
            "This model's maximum context length is 131072 tokens. However, you requested 139162 tokens (130970 in the messages, 8192 in the completion). Please reduce the length of the messages or completion.",
            "zebbern/Devonz issue 9",
        ),
        (
            "Moonshot",
            "Invalid request: Your request exceeded model token limit: 262144 (requested: 269030)",
            "MoonshotAI/kimi-cli issue 2011",
        ),
        ("z.ai", "Prompt exceeds max length", "code 1261, as clients test it"),
        (
            "MiniMax",
            "invalid params, context window exceeds limit",
            "badlogic/pi-mono",
        ),
        (
            "DashScope",
            "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 258048]",
            "alibabacloud.com/help/model-studio/error-code",
        ),
        (
            "Groq",
            "Please reduce the length of the messages or completion.",
            "OpenHands/OpenHands issue 1902",
        ),
        (
            "Cerebras",
            "Please reduce the length of the messages or completion. Current length is 69553 while limit is 65536",
            "anomalyco/opencode issue 1551",
        ),
        (
            "Mistral",
            "Prompt contains 66385 tokens, too large for model with 32768 maximum context length",
            "portkey.ai/error-library",
        ),
        (
            "xAI",
            "This model's maximum prompt length is 131072 but the request contains 136973 tokens.",
            "cline/cline issue 3120",
        ),
        (
            "xAI",
            "Failed to start sampling: [input_too_large] Current message (1149677 tokens) exceeds budget (975424 tokens)",
            "UKGovernmentBEIS/inspect_ai pull request 5208",
        ),
        (
            "Together",
            "The input (250000 tokens) is longer than the model's context length (200000 tokens).",
            "badlogic/pi-mono",
        ),
        (
            "Together, older models",
            "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4097. Given: 80125 `inputs` tokens and 4096 `max_new_tokens`",
            "BerriAI/litellm issue 4934",
        ),
        (
            "Fireworks",
            "The prompt is too long: 262377, model maximum context length: 262143",
            "langchain-ai/langchain",
        ),
        (
            "OpenRouter",
            "This endpoint's maximum context length is 131072 tokens. However, you requested about 145655 tokens (139655 of text input, 6000 in the output). Please reduce the length of either one, or use the \"middle-out\" transform to compress your prompt automatically.",
            "badlogic/pi-mono",
        ),
        (
            "vLLM",
            "You passed 33537 input tokens and requested 32000 output tokens. However, the model's context length is only 65536 tokens, resulting in a maximum input length of 33536 tokens. Please reduce the length of the input messages.",
            "vllm-project/vllm",
        ),
        (
            "vLLM, with a maximum of the answer",
            "'max_tokens' or 'max_completion_tokens' is too large: 16384. This model's maximum context length is 65536 tokens and your request has 52189 input tokens (16384 > 65536 - 52189).",
            "vllm-project/vllm",
        ),
        (
            "vLLM, of tokens",
            "The decoder prompt (length 5951) is longer than the maximum model length of 4096. Make sure that `max_model_len` is no smaller than the number of text tokens.",
            "vllm-project/vllm",
        ),
        (
            "Ollama",
            "prompt too long; exceeded max context length by 15935 tokens",
            "badlogic/pi-mono",
        ),
        (
            "llama.cpp",
            "the request exceeds the available context size, try increasing it",
            "ggml-org/llama.cpp",
        ),
        (
            "LM Studio",
            "The number of tokens to keep from the initial prompt is greater than the context length. Try to load the model with a larger context length, or provide a shorter input",
            "lmstudio-ai/lmstudio-bug-tracker issue 2205",
        ),
        (
            "LM Studio",
            "Trying to keep the first 111490 tokens when context the overflows. However, the model is loaded with context length of only 32768 tokens, which is not enough. Try to load the model with a larger context length, or provide a shorter input.",
            "lmstudio-ai/lmstudio-bug-tracker issue 546",
        ),
        (
            "GitHub Models",
            "The total length of all messages is too long.",
            "symfony/ai",
        ),
    ];

    /// Messages about a maximum of the answer that is too large whatever the prompt is, and about rates.
    const OTHERS: [(&str, &str); 10] = [
        (
            "OpenAI",
            "max_tokens is too large: 100000. This model supports at most 16384 completion tokens, whereas you provided 100000.",
        ),
        (
            "Anthropic",
            "max_tokens: 200000 > 64000, which is the maximum allowed number of output tokens for claude-sonnet-4-5",
        ),
        (
            "Anthropic, small input",
            "input length and `max_tokens` exceed context limit: 1000 + 200000 > 200000, decrease input length or `max_tokens` and try again",
        ),
        (
            "DeepSeek",
            "Invalid max_tokens value, the valid range of max_tokens is [1, 8192]",
        ),
        (
            "Groq",
            "`max_tokens` must be less than or equal to `8192`, the maximum value for `max_tokens` is less than the `context_window` for this model",
        ),
        (
            "Groq, rate",
            "Request too large for model `llama-3.3-70b-versatile` in organization `org_1` service tier `on_demand` on tokens per minute (TPM): Limit 6000, Requested 14810, please reduce your message size and try again.",
        ),
        (
            "vLLM",
            "'max_tokens' or 'max_completion_tokens' is too large: 256000. This model's maximum context length is 262144 tokens and your request has 20354 input tokens (256000 > 262144 - 20354).",
        ),
        (
            "Together",
            "Failed to start generation: The input token count (11) plus the requested output count (1048573) exceeds the model's maximum context length (1048576)",
        ),
        ("DashScope", "Range of max_tokens should be [1, 8192]"),
        ("any", "max_tokens (200000) must not exceed the model's context window"),
    ];

    #[test]
    fn a_prompt_that_is_too_long_is_recognized_in_the_words_of_every_host() {
        for (host, message, source) in OVERFLOWS {
            assert!(is_context_overflow(message), "{host}, by {source}: {message}");
            let shown = overflow_message(message);
            let count = shown.to_ascii_lowercase().matches(OVERFLOW_PHRASE).count();
            assert!(count == 1 && shown.ends_with(message), "{shown}");
        }
    }

    #[test]
    fn a_maximum_of_the_answer_alone_makes_no_agent_shorten_the_conversation() {
        for (host, message) in OTHERS {
            assert!(!is_context_overflow(message), "{host}: {message}");
        }
    }

    #[test]
    fn every_word_is_needed() {
        for word in OVERFLOW_WORDS {
            let has_word = |message: &&str| message.to_ascii_lowercase().contains(word);
            let count = OVERFLOWS
                .iter()
                .map(|(_, message, _)| message)
                .filter(|message| has_word(message));
            let is_needed = count.count() > 0 || ["context_length_exceeded", "input is too long"].contains(&word);
            assert!(is_needed, "{word}");
        }
    }

    #[test]
    fn numbers_with_and_without_commas_are_read() {
        assert_eq!(number_before("it has 1,234 input tokens", " input tokens"), Some(1_234));
        assert_eq!(
            number_after("context limit: 200000 + 1", "context limit: "),
            Some(200_000)
        );
        for text in ["many input tokens", "input tokens", " input tokens"] {
            assert_eq!(number_before(text, " input tokens"), None, "{text}");
        }
        assert_eq!(number_after("99999999999999999999999 > 1", ""), None);
    }
}
