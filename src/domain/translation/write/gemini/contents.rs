//! Writes the turns of a conversation as contents of a Gemini request.

use std::borrow::Cow;

use crate::domain::translation::{
    conversation::{
        BlockContent, ContentBlock, ConversationTurn, MediaContent, MediaKind, MediaSource, ToolCall, ToolCallResult,
        TurnRole,
    },
    json_out::{JsonArrayWriter, JsonObjectWriter},
    losses::{TranslationLosses, Untranslatable},
    reasoning::ReasoningState,
    write::{
        BLOCK_BREAK, document_text,
        gemini::{
            GeminiGeneration,
            media::{write_inline, write_media},
        },
    },
};

/// The text that replaces media in a result. The media are placed after the result.
const MEDIA_PLACE: &str = "[attachment: see what follows this result]";
/// The placeholder for the signature of a call that has none, for example because another provider made the call. Gemini does not
/// check a call with this placeholder. It is the base64 of `skip_thought_signature_validator`.
const SKIP_SIGNATURE: &str = "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I=";

/// A block of a model's turn, with the signature of the part that the block becomes.
type SignedBlock<'b, 'a> = (&'b ContentBlock<'a>, Option<&'b str>);

/// A piece of the contents. Adjacent pieces of the same role become one content, because the roles of contents alternate.
enum ContentPiece<'b, 'a> {
    /// A system text after the first turn, which is sent as text of the user.
    System(&'b ContentBlock<'a>),
    /// A turn of the user, and the system texts that are written after the results in this turn, because results must directly
    /// follow their calls.
    User(&'b ConversationTurn<'a>, Vec<&'b ContentBlock<'a>>),
    /// The parts of a turn of the model, each with its signature; never empty.
    Model(Vec<SignedBlock<'b, 'a>>),
}

impl ContentPiece<'_, '_> {
    const fn role(&self) -> &'static str {
        match self {
            Self::System(_) | Self::User(..) => "user",
            Self::Model(_) => "model",
        }
    }
}

/// Writes all turns.
///
/// # Errors
/// A block has content that the protocol cannot carry, or the last turn is the model's.
pub(super) fn write_contents(
    turns: &[ConversationTurn<'_>],
    generation: GeminiGeneration,
    losses: &mut TranslationLosses,
    contents: &mut JsonArrayWriter<'_>,
) -> Result<(), Untranslatable> {
    let pieces = content_pieces(turns, generation, losses);
    for content in pieces.chunk_by(|piece, next| piece.role() == next.role()) {
        contents.object(|object| {
            object.text("role", content.first().map_or("user", ContentPiece::role));
            object.array("parts", |parts| {
                for piece in content {
                    match piece {
                        ContentPiece::System(block) => write_system_text(block, losses, parts),
                        ContentPiece::User(turn, waiting) => write_user(turn, waiting, generation, losses, parts)?,
                        ContentPiece::Model(blocks) => write_model(blocks, losses, parts),
                    }
                }
                Ok::<(), Untranslatable>(())
            })
        })?;
    }
    match pieces.last() {
        Some(ContentPiece::Model(blocks)) => Err(Untranslatable::new(
            blocks.last().map_or("contents", |(block, _)| block.path.as_str()),
            "this model's provider cannot continue a turn of the model; end with a turn of the user",
        )),
        Some(ContentPiece::System(_) | ContentPiece::User(..)) | None => Ok(()),
    }
}

/// Returns the pieces of all turns in order, without turns that have no content for the provider.
fn content_pieces<'b, 'a>(
    turns: &'b [ConversationTurn<'a>],
    generation: GeminiGeneration,
    losses: &mut TranslationLosses,
) -> Vec<ContentPiece<'b, 'a>> {
    let mut pieces = Vec::new();
    // Results must directly follow their calls, so system texts wait until the results are written.
    let mut waiting: Vec<&ContentBlock<'_>> = Vec::new();
    let mut has_open_calls = false;
    for turn in turns {
        match turn.role {
            TurnRole::System if has_open_calls => waiting.extend(turn.blocks.iter()),
            TurnRole::System => pieces.extend(turn.blocks.iter().map(ContentPiece::System)),
            TurnRole::User => {
                if !turn.blocks.iter().any(ContentBlock::is_result) {
                    pieces.extend(waiting.drain(..).map(ContentPiece::System));
                }
                pieces.push(ContentPiece::User(turn, std::mem::take(&mut waiting)));
                has_open_calls = false;
            }
            TurnRole::Assistant => {
                pieces.extend(waiting.drain(..).map(ContentPiece::System));
                let blocks = signed_blocks(turn, generation, losses);
                if !blocks.is_empty() {
                    pieces.push(ContentPiece::Model(blocks));
                }
                has_open_calls = turn.blocks.iter().any(ContentBlock::is_call);
            }
        }
    }
    pieces.extend(waiting.into_iter().map(ContentPiece::System));
    pieces
}

fn write_system_text(block: &ContentBlock<'_>, losses: &mut TranslationLosses, parts: &mut JsonArrayWriter<'_>) {
    if let BlockContent::Text(text) = &block.content {
        losses.adapted(block.path.as_str());
        parts.object(|part| part.text("text", &format!("<system>{text}</system>")));
    }
}

/// Writes a user's turn: the results, the system texts that the client placed before the results, and all other content.
fn write_user(
    turn: &ConversationTurn<'_>,
    waiting: &[&ContentBlock<'_>],
    generation: GeminiGeneration,
    losses: &mut TranslationLosses,
    parts: &mut JsonArrayWriter<'_>,
) -> Result<(), Untranslatable> {
    let last_result = turn.blocks.iter().rposition(ContentBlock::is_result);
    for block in &turn.blocks {
        if let BlockContent::Result(result) = &block.content {
            write_result(&block.path, result, generation, losses, parts)?;
        }
    }
    for block in waiting {
        write_system_text(block, losses, parts);
    }
    for (index, block) in turn.blocks.iter().enumerate().filter(|(_, block)| !block.is_result()) {
        if last_result.is_some_and(|last| index < last) {
            losses.adapted(block.path.as_str());
        }
        write_user_part(block, losses, parts)?;
    }
    Ok(())
}

fn write_user_part(
    block: &ContentBlock<'_>,
    losses: &mut TranslationLosses,
    parts: &mut JsonArrayWriter<'_>,
) -> Result<(), Untranslatable> {
    match &block.content {
        BlockContent::Text(text) | BlockContent::Refusal(text) => {
            parts.object(|part| part.text("text", text));
            Ok(())
        }
        BlockContent::Media(media) => write_media(&block.path, media, losses, parts),
        // Only the model reasons and calls tools, and results are written separately.
        BlockContent::Reasoning(_) | BlockContent::Call(_) | BlockContent::Result(_) => Ok(()),
    }
}

/// Writes the result of a call. Media that the result itself cannot contain are written after it, as parts of the user.
fn write_result(
    path: &str,
    result: &ToolCallResult<'_>,
    generation: GeminiGeneration,
    losses: &mut TranslationLosses,
    parts: &mut JsonArrayWriter<'_>,
) -> Result<(), Untranslatable> {
    let Some(name) = &result.name else {
        let reason = "no call of the request has this result's id; send the call before it";
        return Err(Untranslatable::new(path, reason));
    };
    let mut texts: Vec<Cow<'_, str>> = Vec::new();
    let mut inside: Vec<(&str, &str)> = Vec::new();
    let mut behind: Vec<&ContentBlock<'_>> = Vec::new();
    for block in &result.content {
        match &block.content {
            BlockContent::Text(text) | BlockContent::Refusal(text) => texts.push(Cow::Borrowed(text.as_ref())),
            BlockContent::Media(media) => {
                if let Some(text) = document_text(media) {
                    losses.adapted(block.path.as_str());
                    texts.push(Cow::Owned(text));
                } else if let Some(bytes) = bytes_for_result(media, generation) {
                    if let Some(title) = &media.name {
                        losses.adapted(block.path.as_str());
                        texts.push(Cow::Borrowed(title.as_ref()));
                    }
                    inside.push(bytes);
                } else {
                    losses.adapted(block.path.as_str());
                    texts.push(Cow::Borrowed(MEDIA_PLACE));
                    behind.push(block);
                }
            }
            // Only turns contain these.
            BlockContent::Reasoning(_) | BlockContent::Call(_) | BlockContent::Result(_) => {}
        }
    }
    parts.object(|part| {
        part.object("functionResponse", |response| {
            write_call_name(&result.call_id, name, response);
            response.object("response", |output| {
                let member = if result.is_error { "error" } else { "output" };
                output.text(member, &texts.join(BLOCK_BREAK));
            });
            if !inside.is_empty() {
                response.array("parts", |list| {
                    for (media_type, data) in &inside {
                        list.object(|item| write_inline(media_type, data, item));
                    }
                });
            }
        });
    });
    for block in behind {
        write_user_part(block, losses, parts)?;
    }
    Ok(())
}

/// Returns the media type and the base64 data of media that the result itself can contain; `None` for other media. Results can
/// contain images and documents, and only since the third generation.
fn bytes_for_result<'b>(media: &'b MediaContent<'_>, generation: GeminiGeneration) -> Option<(&'b str, &'b str)> {
    if !generation.is_since_third() {
        return None;
    }
    match (media.kind, &media.source) {
        (MediaKind::Image | MediaKind::Document, MediaSource::Base64 { media_type, data }) => {
            Some((media_type.as_ref(), data.as_ref()))
        }
        (MediaKind::Audio | MediaKind::Video, MediaSource::Base64 { .. }) | (_, MediaSource::Url { .. }) => None,
    }
}

/// Writes the id and the name, which identify the call that a result belongs to.
fn write_call_name(id: &str, name: &str, object: &mut JsonObjectWriter<'_>) {
    if !id.is_empty() {
        object.text("id", id);
    }
    object.text("name", name);
}

/// Writes a model's turn.
fn write_model(blocks: &[SignedBlock<'_, '_>], losses: &mut TranslationLosses, parts: &mut JsonArrayWriter<'_>) {
    for (block, signature) in blocks {
        parts.object(|part| {
            write_model_part(block, losses, part);
            if let Some(signature) = signature {
                part.text("thoughtSignature", signature);
            }
        });
    }
}

/// Returns the blocks of the model's turn that become parts, each with its signature. The first call of a turn requires a
/// signature.
fn signed_blocks<'b, 'a>(
    turn: &'b ConversationTurn<'a>,
    generation: GeminiGeneration,
    losses: &mut TranslationLosses,
) -> Vec<SignedBlock<'b, 'a>> {
    let mut parts: Vec<SignedBlock<'b, 'a>> = Vec::new();
    // The path of the block with the signature for the next part, and that signature.
    let mut pending: Option<(&str, &str)> = None;
    let mut has_calls = false;
    for block in &turn.blocks {
        match &block.content {
            BlockContent::Reasoning(ReasoningState::Signature { signature }) => {
                if let Some((path, _)) = pending.replace((block.path.as_str(), signature.as_ref())) {
                    losses.dropped(path);
                }
            }
            BlockContent::Reasoning(
                ReasoningState::Thinking { .. }
                | ReasoningState::Redacted { .. }
                | ReasoningState::Item { .. }
                | ReasoningState::Text { .. },
            ) => losses.dropped(block.path.as_str()),
            BlockContent::Text(_) | BlockContent::Refusal(_) => {
                parts.push((block, pending.take().map(|(_, signature)| signature)));
            }
            BlockContent::Call(_) => {
                let mut signature = pending.take().map(|(_, signature)| signature);
                if signature.is_none() && !has_calls && generation.wants_signatures() {
                    losses.adapted(block.path.as_str());
                    signature = Some(SKIP_SIGNATURE);
                }
                has_calls = true;
                parts.push((block, signature));
            }
            // Only the user's turns contain these.
            BlockContent::Media(_) | BlockContent::Result(_) => {}
        }
    }
    if let Some((path, _)) = pending {
        losses.dropped(path);
    }
    parts
}

fn write_model_part(block: &ContentBlock<'_>, losses: &mut TranslationLosses, part: &mut JsonObjectWriter<'_>) {
    match &block.content {
        BlockContent::Text(text) => part.text("text", text),
        BlockContent::Refusal(text) => {
            losses.adapted(block.path.as_str());
            part.text("text", text);
        }
        BlockContent::Call(call) => {
            if write_call(call, part) {
                losses.adapted(block.path.as_str());
            }
        }
        // Reasoning is in the signatures, and only the user's turns contain media and results.
        BlockContent::Reasoning(_) | BlockContent::Media(_) | BlockContent::Result(_) => {}
    }
}

/// Writes a call. Returns whether its arguments had to be wrapped in an object.
fn write_call(call: &ToolCall<'_>, part: &mut JsonObjectWriter<'_>) -> bool {
    let (arguments, is_wrapped) = call.object_arguments();
    part.object("functionCall", |function| {
        write_call_name(&call.id, &call.name, function);
        function.raw("args", &arguments);
    });
    is_wrapped
}
