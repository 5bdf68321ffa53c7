//! Translation between protocols, for a model whose provider does not support the client's protocol. A reader converts the
//! client's body to a [`conversation::Conversation`], and a writer converts that to the provider's body. The answer comes back as
//! typed events ([`answer`]). Every member of a request is carried over, reported or refused ([`losses`]). weir stores no state
//! for a translation.

pub(crate) mod answer;
pub(crate) mod call_ids;
pub(crate) mod conversation;
pub(crate) mod json_out;
pub(crate) mod losses;
pub(crate) mod members;
pub(crate) mod read;
pub(crate) mod reasoning;
pub(crate) mod tool_names;
pub(crate) mod translator;
pub(crate) mod write;

#[cfg(test)]
mod tests;

use std::borrow::Cow;

use serde::Deserialize;

use crate::domain::{
    translation::{
        answer::write::AnswerForm,
        call_ids::{CallIdForm, provider_id},
        conversation::Conversation,
        losses::{TranslationLosses, TranslationMode, Untranslatable},
        reasoning::ReasoningMaker,
        tool_names::ToolNames,
    },
    wire::{Protocol, UpstreamProtocol},
};

/// The parameters of the translation to one endpoint: the protocols, the mode, and the traits of a `chat/completions` host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Translation {
    /// The client's protocol.
    pub(crate) from: Protocol,
    /// The provider's protocol.
    pub(crate) to: UpstreamProtocol,
    /// The treatment of members that cannot be carried over: weir either refuses the request, or drops the members and reports
    /// them.
    pub(crate) mode: TranslationMode,
    /// The traits of a `chat/completions` host.
    pub(crate) chat: ChatTraits,
}

/// The differences of a `chat/completions` host from the common form, declared in `[chat]` of a provider's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ChatTraits {
    /// The location of the model's reasoning in messages and deltas.
    pub(crate) reasoning: ChatReasoning,
    /// The earlier reasoning that weir sends back to the host.
    pub(crate) reasoning_back: ReasoningBack,
    /// Whether the host accepts system messages after the first message.
    pub(crate) system_inside: bool,
    /// Whether the host accepts a user's message directly after the results of calls.
    pub(crate) user_after_results: bool,
    /// The form of the call ids that the host accepts.
    pub(crate) call_ids: CallIdForm,
}

impl Default for ChatTraits {
    fn default() -> Self {
        Self {
            reasoning: ChatReasoning::default(),
            reasoning_back: ReasoningBack::default(),
            system_inside: true,
            user_after_results: true,
            call_ids: CallIdForm::default(),
        }
    }
}

/// The location of the model's reasoning in messages and deltas of a `chat/completions` host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ChatReasoning {
    /// The member `reasoning_content`.
    #[default]
    ReasoningContent,
    /// The member `reasoning`.
    Reasoning,
    /// Parts of the content with the type `thinking`.
    Content,
    /// No location: the host has no member for reasoning.
    #[serde(rename = "none")]
    Hidden,
}

/// The earlier reasoning that weir sends back to a `chat/completions` host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ReasoningBack {
    /// The reasoning of turns that have tool calls and follow the last question of the user.
    #[default]
    Calls,
    /// All earlier reasoning.
    #[serde(rename = "all")]
    Always,
    /// No earlier reasoning.
    Never,
}

/// The provider's side of the translation of one request.
#[derive(Clone, Debug)]
pub(crate) struct TranslationTarget<'a> {
    /// The protocols, the mode and the host's traits.
    pub(crate) translation: &'a Translation,
    /// The model's name at the provider.
    pub(crate) model: &'a str,
    /// The model's maximum number of output tokens; `None` if it is unknown.
    pub(crate) output_tokens_max: Option<u64>,
    /// The maker whose reasoning may be sent back to the provider.
    pub(crate) maker: &'a ReasoningMaker,
}

impl TranslationTarget<'_> {
    /// Converts the client's id of a call to the provider's id.
    pub(crate) fn provider_call_id<'i>(&self, id: Cow<'i, str>) -> Cow<'i, str> {
        let form = match self.translation.to {
            UpstreamProtocol::Chat => self.translation.chat.call_ids,
            UpstreamProtocol::Messages | UpstreamProtocol::Responses | UpstreamProtocol::Gemini => CallIdForm::Any,
        };
        match id {
            Cow::Borrowed(id) => provider_id(id, form),
            Cow::Owned(id) => Cow::Owned(provider_id(&id, form).into_owned()),
        }
    }
}

/// A translated request.
#[derive(Debug)]
pub(crate) struct TranslatedRequest {
    /// The body for the provider.
    pub(crate) body: String,
    /// The members that were adapted, dropped or unknown.
    pub(crate) losses: TranslationLosses,
    /// The names of the client's tools. The translation of the answer uses them to restore the client's names in calls.
    pub(crate) names: ToolNames,
    /// Whether the client wants to see the model's reasoning.
    pub(crate) shows_reasoning: bool,
}

/// Translates a request. `stream` says whether the client wants a stream. It is used only if the client's protocol states this in
/// the URL's path and not in the body.
///
/// # Errors
/// The request cannot be translated without losing content or state.
pub(crate) fn translate_request(
    body: &str,
    stream: bool,
    target: &TranslationTarget<'_>,
) -> Result<TranslatedRequest, Untranslatable> {
    let mut losses = TranslationLosses::new(target.translation.mode);
    let mut names = ToolNames::default();
    let mut conversation = read::read_request(body, target, &mut names, &mut losses)?;
    if target.translation.from == Protocol::Gemini {
        conversation.options.stream = stream;
    }
    let body = write::write_request(&conversation, target, &mut losses)?;
    let shows_reasoning = shows_reasoning(target.translation.from, &conversation);
    Ok(TranslatedRequest {
        body,
        losses,
        names,
        shows_reasoning,
    })
}

/// Whether the client gets the model's visible reasoning. Gemini clients get it only if they request it. Other clients get it
/// unless they decline it.
fn shows_reasoning(from: Protocol, conversation: &Conversation<'_>) -> bool {
    conversation.options.shows_reasoning.unwrap_or(from != Protocol::Gemini)
}

/// Returns the form of the client's answer.
pub(crate) fn answer_form(stream: bool, is_array: bool) -> AnswerForm {
    match (stream, is_array) {
        (false, _) => AnswerForm::Whole,
        (true, true) => AnswerForm::Array,
        (true, false) => AnswerForm::Stream,
    }
}
