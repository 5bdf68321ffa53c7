//! Reads a client's request.

mod gemini;
mod messages;
mod responses;

use crate::domain::{
    translation::{
        TranslationTarget,
        conversation::Conversation,
        losses::{TranslationLosses, Untranslatable},
        tool_names::ToolNames,
    },
    wire::Protocol,
};

/// Reads the body of a request in its client's protocol. `names` gets the client's tools.
///
/// # Errors
/// The request has content or state that no provider's protocol can carry.
pub(crate) fn read_request<'a>(
    body: &'a str,
    target: &TranslationTarget<'_>,
    names: &mut ToolNames,
    losses: &mut TranslationLosses,
) -> Result<Conversation<'a>, Untranslatable> {
    match target.translation.from {
        Protocol::Messages => messages::read(body, target, names, losses),
        Protocol::Responses => responses::read(body, target, names, losses),
        Protocol::Gemini => gemini::read(body, target, names, losses),
    }
}
