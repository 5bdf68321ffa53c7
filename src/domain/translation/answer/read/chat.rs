//! Reads answers of `chat/completions`. Hosts differ in many details, so the reader accepts every form that it can interpret.

mod calls;
mod chunk;
mod repeated_chunk;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

use smallvec::SmallVec;

use crate::domain::translation::{
    ChatReasoning, ChatTraits,
    answer::{
        AnswerEvent, AnswerFault, AnswerLosses, EVENT_BYTES_MAX, StopCause,
        read::{
            BROKEN_OFF, Emit,
            chat::{
                calls::ChatAnswerCalls,
                chunk::{ChatCallPiece, ChatChoice, ChatChunk, ChatDelta},
                repeated_chunk::RepeatedChunk,
            },
            member_failure,
        },
    },
    reasoning::ReasoningState,
};

/// The data of the event after the last chunk.
const END_MARK: &str = "[DONE]";
/// The finish reason that is assumed where the provider has given none.
const USUAL_REASON: &str = "stop";
/// The index given to the call in `function_call`, the older member for a single call.
const LEGACY_INDEX: u64 = u64::MAX;

/// The reader of one answer.
#[derive(Debug)]
pub(crate) struct ChatAnswerReader {
    reasoning: ChatReasoning,
    has_begun: bool,
    has_ended: bool,
    has_refused: bool,
    /// The provider's finish reason. Usage can follow it. Some hosts also send more content after it.
    reason: Option<String>,
    /// Whether content has followed the finish reason.
    has_more_content: bool,
    /// The reasoning since the last content of another kind.
    thought: String,
    /// Whether the reasoning is longer than [`EVENT_BYTES_MAX`] and was therefore dropped.
    is_thought_too_long: bool,
    calls: ChatAnswerCalls,
    /// The last chunk. If the next chunk differs from it only in the text, the next chunk is not parsed.
    last: RepeatedChunk,
}

impl ChatAnswerReader {
    /// Creates a reader for an answer that has not begun, from a host with these traits.
    pub(crate) fn new(traits: &ChatTraits) -> Self {
        Self {
            reasoning: traits.reasoning,
            has_begun: false,
            has_ended: false,
            has_refused: false,
            reason: None,
            has_more_content: false,
            thought: String::new(),
            is_thought_too_long: false,
            calls: ChatAnswerCalls::default(),
            last: RepeatedChunk::default(),
        }
    }

    /// Reads an event of a stream.
    ///
    /// # Errors
    /// The event is not a chunk, or `emit` fails.
    pub(crate) fn on_event(&mut self, data: &str, emit: &mut Emit<'_>) -> Result<(), AnswerFault> {
        match data.trim() {
            "" => Ok(()),
            END_MARK => {
                self.last.forget();
                self.end(self.calls.are_complete(), emit)
            }
            data => match self.last.text_of_next(data) {
                Some(text) => emit(AnswerEvent::Text(Cow::Borrowed(text))),
                None => {
                    self.last.forget();
                    let chunk = parse(data)?;
                    self.on_chunk(&chunk, emit)?;
                    if self.reason.is_none() && !self.has_ended {
                        self.last.remember(data, &chunk);
                    }
                    Ok(())
                }
            },
        }
    }

    /// Reads a non-streaming answer.
    ///
    /// # Errors
    /// The body is not an answer of this protocol, or `emit` fails.
    pub(crate) fn on_body(&mut self, body: &str, emit: &mut Emit<'_>) -> Result<(), AnswerFault> {
        let chunk = parse(body)?;
        if chunk.error.is_none() && chunk.choices.as_ref().is_none_or(SmallVec::is_empty) {
            return Err(AnswerFault::Unreadable);
        }
        self.on_chunk(&chunk, emit)?;
        self.end(self.calls.are_complete_or_empty(), emit)
    }

    /// Handles the proper end of the stream. Some hosts send neither a finish reason after calls nor an end mark.
    ///
    /// # Errors
    /// `emit` fails.
    pub(crate) fn on_end(&mut self, emit: &mut Emit<'_>) -> Result<(), AnswerFault> {
        self.end(self.calls.has_named() && self.calls.are_complete(), emit)
    }

    fn on_chunk(&mut self, chunk: &ChatChunk<'_>, emit: &mut Emit<'_>) -> Result<(), AnswerFault> {
        if self.has_ended {
            return Ok(());
        }
        let choices = chunk.choices.as_deref().unwrap_or_default();
        let error = chunk.error.or_else(|| choices.iter().find_map(|choice| choice.error));
        if let Some(error) = error {
            if self.reason.is_some() {
                // The answer is already complete.
                return Ok(());
            }
            self.has_ended = true;
            return emit(member_failure(error));
        }
        if chunk.choices.is_some() && !std::mem::replace(&mut self.has_begun, true) {
            emit(AnswerEvent::Begin)?;
        }
        for choice in choices {
            match choice.index {
                None | Some(0) if !self.has_ended => self.on_choice(choice, emit)?,
                None | Some(0) => {}
                Some(_) => emit(AnswerEvent::Lost("choice"))?,
            }
        }
        Ok(())
    }

    fn on_choice(&mut self, choice: &ChatChoice<'_>, emit: &mut Emit<'_>) -> Result<(), AnswerFault> {
        let content = match self.reason.is_some() {
            false => choice.content(),
            // After the finish reason, hosts send empty deltas, and some hosts repeat the complete message.
            true => choice.new_content().filter(|content| content.has_content()),
        };
        if let Some(content) = content {
            self.has_more_content = self.reason.is_some();
            self.on_content(content, emit)?;
        }
        match choice.finish_reason.as_deref() {
            None | Some("") => Ok(()),
            Some(reason) => self.on_reason(reason, emit),
        }
    }

    fn on_content(&mut self, content: &ChatDelta<'_>, emit: &mut Emit<'_>) -> Result<(), AnswerFault> {
        for event in content.events(self.reasoning) {
            self.pass(event, emit)?;
        }
        let pieces = content.tool_calls.as_deref().unwrap_or_default();
        for piece in pieces {
            self.on_call(piece, emit)?;
        }
        // Some hosts send the same call in both members.
        if let (Some(function), []) = (&content.function_call, pieces) {
            let piece = ChatCallPiece {
                index: Some(LEGACY_INDEX),
                id: None,
                function: Some(function.clone()),
            };
            self.on_call(&piece, emit)?;
        }
        Ok(())
    }

    /// Stores the finish reason until no more content can follow. Some hosts send it again. A later reason replaces the stored
    /// one only if more content has arrived in between.
    fn on_reason(&mut self, reason: &str, emit: &mut Emit<'_>) -> Result<(), AnswerFault> {
        if self.reason.is_some() && !std::mem::take(&mut self.has_more_content) {
            return Ok(());
        }
        if let Some(status) = failure_status(reason) {
            self.has_ended = true;
            self.emit_reasoning(emit)?;
            return emit(AnswerEvent::Failed {
                status,
                message: Cow::Borrowed(BROKEN_OFF),
            });
        }
        self.reason = Some(reason.to_owned());
        Ok(())
    }

    fn on_call(&mut self, piece: &ChatCallPiece<'_>, emit: &mut Emit<'_>) -> Result<(), AnswerFault> {
        self.emit_reasoning(emit)?;
        self.calls.push(piece, emit)
    }

    /// Passes on content that is not a call.
    fn pass(&mut self, event: AnswerEvent<'_>, emit: &mut Emit<'_>) -> Result<(), AnswerFault> {
        match &event {
            AnswerEvent::Thought(text) => self.collect(text),
            AnswerEvent::Text(_) | AnswerEvent::Refusal(_) => {
                self.has_refused |= matches!(event, AnswerEvent::Refusal(_));
                self.emit_reasoning(emit)?;
                self.calls.begin_named(emit)?;
            }
            _ => {}
        }
        emit(event)
    }

    fn collect(&mut self, text: &str) {
        if self.thought.len() + text.len() > EVENT_BYTES_MAX {
            self.is_thought_too_long = true;
            self.thought.clear();
        }
        if !self.is_thought_too_long {
            self.thought.push_str(text);
        }
    }

    /// Emits the state of the collected reasoning, because other content follows.
    fn emit_reasoning(&mut self, emit: &mut Emit<'_>) -> Result<(), AnswerFault> {
        if std::mem::take(&mut self.is_thought_too_long) {
            return emit(AnswerEvent::Lost(AnswerLosses::REASONING_STATE));
        }
        if self.thought.is_empty() {
            return Ok(());
        }
        let text = Cow::Owned(std::mem::take(&mut self.thought));
        emit(AnswerEvent::Reasoning(ReasoningState::Text { text }))
    }

    /// Ends the answer. Without a finish reason, the answer is complete only if `is_complete` is true.
    fn end(&mut self, is_complete: bool, emit: &mut Emit<'_>) -> Result<(), AnswerFault> {
        let is_stopped = self.reason.is_some() || (self.has_begun && is_complete);
        if self.has_ended || !is_stopped {
            return Ok(());
        }
        self.has_ended = true;
        self.emit_reasoning(emit)?;
        let cause = self.stop_cause(self.reason.as_deref().unwrap_or(USUAL_REASON));
        self.calls.finish(cause == StopCause::Calls, emit)?;
        emit(AnswerEvent::Stop(cause))
    }

    fn stop_cause(&self, reason: &str) -> StopCause {
        match reason {
            "length" | "max_tokens" | "model_length" | "MAX_TOKENS" => StopCause::MaxTokens,
            "model_context_window_exceeded" => StopCause::ContextFull,
            "sensitive" => StopCause::Filtered,
            _ if reason.starts_with("content_filter") => StopCause::Filtered,
            // A finish reason of Gemini models that are served through `chat/completions`.
            _ if reason.starts_with("function_call_filter") => StopCause::Malformed,
            _ if self.has_refused => StopCause::Refused,
            // Some hosts use the ordinary finish reason when the model waits for calls.
            _ if self.calls.has_named() => StopCause::Calls,
            _ if self.calls.is_empty() => StopCause::End,
            _ => StopCause::Malformed,
        }
    }
}

fn parse(data: &str) -> Result<ChatChunk<'_>, AnswerFault> {
    serde_json::from_str(data).map_err(|_| AnswerFault::Unreadable)
}

/// Returns the HTTP status that corresponds to a finish reason; `None` if the reason is not an error.
fn failure_status(reason: &str) -> Option<u16> {
    match reason {
        "error" | "network_error" => Some(502),
        "insufficient_system_resource" => Some(503),
        _ => None,
    }
}
