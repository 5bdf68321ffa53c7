//! Reads a client's request.

mod gemini;
mod messages;
mod responses;

use crate::domain::{
    translation::{
        TranslationTarget,
        conversation::Conversation,
        losses::{TranslationLosses, Untranslatable},
        members::MemberReader,
        reasoning::unwrap_summary,
        tool_names::ToolNames,
    },
    wire::Protocol,
};

/// Why a file in a provider's store is refused.
const STORED_FILE: &str =
    "this model is served by another protocol's provider, which cannot read files kept elsewhere; send the file itself";
/// Why log probabilities are refused.
const LOG_PROBABILITIES: &str = "log probabilities cannot be translated; leave this out";
/// The line before the summary of an earlier part of the conversation.
const SUMMARY_HEAD: &str = "[summary of the conversation before this point]";
/// The maximum length of a word of the client that a refusal quotes, in characters.
const QUOTED_CHARS_MAX: usize = 64;

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

/// The beginning of a word of the client.
fn quotable(word: &str) -> String {
    word.chars().take(QUOTED_CHARS_MAX).collect()
}

/// Refuses, in strict mode, a call or result of a program that another provider ran.
fn check_caller(object: &mut MemberReader<'_>, losses: &mut TranslationLosses) -> Result<(), Untranslatable> {
    let Some(mut caller) = object.object("caller")? else {
        return Ok(());
    };
    match caller.text("type")?.as_deref() {
        None | Some("direct") => Ok(()),
        Some(_) => {
            let reason = "this model's provider cannot continue a program of another provider; leave this out";
            losses.refused_in_strict(caller.path(), reason)
        }
    }
}

/// The text of the user that the summary in a client's opaque field becomes; `None` if weir has not wrapped it.
fn summary_text(field: &str) -> Option<String> {
    Some(format!("{SUMMARY_HEAD}\n{}", unwrap_summary(field)?))
}
