//! Writes the turns of a conversation as messages of a Messages request.

use base64::{Engine, engine::general_purpose::STANDARD};

use crate::domain::translation::{
    call_ids::client_id,
    conversation::{
        BlockContent, ContentBlock, ConversationTurn, MediaContent, MediaKind, MediaSource, ToolCall, ToolCallResult,
        TurnRole,
    },
    json_out::{JsonArrayWriter, JsonObjectWriter},
    losses::{TranslationLosses, Untranslatable},
    reasoning::ReasoningState,
    write::ERROR_LINE,
};

/// Writes all turns.
///
/// # Errors
/// A block has content that the protocol cannot carry, or the last turn is the model's.
pub(super) fn write_messages(
    turns: &[ConversationTurn<'_>],
    losses: &mut TranslationLosses,
    messages: &mut JsonArrayWriter<'_>,
) -> Result<(), Untranslatable> {
    // Results must directly follow their calls, so system texts wait until the results are written.
    let mut waiting: Vec<&ContentBlock<'_>> = Vec::new();
    let mut has_open_calls = false;
    let mut prefill: Option<&str> = None;
    for turn in turns {
        match turn.role {
            TurnRole::System if has_open_calls => waiting.extend(turn.blocks.iter()),
            TurnRole::System => {
                for block in &turn.blocks {
                    write_system(block, losses, messages);
                }
                prefill = None;
            }
            TurnRole::User => {
                if write_user(turn, &waiting, losses, messages)? {
                    prefill = None;
                }
                waiting.clear();
                has_open_calls = false;
            }
            TurnRole::Assistant => {
                for block in waiting.drain(..) {
                    write_system(block, losses, messages);
                }
                if let Some(path) = write_assistant(turn, losses, messages)? {
                    prefill = Some(path);
                }
                has_open_calls = turn.blocks.iter().any(ContentBlock::is_call);
            }
        }
    }
    match prefill {
        Some(path) if waiting.is_empty() => Err(Untranslatable::new(
            path,
            "this model's provider cannot continue a turn of the model; end with a turn of the user",
        )),
        Some(_) | None => {
            for block in waiting {
                write_system(block, losses, messages);
            }
            Ok(())
        }
    }
}

/// Writes a system text that comes after the first turn. The text becomes a separate message.
fn write_system(block: &ContentBlock<'_>, losses: &mut TranslationLosses, messages: &mut JsonArrayWriter<'_>) {
    messages.object(|message| {
        message.text("role", "user");
        message.array("content", |content| write_system_text(block, losses, content));
    });
}

fn write_system_text(block: &ContentBlock<'_>, losses: &mut TranslationLosses, content: &mut JsonArrayWriter<'_>) {
    if let BlockContent::Text(text) = &block.content {
        losses.adapted(block.path.as_str());
        content.object(|item| write_text(&format!("<system>{text}</system>"), item));
    }
}

/// Writes a user's turn: the results, the system texts that the client placed before the results, and all other content. Returns
/// whether there was any content.
fn write_user(
    turn: &ConversationTurn<'_>,
    waiting: &[&ContentBlock<'_>],
    losses: &mut TranslationLosses,
    messages: &mut JsonArrayWriter<'_>,
) -> Result<bool, Untranslatable> {
    let last_result = turn.blocks.iter().rposition(ContentBlock::is_result);
    let mut results: Vec<&ContentBlock<'_>> = Vec::new();
    let mut others: Vec<&ContentBlock<'_>> = Vec::new();
    for (index, block) in turn.blocks.iter().enumerate() {
        if block.is_result() {
            results.push(block);
        } else if !is_blank(block) {
            if last_result.is_some_and(|last| index < last) {
                losses.adapted(block.path.as_str());
            }
            others.push(block);
        }
    }
    if results.is_empty() {
        for block in waiting {
            write_system(block, losses, messages);
        }
        if others.is_empty() {
            return Ok(!waiting.is_empty());
        }
    }
    messages.object(|message| {
        message.text("role", "user");
        message.array("content", |content| {
            write_blocks(&results, losses, content)?;
            if !results.is_empty() {
                for block in waiting {
                    write_system_text(block, losses, content);
                }
            }
            write_blocks(&others, losses, content)
        })
    })?;
    Ok(true)
}

/// Writes an assistant's turn. Returns the path of its last block; `None` if the turn has no content for the provider.
fn write_assistant<'b>(
    turn: &'b ConversationTurn<'_>,
    losses: &mut TranslationLosses,
    messages: &mut JsonArrayWriter<'_>,
) -> Result<Option<&'b str>, Untranslatable> {
    let mut blocks = Vec::new();
    for block in &turn.blocks {
        match &block.content {
            BlockContent::Reasoning(
                ReasoningState::Item { .. } | ReasoningState::Signature { .. } | ReasoningState::Text { .. },
            ) => losses.dropped(block.path.as_str()),
            BlockContent::Text(_)
            | BlockContent::Refusal(_)
            | BlockContent::Media(_)
            | BlockContent::Reasoning(_)
            | BlockContent::Call(_)
            | BlockContent::Result(_) => {
                if !is_blank(block) {
                    blocks.push(block);
                }
            }
        }
    }
    // The protocol refuses a turn that ends with thinking.
    while let Some(block) = blocks.pop_if(|block| matches!(block.content, BlockContent::Reasoning(_))) {
        losses.dropped(block.path.as_str());
    }
    let Some(last) = blocks.last() else { return Ok(None) };
    let path = last.path.as_str();
    messages.object(|message| {
        message.text("role", "assistant");
        message.array("content", |content| write_blocks(&blocks, losses, content))
    })?;
    Ok(Some(path))
}

/// Whether a block is text that consists of white space, which the protocol refuses.
fn is_blank(block: &ContentBlock<'_>) -> bool {
    match &block.content {
        BlockContent::Text(text) | BlockContent::Refusal(text) => text.trim().is_empty(),
        BlockContent::Media(_) | BlockContent::Reasoning(_) | BlockContent::Call(_) | BlockContent::Result(_) => false,
    }
}

fn write_blocks(
    blocks: &[&ContentBlock<'_>],
    losses: &mut TranslationLosses,
    content: &mut JsonArrayWriter<'_>,
) -> Result<(), Untranslatable> {
    for block in blocks {
        match &block.content {
            BlockContent::Text(text) => content.object(|item| write_text(text, item)),
            BlockContent::Refusal(text) => {
                losses.adapted(block.path.as_str());
                content.object(|item| write_text(text, item));
            }
            BlockContent::Media(media) => write_media(&block.path, media, losses, content)?,
            BlockContent::Reasoning(state) => write_reasoning(state, content),
            BlockContent::Call(call) => {
                if write_call(call, content) {
                    losses.adapted(block.path.as_str());
                }
            }
            BlockContent::Result(result) => write_result(result, losses, content)?,
        }
    }
    Ok(())
}

fn write_text(text: &str, item: &mut JsonObjectWriter<'_>) {
    item.text("type", "text");
    item.text("text", text);
}

/// Writes reasoning unchanged. States of other protocols have already been dropped.
fn write_reasoning(state: &ReasoningState<'_>, content: &mut JsonArrayWriter<'_>) {
    match state {
        ReasoningState::Thinking { text, signature } => content.object(|item| {
            item.text("type", "thinking");
            item.text("thinking", text);
            item.text("signature", signature);
        }),
        ReasoningState::Redacted { data } => content.object(|item| {
            item.text("type", "redacted_thinking");
            item.text("data", data);
        }),
        ReasoningState::Item { .. } | ReasoningState::Signature { .. } | ReasoningState::Text { .. } => {}
    }
}

/// Writes a call. Returns whether its arguments had to be wrapped in an object. An id from a provider of another protocol may
/// have characters that this protocol refuses, so the id is converted to the form that clients get.
fn write_call(call: &ToolCall<'_>, content: &mut JsonArrayWriter<'_>) -> bool {
    let (input, is_wrapped) = call.object_arguments();
    content.object(|item| {
        item.text("type", "tool_use");
        item.text("id", &client_id(&call.id));
        item.text("name", &call.name);
        item.raw("input", &input);
    });
    is_wrapped
}

fn write_result(
    result: &ToolCallResult<'_>,
    losses: &mut TranslationLosses,
    content: &mut JsonArrayWriter<'_>,
) -> Result<(), Untranslatable> {
    let blocks: Vec<&ContentBlock<'_>> = result.content.iter().filter(|block| !is_blank(block)).collect();
    content.object(|item| {
        item.text("type", "tool_result");
        item.text("tool_use_id", &client_id(&result.call_id));
        let only_text = match (blocks.first(), blocks.len()) {
            (Some(block), 1) => match &block.content {
                BlockContent::Text(text) => Some(&**text),
                BlockContent::Refusal(_)
                | BlockContent::Media(_)
                | BlockContent::Reasoning(_)
                | BlockContent::Call(_)
                | BlockContent::Result(_) => None,
            },
            // The protocol requires content in the result of a failure.
            (None, _) if result.is_error => Some(ERROR_LINE),
            (Some(_) | None, _) => None,
        };
        // Not every host accepts an array, and most results are a single text.
        if let Some(text) = only_text {
            item.text("content", text);
        } else if !blocks.is_empty() {
            item.array("content", |inner| write_blocks(&blocks, losses, inner))?;
        }
        if result.is_error {
            item.flag("is_error", true);
        }
        Ok::<(), Untranslatable>(())
    })
}

fn write_media(
    path: &str,
    media: &MediaContent<'_>,
    losses: &mut TranslationLosses,
    content: &mut JsonArrayWriter<'_>,
) -> Result<(), Untranslatable> {
    match media.kind {
        MediaKind::Image => {
            // An image has no member for a name, but the conversation may refer to it.
            if let Some(name) = &media.name {
                losses.adapted(path);
                content.object(|item| write_text(name, item));
            }
            content.object(|item| {
                item.text("type", "image");
                item.object("source", |source| write_source(&media.source, source));
            });
        }
        MediaKind::Document => write_document(path, media, content)?,
        MediaKind::Audio | MediaKind::Video => {
            let reason = "this model's provider takes no audio and no video; send the words as text";
            return Err(Untranslatable::new(path, reason));
        }
    }
    Ok(())
}

fn write_source(source: &MediaSource<'_>, object: &mut JsonObjectWriter<'_>) {
    match source {
        MediaSource::Base64 { media_type, data } => {
            object.text("type", "base64");
            object.text("media_type", media_type);
            object.text("data", data);
        }
        MediaSource::Url { url, .. } => {
            object.text("type", "url");
            object.text("url", url);
        }
    }
}

/// Writes a document. If a base64 document is not a PDF, it is decoded and sent as text. If the decoded bytes are not text, the
/// document is refused.
fn write_document(
    path: &str,
    media: &MediaContent<'_>,
    content: &mut JsonArrayWriter<'_>,
) -> Result<(), Untranslatable> {
    let text = match &media.source {
        MediaSource::Base64 { media_type, data } if !media_type.eq_ignore_ascii_case("application/pdf") => {
            let reason = "this model's provider takes documents of type PDF and text; send one of these";
            Some(decoded_text(data).ok_or_else(|| Untranslatable::new(path, reason))?)
        }
        MediaSource::Base64 { .. } | MediaSource::Url { .. } => None,
    };
    content.object(|item| {
        item.text("type", "document");
        item.object("source", |source| match &text {
            Some(text) => {
                source.text("type", "text");
                source.text("media_type", "text/plain");
                source.text("data", text);
            }
            None => write_source(&media.source, source),
        });
        if let Some(name) = &media.name {
            item.text("title", name);
        }
    });
    Ok(())
}

/// Returns the text that this base64 encodes; `None` if it is not base64 of text.
fn decoded_text(base64: &str) -> Option<String> {
    let text = String::from_utf8(STANDARD.decode(base64).ok()?).ok()?;
    (!text.is_empty() && !text.contains('\0')).then_some(text)
}
