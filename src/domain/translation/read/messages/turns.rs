//! Reads the instructions and the messages.

use serde_json::value::RawValue;

use crate::domain::{
    translation::{
        conversation::{BlockContent, ContentBlock, TurnRole},
        losses::Untranslatable,
        members::{MemberReader, as_text, elements, missing},
        read::{
            STORED_FILE,
            messages::{MessagesRequestReader, unknown_content},
        },
    },
    wire::UpstreamProtocol,
};

/// The prefix of the block in which Claude Code states its version and session. The block changes with every request, so a prompt
/// that begins with it cannot be cached.
const BILLING_HEADER: &str = "x-anthropic-billing-header:";

impl<'a> MessagesRequestReader<'a, '_> {
    /// Reads the instructions: a string, or a list of text blocks.
    ///
    /// # Errors
    /// A block is not text.
    pub(super) fn read_system(&mut self, system: &'a RawValue) -> Result<(), Untranslatable> {
        if let Some(text) = as_text(system) {
            self.push(TurnRole::System, "system".to_owned(), BlockContent::Text(text));
            return Ok(());
        }
        for (path, block) in elements(system, "system")? {
            let mut object = MemberReader::new(block.get(), path)?;
            let kind = object.required_text("type")?;
            if kind != "text" {
                return Err(unknown_content(&object, &kind));
            }
            let text = object.required_text("text")?;
            if text.starts_with(BILLING_HEADER) {
                self.losses.dropped(object.path());
                continue;
            }
            let path = object.path().to_owned();
            self.finish_part(object)?;
            self.push(TurnRole::System, path, BlockContent::Text(text));
        }
        Ok(())
    }

    /// Reads all messages.
    ///
    /// # Errors
    /// A message cannot be translated, or no message has content.
    pub(super) fn read_messages(&mut self, messages: Vec<(String, &'a RawValue)>) -> Result<(), Untranslatable> {
        let last_path = messages.last().map(|(path, _)| path.clone());
        for (path, message) in messages {
            self.read_message(MemberReader::new(message.get(), path)?)?;
        }
        match self.conversation.turns.last().map(|turn| turn.role) {
            Some(TurnRole::Assistant) => self.check_begun_answer(last_path.unwrap_or_default()),
            Some(TurnRole::User | TurnRole::System) => Ok(()),
            None => Err(Untranslatable::new("messages", "must have a message with content")),
        }
    }

    /// Refuses a request that ends with the beginning of an answer, unless the provider may support such requests. The model
    /// would have to continue this answer.
    fn check_begun_answer(&self, path: String) -> Result<(), Untranslatable> {
        match self.target.translation.to {
            UpstreamProtocol::Messages | UpstreamProtocol::Chat => Ok(()),
            UpstreamProtocol::Responses | UpstreamProtocol::Gemini => Err(Untranslatable::new(
                path,
                "this model's provider cannot continue an answer that the request begins; end with the user's message",
            )),
        }
    }

    fn read_message(&mut self, mut object: MemberReader<'a>) -> Result<(), Untranslatable> {
        let role = match &*object.required_text("role")? {
            "user" => TurnRole::User,
            "assistant" => TurnRole::Assistant,
            "system" => TurnRole::System,
            _ => {
                let reason = "must be `user`, `assistant` or `system`";
                return Err(Untranslatable::new(object.path_of("role"), reason));
            }
        };
        if role == TurnRole::System {
            self.read_turn_options(&mut object)?;
        }
        match object.take("content") {
            Some(content) => self.read_message_content(role, content, object.path_of("content"))?,
            // A system message can state an effort without any content.
            None if role == TurnRole::System => {}
            None => return Err(missing(&object, "content")),
        }
        object.finish_content()
    }

    /// Reads the options of a system message. If several messages state an effort, the last one has effect, because the request
    /// asks only for the next answer.
    fn read_turn_options(&mut self, object: &mut MemberReader<'a>) -> Result<(), Untranslatable> {
        // The text remains, because removing it from later requests would change the beginning of the prompt.
        match object.text("clear_at")?.as_deref() {
            None | Some("never") => {}
            Some(_) => self.losses.dropped(object.path_of("clear_at")),
        }
        if let Some(mut config) = object.object("output_config")? {
            if self.read_effort(&mut config)? {
                self.losses.adapted(config.path_of("effort"));
            }
            config.finish_options(self.losses);
        }
        Ok(())
    }

    fn read_message_content(
        &mut self,
        role: TurnRole,
        content: &'a RawValue,
        path: String,
    ) -> Result<(), Untranslatable> {
        if let Some(text) = as_text(content) {
            self.push(role, path, BlockContent::Text(text));
            return Ok(());
        }
        for (path, block) in elements(content, &path)? {
            self.read_block(role, MemberReader::new(block.get(), path)?)?;
        }
        Ok(())
    }

    fn read_block(&mut self, role: TurnRole, mut object: MemberReader<'a>) -> Result<(), Untranslatable> {
        let kind = object.required_text("type")?;
        match (&*kind, role) {
            ("text" | "image" | "document" | "search_result", _) => self.read_message_part(role, &kind, object),
            ("tool_result", TurnRole::User) => self.read_tool_result(object),
            ("tool_use", TurnRole::Assistant) => self.read_tool_use(object),
            ("thinking", TurnRole::Assistant) => self.read_thinking_block(object),
            ("redacted_thinking", TurnRole::Assistant) => self.read_redacted_thinking(object),
            ("compaction", _) => self.read_compaction(object),
            ("tool_addition", _) => self.read_tool_change(object, true),
            ("tool_removal", _) => self.read_tool_change(object, false),
            // The model reads neither block: one marks where another model continued, the other repeats the tools of an MCP
            // server.
            ("fallback" | "mcp_tool_listing", _) => {
                self.losses.dropped(object.path());
                Ok(())
            }
            ("container_upload", _) => Err(Untranslatable::new(object.path_of("file_id"), STORED_FILE)),
            (kind, _) if Self::is_hosted_block(kind) => self.read_hosted_block(role, kind, &mut object),
            (kind, _) => Err(unknown_content(&object, kind)),
        }
    }

    fn read_message_part(
        &mut self,
        role: TurnRole,
        kind: &str,
        object: MemberReader<'a>,
    ) -> Result<(), Untranslatable> {
        for ContentBlock { path, content } in self.read_part(kind, object)? {
            if role != TurnRole::User && matches!(content, BlockContent::Media(_)) {
                let reason = "no provider accepts this content in a message of this role; send it with the role `user`";
                return Err(Untranslatable::new(path, reason));
            }
            self.push(role, path, content);
        }
        Ok(())
    }
}
