//! Reads the blocks that only conversations of agents contain: calls of tools, their results, the model's thinking, and
//! summaries.

use std::borrow::Cow;

use serde_json::value::RawValue;

use crate::domain::translation::{
    conversation::{BlockContent, ToolCall, ToolCallResult, TurnRole},
    losses::Untranslatable,
    members::{MemberReader, as_text, elements, missing},
    read::{check_caller, messages::MessagesRequestReader, quotable, summary_text},
    reasoning::CarriedReasoning,
    tool_names::provider_tool_name,
};

/// The types of the blocks that the result of a call can contain.
const RESULT_KINDS: [&str; 5] = ["text", "image", "document", "search_result", "tool_reference"];
/// The members of calls and results that are meaningless to a model of another provider.
const ANNOTATIONS: [&str; 2] = ["cache_control", "toolset_name"];
/// The suffix of the types of blocks that contain the result of a provider's tool. The result of a client's tool has the type
/// `tool_result`, which does not have this suffix.
const RESULT: &str = "_tool_result";
/// The names of the members in a result that can contain text. The value of such a member is a text, or a list or object that
/// contains texts.
const TEXTS: [&str; 12] = [
    "title",
    "url",
    "text",
    "stdout",
    "stderr",
    "error_code",
    "tool_name",
    "lines",
    "data",
    "content",
    "source",
    "tool_references",
];
/// The maximum nesting depth at which text in a result is read. The text of a fetched document has the greatest depth.
const DEPTH_MAX: usize = 6;

impl<'a> MessagesRequestReader<'a, '_> {
    /// Reads `tool_use`.
    ///
    /// # Errors
    /// A member is missing, or the call was not made by the model itself.
    pub(super) fn read_tool_use(&mut self, mut object: MemberReader<'a>) -> Result<(), Untranslatable> {
        let id = required_id(&mut object, "id")?;
        let id = self.target.provider_call_id(id);
        let name = provider_tool_name(object.required_text("name")?);
        let arguments = match object.take("input") {
            Some(input) => Cow::Borrowed(input.get()),
            None => Cow::Borrowed("{}"),
        };
        check_caller(&mut object, self.losses)?;
        object.drop_members(&ANNOTATIONS, self.losses);
        self.called_names.insert(id.clone(), name.clone());
        let path = object.path().to_owned();
        object.finish_content()?;
        let call = ToolCall { id, name, arguments };
        self.push(TurnRole::Assistant, path, BlockContent::Call(call));
        Ok(())
    }

    /// Reads `tool_result`.
    ///
    /// # Errors
    /// The history has no call with this id, or the content cannot be translated.
    pub(super) fn read_tool_result(&mut self, mut object: MemberReader<'a>) -> Result<(), Untranslatable> {
        let id = required_id(&mut object, "tool_use_id")?;
        let quoted_id = quotable(&id);
        let call_id = self.target.provider_call_id(id);
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

    /// Reads a `thinking` block. Reasoning of another maker (provider, model and credential) is dropped and reported.
    ///
    /// # Errors
    /// A member is not a string.
    pub(super) fn read_thinking_block(&mut self, mut object: MemberReader<'a>) -> Result<(), Untranslatable> {
        let visible = object.text("thinking")?.unwrap_or_default();
        let carrier = object.text("signature")?.unwrap_or_default();
        self.push_reasoning(object, &carrier, &visible);
        Ok(())
    }

    /// Reads a `redacted_thinking` block. Reasoning of another maker (provider, model and credential) is dropped and reported.
    ///
    /// # Errors
    /// The data is not a string.
    pub(super) fn read_redacted_thinking(&mut self, mut object: MemberReader<'a>) -> Result<(), Untranslatable> {
        let carrier = object.text("data")?.unwrap_or_default();
        self.push_reasoning(object, &carrier, "");
        Ok(())
    }

    fn push_reasoning(&mut self, mut object: MemberReader<'a>, carrier: &str, visible: &str) {
        let path = object.path().to_owned();
        object.drop_members(&ANNOTATIONS, self.losses);
        object.finish_options(self.losses);
        match CarriedReasoning::returned(carrier, visible, self.target.maker) {
            Some(state) => self.push(TurnRole::Assistant, path, BlockContent::Reasoning(state)),
            None => self.losses.dropped(path),
        }
    }

    /// Reads `compaction`, the summary of an earlier part of the conversation. Refuses a summary that weir did not create.
    ///
    /// # Errors
    /// weir did not create the summary.
    pub(super) fn read_compaction(&mut self, mut object: MemberReader<'a>) -> Result<(), Untranslatable> {
        let content = object.text("content")?;
        let signature = object.text("signature")?;
        let carrier = object.text("encrypted_content")?.or(signature).unwrap_or_default();
        let path = object.path().to_owned();
        if content.is_none() && carrier.is_empty() {
            // A failed compaction replaces nothing.
            self.losses.dropped(path);
            return Ok(());
        }
        let Some(text) = summary_text(&carrier) else {
            let reason = "only the provider that made this compaction can read it; compact locally, or begin again";
            return Err(Untranslatable::new(path, reason));
        };
        self.losses.adapted(path.as_str());
        object.drop_members(&ANNOTATIONS, self.losses);
        object.finish_content()?;
        self.push(TurnRole::User, path, BlockContent::Text(Cow::Owned(text)));
        Ok(())
    }

    /// Whether a block of this type is about a tool that a provider runs.
    pub(super) fn is_hosted_block(kind: &str) -> bool {
        matches!(kind, "server_tool_use" | "mcp_tool_use") || kind.ends_with(RESULT)
    }

    /// Reads a block about a provider's own tool: refuses it in strict mode, and replaces it with text in lossy mode.
    ///
    /// # Errors
    /// The block is refused.
    pub(super) fn read_hosted_block(
        &mut self,
        role: TurnRole,
        kind: &str,
        object: &mut MemberReader<'a>,
    ) -> Result<(), Untranslatable> {
        let reason = "this model's provider cannot continue what another provider's tools did; leave the block out";
        let path = object.path().to_owned();
        self.losses.refused_in_strict(path.as_str(), reason)?;
        let mut text = format!("[{kind}]");
        for name in ["server_name", "name"] {
            if let Some(word) = object.text(name)? {
                text.push(' ');
                text.push_str(&word);
            }
        }
        if let Some(input) = object.take("input") {
            text.push(' ');
            text.push_str(input.get());
        }
        if let Some(content) = object.take("content") {
            push_texts(content, DEPTH_MAX, &mut text);
        }
        self.push(role, path, BlockContent::Text(text.into()));
        Ok(())
    }
}

/// Takes a required id.
fn required_id<'a>(object: &mut MemberReader<'a>, name: &str) -> Result<Cow<'a, str>, Untranslatable> {
    let id = object.required_text(name)?;
    match id.is_empty() {
        true => Err(missing(object, name)),
        false => Ok(id),
    }
}

/// Appends the texts in a value, one per line. Files in base64 are omitted.
fn push_texts(value: &RawValue, depth: usize, out: &mut String) {
    let Some(depth) = depth.checked_sub(1) else {
        return;
    };
    if let Some(text) = as_text(value) {
        out.push('\n');
        out.push_str(&text);
    } else if let Ok(list) = elements(value, "") {
        for (_, element) in list {
            push_texts(element, depth, out);
        }
    } else if let Ok(mut object) = MemberReader::new(value.get(), "") {
        if matches!(object.text("type"), Ok(Some(kind)) if kind == "base64") {
            return;
        }
        for name in TEXTS {
            if let Some(member) = object.take(name) {
                push_texts(member, depth, out);
            }
        }
    }
}
