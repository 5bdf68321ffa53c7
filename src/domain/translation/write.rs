//! Writes the request for a provider.

mod chat;
mod gemini;
mod messages;
mod responses;
mod schema;

use std::borrow::Cow;

use base64::{Engine, engine::general_purpose::STANDARD};

use crate::domain::{
    translation::{
        TranslationTarget,
        conversation::{Conversation, MediaContent, MediaKind, MediaSource},
        losses::{TranslationLosses, Untranslatable},
        write::schema::is_closed_schema,
    },
    wire::{Protocol, UpstreamProtocol},
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

/// The blank line between texts that are joined to one text.
const BLOCK_BREAK: &str = "\n\n";
/// The JSON schema of a tool that takes no arguments.
const EMPTY_SCHEMA: &str = r#"{"type":"object","properties":{}}"#;
/// The name of an answer's schema, if the protocol requires one and the client gives none.
const SCHEMA_NAME: &str = "answer";
/// The first line in the result of a tool that reported a failure.
const ERROR_LINE: &str = "[error]";

/// Returns the value of `strict` for the schema of an answer. The provider's protocol is Responses or `chat/completions`. If the
/// client sets `strict`, its value is returned. If a Responses client does not set it, `None` is returned, and the provider
/// decides. Clients of Messages and Gemini do not set it, because these protocols always enforce a schema. Their schema gets
/// `strict: true` if it is closed ([`is_closed_schema`]). Otherwise it gets `strict: false`, because the provider would refuse to
/// enforce it.
fn schema_strictness(
    strict: Option<bool>,
    (path, schema): (&str, &str),
    target: &TranslationTarget<'_>,
    losses: &mut TranslationLosses,
) -> Option<bool> {
    match (strict, target.translation.from) {
        (Some(strict), _) => Some(strict),
        (None, Protocol::Responses) => None,
        (None, Protocol::Messages | Protocol::Gemini) => {
            let is_closed = is_closed_schema(schema);
            if !is_closed {
                losses.adapted(path);
            }
            Some(is_closed)
        }
    }
}

/// Reports the name, the description and `strict` of an answer's schema as dropped, for a provider whose protocol lacks these
/// members and always enforces the schema.
fn drop_schema_labels(path: &str, members: [(&str, bool); 3], losses: &mut TranslationLosses) {
    for (member, is_there) in members {
        if is_there {
            losses.dropped(format!("{path}.{member}"));
        }
    }
}

/// Returns the URL of an image: a data URL if its bytes are in the request.
fn image_url<'b>(source: &'b MediaSource<'_>) -> Cow<'b, str> {
    match source {
        MediaSource::Base64 { media_type, data } => Cow::Owned(format!("data:{media_type};base64,{data}")),
        MediaSource::Url { url, .. } => Cow::Borrowed(url.as_ref()),
    }
}

/// Returns the text of a plain-text document, below the document's name; `None` for any other document.
fn document_text(media: &MediaContent<'_>) -> Option<String> {
    let MediaSource::Base64 { media_type, data } = &media.source else {
        return None;
    };
    if media.kind != MediaKind::Document || media_type.eq_ignore_ascii_case("application/pdf") {
        return None;
    }
    let text = String::from_utf8(STANDARD.decode(data.as_bytes()).ok()?).ok()?;
    // A PDF can consist of ASCII characters only.
    if text.starts_with("%PDF-") || text.is_empty() || text.contains('\0') {
        return None;
    }
    Some(match &media.name {
        Some(name) => format!("{name}{BLOCK_BREAK}{text}"),
        None => text,
    })
}
