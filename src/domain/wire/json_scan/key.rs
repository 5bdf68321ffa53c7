//! The keys that any reader of a request looks for: each key of a body is looked up here once.

use super::string;

/// The longest spelling, in bytes.
const SPELLING_BYTES_MAX: usize = 24;
/// The most bytes that an escape takes for one byte of text: `\u0061`.
const ESCAPE_BYTES_MAX: usize = 6;

/// A known key. Gemini-style requests take both of their spellings, snake case and camel case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Background,
    CacheControl,
    CachedContent,
    CandidateCount,
    ComparisonResponseId,
    Container,
    ContainerId,
    Content,
    Contents,
    Conversation,
    /// A member of content whose value names no state, whatever it holds: the user's own map, a tool's arguments, a
    /// tool's definition.
    Data,
    Diagnostics,
    EncryptedContent,
    Environment,
    Fallbacks,
    FileId,
    FileSearch,
    FileSearchStoreNames,
    FileUri,
    GenerateContentRequest,
    GenerationConfig,
    Id,
    IncludeUsage,
    Input,
    InputImageMask,
    MaxCompletionTokens,
    MaxOutputTokens,
    /// `maxOutputTokens`, which no protocol has at the top level.
    MaxOutputTokensCamel,
    MaxTokens,
    Messages,
    Model,
    PreviousMessageId,
    PreviousResponseId,
    Prompt,
    PromptCache,
    PromptCacheOptions,
    Result,
    Role,
    Signature,
    SkillId,
    Skills,
    Status,
    Store,
    Stream,
    StreamOptions,
    Summary,
    System,
    SystemInstruction,
    Text,
    Thread,
    Tools,
    TunnelId,
    Type,
    Variables,
    VectorStoreIds,
}

impl Key {
    /// The key that a token names, if it is known.
    pub(super) fn of(token: &[u8], is_escaped: bool) -> Option<Self> {
        if !is_escaped {
            return Self::spelled(string::inner(token));
        }
        let is_short = token.len() <= SPELLING_BYTES_MAX * ESCAPE_BYTES_MAX + 2;
        let unescaped = is_short.then(|| string::unescaped(token)).flatten()?;
        Self::spelled(unescaped.as_bytes())
    }

    fn spelled(name: &[u8]) -> Option<Self> {
        Some(match name {
            b"background" => Self::Background,
            b"cache_control" => Self::CacheControl,
            b"cachedContent" | b"cached_content" => Self::CachedContent,
            b"candidateCount" | b"candidate_count" => Self::CandidateCount,
            b"comparison_response_id" => Self::ComparisonResponseId,
            b"container" => Self::Container,
            b"container_id" => Self::ContainerId,
            b"content" => Self::Content,
            b"contents" => Self::Contents,
            b"conversation" => Self::Conversation,
            b"args"
            | b"arguments"
            | b"attributes"
            | b"client_metadata"
            | b"env"
            | b"error"
            | b"input_examples"
            | b"input_schema"
            | b"labels"
            | b"metadata"
            | b"parameters"
            | b"parametersJsonSchema"
            | b"parameters_json_schema"
            | b"partMetadata"
            | b"part_metadata"
            | b"response"
            | b"responseJsonSchema"
            | b"responseSchema"
            | b"response_json_schema"
            | b"response_schema"
            | b"schema"
            | b"tool"
            | b"tool_changes"
            | b"trigger" => Self::Data,
            b"diagnostics" => Self::Diagnostics,
            b"encrypted_content" => Self::EncryptedContent,
            b"environment" => Self::Environment,
            b"fallbacks" => Self::Fallbacks,
            b"file_id" | b"file_ids" => Self::FileId,
            b"fileSearch" | b"file_search" => Self::FileSearch,
            b"fileSearchStoreNames" | b"file_search_store_names" => Self::FileSearchStoreNames,
            b"fileUri" | b"file_uri" => Self::FileUri,
            b"generateContentRequest" | b"generate_content_request" => Self::GenerateContentRequest,
            b"generationConfig" | b"generation_config" => Self::GenerationConfig,
            b"id" => Self::Id,
            b"include_usage" => Self::IncludeUsage,
            b"input" => Self::Input,
            b"input_image_mask" => Self::InputImageMask,
            b"max_completion_tokens" => Self::MaxCompletionTokens,
            b"max_output_tokens" => Self::MaxOutputTokens,
            b"maxOutputTokens" => Self::MaxOutputTokensCamel,
            b"max_tokens" => Self::MaxTokens,
            b"messages" => Self::Messages,
            b"model" => Self::Model,
            b"previous_message_id" => Self::PreviousMessageId,
            b"previous_response_id" => Self::PreviousResponseId,
            b"prompt" => Self::Prompt,
            b"prompt_cache_key" => Self::PromptCache,
            b"prompt_cache_options" => Self::PromptCacheOptions,
            b"result" => Self::Result,
            b"role" => Self::Role,
            b"signature" | b"thoughtSignature" => Self::Signature,
            b"skill_id" => Self::SkillId,
            b"skills" => Self::Skills,
            b"status" => Self::Status,
            b"store" => Self::Store,
            b"stream" => Self::Stream,
            b"stream_options" => Self::StreamOptions,
            b"summary" => Self::Summary,
            b"system" => Self::System,
            b"systemInstruction" | b"system_instruction" => Self::SystemInstruction,
            b"text" => Self::Text,
            b"thread" => Self::Thread,
            b"tools" => Self::Tools,
            b"tunnel_id" => Self::TunnelId,
            b"type" => Self::Type,
            b"variables" => Self::Variables,
            b"vector_store_ids" => Self::VectorStoreIds,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_known_however_it_is_escaped() {
        for (name, key) in [
            ("id", Key::Id),
            ("fileUri", Key::FileUri),
            ("file_uri", Key::FileUri),
            ("generate_content_request", Key::GenerateContentRequest),
        ] {
            assert!(name.len() <= SPELLING_BYTES_MAX);
            assert_eq!(Key::of(format!("\"{name}\"").as_bytes(), false), Some(key));
            let escaped: String = name.bytes().map(|byte| format!("\\u{byte:04x}")).collect();
            assert_eq!(Key::of(format!("\"{escaped}\"").as_bytes(), true), Some(key));
        }
    }

    #[test]
    fn other_keys_are_unknown() {
        for name in ["", "Model", "model ", "modem", "m\\odel"] {
            assert_eq!(
                Key::of(format!("\"{name}\"").as_bytes(), name.contains('\\')),
                None,
                "{name}"
            );
        }
    }
}
