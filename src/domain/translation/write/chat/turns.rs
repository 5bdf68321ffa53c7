//! The turns of a conversation as messages of `chat/completions`.

use std::borrow::Cow;

use crate::domain::translation::{
    ChatReasoning, ChatTraits, ReasoningBack,
    conversation::{
        BlockContent, ContentBlock, Conversation, ConversationTurn, MediaContent, MediaKind, ToolCall, ToolCallResult,
        TurnRole,
    },
    json_out::{JsonArrayWriter, JsonObjectWriter},
    losses::{TranslationLosses, Untranslatable},
    reasoning::ReasoningState,
    write::{BLOCK_BREAK, ERROR_LINE, document_text, image_url},
};

/// The text that replaces an image in a tool's message, because only a user's message can contain images.
const IMAGE_PLACE: &str = "[image: see the user message below]";
/// The assistant's text between results and a user's message, for a host that refuses a user's message directly after results.
const RESULTS_READ: &str = "I have read the results.";

/// Writes the instructions and all turns.
///
/// # Errors
/// A block has content that the protocol cannot carry.
pub(super) fn write_messages(
    conversation: &Conversation<'_>,
    traits: &ChatTraits,
    losses: &mut TranslationLosses,
    messages: &mut JsonArrayWriter<'_>,
) -> Result<(), Untranslatable> {
    let mut writer = ChatTurnWriter {
        traits,
        losses,
        messages,
        open: None,
        is_behind_result: false,
    };
    for text in &conversation.system {
        writer.push_text(TurnRole::System, Cow::Borrowed(&**text));
    }
    let last_question = conversation.turns.iter().rposition(is_question);
    // Most hosts refuse a message between calls and their results, so a system message waits until the results are written.
    let mut waiting: Vec<&ContentBlock<'_>> = Vec::new();
    let mut has_open_calls = false;
    for (index, turn) in conversation.turns.iter().enumerate() {
        match turn.role {
            TurnRole::System if has_open_calls => waiting.extend(turn.blocks.iter()),
            TurnRole::System => {
                for block in &turn.blocks {
                    writer.write_system(block);
                }
            }
            TurnRole::User => {
                writer.write_user(turn, &waiting)?;
                waiting.clear();
                has_open_calls = false;
            }
            TurnRole::Assistant => {
                for block in waiting.drain(..) {
                    writer.write_system(block);
                }
                has_open_calls = turn.blocks.iter().any(ContentBlock::is_call);
                let is_recent = last_question.is_none_or(|question| index > question);
                writer.write_assistant(turn, writer.wants_reasoning(has_open_calls, is_recent));
            }
        }
    }
    for block in waiting {
        writer.write_system(block);
    }
    writer.close_message();
    Ok(())
}

/// Whether a turn begins a new exchange. A turn with results does not, even if it also has text, because agents add reminders to
/// results.
fn is_question(turn: &ConversationTurn<'_>) -> bool {
    turn.role == TurnRole::User && !turn.blocks.iter().any(ContentBlock::is_result)
}

/// A part of a message.
enum ChatPart<'b> {
    /// Text.
    Text(Cow<'b, str>),
    /// The URL of an image; only in the user's messages.
    Image(Cow<'b, str>),
}

/// The last message, which has not been written yet. Some hosts refuse two adjacent messages of the same role, so further content
/// of the same role is added to it.
struct OpenMessage<'b> {
    role: TurnRole,
    parts: Vec<ChatPart<'b>>,
    /// The reasoning that is sent back; only in the assistant's messages.
    reasoning: Vec<&'b str>,
    /// The calls; only in the assistant's messages.
    calls: Vec<&'b ToolCall<'b>>,
}

impl OpenMessage<'_> {
    fn text(&self) -> String {
        let mut texts: Vec<&str> = Vec::new();
        for part in &self.parts {
            if let ChatPart::Text(text) = part {
                texts.push(text);
            }
        }
        texts.join(BLOCK_BREAK)
    }

    fn write(&self, place: ChatReasoning, message: &mut JsonObjectWriter<'_>) {
        match self.role {
            TurnRole::System => {
                message.text("role", "system");
                message.text("content", &self.text());
            }
            TurnRole::User => {
                message.text("role", "user");
                self.write_parts(message);
            }
            TurnRole::Assistant => {
                message.text("role", "assistant");
                let reasoning = self.reasoning.join(BLOCK_BREAK);
                write_answer(place, &reasoning, &self.text(), !self.calls.is_empty(), message);
                if !self.calls.is_empty() {
                    message.array("tool_calls", |array| {
                        for call in &self.calls {
                            write_call(call, array);
                        }
                    });
                }
            }
        }
    }

    /// Writes the content of a user's message. If it contains only text, it becomes one string, which every host accepts.
    fn write_parts(&self, message: &mut JsonObjectWriter<'_>) {
        let has_images = self.parts.iter().any(|part| matches!(part, ChatPart::Image(_)));
        if !has_images {
            message.text("content", &self.text());
            return;
        }
        message.array("content", |content| {
            for part in &self.parts {
                content.object(|item| match part {
                    ChatPart::Text(text) => write_text_part(text, item),
                    ChatPart::Image(url) => {
                        item.text("type", "image_url");
                        item.object("image_url", |image| image.text("url", url));
                    }
                });
            }
        });
    }
}

/// The writer of consecutive turns.
struct ChatTurnWriter<'w, 'o, 'b> {
    traits: &'w ChatTraits,
    losses: &'w mut TranslationLosses,
    messages: &'w mut JsonArrayWriter<'o>,
    /// The last message, which can still grow; `None` if the last message is the result of a call.
    open: Option<OpenMessage<'b>>,
    /// Whether the last message is the result of a call.
    is_behind_result: bool,
}

impl<'b> ChatTurnWriter<'_, '_, 'b> {
    /// Whether the host requires the reasoning of an assistant's turn.
    fn wants_reasoning(&self, has_calls: bool, is_recent: bool) -> bool {
        let has_place = self.traits.reasoning != ChatReasoning::Hidden;
        has_place
            && match self.traits.reasoning_back {
                ReasoningBack::Calls => has_calls && is_recent,
                ReasoningBack::Always => true,
                ReasoningBack::Never => false,
            }
    }

    /// Returns the open message if it has this role, otherwise a new one.
    fn message_of(&mut self, role: TurnRole) -> &mut OpenMessage<'b> {
        if self.open.as_ref().is_some_and(|open| open.role != role) {
            self.close_message();
        }
        self.is_behind_result = false;
        self.open.get_or_insert_with(|| OpenMessage {
            role,
            parts: Vec::new(),
            reasoning: Vec::new(),
            calls: Vec::new(),
        })
    }

    fn push_text(&mut self, role: TurnRole, text: Cow<'b, str>) {
        self.message_of(role).parts.push(ChatPart::Text(text));
    }

    /// Writes the open message.
    fn close_message(&mut self) {
        let place = self.traits.reasoning;
        if let Some(open) = self.open.take() {
            self.messages.object(|message| open.write(place, message));
        }
    }

    /// Adds an assistant's message if the host does not accept a user's message at this point. Returns whether it added one.
    fn separate_from_results(&mut self) -> bool {
        let is_needed = self.is_behind_result && !self.traits.user_after_results;
        if is_needed {
            self.push_text(TurnRole::Assistant, Cow::Borrowed(RESULTS_READ));
        }
        is_needed
    }

    /// Adds a system text that comes after the first turn.
    fn write_system(&mut self, block: &'b ContentBlock<'_>) {
        let BlockContent::Text(text) = &block.content else {
            return;
        };
        if self.traits.system_inside {
            self.push_text(TurnRole::System, Cow::Borrowed(&**text));
        } else {
            self.losses.adapted(block.path.as_str());
            self.separate_from_results();
            self.push_text(TurnRole::User, Cow::Owned(format!("<system>{text}</system>")));
        }
    }

    /// Adds the results of a turn, then the system texts that the client placed before the results, then all other content as one
    /// message.
    fn write_user(
        &mut self,
        turn: &'b ConversationTurn<'_>,
        waiting: &[&'b ContentBlock<'_>],
    ) -> Result<(), Untranslatable> {
        let last_result = turn.blocks.iter().rposition(ContentBlock::is_result);
        let mut parts: Vec<ChatPart<'b>> = Vec::new();
        let mut own_parts: Vec<ChatPart<'b>> = Vec::new();
        for (index, block) in turn.blocks.iter().enumerate() {
            if let BlockContent::Result(result) = &block.content {
                self.write_result(&block.path, result, &mut parts)?;
                continue;
            }
            if last_result.is_some_and(|last| index < last) {
                self.losses.adapted(block.path.as_str());
            }
            self.push_block(block, &mut own_parts)?;
        }
        for block in waiting {
            if last_result.is_some() {
                self.losses.adapted(block.path.as_str());
            }
            self.write_system(block);
        }
        parts.append(&mut own_parts);
        if parts.is_empty() {
            return Ok(());
        }
        if self.separate_from_results() {
            // An image in a result has already been reported.
            if let Some(block) = turn.blocks.iter().find(|block| !block.is_result()) {
                self.losses.adapted(block.path.as_str());
            }
        }
        self.message_of(TurnRole::User).parts.append(&mut parts);
        Ok(())
    }

    /// Writes the result of a call. Its images are added to `images`, for a user's message.
    fn write_result(
        &mut self,
        path: &str,
        result: &'b ToolCallResult<'_>,
        images: &mut Vec<ChatPart<'b>>,
    ) -> Result<(), Untranslatable> {
        let mut content = String::new();
        for block in &result.content {
            let mut parts: Vec<ChatPart<'b>> = Vec::new();
            self.push_block(block, &mut parts)?;
            let has_image = parts.iter().any(|part| matches!(part, ChatPart::Image(_)));
            if has_image {
                self.losses.adapted(block.path.as_str());
                push_paragraph(&mut content, IMAGE_PLACE);
                let label = format!("[image of the tool result {}]", result.call_id);
                images.push(ChatPart::Text(Cow::Owned(label)));
                images.append(&mut parts);
                continue;
            }
            for part in &parts {
                if let ChatPart::Text(text) = part {
                    push_paragraph(&mut content, text);
                }
            }
        }
        if result.is_error {
            self.losses.adapted(path);
            content = match content.is_empty() {
                true => ERROR_LINE.to_owned(),
                false => format!("{ERROR_LINE}\n{content}"),
            };
        }
        self.close_message();
        self.is_behind_result = true;
        self.messages.object(|message| {
            message.text("role", "tool");
            message.text("tool_call_id", &result.call_id);
            message.text("content", &content);
        });
        Ok(())
    }

    /// Adds a block to the parts of a user's message.
    fn push_block(&mut self, block: &'b ContentBlock<'_>, parts: &mut Vec<ChatPart<'b>>) -> Result<(), Untranslatable> {
        match &block.content {
            BlockContent::Text(text) | BlockContent::Refusal(text) => {
                parts.push(ChatPart::Text(Cow::Borrowed(&**text)));
                Ok(())
            }
            BlockContent::Media(media) => self.push_media(&block.path, media, parts),
            // Only the model reasons and calls tools, and results are not parts of a message.
            BlockContent::Reasoning(_) | BlockContent::Call(_) | BlockContent::Result(_) => Ok(()),
        }
    }

    fn push_media(
        &mut self,
        path: &str,
        media: &'b MediaContent<'_>,
        parts: &mut Vec<ChatPart<'b>>,
    ) -> Result<(), Untranslatable> {
        match media.kind {
            MediaKind::Image => {
                // The protocol has no member for the name.
                if let Some(name) = &media.name {
                    self.losses.adapted(path);
                    parts.push(ChatPart::Text(Cow::Borrowed(&**name)));
                }
                parts.push(ChatPart::Image(image_url(&media.source)));
                Ok(())
            }
            MediaKind::Document => {
                let Some(text) = document_text(media) else {
                    let reason = "this model's provider takes no documents; send the document's text";
                    return self.losses.refused_in_strict(path, reason);
                };
                self.losses.adapted(path);
                parts.push(ChatPart::Text(Cow::Owned(text)));
                Ok(())
            }
            MediaKind::Audio | MediaKind::Video => {
                let reason = "this model's provider takes no audio and no video; send the words as text";
                Err(Untranslatable::new(path, reason))
            }
        }
    }

    /// Adds an assistant's turn. Text after a call is joined to the text before it, because most hosts refuse a message between a
    /// call and its result.
    fn write_assistant(&mut self, turn: &'b ConversationTurn<'_>, wants_reasoning: bool) {
        for block in &turn.blocks {
            match &block.content {
                BlockContent::Text(text) => {
                    let message = self.message_of(TurnRole::Assistant);
                    message.parts.push(ChatPart::Text(Cow::Borrowed(&**text)));
                    let is_behind_call = !message.calls.is_empty();
                    if is_behind_call {
                        self.losses.adapted(block.path.as_str());
                    }
                }
                BlockContent::Refusal(text) => {
                    self.losses.adapted(block.path.as_str());
                    self.push_text(TurnRole::Assistant, Cow::Borrowed(&**text));
                }
                BlockContent::Reasoning(ReasoningState::Text { text }) if wants_reasoning && !text.is_empty() => {
                    self.message_of(TurnRole::Assistant).reasoning.push(text);
                }
                BlockContent::Reasoning(_) => self.losses.dropped(block.path.as_str()),
                BlockContent::Call(call) => self.message_of(TurnRole::Assistant).calls.push(call),
                // Only the user's turns contain these.
                BlockContent::Media(_) | BlockContent::Result(_) => {}
            }
        }
    }
}

/// Appends text as a paragraph, after a blank line unless it is the first one.
fn push_paragraph(content: &mut String, text: &str) {
    if !content.is_empty() {
        content.push_str(BLOCK_BREAK);
    }
    content.push_str(text);
}

/// Writes the text and the reasoning of an assistant's message.
fn write_answer(
    place: ChatReasoning,
    reasoning: &str,
    text: &str,
    has_calls: bool,
    message: &mut JsonObjectWriter<'_>,
) {
    if place == ChatReasoning::Content && !reasoning.is_empty() {
        message.array("content", |content| {
            content.object(|part| {
                part.text("type", "thinking");
                part.array("thinking", |inner| {
                    inner.object(|item| write_text_part(reasoning, item))
                });
            });
            if !text.is_empty() {
                content.object(|part| write_text_part(text, part));
            }
        });
        return;
    }
    match text.is_empty() && has_calls {
        true => message.null("content"),
        false => message.text("content", text),
    }
    let member = match place {
        ChatReasoning::ReasoningContent => "reasoning_content",
        ChatReasoning::Reasoning => "reasoning",
        ChatReasoning::Content | ChatReasoning::Hidden => return,
    };
    if !reasoning.is_empty() {
        message.text(member, reasoning);
    }
}

fn write_text_part(text: &str, part: &mut JsonObjectWriter<'_>) {
    part.text("type", "text");
    part.text("text", text);
}

fn write_call(call: &ToolCall<'_>, calls: &mut JsonArrayWriter<'_>) {
    // Hosts parse the arguments as JSON, and an empty string is not JSON.
    let arguments = match call.arguments.trim().is_empty() {
        true => "{}",
        false => &*call.arguments,
    };
    calls.object(|item| {
        item.text("id", &call.id);
        item.text("type", "function");
        item.object("function", |function| {
            function.text("name", &call.name);
            function.text("arguments", arguments);
        });
    });
}
