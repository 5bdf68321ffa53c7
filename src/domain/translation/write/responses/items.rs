//! Writes the turns of a conversation as input items of a Responses request. All content keeps its position, because the protocol
//! accepts messages between a call and its result.

use std::borrow::Cow;

use crate::domain::translation::{
    conversation::{
        BlockContent, ContentBlock, ConversationTurn, MediaContent, MediaKind, MediaSource, ToolCall, ToolCallResult,
        TurnRole,
    },
    json_out::{JsonArrayWriter, JsonObjectWriter},
    losses::{TranslationLosses, Untranslatable},
    members::MemberReader,
    reasoning::ReasoningState,
    write::{BLOCK_BREAK, ERROR_LINE, document_text, image_url},
};

/// The media type of a PDF.
const PDF_TYPE: &str = "application/pdf";
/// The file extension of a PDF, by which the provider recognizes it.
const PDF_ENDING: &str = ".pdf";
/// The name that is sent for a document that has none, because the protocol requires a name.
const DOCUMENT_NAME: &str = "document";

/// Writes all turns.
///
/// # Errors
/// A block has content that the protocol cannot carry, or the last turn is the model's.
pub(super) fn write_items(
    turns: &[ConversationTurn<'_>],
    losses: &mut TranslationLosses,
    items: &mut JsonArrayWriter<'_>,
) -> Result<(), Untranslatable> {
    let mut prefill: Option<&str> = None;
    for turn in turns {
        match turn.role {
            TurnRole::User => {
                let blocks: Vec<&ContentBlock<'_>> = turn.blocks.iter().collect();
                write_blocks("user", &blocks, losses, items)?;
                prefill = None;
            }
            TurnRole::System => {
                let blocks: Vec<&ContentBlock<'_>> = turn.blocks.iter().collect();
                write_blocks("developer", &blocks, losses, items)?;
                prefill = None;
            }
            TurnRole::Assistant => {
                let blocks = sendable_blocks(turn, losses);
                write_blocks("assistant", &blocks, losses, items)?;
                if let Some(last) = blocks.last() {
                    prefill = Some(last.path.as_str());
                }
            }
        }
    }
    match prefill {
        Some(path) => Err(Untranslatable::new(
            path,
            "this model's provider cannot continue a turn of the model; end with a turn of the user",
        )),
        None => Ok(()),
    }
}

/// Returns the blocks of the model's turn, without reasoning that the provider would refuse.
fn sendable_blocks<'b, 'a>(
    turn: &'b ConversationTurn<'a>,
    losses: &mut TranslationLosses,
) -> Vec<&'b ContentBlock<'a>> {
    let mut blocks: Vec<&ContentBlock<'a>> = Vec::new();
    for block in &turn.blocks {
        match &block.content {
            BlockContent::Reasoning(state) if reasoning_item(state).is_none() => losses.dropped(block.path.as_str()),
            BlockContent::Text(_)
            | BlockContent::Refusal(_)
            | BlockContent::Media(_)
            | BlockContent::Reasoning(_)
            | BlockContent::Call(_)
            | BlockContent::Result(_) => blocks.push(block),
        }
    }
    // The protocol refuses reasoning that is not followed by other content of the same turn.
    while let Some(block) = blocks.pop_if(|block| matches!(block.content, BlockContent::Reasoning(_))) {
        losses.dropped(block.path.as_str());
    }
    blocks
}

/// Returns the JSON text of a reasoning item; `None` for the state of another protocol. The text has passed through the client,
/// so it can be forged. It is copied into the body, so weir checks that it is a single object of the type `reasoning`.
fn reasoning_item<'b>(state: &'b ReasoningState<'_>) -> Option<&'b str> {
    match state {
        ReasoningState::Item { json } => {
            let json = json.trim();
            let kind = MemberReader::new(json, "").ok()?.text("type").ok()??;
            (kind == "reasoning").then_some(json)
        }
        ReasoningState::Thinking { .. }
        | ReasoningState::Redacted { .. }
        | ReasoningState::Signature { .. }
        | ReasoningState::Text { .. } => None,
    }
}

/// Writes the blocks of one turn. Adjacent parts of a message become one message, and every other block becomes a separate item.
fn write_blocks(
    role: &str,
    blocks: &[&ContentBlock<'_>],
    losses: &mut TranslationLosses,
    items: &mut JsonArrayWriter<'_>,
) -> Result<(), Untranslatable> {
    for group in blocks.chunk_by(|first, second| is_message_part(first) && is_message_part(second)) {
        let Some(first) = group.first() else { continue };
        match &first.content {
            BlockContent::Text(_) | BlockContent::Refusal(_) | BlockContent::Media(_) => {
                write_message(role, group, losses, items)?;
            }
            BlockContent::Reasoning(state) => {
                if let Some(json) = reasoning_item(state) {
                    items.raw(json);
                }
            }
            BlockContent::Call(call) => write_call(call, items),
            BlockContent::Result(result) => write_result(&first.path, result, losses, items)?,
        }
    }
    Ok(())
}

fn is_message_part(block: &ContentBlock<'_>) -> bool {
    match &block.content {
        BlockContent::Text(_) | BlockContent::Refusal(_) | BlockContent::Media(_) => true,
        BlockContent::Reasoning(_) | BlockContent::Call(_) | BlockContent::Result(_) => false,
    }
}

fn write_message(
    role: &str,
    blocks: &[&ContentBlock<'_>],
    losses: &mut TranslationLosses,
    items: &mut JsonArrayWriter<'_>,
) -> Result<(), Untranslatable> {
    let is_answer = role == "assistant";
    items.object(|item| {
        item.text("type", "message");
        item.text("role", role);
        item.array("content", |content| {
            for block in blocks {
                match &block.content {
                    BlockContent::Text(text) if is_answer => content.object(|part| {
                        part.text("type", "output_text");
                        part.text("text", text);
                    }),
                    BlockContent::Refusal(text) if is_answer => content.object(|part| {
                        part.text("type", "refusal");
                        part.text("refusal", text);
                    }),
                    BlockContent::Text(_)
                    | BlockContent::Refusal(_)
                    | BlockContent::Media(_)
                    | BlockContent::Reasoning(_)
                    | BlockContent::Call(_)
                    | BlockContent::Result(_) => write_input_part(block, losses, content)?,
                }
            }
            Ok(())
        })
    })
}

/// Writes a part of a user's message or of a result.
fn write_input_part(
    block: &ContentBlock<'_>,
    losses: &mut TranslationLosses,
    content: &mut JsonArrayWriter<'_>,
) -> Result<(), Untranslatable> {
    match &block.content {
        BlockContent::Text(text) | BlockContent::Refusal(text) => {
            content.object(|part| write_input_text(text, part));
            Ok(())
        }
        BlockContent::Media(media) => write_media(&block.path, media, losses, content),
        // Only the model reasons and calls tools, and results are not parts of a message.
        BlockContent::Reasoning(_) | BlockContent::Call(_) | BlockContent::Result(_) => Ok(()),
    }
}

fn write_input_text(text: &str, part: &mut JsonObjectWriter<'_>) {
    part.text("type", "input_text");
    part.text("text", text);
}

fn write_call(call: &ToolCall<'_>, items: &mut JsonArrayWriter<'_>) {
    // Hosts parse the arguments as JSON, and an empty string is not JSON.
    let arguments = match call.arguments.trim().is_empty() {
        true => "{}",
        false => &*call.arguments,
    };
    items.object(|item| {
        item.text("type", "function_call");
        item.text("call_id", &call.id);
        item.text("name", &call.name);
        item.text("arguments", arguments);
    });
}

/// Writes the result of a call. If it contains only text, it becomes one string, which every host accepts.
fn write_result(
    path: &str,
    result: &ToolCallResult<'_>,
    losses: &mut TranslationLosses,
    items: &mut JsonArrayWriter<'_>,
) -> Result<(), Untranslatable> {
    if result.is_error {
        losses.adapted(path);
    }
    items.object(|item| {
        item.text("type", "function_call_output");
        item.text("call_id", &result.call_id);
        if let Some(text) = result_text(result) {
            item.text("output", &text);
            return Ok(());
        }
        item.array("output", |output| {
            if result.is_error {
                output.object(|part| write_input_text(ERROR_LINE, part));
            }
            for block in &result.content {
                write_input_part(block, losses, output)?;
            }
            Ok(())
        })
    })
}

/// Returns the result as one text; `None` if it contains anything other than text.
fn result_text(result: &ToolCallResult<'_>) -> Option<String> {
    let mut texts: Vec<&str> = Vec::new();
    for block in &result.content {
        match &block.content {
            BlockContent::Text(text) => texts.push(text),
            BlockContent::Refusal(_)
            | BlockContent::Media(_)
            | BlockContent::Reasoning(_)
            | BlockContent::Call(_)
            | BlockContent::Result(_) => return None,
        }
    }
    let text = texts.join(BLOCK_BREAK);
    Some(match (result.is_error, text.is_empty()) {
        (false, _) => text,
        (true, true) => ERROR_LINE.to_owned(),
        (true, false) => format!("{ERROR_LINE}\n{text}"),
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
            write_name(path, media, losses, content);
            content.object(|part| {
                part.text("type", "input_image");
                part.text("image_url", &image_url(&media.source));
            });
        }
        MediaKind::Document => write_document(path, media, losses, content),
        MediaKind::Audio | MediaKind::Video => {
            let reason = "this model's provider takes no audio and no video; send the words as text";
            return Err(Untranslatable::new(path, reason));
        }
    }
    Ok(())
}

fn write_document(
    path: &str,
    media: &MediaContent<'_>,
    losses: &mut TranslationLosses,
    content: &mut JsonArrayWriter<'_>,
) {
    if let Some(text) = document_text(media) {
        losses.adapted(path);
        content.object(|part| write_input_text(&text, part));
        return;
    }
    match &media.source {
        MediaSource::Base64 { media_type, data } => content.object(|part| {
            part.text("type", "input_file");
            part.text("filename", &file_name(media.name.as_deref(), media_type));
            part.text("file_data", &format!("data:{media_type};base64,{data}"));
        }),
        MediaSource::Url { url, .. } => {
            write_name(path, media, losses, content);
            content.object(|part| {
                part.text("type", "input_file");
                part.text("file_url", url);
            });
        }
    }
}

/// Writes the name of media as text before the media, because the protocol has no member for it.
fn write_name(path: &str, media: &MediaContent<'_>, losses: &mut TranslationLosses, content: &mut JsonArrayWriter<'_>) {
    if let Some(name) = &media.name {
        losses.adapted(path);
        content.object(|part| write_input_text(name, part));
    }
}

fn file_name<'b>(name: Option<&'b str>, media_type: &str) -> Cow<'b, str> {
    let name = name.unwrap_or(DOCUMENT_NAME);
    let is_pdf = media_type.eq_ignore_ascii_case(PDF_TYPE);
    match is_pdf && !name.to_ascii_lowercase().ends_with(PDF_ENDING) {
        true => Cow::Owned(format!("{name}{PDF_ENDING}")),
        false => Cow::Borrowed(name),
    }
}
