//! The turns of a conversation as messages of `chat/completions`.

use std::borrow::Cow;

use crate::domain::translation::{
    ChatReasoning, ChatTraits, ReasoningBack,
    conversation::{
        BlockContent, ContentBlock, Conversation, ConversationTurn, MediaContent, MediaKind, MediaSource, ToolCall,
        ToolCallResult, TurnRole,
    },
    json_out::{JsonArrayWriter, JsonObjectWriter},
    losses::{TranslationLosses, Untranslatable},
    reasoning::ReasoningState,
    write::{BLOCK_BREAK, document_text},
};

/// The first line of the result of a tool that reported a failure.
const ERROR_LINE: &str = "[error]";
/// What a tool's message has in the place of an image: only a user's message can have images.
const IMAGE_PLACE: &str = "[image: see the user message below]";
/// What the assistant says between results and a user's message, for a host that refuses the one directly behind the other.
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
        is_behind_result: false,
    };
    if !conversation.system.is_empty() {
        writer.write_text("system", &conversation.system.join(BLOCK_BREAK));
    }
    let last_question = conversation.turns.iter().rposition(is_question);
    // A message between calls and their results is refused by most hosts, so the system's waits until the results are written.
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
                has_open_calls = turn.blocks.iter().any(is_call);
                let is_recent = last_question.is_none_or(|question| index > question);
                writer.write_assistant(turn, writer.wants_reasoning(has_open_calls, is_recent));
            }
        }
    }
    for block in waiting {
        writer.write_system(block);
    }
    Ok(())
}

/// Whether a turn begins a new exchange. Texts beside results are remarks within one: agents put reminders there.
fn is_question(turn: &ConversationTurn<'_>) -> bool {
    turn.role == TurnRole::User && !turn.blocks.iter().any(is_result)
}

fn is_result(block: &ContentBlock<'_>) -> bool {
    matches!(block.content, BlockContent::Result(_))
}

fn is_call(block: &ContentBlock<'_>) -> bool {
    matches!(block.content, BlockContent::Call(_))
}

/// A part of a user's message.
enum ChatUserPart<'b> {
    /// A text.
    Text(Cow<'b, str>),
    /// The URL of an image.
    Image(Cow<'b, str>),
}

/// Writes turns one behind the other.
struct ChatTurnWriter<'w, 'o> {
    traits: &'w ChatTraits,
    losses: &'w mut TranslationLosses,
    messages: &'w mut JsonArrayWriter<'o>,
    /// Whether the last message is the result of a call.
    is_behind_result: bool,
}

impl ChatTurnWriter<'_, '_> {
    /// Whether the host wants the reasoning of an assistant's turn back.
    fn wants_reasoning(&self, has_calls: bool, is_recent: bool) -> bool {
        let has_place = self.traits.reasoning != ChatReasoning::Hidden;
        has_place
            && match self.traits.reasoning_back {
                ReasoningBack::Calls => has_calls && is_recent,
                ReasoningBack::Always => true,
                ReasoningBack::Never => false,
            }
    }

    fn write_text(&mut self, role: &str, text: &str) {
        self.is_behind_result = false;
        self.messages.object(|message| {
            message.text("role", role);
            message.text("content", text);
        });
    }

    /// Writes a message of the assistant where the host accepts no message of the user. Returns whether it did.
    fn separate_from_results(&mut self) -> bool {
        let is_needed = self.is_behind_result && !self.traits.user_after_results;
        if is_needed {
            self.write_text("assistant", RESULTS_READ);
        }
        is_needed
    }

    /// Writes a text of the system behind the first message.
    fn write_system(&mut self, block: &ContentBlock<'_>) {
        let BlockContent::Text(text) = &block.content else {
            return;
        };
        if self.traits.system_inside {
            self.write_text("system", text);
        } else {
            self.losses.adapted(block.path.as_str());
            self.separate_from_results();
            self.write_text("user", &format!("<system>{text}</system>"));
        }
    }

    /// Writes the results of a turn, then the texts of the system that waited for them, then everything else as one message.
    fn write_user(&mut self, turn: &ConversationTurn<'_>, waiting: &[&ContentBlock<'_>]) -> Result<(), Untranslatable> {
        let last_result = turn.blocks.iter().rposition(is_result);
        let mut parts: Vec<ChatUserPart<'_>> = Vec::new();
        let mut own_parts: Vec<ChatUserPart<'_>> = Vec::new();
        for (index, block) in turn.blocks.iter().enumerate() {
            if let BlockContent::Result(result) = &block.content {
                self.write_result(&block.path, result, &mut parts)?;
                continue;
            }
            if last_result.is_some_and(|last| index < last) {
                self.losses.adapted(block.path.as_str());
            }
            own_parts.extend(self.user_part(block)?);
        }
        for block in waiting {
            if last_result.is_some() {
                self.losses.adapted(block.path.as_str());
            }
            self.write_system(block);
        }
        parts.append(&mut own_parts);
        if !parts.is_empty() && self.separate_from_results() {
            // An image of a result is reported already.
            if let Some(block) = turn.blocks.iter().find(|block| !is_result(block)) {
                self.losses.adapted(block.path.as_str());
            }
        }
        self.write_parts(&parts);
        Ok(())
    }

    /// Writes the result of a call. Its images go to `images`, for a user's message.
    fn write_result<'b>(
        &mut self,
        path: &str,
        result: &'b ToolCallResult<'_>,
        images: &mut Vec<ChatUserPart<'b>>,
    ) -> Result<(), Untranslatable> {
        let mut texts: Vec<Cow<'b, str>> = Vec::new();
        for block in &result.content {
            match self.user_part(block)? {
                Some(ChatUserPart::Text(text)) => texts.push(text),
                Some(ChatUserPart::Image(url)) => {
                    self.losses.adapted(block.path.as_str());
                    texts.push(Cow::Borrowed(IMAGE_PLACE));
                    let label = format!("[image of the tool result {}]", result.call_id);
                    images.push(ChatUserPart::Text(Cow::Owned(label)));
                    images.push(ChatUserPart::Image(url));
                }
                None => {}
            }
        }
        let mut content = texts.join(BLOCK_BREAK);
        if result.is_error {
            self.losses.adapted(path);
            content = match content.is_empty() {
                true => ERROR_LINE.to_owned(),
                false => format!("{ERROR_LINE}\n{content}"),
            };
        }
        self.is_behind_result = true;
        self.messages.object(|message| {
            message.text("role", "tool");
            message.text("tool_call_id", &result.call_id);
            message.text("content", &content);
        });
        Ok(())
    }

    /// A block as a part of a user's message; `None` if it was left out and reported.
    fn user_part<'b>(&mut self, block: &'b ContentBlock<'_>) -> Result<Option<ChatUserPart<'b>>, Untranslatable> {
        match &block.content {
            BlockContent::Text(text) | BlockContent::Refusal(text) => {
                Ok(Some(ChatUserPart::Text(Cow::Borrowed(text.as_ref()))))
            }
            BlockContent::Media(media) => self.media_part(&block.path, media),
            // Only the model reasons and calls, and results are no parts.
            BlockContent::Reasoning(_) | BlockContent::Call(_) | BlockContent::Result(_) => Ok(None),
        }
    }

    fn media_part<'b>(
        &mut self,
        path: &str,
        media: &'b MediaContent<'_>,
    ) -> Result<Option<ChatUserPart<'b>>, Untranslatable> {
        match media.kind {
            MediaKind::Image => Ok(Some(ChatUserPart::Image(image_url(&media.source)))),
            MediaKind::Document => {
                let Some(text) = document_text(media) else {
                    let reason = "this model's provider takes no documents; send the document's text";
                    self.losses.refused_in_strict(path, reason)?;
                    return Ok(None);
                };
                self.losses.adapted(path);
                Ok(Some(ChatUserPart::Text(Cow::Owned(text))))
            }
            MediaKind::Audio | MediaKind::Video => {
                let reason = "this model's provider takes no audio and no video; send the words as text";
                Err(Untranslatable::new(path, reason))
            }
        }
    }

    /// Writes a user's message; texts alone become one string, which every host takes.
    fn write_parts(&mut self, parts: &[ChatUserPart<'_>]) {
        let mut texts: Vec<&str> = Vec::new();
        for part in parts {
            if let ChatUserPart::Text(text) = part {
                texts.push(text);
            }
        }
        if parts.is_empty() {
            return;
        }
        if texts.len() == parts.len() {
            self.write_text("user", &texts.join(BLOCK_BREAK));
            return;
        }
        self.is_behind_result = false;
        self.messages.object(|message| {
            message.text("role", "user");
            message.array("content", |content| {
                for part in parts {
                    content.object(|item| match part {
                        ChatUserPart::Text(text) => write_text_part(text, item),
                        ChatUserPart::Image(url) => {
                            item.text("type", "image_url");
                            item.object("image_url", |image| image.text("url", url));
                        }
                    });
                }
            });
        });
    }

    /// Writes an assistant's turn as one message. Text behind a call joins the text before it: a message between a call and its
    /// result is refused by most hosts.
    fn write_assistant(&mut self, turn: &ConversationTurn<'_>, wants_reasoning: bool) {
        let mut reasoning: Vec<&str> = Vec::new();
        let mut texts: Vec<&str> = Vec::new();
        let mut calls: Vec<&ToolCall<'_>> = Vec::new();
        for block in &turn.blocks {
            match &block.content {
                BlockContent::Text(text) => {
                    if !calls.is_empty() {
                        self.losses.adapted(block.path.as_str());
                    }
                    texts.push(text);
                }
                BlockContent::Refusal(text) => {
                    self.losses.adapted(block.path.as_str());
                    texts.push(text);
                }
                BlockContent::Reasoning(ReasoningState::Text { text }) if wants_reasoning => reasoning.push(text),
                BlockContent::Reasoning(_) => self.losses.dropped(block.path.as_str()),
                BlockContent::Call(call) => calls.push(call),
                // Only the user has these.
                BlockContent::Media(_) | BlockContent::Result(_) => {}
            }
        }
        let reasoning = reasoning.join(BLOCK_BREAK);
        let text = texts.join(BLOCK_BREAK);
        if reasoning.is_empty() && text.is_empty() && calls.is_empty() {
            return;
        }
        let place = self.traits.reasoning;
        self.is_behind_result = false;
        self.messages.object(|message| {
            message.text("role", "assistant");
            write_answer(place, &reasoning, &text, !calls.is_empty(), message);
            if !calls.is_empty() {
                message.array("tool_calls", |array| {
                    for call in calls {
                        write_call(call, array);
                    }
                });
            }
        });
    }
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
    // Hosts read the text as JSON, which an empty one is not.
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

fn image_url<'b>(source: &'b MediaSource<'_>) -> Cow<'b, str> {
    match source {
        MediaSource::Base64 { media_type, data } => Cow::Owned(format!("data:{media_type};base64,{data}")),
        MediaSource::Url { url, .. } => Cow::Borrowed(url.as_ref()),
    }
}
