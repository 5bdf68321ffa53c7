//! The known keys of request bodies: each key of a body is looked up here once, for all readers.

use super::string;

/// The length of the longest spelling, in bytes.
const SPELLING_BYTES_MAX: usize = 32;

/// Defines the keys, and their lookup by spelling.
macro_rules! keys {
    ($($(#[$doc:meta])* $key:ident: $($spelling:literal)|+,)+) => {
        /// A known key. Keys of Gemini-style requests have two spellings, snake case and camel case.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum BodyKey {
            $($(#[$doc])* $key,)+
        }

        impl BodyKey {
            fn from_spelling(name: &[u8]) -> Option<Self> {
                match name {
                    $($($spelling)|+ => Some(Self::$key),)+
                    _ => is_model_key(name).then_some(Self::OtherModel),
                }
            }
        }
    };
}

keys! {
    Background: b"background",
    CacheControl: b"cache_control",
    CachedContent: b"cachedContent" | b"cached_content",
    CandidateCount: b"candidateCount" | b"candidate_count",
    ComparisonResponseId: b"comparison_response_id",
    Container: b"container",
    ContainerId: b"container_id",
    Content: b"content",
    Contents: b"contents",
    Conversation: b"conversation",
    /// A member of content whose value never names state or models: the user's own map, a tool's arguments or definition.
    Data:
        b"args" | b"arguments" | b"attributes" | b"client_metadata" | b"env" | b"error" | b"input_examples"
        | b"input_schema" | b"labels" | b"metadata" | b"parameters" | b"parametersJsonSchema"
        | b"parameters_json_schema" | b"partMetadata" | b"part_metadata" | b"response" | b"responseJsonSchema"
        | b"responseSchema" | b"response_json_schema" | b"response_schema" | b"schema" | b"trigger",
    Diagnostics: b"diagnostics",
    EncryptedContent: b"encrypted_content",
    Environment: b"environment",
    Fallbacks: b"fallbacks",
    FileId: b"file_id" | b"file_ids",
    FileSearch: b"fileSearch" | b"file_search",
    FileSearchStoreNames: b"fileSearchStoreNames" | b"file_search_store_names",
    FileUri: b"fileUri" | b"file_uri",
    GenerateContentRequest: b"generateContentRequest" | b"generate_content_request",
    GenerationConfig: b"generationConfig" | b"generation_config",
    /// The models between which a fallback switched, in an earlier answer that the client sends back.
    Hop: b"from" | b"to",
    Id: b"id",
    IncludeUsage: b"include_usage",
    Input: b"input",
    InputImageMask: b"input_image_mask",
    MaxCompletionTokens: b"max_completion_tokens",
    MaxOutputTokens: b"max_output_tokens",
    /// `maxOutputTokens`, which no protocol has at the top level.
    MaxOutputTokensCamel: b"maxOutputTokens",
    MaxTokens: b"max_tokens",
    Messages: b"messages",
    Model: b"model",
    /// A model under another name ([`is_model_key`]), or a preference for the provider's choice of one.
    OtherModel:
        b"featureSelectionPreference" | b"feature_selection_preference" | b"modelRoutingPreference"
        | b"model_routing_preference",
    /// A member outside of content whose value is the user's own data, or names only tools.
    OwnMap:
        b"annotations" | b"configs" | b"customConfigs" | b"custom_configs" | b"filters" | b"headers" | b"output_schema"
        | b"tool_choice",
    PreviousMessageId: b"previous_message_id",
    PreviousResponseId: b"previous_response_id",
    Prompt: b"prompt",
    PromptCache: b"prompt_cache_key",
    PromptCacheOptions: b"prompt_cache_options",
    Result: b"result",
    Role: b"role",
    Signature: b"signature" | b"thoughtSignature",
    SkillId: b"skill_id",
    Skills: b"skills",
    Status: b"status",
    Store: b"store",
    Stream: b"stream",
    StreamOptions: b"stream_options",
    Summary: b"summary",
    SvgUsage: b"svg_usage",
    System: b"system",
    SystemInstruction: b"systemInstruction" | b"system_instruction",
    Text: b"text",
    Thread: b"thread",
    /// In content, a tool's definition, or a member that contains one.
    ToolDefinition: b"tool" | b"tool_changes",
    Tools: b"tools",
    TunnelId: b"tunnel_id",
    Type: b"type",
    Variables: b"variables",
    VectorStoreIds: b"vector_store_ids",
}

impl BodyKey {
    /// The key of a token; `None` if it is unknown.
    pub(super) fn from_token(token: &[u8], is_escaped: bool) -> Option<Self> {
        if !is_escaped {
            return Self::from_spelling(string::string_inner(token));
        }
        Self::from_spelling(string::ascii_text(token, &mut [0; SPELLING_BYTES_MAX])?)
    }
}

/// Whether a member's name says that its value is one or more models: `model_name`, `judgeModel`, `models`.
fn is_model_key(name: &[u8]) -> bool {
    let one = name.strip_suffix(b"s").unwrap_or(name);
    let ends: [&[u8]; 4] = [b"_name", b"Name", b"_id", b"Id"];
    let called = ends.iter().find_map(|end| one.strip_suffix(*end)).unwrap_or(one);
    called.ends_with(b"odel")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_known_however_it_is_escaped() {
        for (name, key) in [
            ("id", BodyKey::Id),
            ("fileUri", BodyKey::FileUri),
            ("file_uri", BodyKey::FileUri),
            ("generate_content_request", BodyKey::GenerateContentRequest),
        ] {
            assert!(name.len() <= SPELLING_BYTES_MAX);
            assert_eq!(BodyKey::from_token(format!("\"{name}\"").as_bytes(), false), Some(key));
            let escaped: String = name.bytes().map(|byte| format!("\\u{byte:04x}")).collect();
            assert_eq!(
                BodyKey::from_token(format!("\"{escaped}\"").as_bytes(), true),
                Some(key)
            );
        }
    }

    #[test]
    fn what_is_called_a_model_is_one() {
        for name in [
            "Model",
            "models",
            "model_name",
            "modelName",
            "model_ids",
            "judgeModel",
            "tuned_model",
            "modelRoutingPreference",
        ] {
            let token = format!("\"{name}\"");
            assert_eq!(
                BodyKey::from_token(token.as_bytes(), false),
                Some(BodyKey::OtherModel),
                "{name}"
            );
        }
    }

    #[test]
    fn other_keys_are_unknown() {
        for name in [
            "",
            "model ",
            "modem",
            "m\\odel",
            "model_",
            "modelArmorConfig",
            "names",
            "Id",
        ] {
            assert_eq!(
                BodyKey::from_token(format!("\"{name}\"").as_bytes(), name.contains('\\')),
                None,
                "{name}"
            );
        }
    }
}
