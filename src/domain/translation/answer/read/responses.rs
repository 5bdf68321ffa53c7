//! Reads answers of the Responses protocol, by the numbers of items and by their deltas: hosts change the ids of items, and leave
//! content out of the last event.

mod event;
mod item;
#[cfg(test)]
mod tests;

use serde_json::value::RawValue;

use crate::domain::translation::answer::{
    AnswerEvent, AnswerFault, StopCause, WAITING_BYTES_MAX,
    read::{
        Emit, failure,
        responses::{
            event::{PartKind, ResponsesAnswer, ResponsesEvent, ResponsesItem, ResponsesPart, citation, text},
            item::{AnswerItem, ItemContext},
        },
    },
};

/// The maximum number of items of an answer.
const ITEMS_MAX: usize = 4_096;

/// Reads one answer.
#[derive(Debug, Default)]
pub(crate) struct ResponsesAnswerReader {
    has_begun: bool,
    has_ended: bool,
    /// The items in the order in which they began.
    items: Vec<AnswerItem>,
    context: ItemContext,
    /// The bytes of inputs of custom tools, which wait until they are complete.
    waiting_bytes: usize,
}

impl ResponsesAnswerReader {
    /// Reads an event of a stream. `name` is its `event` field, or empty.
    ///
    /// # Errors
    /// The event is not what the protocol says, or `emit` fails.
    pub(crate) fn on_event(&mut self, name: &str, data: &str, emit: &mut Emit<'_>) -> Result<(), AnswerFault> {
        if self.has_ended || data.trim() == "[DONE]" {
            return Ok(());
        }
        let event: ResponsesEvent<'_> = serde_json::from_str(data).map_err(|_| AnswerFault::Unreadable)?;
        let kind = event.kind.as_deref().unwrap_or(name);
        let Some(kind) = kind.strip_prefix("response.") else {
            // Another kind of event is no content, but it may be an error in a provider's own form.
            return match kind == "error" || event.error.is_some() {
                true => self.fail(data, emit),
                false => Ok(()),
            };
        };
        if kind != "failed" {
            self.begin(emit)?;
        }
        match kind {
            "output_item.added" => self.on_added(&event, emit),
            "output_item.done" => match event.item {
                Some(json) => self.complete(event.output_index, json, emit),
                None => Err(AnswerFault::Unreadable),
            },
            "content_part.done" | "reasoning_summary_part.done" => self.on_part(&event, emit),
            "output_text.annotation.added" => self.on_annotation(&event, emit),
            "function_call_arguments.delta" | "function_call_arguments.done" => self.on_arguments(&event, emit),
            "custom_tool_call_input.delta" => self.on_input(&event),
            "completed" | "incomplete" | "failed" | "cancelled" => self.on_last(kind, &event, emit),
            _ => self.on_text(kind, &event, emit),
        }
    }

    /// Reads a non-streaming answer.
    ///
    /// # Errors
    /// The body is no answer, or `emit` fails.
    pub(crate) fn on_body(&mut self, body: &str, emit: &mut Emit<'_>) -> Result<(), AnswerFault> {
        let answer: ResponsesAnswer<'_> = serde_json::from_str(body).map_err(|_| AnswerFault::Unreadable)?;
        if answer.error.is_some() {
            return self.fail(body, emit);
        }
        if answer.output.is_none() {
            return Err(AnswerFault::Unreadable);
        }
        self.begin(emit)?;
        match answer.status.as_deref().unwrap_or("completed") {
            // The provider has not finished it.
            "queued" | "in_progress" => Ok(()),
            status => self.finish(status, &answer, emit),
        }
    }

    fn begin(&mut self, emit: &mut Emit<'_>) -> Result<(), AnswerFault> {
        match std::mem::replace(&mut self.has_begun, true) {
            true => Ok(()),
            false => emit(AnswerEvent::Begin),
        }
    }

    fn on_added(&mut self, event: &ResponsesEvent<'_>, emit: &mut Emit<'_>) -> Result<(), AnswerFault> {
        let item = add_item(&mut self.items, event.output_index)?;
        match event.item {
            Some(json) => item.begin(&ResponsesItem::parse(json)?, &mut self.context, emit),
            None => Ok(()),
        }
    }

    /// An item is complete: emits what its deltas have not said.
    fn complete(&mut self, number: Option<u64>, json: &RawValue, emit: &mut Emit<'_>) -> Result<(), AnswerFault> {
        let is_new = number.is_none() && self.items.last().is_some_and(AnswerItem::is_done);
        let item = match is_new {
            true => add_item(&mut self.items, number)?,
            false => item_with(&mut self.items, number)?,
        };
        item.complete(&ResponsesItem::parse(json)?, json.get(), &mut self.context, emit)
    }

    /// A text goes on or is complete. Any other kind of event is progress.
    fn on_text(&mut self, kind: &str, event: &ResponsesEvent<'_>, emit: &mut Emit<'_>) -> Result<(), AnswerFault> {
        let (kind, number, whole) = match kind {
            "output_text.delta" => (PartKind::Text, event.content_index, None),
            "output_text.done" => (PartKind::Text, event.content_index, Some(event.text)),
            "refusal.delta" => (PartKind::Refusal, event.content_index, None),
            "refusal.done" => (PartKind::Refusal, event.content_index, Some(event.refusal)),
            "reasoning_summary_text.delta" => (PartKind::Summary, event.summary_index, None),
            "reasoning_summary_text.done" => (PartKind::Summary, event.summary_index, Some(event.text)),
            "reasoning_text.delta" => (PartKind::Reasoning, event.content_index, None),
            "reasoning_text.done" => (PartKind::Reasoning, event.content_index, Some(event.text)),
            _ => return Ok(()),
        };
        let item = item_with(&mut self.items, event.output_index)?;
        let number = number.unwrap_or(0);
        match whole {
            Some(whole) => item.complete_text(kind, number, &text(whole)?, &mut self.context, emit),
            None => item.add_text(kind, number, &text(event.delta)?, &mut self.context, emit),
        }
    }

    fn on_part(&mut self, event: &ResponsesEvent<'_>, emit: &mut Emit<'_>) -> Result<(), AnswerFault> {
        let Some(json) = event.part else {
            return Ok(());
        };
        let part = ResponsesPart::parse(json)?;
        let (Some(kind), Some(whole)) = (part.kind(), part.text()) else {
            return Ok(());
        };
        let number = event.content_index.or(event.summary_index).unwrap_or(0);
        let item = item_with(&mut self.items, event.output_index)?;
        item.complete_text(kind, number, whole, &mut self.context, emit)
    }

    fn on_annotation(&mut self, event: &ResponsesEvent<'_>, emit: &mut Emit<'_>) -> Result<(), AnswerFault> {
        let Some(json) = event.annotation else {
            return Ok(());
        };
        item_with(&mut self.items, event.output_index)?.count_citation();
        emit(citation(json))
    }

    fn on_arguments(&mut self, event: &ResponsesEvent<'_>, emit: &mut Emit<'_>) -> Result<(), AnswerFault> {
        let item = item_with(&mut self.items, event.output_index)?;
        match event.arguments {
            Some(whole) => item.complete_arguments(&text(Some(whole))?, emit),
            None => item.add_arguments(&text(event.delta)?, emit),
        }
    }

    fn on_input(&mut self, event: &ResponsesEvent<'_>) -> Result<(), AnswerFault> {
        let piece = text(event.delta)?;
        self.waiting_bytes += piece.len();
        if self.waiting_bytes > WAITING_BYTES_MAX {
            return Err(AnswerFault::CallsTooLarge);
        }
        item_with(&mut self.items, event.output_index)?.add_input(&piece);
        Ok(())
    }

    fn on_last(&mut self, kind: &str, event: &ResponsesEvent<'_>, emit: &mut Emit<'_>) -> Result<(), AnswerFault> {
        let answer = match event.response {
            Some(json) => ResponsesAnswer::parse(json)?,
            None => ResponsesAnswer::default(),
        };
        if let Some(error) = answer.error.or(event.error) {
            return self.fail(&format!(r#"{{"error":{}}}"#, error.get()), emit);
        }
        let status = match answer.status.as_deref() {
            Some(status @ ("incomplete" | "failed" | "cancelled")) => status,
            _ => kind,
        };
        self.finish(status, &answer, emit)
    }

    /// The answer has ended with this status, without an error object.
    fn finish(&mut self, status: &str, answer: &ResponsesAnswer<'_>, emit: &mut Emit<'_>) -> Result<(), AnswerFault> {
        if matches!(status, "failed" | "cancelled") {
            return self.fail("", emit);
        }
        if self.items.is_empty() {
            for (number, json) in (0..).zip(answer.output.iter().flatten()) {
                self.complete(Some(number), json, emit)?;
            }
        }
        self.has_ended = true;
        let cause = match (status, answer.incomplete_reason()) {
            ("incomplete", Some("content_filter")) => StopCause::Filtered,
            ("incomplete", _) => StopCause::MaxTokens,
            _ if self.context.has_refused => StopCause::Refused,
            _ if self.context.calls > 0 => StopCause::Calls,
            _ => StopCause::End,
        };
        emit(AnswerEvent::Stop(cause))
    }

    /// Reports the error that this JSON text is.
    fn fail(&mut self, error: &str, emit: &mut Emit<'_>) -> Result<(), AnswerFault> {
        self.has_ended = true;
        emit(failure(error))
    }
}

/// The newest item with this number, a new one if there is none. Without a number, the last one.
fn item_with(items: &mut Vec<AnswerItem>, number: Option<u64>) -> Result<&mut AnswerItem, AnswerFault> {
    let known = match number {
        Some(number) => items.iter().rposition(|item| item.number() == number),
        None => items.len().checked_sub(1),
    };
    match known {
        Some(position) => items.get_mut(position).ok_or(AnswerFault::Unreadable),
        None => add_item(items, number),
    }
}

/// Begins an item.
fn add_item(items: &mut Vec<AnswerItem>, number: Option<u64>) -> Result<&mut AnswerItem, AnswerFault> {
    if items.len() >= ITEMS_MAX {
        return Err(AnswerFault::Unreadable);
    }
    let next = u64::try_from(items.len()).unwrap_or(u64::MAX);
    items.push(AnswerItem::new(number.unwrap_or(next)));
    items.last_mut().ok_or(AnswerFault::Unreadable)
}
