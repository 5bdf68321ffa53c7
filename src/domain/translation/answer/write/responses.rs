//! Writes an answer in the Responses protocol.
//!
//! The protocol repeats all content: when a part, an item or the answer is complete, it is written again. So the writer retains
//! the text of the answer, at most [`REPEATED_BYTES_MAX`] bytes.

mod calls;
mod content;
mod events;
mod response_object;
#[cfg(test)]
mod tests;

use crate::domain::{
    translation::{
        answer::{
            AnswerEvent, AnswerFault, AnswerLosses, Citation, REPEATED_BYTES_MAX, StopCause,
            write::{
                AnswerFrame,
                responses::{
                    calls::{CallItem, FUNCTION_PREFIX},
                    content::{MessageItem, MessagePartKind, ReasoningItem, push_compaction, push_hidden_reasoning},
                    events::{ItemPlace, NumberedEvents},
                    response_object::{ResponseFailure, ResponseObject, ResponseStatus},
                },
            },
        },
        call_ids,
        json_out::push_object,
        reasoning::{ReasoningState, wrap_summary},
        tool_names::{ClientTool, ToolKind},
    },
    wire::usage::Usage,
};

/// The prefix of the identifier of a message.
const MESSAGE_PREFIX: &str = "msg_";
/// The prefix of the identifier of a reasoning item.
const REASONING_PREFIX: &str = "rs_";
/// The prefix of the identifier of a compaction item.
const COMPACTION_PREFIX: &str = "cmp_";
/// The text of the refusal that is written if a model has declined without writing a refusal.
const DECLINED: &str = "The model declined to answer.";
/// The message for an answer without a usable summary: the model has written no summary of the conversation, or the summary is
/// too long.
const NO_SUMMARY: &str = "the model wrote no usable summary of the conversation; compact again, or compact locally";
/// The HTTP status for an answer without a usable summary.
const NO_SUMMARY_STATUS: u16 = 502;
/// The message for a call that the provider could not read.
const MALFORMED: &str = "the model wrote a tool call that its provider cannot read; send the request again";

/// The writer of one answer in the Responses protocol.
#[derive(Debug)]
pub(crate) struct ResponsesAnswerWriter {
    /// The response object so far.
    response: ResponseObject,
    /// The events of a stream.
    events: NumberedEvents,
    /// The item that is being written.
    open: Option<OpenItem>,
    /// The number of items so far.
    item_count: u32,
    /// The length of the retained text, in bytes.
    kept_bytes: usize,
    /// Whether the first events have been written.
    has_begun: bool,
    /// Whether the model has declined.
    has_declined: bool,
    /// The reason why the answer ended; `None` while it has not ended.
    stop: Option<StopCause>,
    /// The failure of the answer; `None` unless it has failed.
    failure: Option<ResponseFailure>,
    /// Whether the last event, or the non-streaming answer, has been written.
    is_over: bool,
    /// The summary so far, which the client gets instead of all other content; `None` if the client has not requested a summary.
    summary: Option<String>,
    /// The kinds of content that the client does not get.
    losses: AnswerLosses,
}

/// An item that is being written.
#[derive(Debug)]
enum OpenItem {
    /// A message.
    Message(MessageItem),
    /// Reasoning with a summary.
    Reasoning(ReasoningItem),
    /// A call.
    Call(CallItem),
}

impl ResponsesAnswerWriter {
    /// Creates a writer for an answer that has not begun.
    pub(crate) fn new(frame: AnswerFrame) -> Self {
        let events = NumberedEvents::new(frame.form);
        let response = ResponseObject::new(frame);
        Self {
            summary: response.wants_compaction().then(String::new),
            events,
            response,
            open: None,
            item_count: 0,
            kept_bytes: 0,
            has_begun: false,
            has_declined: false,
            stop: None,
            failure: None,
            is_over: false,
            losses: AnswerLosses::default(),
        }
    }

    /// Returns the kinds of content that the client does not get.
    pub(crate) fn losses(&self) -> &AnswerLosses {
        &self.losses
    }

    /// Writes an event. A non-streaming answer is written by [`ResponsesAnswerWriter::finish`].
    ///
    /// # Errors
    /// The retained text is too long.
    pub(crate) fn on_event(&mut self, event: AnswerEvent<'_>, out: &mut String) -> Result<(), AnswerFault> {
        if self.is_over || self.failure.is_some() {
            return Ok(());
        }
        self.begin(out);
        let event = match self.summary.is_some() {
            true => self.take_for_summary(event)?,
            false => event,
        };
        match event {
            AnswerEvent::Begin => Ok(()),
            AnswerEvent::Lost(kind) => {
                self.losses.add(kind);
                Ok(())
            }
            AnswerEvent::Text(text) => self.add_to_message(MessagePartKind::Text, &text, out),
            AnswerEvent::Refusal(text) => self.add_to_message(MessagePartKind::Refusal, &text, out),
            AnswerEvent::Thought(text) => self.add_thought(&text, out),
            AnswerEvent::Reasoning(state) => self.end_reasoning(&state, out),
            AnswerEvent::Call { call_index, id, name } => self.begin_call(call_index, &id, &name, out),
            AnswerEvent::Arguments { call_index, json } => self.add_arguments(call_index, &json, out),
            AnswerEvent::CallEnd { call_index } => {
                if self.is_open_call(call_index) {
                    self.close_item(false, out);
                }
                Ok(())
            }
            AnswerEvent::CallCut { call_index } => {
                self.cut_call(call_index, out);
                Ok(())
            }
            AnswerEvent::Cited(citation) => self.cite(&citation, out),
            AnswerEvent::Stop(cause) => self.on_stop(cause, out),
            AnswerEvent::Failed { status, message } => {
                self.failure = Some(ResponseFailure::new(status, &message));
                if self.events.is_stream() {
                    self.push_end(None, out);
                }
                Ok(())
            }
        }
    }

    /// Ends the answer after all its events. `ended_unix` is the time at which the answer ended, in seconds since the Unix epoch.
    /// If the answer has failed, it contains no usage, in the same way as failed answers that are not translated.
    pub(crate) fn finish(&mut self, usage: &Usage, ended_unix: i64, out: &mut String) {
        if self.is_over {
            return;
        }
        self.response.set_end(ended_unix);
        self.begin(out);
        if self.failure.is_some() {
            self.push_end(None, out);
            return;
        }
        if let Some(summary) = self.summary.take() {
            self.push_summary(&summary, out);
        }
        match self.stop {
            Some(StopCause::Malformed) => self.failure = Some(ResponseFailure::new(500, MALFORMED)),
            stop => self.close_item(stop.is_some_and(is_interruption), out),
        }
        self.push_end(Some(usage), out);
    }

    /// Ends a failed stream with the error that corresponds to this HTTP status. The open item is not completed, because a client
    /// could run a call that seems complete.
    pub(crate) fn fail(&mut self, status: u16, message: &str, out: &mut String) {
        if self.is_over || !self.events.is_stream() {
            return;
        }
        self.begin(out);
        self.failure = Some(ResponseFailure::new(status, message));
        self.push_end(None, out);
    }

    /// Adds the text of an event to the summary, and returns the event that remains to be handled. Content that cannot be part of
    /// the summary becomes [`AnswerEvent::Lost`].
    fn take_for_summary<'e>(&mut self, event: AnswerEvent<'e>) -> Result<AnswerEvent<'e>, AnswerFault> {
        Ok(match event {
            AnswerEvent::Text(text) => {
                self.keep(text.len())?;
                if let Some(summary) = &mut self.summary {
                    summary.push_str(&text);
                }
                AnswerEvent::Begin
            }
            AnswerEvent::Refusal(_) => {
                self.has_declined = true;
                AnswerEvent::Begin
            }
            AnswerEvent::Stop(cause) => {
                self.stop = self.stop.or(Some(cause));
                AnswerEvent::Begin
            }
            AnswerEvent::Thought(_) | AnswerEvent::Reasoning(_) => AnswerEvent::Lost("reasoning"),
            AnswerEvent::Call { .. } => AnswerEvent::Lost(AnswerLosses::CALL),
            AnswerEvent::Cited(_) => AnswerEvent::Lost(AnswerLosses::CITATION),
            AnswerEvent::Arguments { .. } | AnswerEvent::CallEnd { .. } | AnswerEvent::CallCut { .. } => {
                AnswerEvent::Begin
            }
            other @ (AnswerEvent::Begin | AnswerEvent::Failed { .. } | AnswerEvent::Lost(_)) => other,
        })
    }

    /// Writes the summary as the only item. An incomplete summary is omitted, because the client would continue with it.
    fn push_summary(&mut self, summary: &str, out: &mut String) {
        match self.stop.unwrap_or(StopCause::End) {
            StopCause::MaxTokens | StopCause::ContextFull | StopCause::Filtered | StopCause::Malformed => return,
            StopCause::End | StopCause::Sequence | StopCause::Calls | StopCause::Refused => {}
        }
        let is_usable = !self.has_declined && self.stop != Some(StopCause::Refused) && !summary.trim().is_empty();
        let carrier = match is_usable {
            true => wrap_summary(summary, &self.response.frame().maker),
            false => None,
        };
        let Some(carrier) = carrier else {
            self.failure = Some(ResponseFailure::new(NO_SUMMARY_STATUS, NO_SUMMARY));
            return;
        };
        let place = self.next_place(COMPACTION_PREFIX);
        let item = push_compaction(&place, &carrier, &mut self.events, out);
        self.response.add_item(&item);
    }

    /// Writes the first events, unless they have been written.
    fn begin(&mut self, out: &mut String) {
        if std::mem::replace(&mut self.has_begun, true) {
            return;
        }
        let response = &self.response;
        for kind in ["response.created", "response.in_progress"] {
            self.events.push(out, kind, |event| {
                event.object("response", |object| {
                    response.push(object, ResponseStatus::InProgress, None);
                });
            });
        }
    }

    /// Writes the last event of a stream, or the non-streaming answer.
    fn push_end(&mut self, usage: Option<&Usage>, out: &mut String) {
        self.is_over = true;
        let status = match (&self.failure, self.stop.and_then(incomplete_reason)) {
            (Some(failure), _) => ResponseStatus::Failed(failure),
            (None, Some(reason)) => ResponseStatus::Incomplete(reason),
            (None, None) => ResponseStatus::Completed,
        };
        let (response, failure) = (&self.response, self.failure.as_ref());
        if !self.events.is_stream() {
            push_object(out, |object| response.push(object, status, usage));
            return;
        }
        self.events.push(out, status.event(), |event| {
            event.object("response", |object| response.push(object, status, usage));
            if let Some(failure) = failure {
                event.object("error", |error| failure.push_with_type(error));
            }
        });
        if failure.is_none() {
            out.push_str("data: [DONE]\n\n");
        }
    }

    /// Adds `bytes` to the length of the text that is retained until the end of the answer. Fails if the text is too long.
    fn keep(&mut self, bytes: usize) -> Result<(), AnswerFault> {
        self.kept_bytes = self.kept_bytes.saturating_add(bytes);
        match self.kept_bytes > REPEATED_BYTES_MAX {
            true => Err(AnswerFault::TextTooLong),
            false => Ok(()),
        }
    }

    /// Reserves the place of the next item.
    fn next_place(&mut self, prefix: &str) -> ItemPlace {
        let index = self.item_count;
        self.item_count += 1;
        ItemPlace::new(prefix, &self.response.frame().id, index)
    }

    /// Ends the open item. `is_interrupted` says whether the end of the answer has interrupted the item.
    fn close_item(&mut self, is_interrupted: bool, out: &mut String) {
        let Some(open) = self.open.take() else { return };
        let events = &mut self.events;
        let item = match open {
            OpenItem::Message(message) => message.close(is_interrupted, events, out),
            OpenItem::Reasoning(reasoning) => reasoning.close(None, events, out),
            OpenItem::Call(call) => call.close(is_interrupted, &self.response.frame().id, events, out),
        };
        self.response.add_item(&item);
    }

    /// Ends a call with incomplete arguments, so that no client runs it.
    fn cut_call(&mut self, call_index: u32, out: &mut String) {
        match self.open.take() {
            Some(OpenItem::Call(call)) if call.has_slot(call_index) => {
                let item = call.cut(&self.response.frame().id, &mut self.events, out);
                self.response.add_item(&item);
            }
            other => self.open = other,
        }
    }

    /// Removes the open message and returns it. If no message is open, ends the open item (if there is one), begins a message and
    /// returns this message.
    fn take_message(&mut self, out: &mut String) -> MessageItem {
        match self.open.take() {
            Some(OpenItem::Message(message)) => message,
            other => {
                self.open = other;
                self.close_item(false, out);
                let place = self.next_place(MESSAGE_PREFIX);
                MessageItem::open(place, &mut self.events, out)
            }
        }
    }

    fn add_to_message(&mut self, kind: MessagePartKind, text: &str, out: &mut String) -> Result<(), AnswerFault> {
        if text.is_empty() {
            return Ok(());
        }
        self.keep(text.len())?;
        self.has_declined |= kind == MessagePartKind::Refusal;
        let mut message = self.take_message(out);
        message.add(kind, text, &mut self.events, out);
        self.open = Some(OpenItem::Message(message));
        Ok(())
    }

    fn cite(&mut self, citation: &Citation<'_>, out: &mut String) -> Result<(), AnswerFault> {
        self.keep(citation.url.len() + citation.title.as_ref().map_or(0, |title| title.len()))?;
        let mut message = self.take_message(out);
        message.cite(citation, &mut self.events, out);
        self.open = Some(OpenItem::Message(message));
        Ok(())
    }

    /// Adds visible reasoning. If the client does not want visible reasoning, drops the text; the reasoning's state is written
    /// later.
    fn add_thought(&mut self, text: &str, out: &mut String) -> Result<(), AnswerFault> {
        if text.is_empty() || !self.response.frame().shows_reasoning {
            return Ok(());
        }
        self.keep(text.len())?;
        let mut reasoning = match self.open.take() {
            Some(OpenItem::Reasoning(reasoning)) => reasoning,
            other => {
                self.open = other;
                self.close_item(false, out);
                let place = self.next_place(REASONING_PREFIX);
                ReasoningItem::open(place, &mut self.events, out)
            }
        };
        reasoning.add(text, &mut self.events, out);
        self.open = Some(OpenItem::Reasoning(reasoning));
        Ok(())
    }

    /// Ends the reasoning with its state, which the client sends back in the next request.
    fn end_reasoning(&mut self, state: &ReasoningState<'_>, out: &mut String) -> Result<(), AnswerFault> {
        let visible = match &self.open {
            Some(OpenItem::Reasoning(reasoning)) => reasoning.text(),
            Some(OpenItem::Message(_) | OpenItem::Call(_)) | None => "",
        };
        let carrier = state.wrap(&self.response.frame().maker, visible);
        if carrier.is_none() {
            self.losses.add(AnswerLosses::REASONING_STATE);
        }
        self.keep(carrier.as_ref().map_or(0, String::len))?;
        let item = match (self.open.take(), carrier) {
            (Some(OpenItem::Reasoning(reasoning)), carrier) => {
                reasoning.close(carrier.as_deref(), &mut self.events, out)
            }
            (other, Some(carrier)) => {
                self.open = other;
                self.close_item(false, out);
                let place = self.next_place(REASONING_PREFIX);
                push_hidden_reasoning(&place, &carrier, &mut self.events, out)
            }
            (other, None) => {
                self.open = other;
                return Ok(());
            }
        };
        self.response.add_item(&item);
        Ok(())
    }

    fn begin_call(&mut self, call_index: u32, id: &str, name: &str, out: &mut String) -> Result<(), AnswerFault> {
        self.keep(id.len() + name.len())?;
        self.close_item(false, out);
        let place = self.next_place(FUNCTION_PREFIX);
        let frame = self.response.frame();
        let call_id = match id.is_empty() {
            true => format!("call_{}_{}", frame.id, place.index),
            false => call_ids::client_id(id).into_owned(),
        };
        let tool = frame.names.called_tool(name).cloned().unwrap_or_else(|| ClientTool {
            namespace: None,
            name: name.to_owned(),
            kind: ToolKind::Function,
        });
        let call = CallItem::open(call_index, call_id, tool, place, &mut self.events, out);
        self.open = Some(OpenItem::Call(call));
        Ok(())
    }

    /// Whether the open item is the call with this index.
    fn is_open_call(&self, call_index: u32) -> bool {
        matches!(&self.open, Some(OpenItem::Call(call)) if call.has_slot(call_index))
    }

    fn add_arguments(&mut self, call_index: u32, json: &str, out: &mut String) -> Result<(), AnswerFault> {
        self.keep(json.len())?;
        match &mut self.open {
            Some(OpenItem::Call(call)) if call.has_slot(call_index) => call.add(json, &mut self.events, out),
            // A piece after the end of its call contains nothing new, because the call's JSON text was complete.
            Some(OpenItem::Call(_) | OpenItem::Message(_) | OpenItem::Reasoning(_)) | None => Ok(()),
        }
    }

    /// Records the reason why the answer ended. Only the first one counts.
    fn on_stop(&mut self, cause: StopCause, out: &mut String) -> Result<(), AnswerFault> {
        if self.stop.is_some() {
            return Ok(());
        }
        self.stop = Some(cause);
        if cause == StopCause::Refused && !self.has_declined {
            self.add_to_message(MessagePartKind::Refusal, DECLINED, out)?;
        }
        // If a call cannot be read, it may be the open one.
        if cause != StopCause::Malformed {
            self.close_item(is_interruption(cause), out);
        }
        Ok(())
    }
}

/// Returns the reason why an answer with this stop cause is incomplete; `None` if the answer is complete or has failed.
fn incomplete_reason(cause: StopCause) -> Option<&'static str> {
    match cause {
        StopCause::End | StopCause::Sequence | StopCause::Calls | StopCause::Refused | StopCause::Malformed => None,
        StopCause::MaxTokens | StopCause::ContextFull => Some("max_output_tokens"),
        StopCause::Filtered => Some("content_filter"),
    }
}

/// Whether a stop with this cause interrupts the open item.
fn is_interruption(cause: StopCause) -> bool {
    incomplete_reason(cause).is_some()
}
