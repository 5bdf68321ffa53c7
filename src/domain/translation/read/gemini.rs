//! Reads a Gemini request.
//!
//! The translation of a part depends only on the parts before it, so the first turns of a conversation always become the same
//! text.

mod calls;
mod contents;
mod media;
mod object;
mod options;
mod schema;
mod tools;

use std::borrow::Cow;

use crate::domain::translation::{
    TranslationTarget,
    conversation::{BlockContent, ContentBlock, Conversation, TurnRole},
    losses::{TranslationLosses, Untranslatable},
    read::gemini::{calls::GeminiCallHistory, object::GeminiObject},
    tool_names::ToolNames,
};

/// Reads the body of a request. The client's tools are added to `names`.
///
/// # Errors
/// The request has content or state that cannot be translated.
pub(super) fn read<'a>(
    body: &'a str,
    target: &TranslationTarget<'_>,
    names: &mut ToolNames,
    losses: &mut TranslationLosses,
) -> Result<Conversation<'a>, Untranslatable> {
    let mut object = GeminiObject::new(body, "")?;
    let mut reader = GeminiRequestReader {
        conversation: Conversation::default(),
        target,
        names,
        losses,
        calls: GeminiCallHistory::default(),
        thought: None,
        hosted_tool: None,
    };
    reader.read_options(&mut object)?;
    reader.read_tools(&mut object)?;
    reader.read_system(&mut object)?;
    reader.read_contents(&mut object)?;
    reader.read_tool_config(&mut object)?;
    reader.check_tools()?;
    object.finish_options(reader.losses);
    Ok(reader.conversation)
}

/// A request that is being read.
struct GeminiRequestReader<'a, 't> {
    /// The content so far.
    conversation: Conversation<'a>,
    /// The provider's side of the translation.
    target: &'t TranslationTarget<'t>,
    /// The client's tools.
    names: &'t mut ToolNames,
    /// The members that are not carried over unchanged.
    losses: &'t mut TranslationLosses,
    /// The calls so far.
    calls: GeminiCallHistory<'a>,
    /// The visible reasoning whose state is expected in a later part; `None` if there is no such reasoning.
    thought: Option<PendingThought>,
    /// The path of the first tool that only another provider can run; `None` if there is no such tool.
    hosted_tool: Option<String>,
}

/// Visible reasoning in the history. It is sent back only together with its state, which is in a later part.
struct PendingThought {
    /// The path of the first part with this reasoning.
    path: String,
    /// The text of the reasoning.
    text: String,
}

impl<'a> GeminiRequestReader<'a, '_> {
    /// Adds content to a turn, unless it is an empty text. A text of the model is appended to a directly preceding text of the
    /// model, because clients send the pieces of a stream back as separate parts.
    fn push(&mut self, role: TurnRole, path: String, content: BlockContent<'a>) {
        if matches!(&content, BlockContent::Text(text) if text.is_empty()) {
            return;
        }
        self.report_thought();
        if let BlockContent::Text(text) = &content
            && role == TurnRole::Assistant
            && let Some(earlier) = self.last_text()
        {
            earlier.to_mut().push_str(text);
            return;
        }
        self.conversation.push(role, ContentBlock { path, content });
    }

    /// Returns the text at the end of the conversation; `None` if the conversation does not end with text of the model.
    fn last_text(&mut self) -> Option<&mut Cow<'a, str>> {
        let turn = self.conversation.turns.last_mut()?;
        if turn.role != TurnRole::Assistant {
            return None;
        }
        let block = turn.blocks.last_mut()?;
        if let BlockContent::Text(text) = &mut block.content {
            Some(text)
        } else {
            None
        }
    }

    /// Reports visible reasoning as dropped if no state has followed it.
    fn report_thought(&mut self) {
        if let Some(thought) = self.thought.take() {
            self.losses.dropped(thought.path);
        }
    }
}

#[cfg(test)]
mod tests;
