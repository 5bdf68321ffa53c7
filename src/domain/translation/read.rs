//! Reads the request of a client.

mod gemini;
mod messages;
mod responses;

use crate::domain::{
    translation::{
        TranslationTarget,
        conversation::{Conversation, TurnRole},
        losses::{TranslationLosses, Untranslatable},
        members::MemberReader,
        reasoning::unwrap_summary,
        tool_names::ToolNames,
    },
    wire::{Protocol, UpstreamProtocol},
};

/// The reason for refusing a file in a provider's store.
const STORED_FILE: &str =
    "this model is served by another protocol's provider, which cannot read files kept elsewhere; send the file itself";
/// The reason for refusing log probabilities.
const LOG_PROBABILITIES: &str = "log probabilities cannot be translated; leave this out";
/// The line above the summary of an earlier part of the conversation.
const SUMMARY_HEAD: &str = "[summary of the conversation before this point]";
/// The maximum length of a client's string that a refusal quotes, in characters.
const QUOTED_CHARS_MAX: usize = 64;

/// Reads the body of a request in its client's protocol. The client's tools are added to `names`.
///
/// # Errors
/// The request has content or state that no provider's protocol can carry.
pub(crate) fn read_request<'a>(
    body: &'a str,
    target: &TranslationTarget<'_>,
    names: &mut ToolNames,
    losses: &mut TranslationLosses,
) -> Result<Conversation<'a>, Untranslatable> {
    let conversation = match target.translation.from {
        Protocol::Messages => messages::read(body, target, names, losses),
        Protocol::Responses => responses::read(body, target, names, losses),
        Protocol::Gemini => gemini::read(body, target, names, losses),
    }?;
    if target.translation.to == UpstreamProtocol::Chat
        && let Some(path) = begun_answer(&conversation)
    {
        losses.adapted(path);
    }
    Ok(conversation)
}

/// Returns the path of the last message if the model wrote it; otherwise returns `None`. The model would have to continue such a
/// message. Some hosts of `chat/completions` support this. The writers of the other protocols refuse the message.
fn begun_answer<'c>(conversation: &'c Conversation<'_>) -> Option<&'c str> {
    let last = conversation.turns.last()?;
    if last.role != TurnRole::Assistant {
        return None;
    }
    // A block's path begins with the path of its message, for example `messages[1].content[0]`.
    last.blocks.last()?.path.split_inclusive(']').next()
}

/// Returns at most [`QUOTED_CHARS_MAX`] characters of a client's string, so that a refusal can quote it.
fn quotable(word: &str) -> String {
    word.chars().take(QUOTED_CHARS_MAX).collect()
}

/// Refuses, in strict mode, a tool call that was made by a program running at another provider, or the result of such a call.
fn check_caller(object: &mut MemberReader<'_>, losses: &mut TranslationLosses) -> Result<(), Untranslatable> {
    let Some(mut caller) = object.object("caller")? else {
        return Ok(());
    };
    match caller.text("type")?.as_deref() {
        None | Some("direct") => {
            caller.finish_options(losses);
            Ok(())
        }
        Some(_) => {
            let reason = "this model's provider cannot continue a program of another provider; leave this out";
            losses.refused_in_strict(caller.path(), reason)
        }
    }
}

/// Returns the summary in a client's opaque field, as text for a user's turn; `None` if weir did not create the field.
fn summary_text(field: &str) -> Option<String> {
    Some(format!("{SUMMARY_HEAD}\n{}", unwrap_summary(field)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::translation::{ChatTraits, Translation, losses::TranslationMode, reasoning::ReasoningMaker};

    #[test]
    fn a_last_message_of_the_model_is_reported_for_each_client() {
        for (from, body, path) in [
            (
                Protocol::Messages,
                r#"{"max_tokens":9,"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]}"#,
                "messages[1]",
            ),
            (
                Protocol::Responses,
                r#"{"store":false,"input":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]}"#,
                "input[1]",
            ),
            (
                Protocol::Gemini,
                r#"{"contents":[{"parts":[{"text":"a"}]},{"role":"model","parts":[{"text":"b"}]}]}"#,
                "contents[1]",
            ),
        ] {
            let translation = Translation {
                from,
                to: UpstreamProtocol::Chat,
                mode: TranslationMode::Strict,
                chat: ChatTraits::default(),
            };
            let target = TranslationTarget {
                translation: &translation,
                model: "gpt-oss-120b",
                output_tokens_max: None,
                maker: &ReasoningMaker::new("groq", "gpt-oss-120b", "a"),
            };
            let mut losses = TranslationLosses::new(TranslationMode::Strict);
            read_request(body, &target, &mut ToolNames::default(), &mut losses).unwrap();
            let losses: Vec<_> = losses.iter().map(|loss| (loss.verdict.as_str(), &*loss.path)).collect();
            assert_eq!(losses, [("adapted", path)]);
        }
    }
}
