//! Reads Responses answers. Items are identified by their indexes, because some providers change an item's id within an answer.
//! Content
//! is read from delta events, because some providers omit content from the last event.

mod event;
mod item;
#[cfg(test)]
mod tests;

use std::{borrow::Cow, sync::LazyLock};

use serde_json::value::RawValue;

use crate::domain::{
    translation::answer::{
        AnswerEvent, AnswerFault, StopCause, WAITING_BYTES_MAX,
        read::{
            Emit, failure,
            responses::{
                event::{PartKind, ResponsesAnswer, ResponsesEvent, ResponsesItem, ResponsesPart, citation, text},
                item::{AnswerItem, ItemContext},
            },
        },
    },
    wire::json_pick::{
        PathSet, PickPath, PickRule,
        PickSegment::{Each, Key},
        Picks,
    },
};

/// The maximum number of items in an answer.
const ITEMS_MAX: usize = 4_096;
/// The prefix of the types of events.
const TYPE_PREFIX: &str = "response.";

/// The paths to read in an event that is too large to be buffered. Such an event contains the response object, which repeats the
/// request and the answer.
pub(crate) static LARGE_EVENT_PATHS: LazyLock<PathSet> = LazyLock::new(|| PathSet::new(LARGE_EVENT_PICKS));
const LARGE_EVENT_PICKS: &[PickPath] = &[
    PickPath::new(&[Key("type")], PickRule::Scalar),
    PickPath::new(&[Key("error")], PickRule::Tree),
    PickPath::new(&[Key("response"), Key("error")], PickRule::Tree),
    PickPath::new(&[Key("response"), Key("status")], PickRule::Scalar),
    PickPath::new(
        &[Key("response"), Key("incomplete_details"), Key("reason")],
        PickRule::Scalar,
    ),
    PickPath::new(&[Key("response"), Key("output"), Each], PickRule::Count),
];
const TYPE: usize = 0;
const ERROR: usize = 1;
const RESPONSE_ERROR: usize = 2;
const STATUS: usize = 3;
const INCOMPLETE_REASON: usize = 4;
const OUTPUT: usize = 5;

/// The reader of one answer.
#[derive(Debug, Default)]
pub(crate) struct ResponsesAnswerReader {
    has_begun: bool,
    has_ended: bool,
    /// The items in the order in which they began.
    items: Vec<AnswerItem>,
    context: ItemContext,
    /// The total length of all input pieces for custom tools so far, in bytes.
    waiting_bytes: usize,
}

impl ResponsesAnswerReader {
    /// Reads an event of a stream. `name` is the value of the `event` field, or empty.
    ///
    /// # Errors
    /// The event does not conform to the protocol, or `emit` fails.
    pub(crate) fn on_event(&mut self, name: &str, data: &str, emit: &mut Emit<'_>) -> Result<(), AnswerFault> {
        if self.has_ended || data.trim() == "[DONE]" {
            return Ok(());
        }
        let event: ResponsesEvent<'_> = serde_json::from_str(data).map_err(|_| AnswerFault::Unreadable)?;
        let kind = event.kind.as_deref().unwrap_or(name);
        let Some(kind) = kind.strip_prefix(TYPE_PREFIX) else {
            // Another kind of event has no content, but it may be an error in a form of the provider's own.
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

    /// Whether an event that is too large to be buffered can be read in part, according to the members read so far. `name` is the
    /// value of the `event` field, or empty.
    pub(crate) fn can_skim(name: &str, picks: &Picks<'_>) -> bool {
        let kind = large_event_kind(name, picks);
        kind.is_empty() || is_about_response(kind.strip_prefix(TYPE_PREFIX).unwrap_or_default())
    }

    /// Reads only the members at [`LARGE_EVENT_PATHS`] of an event that is too large to be buffered.
    ///
    /// # Errors
    /// The event has content that no other event repeats, or `emit` fails.
    pub(crate) fn on_large_event(
        &mut self,
        name: &str,
        picks: &Picks<'_>,
        emit: &mut Emit<'_>,
    ) -> Result<(), AnswerFault> {
        if self.has_ended {
            return Ok(());
        }
        let kind = large_event_kind(name, picks);
        let kind = kind.strip_prefix(TYPE_PREFIX).unwrap_or_default();
        let has_own_content = self.items.is_empty() && picks.count(OUTPUT) > 0;
        if !is_about_response(kind) || has_own_content {
            return Err(AnswerFault::EventTooLarge);
        }
        if kind != "failed" {
            self.begin(emit)?;
        }
        if matches!(kind, "created" | "queued" | "in_progress") {
            return Ok(());
        }
        let errors = [RESPONSE_ERROR, ERROR].into_iter().filter_map(|path| picks.raw(path));
        let mut errors = errors.filter_map(|error| std::str::from_utf8(error).ok());
        if let Some(error) = errors.find(|error| *error != "null") {
            return self.fail_with(error, emit);
        }
        let text = |path: usize| picks.text(path).map(Cow::into_owned);
        let answer = ResponsesAnswer::without_items(text(STATUS), text(INCOMPLETE_REASON));
        self.end(kind, &answer, emit)
    }

    /// Reads a non-streaming answer.
    ///
    /// # Errors
    /// The body is not an answer of this protocol, or `emit` fails.
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
            // The provider has not finished the answer.
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

    /// Completes an item: emits the content that its deltas did not contain.
    fn complete(&mut self, number: Option<u64>, json: &RawValue, emit: &mut Emit<'_>) -> Result<(), AnswerFault> {
        let is_new = number.is_none() && self.items.last().is_some_and(AnswerItem::is_done);
        let item = match is_new {
            true => add_item(&mut self.items, number)?,
            false => item_with(&mut self.items, number)?,
        };
        item.complete(&ResponsesItem::parse(json)?, json.get(), &mut self.context, emit)
    }

    /// Handles a piece of text, or a complete text part. Ignores all other kinds of events, which only report progress.
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
            return self.fail_with(error.get(), emit);
        }
        self.end(kind, &answer, emit)
    }

    /// Ends the answer after its last event, which is of this kind.
    fn end(&mut self, kind: &str, answer: &ResponsesAnswer<'_>, emit: &mut Emit<'_>) -> Result<(), AnswerFault> {
        let status = match answer.status.as_deref() {
            Some(status @ ("incomplete" | "failed" | "cancelled")) => status,
            _ => kind,
        };
        self.finish(status, answer, emit)
    }

    /// Ends an answer that has this status and no error object.
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

    /// Reports an error. `error` is the JSON text of the member `error`.
    fn fail_with(&mut self, error: &str, emit: &mut Emit<'_>) -> Result<(), AnswerFault> {
        self.fail(&format!(r#"{{"error":{error}}}"#), emit)
    }

    /// Reports the error with this JSON text.
    fn fail(&mut self, error: &str, emit: &mut Emit<'_>) -> Result<(), AnswerFault> {
        self.has_ended = true;
        emit(failure(error))
    }
}

/// Returns the type of an event if the type has been read, otherwise `name`. `name` is the value of the `event` field, or empty.
fn large_event_kind<'p>(name: &'p str, picks: &'p Picks<'_>) -> Cow<'p, str> {
    picks.text(TYPE).unwrap_or(Cow::Borrowed(name))
}

/// Whether an event of this kind contains the response object, and no other content.
fn is_about_response(kind: &str) -> bool {
    matches!(
        kind,
        "created" | "queued" | "in_progress" | "completed" | "incomplete" | "failed" | "cancelled"
    )
}

/// Returns the newest item with this index, or a new item if no item has this index. Without an index, returns the last item.
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

/// Adds an item.
fn add_item(items: &mut Vec<AnswerItem>, number: Option<u64>) -> Result<&mut AnswerItem, AnswerFault> {
    if items.len() >= ITEMS_MAX {
        return Err(AnswerFault::Unreadable);
    }
    let next = u64::try_from(items.len()).unwrap_or(u64::MAX);
    items.push(AnswerItem::new(number.unwrap_or(next)));
    items.last_mut().ok_or(AnswerFault::Unreadable)
}
