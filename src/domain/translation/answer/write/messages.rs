//! Writes Messages answers: consecutive content blocks, in a stream or in one message.

mod block;
mod held_reasoning;

use std::borrow::Cow;

use crate::domain::{
    translation::{
        answer::{
            AnswerEvent, AnswerFault, AnswerLosses, Citation, REPEATED_BYTES_MAX, StopCause, WAITING_BYTES_MAX,
            write::{
                AnswerFrame,
                messages::{
                    block::{MessageBlock, citation_json, push_event, stop_reason, write_usage},
                    held_reasoning::{HeldReasoning, reasoning_losses},
                },
            },
        },
        call_ids::client_id,
        json_out::{JsonObjectWriter, push_object},
        reasoning::ReasoningState,
    },
    wire::{
        protocol::{
            messages::error_type,
            provider_error::{is_context_overflow, overflow_message},
        },
        usage::Usage,
    },
};

/// The writer of one Messages answer.
#[derive(Debug)]
pub(crate) struct MessagesAnswerWriter {
    frame: AnswerFrame,
    /// Whether the first event of a stream has been written.
    has_begun: bool,
    /// Whether the last event, or the message, has been written.
    has_ended: bool,
    /// The block that the next piece may continue.
    open: Option<MessageBlock>,
    /// The index of the open block, or of the next one.
    index: u32,
    /// The complete blocks of a non-streaming message, as JSON text.
    blocks: String,
    /// The length of `blocks` in bytes, without the held reasoning that was written directly before the open block.
    block_begin: usize,
    /// The held reasoning: reasoning after text, and reasoning without visible text. It is written as blocks when other content
    /// follows.
    held: HeldReasoning,
    /// The losses that are added if the open block is dropped together with the held reasoning before it.
    held_before_open: AnswerLosses,
    /// Whether the last block is text. After an incomplete call, this field says instead whether the answer has any text.
    ends_with_text: bool,
    has_text: bool,
    has_refused: bool,
    calls: u32,
    stop: Option<StopCause>,
    losses: AnswerLosses,
}

impl MessagesAnswerWriter {
    /// Creates a writer for an answer that has not begun.
    pub(crate) fn new(frame: AnswerFrame) -> Self {
        Self {
            frame,
            has_begun: false,
            has_ended: false,
            open: None,
            index: 0,
            blocks: String::new(),
            block_begin: 0,
            held: HeldReasoning::default(),
            held_before_open: AnswerLosses::default(),
            ends_with_text: false,
            has_text: false,
            has_refused: false,
            calls: 0,
            stop: None,
            losses: AnswerLosses::default(),
        }
    }

    /// Returns the kinds of content that the client does not get.
    pub(crate) fn losses(&self) -> &AnswerLosses {
        &self.losses
    }

    fn is_stream(&self) -> bool {
        self.frame.form.is_stream()
    }

    /// Writes an event.
    ///
    /// # Errors
    /// A retained block is too large, a non-streaming answer has failed, or an answer that the provider reports as malformed has neither text nor calls.
    pub(crate) fn on_event(&mut self, event: AnswerEvent<'_>, out: &mut String) -> Result<(), AnswerFault> {
        if self.has_ended {
            return Ok(());
        }
        match event {
            AnswerEvent::Begin => self.begin(out),
            AnswerEvent::Text(text) => self.on_text(&text, out),
            AnswerEvent::Thought(text) => self.on_thought(&text, out)?,
            AnswerEvent::Refusal(text) => {
                self.has_refused = true;
                self.on_text(&text, out);
            }
            AnswerEvent::Reasoning(state) => self.on_reasoning(&state, out),
            AnswerEvent::Call { call_index, id, name } => self.on_call(call_index, &id, &name, out),
            AnswerEvent::Arguments { call_index, json } => self.on_arguments(call_index, &json, out)?,
            AnswerEvent::Cited(citation) => self.on_citation(&citation, out),
            AnswerEvent::Stop(cause) => self.on_stop(cause, out)?,
            AnswerEvent::Failed { status, message } => {
                if !self.is_stream() {
                    return Err(AnswerFault::Unreadable);
                }
                self.fail(status, &message, out);
            }
            AnswerEvent::CallCut { call_index } => self.on_call_cut(call_index, out),
            AnswerEvent::Lost(kind) => self.losses.add(kind),
            AnswerEvent::CallEnd { .. } => {}
        }
        Ok(())
    }

    /// Writes the end of a stream, or the message.
    pub(crate) fn finish(&mut self, usage: &Usage, out: &mut String) {
        if std::mem::replace(&mut self.has_ended, true) {
            return;
        }
        self.begin(out);
        self.close_block(out);
        self.drop_held();
        let reason = stop_reason(self.stop.unwrap_or(StopCause::End), self.calls, self.has_refused);
        if self.is_stream() {
            push_event(out, "message_delta", |event| {
                event.object("delta", |delta| {
                    delta.text("stop_reason", reason);
                    delta.null("stop_sequence");
                });
                event.object("usage", |counts| write_usage(counts, usage));
            });
            push_event(out, "message_stop", |_| {});
        } else {
            push_object(out, |message| {
                self.write_head(message);
                message.array("content", |content| content.raw(&self.blocks));
                message.text("stop_reason", reason);
                message.null("stop_sequence");
                message.object("usage", |counts| write_usage(counts, usage));
            });
        }
    }

    /// Writes the error that ends a stream. The open block is not ended, so that no client regards it as complete.
    pub(crate) fn fail(&mut self, status: u16, message: &str, out: &mut String) {
        if std::mem::replace(&mut self.has_ended, true) || !self.is_stream() {
            return;
        }
        push_event(out, "error", |event| {
            event.object("error", |error| {
                error.text("type", error_type(status));
                match (400..500).contains(&status) && is_context_overflow(message) {
                    true => error.text("message", &overflow_message(message)),
                    false => error.text("message", message),
                }
            });
        });
    }

    fn begin(&mut self, out: &mut String) {
        if std::mem::replace(&mut self.has_begun, true) || !self.is_stream() {
            return;
        }
        let estimate = Usage {
            input_uncached: self.frame.input_estimate,
            ..Usage::default()
        };
        push_event(out, "message_start", |event| {
            event.object("message", |message| {
                self.write_head(message);
                message.raw("content", "[]");
                message.null("stop_reason");
                message.null("stop_sequence");
                message.object("usage", |counts| write_usage(counts, &estimate));
            });
        });
        push_event(out, "ping", |_| {});
    }

    fn write_head(&self, message: &mut JsonObjectWriter<'_>) {
        message.text("id", &format!("msg_{}", self.frame.id));
        message.text("type", "message");
        message.text("role", "assistant");
        message.text("model", &self.frame.model);
    }

    fn on_text(&mut self, text: &str, out: &mut String) {
        if text.is_empty() {
            return;
        }
        self.has_text = true;
        if self.held.has_thoughts() || !matches!(self.open, Some(MessageBlock::Text { .. })) {
            self.start_block(MessageBlock::text(), out);
        }
        self.ends_with_text = true;
        let is_stream = self.is_stream();
        if let Some(MessageBlock::Text { text: kept, .. }) = &mut self.open
            && !is_stream
        {
            kept.push_str(text);
        }
        self.push_delta("text_delta", "text", text, out);
    }

    /// Writes a piece of visible reasoning. Also retains the piece, so that the carrier of the reasoning's state can leave out
    /// the visible text. Reasoning after a text block is not written at once: it is held until other content follows, and it is
    /// dropped if it is too long.
    fn on_thought(&mut self, text: &str, out: &mut String) -> Result<(), AnswerFault> {
        if text.is_empty() || !self.frame.shows_reasoning {
            return Ok(());
        }
        if self.ends_with_text {
            self.losses.add_all(&self.held.push_thought(text));
            return Ok(());
        }
        if !matches!(self.open, Some(MessageBlock::Thinking { .. })) {
            self.start_block(MessageBlock::thinking(), out);
        }
        if let Some(MessageBlock::Thinking { text: kept, .. }) = &mut self.open {
            if kept.len() + text.len() > REPEATED_BYTES_MAX {
                return Err(AnswerFault::TextTooLong);
            }
            kept.push_str(text);
        }
        self.push_delta("thinking_delta", "thinking", text, out);
        Ok(())
    }

    /// Writes the state of visible reasoning as the signature of that reasoning. Any other state is held until other content
    /// follows.
    fn on_reasoning(&mut self, state: &ReasoningState<'_>, out: &mut String) {
        if let Some(MessageBlock::Thinking { text, signature }) = &mut self.open {
            match state.wrap(&self.frame.maker, text.as_str()) {
                Some(carrier) => *signature = carrier,
                None => self.losses.add(AnswerLosses::REASONING_STATE),
            }
            self.close_block(out);
            return;
        }
        if !self.held.push_state(state, &self.frame.maker) {
            self.losses.add(AnswerLosses::REASONING_STATE);
        }
    }

    fn on_call(&mut self, call_index: u32, id: &str, name: &str, out: &mut String) {
        let id = match id.is_empty() {
            true => format!("toolu_{}_{}", self.frame.id, self.calls),
            false => client_id(id).into_owned(),
        };
        let tool = self.frame.names.called_tool(name);
        let name = tool.map_or(name, |tool| tool.name.as_str()).to_owned();
        self.calls += 1;
        self.start_block(MessageBlock::call(call_index, id, name), out);
        self.ends_with_text = false;
    }

    /// In a stream, passes on a piece of the arguments if the arguments are an object. Clients expect an object, so other
    /// arguments are retained until they are complete.
    fn on_arguments(&mut self, call_index: u32, json: &str, out: &mut String) -> Result<(), AnswerFault> {
        let is_stream = self.is_stream();
        let Some(MessageBlock::Call {
            call_index: open,
            call,
            is_passed_on,
        }) = &mut self.open
        else {
            return Ok(());
        };
        if *open != call_index || json.is_empty() {
            return Ok(());
        }
        let mut piece = Cow::Borrowed(json);
        if !*is_passed_on {
            let kept = call.arguments.to_mut();
            kept.push_str(json);
            if !is_stream {
                return Ok(());
            }
            if !kept.trim_start().starts_with('{') {
                return match kept.len() > WAITING_BYTES_MAX {
                    true => Err(AnswerFault::CallsTooLarge),
                    false => Ok(()),
                };
            }
            *is_passed_on = true;
            piece = Cow::Owned(std::mem::take(kept));
        }
        self.push_delta("input_json_delta", "partial_json", &piece, out);
        Ok(())
    }

    /// Drops a call with incomplete arguments from a non-streaming message, because a client could run the call. In a stream, the
    /// call has already been written, and the stop reason says that it is incomplete.
    fn on_call_cut(&mut self, call_index: u32, out: &mut String) {
        let is_stream = self.is_stream();
        let Some(MessageBlock::Call {
            call_index: open,
            is_passed_on,
            ..
        }) = &mut self.open
        else {
            return;
        };
        if *open != call_index {
            return;
        }
        self.ends_with_text = self.has_text;
        if is_stream {
            // The retained part of the arguments does not begin an object, so it is not written.
            *is_passed_on = true;
            self.close_block(out);
        } else {
            self.open = None;
            self.blocks.truncate(self.block_begin);
            self.calls = self.calls.saturating_sub(1);
            self.losses.add(AnswerLosses::CALL);
            self.losses.add_all(&std::mem::take(&mut self.held_before_open));
        }
    }

    fn on_citation(&mut self, citation: &Citation<'_>, out: &mut String) {
        let is_stream = self.is_stream();
        let citations = match &mut self.open {
            Some(MessageBlock::Text { citations, .. }) if !citation.url.is_empty() => citations,
            _ => return self.losses.add(AnswerLosses::CITATION),
        };
        let json = citation_json(citation);
        if !is_stream {
            citations.push(json);
            return;
        }
        push_event(out, "content_block_delta", |event| {
            event.number("index", self.index);
            event.object("delta", |delta| {
                delta.text("type", "citations_delta");
                delta.raw("citation", &json);
            });
        });
    }

    fn on_stop(&mut self, cause: StopCause, out: &mut String) -> Result<(), AnswerFault> {
        self.close_block(out);
        self.drop_held();
        self.stop = self.stop.or(Some(cause));
        match cause == StopCause::Malformed && !self.has_text && self.calls == 0 {
            true => Err(AnswerFault::Unreadable),
            false => Ok(()),
        }
    }

    /// Drops the held reasoning and reports it as lost, because no content follows it.
    fn drop_held(&mut self) {
        self.losses.add_all(&reasoning_losses(&self.held.take()));
    }

    /// Ends the open block, writes the held reasoning, and begins `block`.
    fn start_block(&mut self, block: MessageBlock, out: &mut String) {
        self.begin(out);
        self.close_block(out);
        self.block_begin = self.blocks.len();
        let held = self.held.take();
        self.held_before_open = reasoning_losses(&held);
        for block in held {
            self.write_held(block, out);
        }
        self.open_block(block, out);
    }

    /// Writes a held block of reasoning. In a stream, a delta after the block's start contains the visible text.
    fn write_held(&mut self, block: MessageBlock, out: &mut String) {
        if let MessageBlock::Thinking { text, .. } = &block {
            self.open_block(MessageBlock::thinking(), out);
            self.push_delta("thinking_delta", "thinking", text, out);
            self.open = Some(block);
        } else {
            self.open_block(block, out);
        }
        self.close_block(out);
    }

    fn open_block(&mut self, block: MessageBlock, out: &mut String) {
        if self.is_stream() {
            push_event(out, "content_block_start", |event| {
                event.number("index", self.index);
                event.object("content_block", |object| block.write(object));
            });
        }
        self.open = Some(block);
    }

    /// Ends the open block. Thinking without a state gets a signature too, because clients discard thinking without a signature.
    fn close_block(&mut self, out: &mut String) {
        let Some(mut block) = self.open.take() else { return };
        match &mut block {
            MessageBlock::Thinking { text, signature } => {
                if signature.is_empty() {
                    let state = ReasoningState::Text {
                        text: Cow::Borrowed(text.as_str()),
                    };
                    *signature = state.wrap(&self.frame.maker, text.as_str()).unwrap_or_default();
                }
                self.push_delta("signature_delta", "signature", signature.as_str(), out);
            }
            MessageBlock::Call {
                call,
                is_passed_on: false,
                ..
            } => self.push_delta("input_json_delta", "partial_json", &call.object_arguments().0, out),
            MessageBlock::Text { .. } | MessageBlock::Redacted { .. } | MessageBlock::Call { .. } => {}
        }
        if self.is_stream() {
            push_event(out, "content_block_stop", |event| event.number("index", self.index));
        } else {
            if !self.blocks.is_empty() {
                self.blocks.push(',');
            }
            push_object(&mut self.blocks, |object| block.write(object));
        }
        self.index += 1;
    }

    /// Writes a piece of the open block, if the answer is a stream.
    fn push_delta(&self, kind: &str, member: &'static str, piece: &str, out: &mut String) {
        if self.is_stream() {
            push_event(out, "content_block_delta", |event| {
                event.number("index", self.index);
                event.object("delta", |delta| {
                    delta.text("type", kind);
                    delta.text(member, piece);
                });
            });
        }
    }
}

#[cfg(test)]
mod tests;
