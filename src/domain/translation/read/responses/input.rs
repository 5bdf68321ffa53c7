//! Reads the input: messages, reasoning, and items that change the tools or the options.

use std::borrow::Cow;

use serde_json::value::RawValue;

use crate::domain::translation::{
    conversation::{BlockContent, ContentBlock, TurnRole},
    losses::Untranslatable,
    members::{MemberReader, as_text, elements, missing},
    read::{
        quotable,
        responses::{APPLY_PATCH, LOCAL_SHELL, ResponsesRequestReader, SHELL},
        summary_text,
    },
    reasoning::{COMPACTION_TRIGGER, CarriedReasoning},
};

/// The members of any item that are meaningless to a model of another provider.
const ANNOTATIONS: [&str; 6] = ["phase", "end_turn", "metadata", "created_by", "agent", "async"];

/// The annotation that Codex adds to each item for OpenAI.
const ITEM_METADATA: &str = "internal_chat_message_metadata_passthrough";

/// The text of the user's message that requests a summary, which replaces the conversation.
const SUMMARY_REQUEST: &str = "Summarize this conversation, so that another model can continue the work with your summary \
                               alone. State the user's goals, constraints and preferences; what was done and decided, and \
                               why; what is known now; files, commands, names and values that are still needed, spelled \
                               exactly; open problems; and the next steps. Be complete and brief. Answer with the summary \
                               alone, and call no tools.";

impl<'a> ResponsesRequestReader<'a, '_> {
    /// Reads the input: a string or a list of items.
    ///
    /// # Errors
    /// An item cannot be translated.
    pub(super) fn read_input(&mut self, input: &'a RawValue) -> Result<(), Untranslatable> {
        if let Some(text) = as_text(input) {
            self.push(TurnRole::User, "input".to_owned(), BlockContent::Text(text));
            return Ok(());
        }
        let items = elements(input, "input")?;
        let last = items.len().saturating_sub(1);
        for (index, (path, item)) in items.into_iter().enumerate() {
            let object = MemberReader::new(item.get(), path)?;
            self.read_item(object, index == last)?;
        }
        Ok(())
    }

    fn read_item(&mut self, mut object: MemberReader<'a>, is_last: bool) -> Result<(), Untranslatable> {
        let kind = match object.text("type")? {
            Some(kind) => kind,
            None if object.contains("role") => Cow::Borrowed("message"),
            None => Cow::Borrowed("item_reference"),
        };
        match &*kind {
            "message" => self.read_message(object),
            "agent_message" => self.read_agent_message(object),
            "reasoning" => self.read_reasoning(object),
            "compaction" | "context_compaction" => self.read_compaction(object),
            "additional_tools" => self.read_additional_tools(object),
            "configuration_update" => self.read_configuration_update(object),
            "function_call" => self.read_function_call(object),
            "custom_tool_call" => self.read_custom_call(object),
            "local_shell_call" => self.read_built_in_call(object, "action", LOCAL_SHELL),
            "shell_call" => self.read_built_in_call(object, "action", SHELL),
            "apply_patch_call" => self.read_built_in_call(object, "operation", APPLY_PATCH),
            "tool_search_call" => self.read_tool_search_call(object),
            "function_call_output" | "custom_tool_call_output" => self.read_call_output(object),
            "local_shell_call_output" => self.read_local_shell_output(object),
            "shell_call_output" => self.read_shell_output(object),
            "apply_patch_call_output" => self.read_apply_patch_output(object),
            "tool_search_output" => self.read_tool_search_output(object),
            COMPACTION_TRIGGER if is_last => self.read_compaction_trigger(object),
            COMPACTION_TRIGGER => Err(Untranslatable::new(
                object.path(),
                "a summary can be requested only of the whole conversation; send this as the last item",
            )),
            "item_reference" => Err(Untranslatable::new(
                object.path(),
                "this model's provider cannot read items kept elsewhere; send the item itself",
            )),
            kind if Self::is_hosted_item(kind) => self.read_hosted_item(kind, &mut object),
            kind => {
                let kind = quotable(kind);
                let reason =
                    format!("weir cannot translate items of type `{kind}` to the protocol of this model's provider");
                Err(Untranslatable::new(object.path(), reason))
            }
        }
    }

    /// Handles the members that any item can have, and refuses unknown members.
    pub(super) fn finish_item(&mut self, mut object: MemberReader<'a>) -> Result<(), Untranslatable> {
        object.ignore(&["id", "status"]);
        object.drop_members(&ANNOTATIONS, self.losses);
        // If this loss were reported for each item, the header would have no room for other losses.
        let has_metadata = object.take(ITEM_METADATA).is_some();
        if has_metadata && !std::mem::replace(&mut self.has_item_metadata, true) {
            self.losses.dropped(object.path_of(ITEM_METADATA));
        }
        object.finish_content()
    }

    fn read_message(&mut self, mut object: MemberReader<'a>) -> Result<(), Untranslatable> {
        let role = match &*object.required_text("role")? {
            "user" => TurnRole::User,
            "assistant" => TurnRole::Assistant,
            "system" | "developer" => TurnRole::System,
            _ => {
                let reason = "must be `user`, `assistant`, `system` or `developer`";
                return Err(Untranslatable::new(object.path_of("role"), reason));
            }
        };
        let Some(content) = object.take("content") else {
            return Err(missing(&object, "content"));
        };
        for ContentBlock { path, content } in self.read_content(content, object.path_of("content"))? {
            let fits = matches!(
                (&content, role),
                (BlockContent::Text(_), _)
                    | (BlockContent::Refusal(_), TurnRole::Assistant)
                    | (BlockContent::Media(_), TurnRole::User)
            );
            if !fits {
                let reason = "no provider accepts this content in a message of this role; send it with the role `user`";
                return Err(Untranslatable::new(path, reason));
            }
            self.push(role, path, content);
        }
        self.finish_item(object)
    }

    /// Reads a message between agents of one client. The message becomes a text of the user, and the text names both agents.
    fn read_agent_message(&mut self, mut object: MemberReader<'a>) -> Result<(), Untranslatable> {
        let author = object.text("author")?.unwrap_or_default();
        let recipient = object.text("recipient")?.unwrap_or_default();
        let Some(content) = object.take("content") else {
            return Err(missing(&object, "content"));
        };
        self.losses.adapted(object.path());
        let mut head = format!("[message from {author} to {recipient}]\n");
        for ContentBlock { path, content } in self.read_content(content, object.path_of("content"))? {
            let BlockContent::Text(text) = content else {
                return Err(Untranslatable::new(path, "a message between agents can have only text"));
            };
            let text = Cow::Owned(format!("{head}{text}"));
            head.clear();
            self.push(TurnRole::User, path, BlockContent::Text(text));
        }
        self.finish_item(object)
    }

    /// Reads the model's reasoning. Reasoning of another maker (provider, model and credential) is dropped and reported.
    fn read_reasoning(&mut self, mut object: MemberReader<'a>) -> Result<(), Untranslatable> {
        let summary = reasoning_text(&mut object, "summary");
        let content = reasoning_text(&mut object, "content");
        let visible = if summary.is_empty() { content } else { summary };
        let carrier = object.text("encrypted_content")?.unwrap_or_default();
        match CarriedReasoning::returned(&carrier, &visible, self.target.maker) {
            Some(state) => {
                let path = object.path().to_owned();
                self.push(TurnRole::Assistant, path, BlockContent::Reasoning(state));
            }
            None => self.losses.dropped(object.path()),
        }
        self.finish_item(object)
    }

    /// Reads the summary of an earlier part of the conversation. Refuses a summary that weir did not create.
    fn read_compaction(&mut self, mut object: MemberReader<'a>) -> Result<(), Untranslatable> {
        let carrier = object.required_text("encrypted_content")?;
        let Some(text) = summary_text(&carrier) else {
            let reason =
                "only the provider that made this compaction can read it; compact locally, or start a new conversation";
            return Err(Untranslatable::new(object.path_of("encrypted_content"), reason));
        };
        let path = object.path().to_owned();
        self.losses.adapted(path.as_str());
        self.push(TurnRole::User, path, BlockContent::Text(Cow::Owned(text)));
        self.finish_item(object)
    }

    /// Reads the request for a summary that replaces the conversation. The request becomes a text of the user.
    fn read_compaction_trigger(&mut self, object: MemberReader<'a>) -> Result<(), Untranslatable> {
        self.wants_summary = true;
        let path = object.path().to_owned();
        self.losses.adapted(path.as_str());
        self.push(TurnRole::User, path, BlockContent::Text(Cow::Borrowed(SUMMARY_REQUEST)));
        self.finish_item(object)
    }

    fn read_additional_tools(&mut self, mut object: MemberReader<'a>) -> Result<(), Untranslatable> {
        object.ignore(&["role"]);
        let tools = object.array("tools")?.unwrap_or_default();
        self.losses.adapted(object.path());
        self.read_tools(tools, &mut Vec::new())?;
        self.finish_item(object)
    }

    /// Reads a change of options for all further answers. Only the next answer is requested, so the last change counts.
    fn read_configuration_update(&mut self, mut object: MemberReader<'a>) -> Result<(), Untranslatable> {
        self.losses.adapted(object.path());
        if let Some(mut reasoning) = object.object("reasoning")? {
            self.read_effort(&mut reasoning)?;
            reasoning.finish_options(self.losses);
        }
        if let Some(mut text) = object.object("text")? {
            self.read_format(&mut text)?;
            text.finish_options(self.losses);
        }
        self.finish_item(object)
    }
}

/// Returns the texts in a list of a reasoning item, joined by blank lines. Parts without text are omitted, because reasoning is
/// optional.
fn reasoning_text(object: &mut MemberReader<'_>, name: &str) -> String {
    let mut joined = String::new();
    let Some(list) = object.take(name) else { return joined };
    for (path, part) in elements(list, name).unwrap_or_default() {
        let text = MemberReader::new(part.get(), path).and_then(|mut part| part.text("text"));
        let Ok(Some(text)) = text else { continue };
        if !joined.is_empty() {
            joined.push_str("\n\n");
        }
        joined.push_str(&text);
    }
    joined
}
