//! The keys that any reader of a request looks for: each key of a body is looked up here once.

use super::string;

/// The longest spelling, in bytes.
const SPELLING_BYTES_MAX: usize = 32;

/// Makes the keys, and their look-up by spelling.
macro_rules! keys {
    ($($(#[$doc:meta])* $key:ident: $($spelling:literal)|+,)+) => {
        /// A known key. Gemini-style requests take both of their spellings, snake case and camel case.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Key {
            $($(#[$doc])* $key,)+
        }

        impl Key {
            fn spelled(name: &[u8]) -> Option<Self> {
                match name {
                    $($($spelling)|+ => Some(Self::$key),)+
                    _ => is_called_model(name).then_some(Self::OtherModel),
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
    /// A member of content whose value names nothing, whatever it holds: the user's own map, a tool's arguments, a
    /// tool's definition.
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
    /// From which model to which another one was run: what has been, in an answer that the client sends back.
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
    /// A model under another name ([`is_called_model`]), or how the provider is to choose one.
    OtherModel:
        b"featureSelectionPreference" | b"feature_selection_preference" | b"modelRoutingPreference"
        | b"model_routing_preference",
    /// A member outside of content whose value is the user's own, or names tools only.
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
    /// In content, a tool's definition, or what holds one.
    ToolDefinition: b"tool" | b"tool_changes",
    Tools: b"tools",
    TunnelId: b"tunnel_id",
    Type: b"type",
    Variables: b"variables",
    VectorStoreIds: b"vector_store_ids",
}

impl Key {
    /// The key that a token names, if it is known.
    pub(super) fn of(token: &[u8], is_escaped: bool) -> Option<Self> {
        if !is_escaped {
            return Self::spelled(string::inner(token));
        }
        Self::spelled(string::ascii(token, &mut [0; SPELLING_BYTES_MAX])?)
    }
}

/// Whether a member's name says that its value is a model, or several: `model_name`, `judgeModel`, `models`.
fn is_called_model(name: &[u8]) -> bool {
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
            assert_eq!(Key::of(token.as_bytes(), false), Some(Key::OtherModel), "{name}");
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
                Key::of(format!("\"{name}\"").as_bytes(), name.contains('\\')),
                None,
                "{name}"
            );
        }
    }
}
