//! Writes a provider's request.

mod chat;
mod gemini;
mod messages;
mod responses;
mod schema;

use crate::domain::{
    translation::{
        TranslationTarget,
        conversation::Conversation,
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
