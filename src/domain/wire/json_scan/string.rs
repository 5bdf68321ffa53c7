//! Reads JSON strings: finds their ends, and the texts that they denote. The token of a string is the string as it is written,
//! including both quotes.

use std::borrow::Cow;

use crate::domain::wire::json_scan::JsonFault;

/// The number of bytes that are tested at a time in long strings. It is large enough for the compiler to use vector registers.
const BLOCK_BYTES: usize = 64;
/// The number of bytes that are tested at a time in short strings.
const WORD_BYTES: usize = 8;
/// The number of words that are tested before a string is treated as long.
const WORDS_BEFORE_BLOCKS: usize = 8;

/// The offset of a fault in a string, and the kind of the fault.
pub(super) type StringFault = (usize, JsonFault);

/// The result of checking a string.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CheckedString {
    /// The length of the string in bytes, including both quotes.
    pub length: usize,
    /// Whether the string contains an escape.
    pub is_escaped: bool,
    /// The offset of the first escaped surrogate without its other half; `None` if there is none. RFC 8259 allows it, but it is
    /// not valid text.
    pub lone_surrogate: Option<usize>,
}

/// Checks the string at the beginning of `text`, whose first byte must be a quote.
#[inline]
pub(super) fn check(text: &[u8]) -> Result<CheckedString, StringFault> {
    let inside = text.get(1..).unwrap_or_default();
    let plain = plain_length(inside);
    // Most strings have no escapes and end here.
    match inside.get(plain) {
        Some(b'"') => Ok(CheckedString {
            length: plain + 2,
            ..CheckedString::default()
        }),
        _ => check_from(text, 1 + plain),
    }
}

/// Like [`check`], for a string whose bytes before offset `at` are already checked and need no escapes.
#[inline(never)]
fn check_from(text: &[u8], mut at: usize) -> Result<CheckedString, StringFault> {
    let mut checked = CheckedString::default();
    loop {
        let rest = text.get(at..).unwrap_or_default();
        let plain = plain_length(rest);
        at += plain;
        match rest.get(plain) {
            Some(b'"') => {
                checked.length = at + 1;
                return Ok(checked);
            }
            Some(b'\\') => {
                checked.is_escaped = true;
                let (end, is_lone) = escape_end(text, at)?;
                if is_lone {
                    checked.lone_surrogate.get_or_insert(at);
                }
                at = end;
            }
            _ => return Err((at, JsonFault::ControlCharacter)),
        }
    }
}

/// Returns the length of the string at the beginning of `text`; `None` if the string does not end.
///
/// The function searches only for quotes: a quote is the end, unless an odd number of backslashes precedes it. Text often
/// contains `\n`, and stopping at each one would cost more than counting backslashes before the few quotes.
pub(super) fn string_length(text: &[u8]) -> Option<usize> {
    let mut at = 1;
    loop {
        let rest = text.get(at..)?;
        let run = memchr::memchr(b'"', rest)?;
        let before = rest.get(..run)?;
        let backslashes = before.iter().rev().take_while(|byte| **byte == b'\\').count();
        at += run + 1;
        if backslashes % 2 == 0 {
            return Some(at);
        }
    }
}

/// Returns the bytes of the string between its quotes, as they are written.
pub(super) fn string_inner(token: &[u8]) -> &[u8] {
    token.get(1..token.len().saturating_sub(1)).unwrap_or_default()
}

/// Whether a token is a string that denotes `name`.
pub(in crate::domain) fn is_text(token: &[u8], name: &str) -> bool {
    let inner = string_inner(token);
    if token.first() != Some(&b'"') {
        return false;
    }
    if inner == name.as_bytes() {
        // A backslash in the name would be written as an escape in the token.
        return !name.contains('\\');
    }
    // An escape has two to six bytes for one byte of text, or twelve for four. Other lengths cannot match.
    inner.len() > name.len()
        && inner.len() <= name.len().saturating_mul(6)
        && memchr::memchr(b'\\', inner).is_some()
        && unescaped(token).is_some_and(|unescaped| unescaped == name)
}

/// Returns the text that a token denotes; `None` if the token is not a string or not valid text.
pub(in crate::domain) fn unescaped(token: &[u8]) -> Option<Cow<'_, str>> {
    if token.first() != Some(&b'"') {
        return None;
    }
    let inner = string_inner(token);
    if memchr::memchr(b'\\', inner).is_none() {
        return std::str::from_utf8(inner).ok().map(Cow::Borrowed);
    }
    serde_json::from_slice::<String>(token).ok().map(Cow::Owned)
}

/// Writes the text of a checked string into `room` without an allocation, and returns it; `None` if the text is not ASCII or does
/// not fit.
pub(super) fn ascii_text<'r>(token: &[u8], room: &'r mut [u8]) -> Option<&'r [u8]> {
    let (mut rest, mut length) = (string_inner(token), 0);
    while let Some((first, after)) = rest.split_first() {
        let byte;
        (byte, rest) = match (first, after) {
            (b'\\', [b'u', ..]) => (u8::try_from(code_unit(after, 1).ok()?).ok()?, after.get(5..)?),
            (b'\\', [letter, after @ ..]) => (unescaped_letter(*letter)?, after),
            (plain, after) => (*plain, after),
        };
        *room.get_mut(length).filter(|_| byte.is_ascii())? = byte;
        length += 1;
    }
    room.get(..length)
}

/// Returns the character that a letter after a backslash denotes; `None` if that is not an escape.
const fn unescaped_letter(letter: u8) -> Option<u8> {
    Some(match letter {
        b'n' => b'\n',
        b't' => b'\t',
        b'r' => b'\r',
        b'b' => 0x08,
        b'f' => 0x0C,
        b'"' | b'\\' | b'/' => letter,
        _ => return None,
    })
}

/// Returns the end of the escape at `start`, or of two escapes that are a surrogate pair. Also returns whether the escape is only
/// half of such a pair.
fn escape_end(text: &[u8], start: usize) -> Result<(usize, bool), StringFault> {
    match text.get(start + 1) {
        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => return Ok((start + 2, false)),
        Some(b'u') => {}
        _ => return Err((start + 1, JsonFault::Escape)),
    }
    let end = start + 6;
    match code_unit(text, start + 2)? {
        0xD800..=0xDBFF if text.get(end..end + 2) == Some(b"\\u") => match code_unit(text, end + 2)? {
            0xDC00..=0xDFFF => Ok((end + 6, false)),
            _ => Ok((end, true)),
        },
        0xD800..=0xDFFF => Ok((end, true)),
        _ => Ok((end, false)),
    }
}

fn code_unit(text: &[u8], start: usize) -> Result<u32, StringFault> {
    (start..start + 4).try_fold(0, |unit, at| {
        let digit = text.get(at).and_then(|byte| char::from(*byte).to_digit(16));
        Ok(unit << 4 | digit.ok_or((at, JsonFault::HexDigits))?)
    })
}

/// Returns the number of bytes before the first quote, backslash or control character.
///
/// Short runs are tested a word at a time, and longer ones in blocks. Short runs are usual in keys, and in prose between escapes.
#[inline]
fn plain_length(bytes: &[u8]) -> usize {
    let mut rest = bytes;
    for words in 0..WORDS_BEFORE_BLOCKS {
        let Some((word, behind)) = rest.split_first_chunk() else {
            return words * WORD_BYTES + plain_words(rest);
        };
        let marks = special_bytes(u64::from_le_bytes(*word));
        if marks != 0 {
            return words * WORD_BYTES + (marks.trailing_zeros() / 8) as usize;
        }
        rest = behind;
    }
    bytes.len() - rest.len() + plain_blocks(rest)
}

/// Like [`plain_length`], for long runs.
#[inline(never)]
fn plain_blocks(bytes: &[u8]) -> usize {
    let (blocks, _) = bytes.as_chunks::<BLOCK_BYTES>();
    let skipped = blocks.iter().take_while(|block| is_plain_block(block)).count() * BLOCK_BYTES;
    skipped + plain_words(bytes.get(skipped..).unwrap_or_default())
}

/// Whether a block contains no quote, backslash or control character. The function examines all bytes without an early return, so
/// that it compiles to vector instructions.
fn is_plain_block(block: &[u8; BLOCK_BYTES]) -> bool {
    !block.iter().fold(false, |found, byte| {
        found | (*byte == b'"') | (*byte == b'\\') | (*byte < 0x20)
    })
}

#[inline(never)]
fn plain_words(bytes: &[u8]) -> usize {
    let (words, tail) = bytes.as_chunks::<WORD_BYTES>();
    for (index, word) in words.iter().enumerate() {
        let marks = special_bytes(u64::from_le_bytes(*word));
        if marks != 0 {
            return index * WORD_BYTES + (marks.trailing_zeros() / 8) as usize;
        }
    }
    let in_tail = tail
        .iter()
        .take_while(|byte| !matches!(byte, b'"' | b'\\' | 0..0x20))
        .count();
    words.len() * WORD_BYTES + in_tail
}

/// Finds the first byte of `word` that is a quote, a backslash or below 0x20: the lowest bit that is set in the result is the top
/// bit of that byte. The higher bits of the result have no meaning, because a borrow can set them. Bytes of 0x80 and above are
/// ignored, because quotes, backslashes and control characters are ASCII.
fn special_bytes(word: u64) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const TOPS: u64 = 0x8080_8080_8080_8080;
    let below = |word: u64, limit: u64| word.wrapping_sub(ONES * limit);
    let quote = below(word ^ (ONES * 0x22), 1);
    let backslash = below(word ^ (ONES * 0x5C), 1);
    (below(word, 0x20) | quote | backslash) & !word & TOPS
}

/// The length of the longest spelling of a known key, in bytes.
const SPELLING_BYTES_MAX: usize = 32;

/// Defines the known keys of a request body, and their lookup by spelling.
macro_rules! keys {
    ($($(#[$doc:meta])* $key:ident: $($spelling:literal)|+,)+) => {
        /// A known key of a request body. Keys of Gemini-style requests have two spellings, in snake case and in camel case.
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
    /// A member that occurs in content. Its value never names state or models: it is the user's own map, or a tool's arguments or
    /// definition.
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
    /// A member of an earlier answer that the client sends back. It describes one of the two models between which a fallback
    /// switched.
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
    /// A member with a key other than `model`. Its value names a model (see [`is_model_key`]), or is a preference that guides the
    /// provider's choice of a model.
    OtherModel:
        b"featureSelectionPreference" | b"feature_selection_preference" | b"modelRoutingPreference"
        | b"model_routing_preference",
    /// A member that occurs outside of content. Its value is the user's own data, or names only tools.
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
    /// A member that occurs in content. Its value is a tool's definition, or contains one.
    ToolDefinition: b"tool" | b"tool_changes",
    Tools: b"tools",
    TunnelId: b"tunnel_id",
    Type: b"type",
    Variables: b"variables",
    VectorStoreIds: b"vector_store_ids",
}

impl BodyKey {
    /// Returns the known key that a token denotes; `None` if the key is unknown.
    pub(super) fn from_token(token: &[u8], is_escaped: bool) -> Option<Self> {
        if !is_escaped {
            return Self::from_spelling(string_inner(token));
        }
        Self::from_spelling(ascii_text(token, &mut [0; SPELLING_BYTES_MAX])?)
    }
}

/// Whether a member's name says that the member's value names one or more models. Such names are `model_name`, `judgeModel` and
/// `models`.
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
