//! Reads what only turns of an agent have: calls of the client's tools, their results, the model's thinking, and summaries.

use std::borrow::Cow;

use crate::domain::translation::{
    conversation::{BlockContent, ToolCall, ToolCallResult, TurnRole},
    losses::Untranslatable,
    members::MemberReader,
    read::messages::{MessagesRequestReader, missing, provider_tool_name, quotable},
    reasoning::{CarriedReasoning, ReasoningState},
};

/// The types of blocks that the result of a call may have.
const RESULT_KINDS: [&str; 5] = ["text", "image", "document", "search_result", "tool_reference"];
/// Members of calls and results that say nothing to a model of another provider.
const ANNOTATIONS: [&str; 2] = ["cache_control", "toolset_name"];

impl<'a> MessagesRequestReader<'a, '_> {
    /// Reads `tool_use`.
    ///
    /// # Errors
    /// A member is missing, or the call is not the model's own.
    pub(super) fn read_tool_use(&mut self, mut object: MemberReader<'a>) -> Result<(), Untranslatable> {
        let id = required_id(&mut object, "id")?;
        let id = self.provider_call_id(id);
        let name = provider_tool_name(object.required_text("name")?);
        let arguments = match object.take("input") {
            Some(input) => Cow::Borrowed(input.get()),
            None => Cow::Borrowed("{}"),
        };
        self.check_caller(&mut object)?;
        object.drop_members(&ANNOTATIONS, self.losses);
        self.called_names.insert(id.clone(), name.clone());
        let path = object.path().to_owned();
        object.finish_content()?;
        let call = ToolCall { id, name, arguments };
        self.push(TurnRole::Assistant, path, BlockContent::Call(call));
        Ok(())
    }

    /// Refuses, in strict mode, a call by a program that another provider ran.
    fn check_caller(&mut self, object: &mut MemberReader<'a>) -> Result<(), Untranslatable> {
        let Some(mut caller) = object.object("caller")? else {
            return Ok(());
        };
        match caller.text("type")?.as_deref() {
            None | Some("direct") => Ok(()),
            Some(_) => {
                let reason = "this model's provider cannot continue a program of another provider; leave this out";
                self.losses.refused_in_strict(caller.path(), reason)
            }
        }
    }

    /// Reads `tool_result`.
    ///
    /// # Errors
    /// The history has no call of that id, or the content cannot be translated.
    pub(super) fn read_tool_result(&mut self, mut object: MemberReader<'a>) -> Result<(), Untranslatable> {
        let id = required_id(&mut object, "tool_use_id")?;
        let quoted_id = quotable(&id);
        let call_id = self.provider_call_id(id);
        let Some(name) = self.called_names.get(&call_id).cloned() else {
            let reason = format!("no call before this result has the id `{quoted_id}`; send the whole conversation");
            return Err(Untranslatable::new(object.path_of("tool_use_id"), reason));
        };
        let content = match object.take("content") {
            Some(content) => self.read_content(content, object.path_of("content"), &RESULT_KINDS)?,
            None => Vec::new(),
        };
        let is_error = object.flag("is_error")?.unwrap_or(false);
        object.drop_members(&ANNOTATIONS, self.losses);
        let path = object.path().to_owned();
        object.finish_content()?;
        let result = ToolCallResult {
            call_id,
            name: Some(name),
            content,
            is_error,
        };
        self.push(TurnRole::User, path, BlockContent::Result(result));
        Ok(())
    }

    /// Reads `thinking`, which only its own maker gets back.
    ///
    /// # Errors
    /// A member is no text.
    pub(super) fn read_thinking_block(&mut self, mut object: MemberReader<'a>) -> Result<(), Untranslatable> {
        let visible = object.text("thinking")?.unwrap_or_default();
        let carrier = object.text("signature")?.unwrap_or_default();
        self.push_reasoning(object, &carrier, &visible);
        Ok(())
    }

    /// Reads `redacted_thinking`, which only its own maker gets back.
    ///
    /// # Errors
    /// The data is no text.
    pub(super) fn read_redacted_thinking(&mut self, mut object: MemberReader<'a>) -> Result<(), Untranslatable> {
        let carrier = object.text("data")?.unwrap_or_default();
        self.push_reasoning(object, &carrier, "");
        Ok(())
    }

    fn push_reasoning(&mut self, mut object: MemberReader<'a>, carrier: &str, visible: &str) {
        let path = object.path().to_owned();
        object.drop_members(&ANNOTATIONS, self.losses);
        object.finish_options(self.losses);
        match CarriedReasoning::unwrap(carrier, visible, self.target.maker) {
            CarriedReasoning::Own(state) if !is_without_text(&state) => {
                self.push(TurnRole::Assistant, path, BlockContent::Reasoning(state));
            }
            CarriedReasoning::Own(_) | CarriedReasoning::Foreign => self.losses.dropped(path),
        }
    }

    /// Reads `compaction`, the summary of an earlier part of the conversation, if weir has made it for this model.
    ///
    /// # Errors
    /// Another provider has made it.
    pub(super) fn read_compaction(&mut self, mut object: MemberReader<'a>) -> Result<(), Untranslatable> {
        let content = object.text("content")?;
        let signature = object.text("signature")?;
        let carrier = object.text("encrypted_content")?.or(signature).unwrap_or_default();
        let path = object.path().to_owned();
        if content.is_none() && carrier.is_empty() {
            // A compaction that has failed: it takes the place of nothing.
            self.losses.dropped(path);
            return Ok(());
        }
        let visible = content.unwrap_or_default();
        let CarriedReasoning::Own(ReasoningState::Text { text }) =
            CarriedReasoning::unwrap(&carrier, &visible, self.target.maker)
        else {
            let reason = "only the provider that made this compaction can read it; compact locally, or begin again";
            return Err(Untranslatable::new(path, reason));
        };
        self.losses.adapted(path.as_str());
        object.drop_members(&ANNOTATIONS, self.losses);
        object.finish_content()?;
        self.push(TurnRole::User, path, BlockContent::Text(text));
        Ok(())
    }
}

/// An identifier that must be there.
fn required_id<'a>(object: &mut MemberReader<'a>, name: &str) -> Result<Cow<'a, str>, Untranslatable> {
    let id = object.required_text(name)?;
    match id.is_empty() {
        true => Err(missing(object, name)),
        false => Ok(id),
    }
}

/// Whether a state's text was left to the visible text, and the client has not returned that.
fn is_without_text(state: &ReasoningState<'_>) -> bool {
    matches!(state, ReasoningState::Text { text } if text.is_empty())
}
