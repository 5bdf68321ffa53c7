//! The events of a Responses stream, and the data that all items of an answer have in common.

use std::borrow::Cow;

use crate::domain::translation::{
    answer::write::AnswerForm,
    json_out::{JsonObjectWriter, push_object},
};

/// The type of the event that begins an item.
pub(super) const ITEM_ADDED: &str = "response.output_item.added";
/// The type of the event that ends an item.
pub(super) const ITEM_DONE: &str = "response.output_item.done";
/// The status of an item that has begun.
pub(super) const IN_PROGRESS: &str = "in_progress";
/// The status of a complete item.
pub(super) const COMPLETED: &str = "completed";
/// The status of an item that was interrupted by the end of the answer.
pub(super) const INCOMPLETE: &str = "incomplete";

/// The writer of the numbered events of an answer. It writes none for a non-streaming answer.
#[derive(Debug)]
pub(super) struct NumberedEvents {
    /// Whether the answer is a stream.
    is_stream: bool,
    /// The sequence number of the next event.
    next_number: u64,
}

impl NumberedEvents {
    /// Creates the writer for an answer in this form.
    pub(super) fn new(form: AnswerForm) -> Self {
        Self {
            is_stream: form.is_stream(),
            next_number: 0,
        }
    }

    /// Whether the answer is a stream.
    pub(super) fn is_stream(&self) -> bool {
        self.is_stream
    }

    /// Writes an event of this type; `fill` writes its other members.
    pub(super) fn push(&mut self, out: &mut String, kind: &str, fill: impl FnOnce(&mut JsonObjectWriter<'_>)) {
        if !self.is_stream {
            return;
        }
        let number = self.next_number;
        self.next_number += 1;
        out.push_str("event: ");
        out.push_str(kind);
        out.push_str("\ndata: ");
        push_object(out, |event| {
            event.text("type", kind);
            event.number("sequence_number", number);
            fill(event);
        });
        out.push_str("\n\n");
    }

    /// Writes an event that concerns a part of an item.
    pub(super) fn push_in_item(
        &mut self,
        out: &mut String,
        kind: &str,
        place: &ItemPlace,
        fill: impl FnOnce(&mut JsonObjectWriter<'_>),
    ) {
        self.push(out, kind, |event| {
            event.text("item_id", &place.id);
            event.number("output_index", place.index);
            fill(event);
        });
    }

    /// Writes an event with an item, whose JSON text is `item`.
    pub(super) fn push_item(&mut self, out: &mut String, kind: &str, index: u32, item: &str) {
        self.push(out, kind, |event| {
            event.number("output_index", index);
            event.raw("item", item);
        });
    }
}

/// The id and the index of an item in the answer.
#[derive(Debug)]
pub(super) struct ItemPlace {
    /// The item's id.
    pub(super) id: String,
    /// The item's index in the output.
    pub(super) index: u32,
}

impl ItemPlace {
    /// Creates the place of an item from the answer's id and the item's index. `prefix` begins the item's id, and depends on the
    /// item's type.
    pub(super) fn new(prefix: &str, answer_id: &str, index: u32) -> Self {
        Self {
            id: format!("{prefix}{answer_id}_{index}"),
            index,
        }
    }
}

/// Appends JSON text to the elements of an array, with a comma between elements.
pub(super) fn push_element(elements: &mut String, json: &str) {
    if !elements.is_empty() {
        elements.push(',');
    }
    elements.push_str(json);
}

/// Returns JSON text without line breaks, because the data of an event must be one line. Line breaks occur only between tokens;
/// in strings they are escaped.
pub(super) fn single_line(json: &str) -> Cow<'_, str> {
    match json.contains(['\n', '\r']) {
        true => Cow::Owned(json.replace(['\n', '\r'], " ")),
        false => Cow::Borrowed(json),
    }
}
