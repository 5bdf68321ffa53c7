//! Writes a provider's request.

mod chat;
mod gemini;
mod messages;
mod responses;
mod schema;

use base64::{Engine, engine::general_purpose::STANDARD};

use crate::domain::{
    translation::{
        TranslationTarget,
        conversation::{Conversation, MediaContent, MediaKind, MediaSource},
        losses::{TranslationLosses, Untranslatable},
    },
    wire::UpstreamProtocol,
};

/// Writes a conversation in the provider's protocol.
///
/// # Errors
/// The conversation has content that the protocol cannot carry.
pub(crate) fn write_request(
    conversation: &Conversation<'_>,
    target: &TranslationTarget<'_>,
    losses: &mut TranslationLosses,
) -> Result<String, Untranslatable> {
    match target.translation.to {
        UpstreamProtocol::Messages => messages::write(conversation, target, losses),
        UpstreamProtocol::Responses => responses::write(conversation, target, losses),
        UpstreamProtocol::Gemini => gemini::write(conversation, target, losses),
        UpstreamProtocol::Chat => chat::write(conversation, target, losses),
    }
}

/// The blank line between texts that become one text.
const BLOCK_BREAK: &str = "\n\n";
/// The JSON schema of a tool that takes no arguments.
const EMPTY_SCHEMA: &str = r#"{"type":"object","properties":{}}"#;
/// The name of an answer's schema where the protocol requires one and the client gives none.
const SCHEMA_NAME: &str = "answer";

/// The text of a document that is plain text, below its name; `None` for any other document.
fn document_text(media: &MediaContent<'_>) -> Option<String> {
    let MediaSource::Base64 { media_type, data } = &media.source else {
        return None;
    };
    if media.kind != MediaKind::Document || media_type.eq_ignore_ascii_case("application/pdf") {
        return None;
    }
    let text = String::from_utf8(STANDARD.decode(data.as_bytes()).ok()?).ok()?;
    // A PDF may consist of ASCII characters alone.
    if text.starts_with("%PDF-") || text.is_empty() || text.contains('\0') {
        return None;
    }
    Some(match &media.name {
        Some(name) => format!("{name}{BLOCK_BREAK}{text}"),
        None => text,
    })
}
