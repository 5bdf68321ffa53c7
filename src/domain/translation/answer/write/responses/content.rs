//! Writes messages and reasoning, whose text arrives in pieces.

use crate::domain::translation::{
    answer::{
        Citation,
        write::responses::events::{
            COMPLETED, IN_PROGRESS, INCOMPLETE, ITEM_ADDED, ITEM_DONE, ItemPlace, NumberedEvents, push_element,
        },
    },
    json_out::push_object,
};

/// The kind of a part of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum MessagePartKind {
    /// Text.
    Text,
    /// The text with which the model declines.
    Refusal,
}

impl MessagePartKind {
    /// Returns the type of a part of this kind.
    const fn type_word(self) -> &'static str {
        match self {
            Self::Text => "output_text",
            Self::Refusal => "refusal",
        }
    }

    /// Returns the name of the member that contains the part's text.
    const fn member(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Refusal => "refusal",
        }
    }

    /// Returns the type of an event that contains a piece of such a part.
    const fn delta_event(self) -> &'static str {
        match self {
            Self::Text => "response.output_text.delta",
            Self::Refusal => "response.refusal.delta",
        }
    }

    /// Returns the type of the event that contains the complete text of such a part.
    const fn done_event(self) -> &'static str {
        match self {
            Self::Text => "response.output_text.done",
            Self::Refusal => "response.refusal.done",
        }
    }
}

/// A message that has begun.
#[derive(Debug)]
pub(super) struct MessageItem {
    /// The place of the message in the answer.
    place: ItemPlace,
    /// The complete parts, as the elements of a JSON array.
    parts: String,
    /// The number of complete parts, which is also the index of the open part.
    part_count: u32,
    /// The part that is being written; `None` if no part is open.
    part: Option<MessagePart>,
}

/// A part of a message that is being written.
#[derive(Debug)]
struct MessagePart {
    /// The kind of the part.
    kind: MessagePartKind,
    /// The text so far.
    text: String,
    /// The number of characters in `text`.
    characters: u64,
    /// The annotations so far, as the elements of a JSON array.
    annotations: String,
    /// The number of annotations.
    annotation_count: u32,
}

impl MessagePart {
    /// Creates a part without text.
    const fn new(kind: MessagePartKind) -> Self {
        Self {
            kind,
            text: String::new(),
            characters: 0,
            annotations: String::new(),
            annotation_count: 0,
        }
    }

    /// Returns the part as JSON text.
    fn json(&self) -> String {
        let mut json = String::with_capacity(self.text.len() + self.annotations.len() + 80);
        push_object(&mut json, |part| {
            part.text("type", self.kind.type_word());
            if self.kind == MessagePartKind::Text {
                part.array("annotations", |annotations| annotations.raw(&self.annotations));
                part.array("logprobs", |_| ());
            }
            part.text(self.kind.member(), &self.text);
        });
        json
    }
}

impl MessageItem {
    /// Begins a message.
    pub(super) fn open(place: ItemPlace, events: &mut NumberedEvents, out: &mut String) -> Self {
        let item = Self {
            place,
            parts: String::new(),
            part_count: 0,
            part: None,
        };
        events.push_item(out, ITEM_ADDED, item.place.index, &item.json(IN_PROGRESS));
        item
    }

    /// Adds a piece of text or of a refusal.
    pub(super) fn add(&mut self, kind: MessagePartKind, piece: &str, events: &mut NumberedEvents, out: &mut String) {
        let part = self.part_of_kind(kind, events, out);
        part.text.push_str(piece);
        part.characters += u64::try_from(piece.chars().count()).unwrap_or(0);
        let index = self.part_count;
        events.push_in_item(out, kind.delta_event(), &self.place, |event| {
            event.number("content_index", index);
            event.text("delta", piece);
            if kind == MessagePartKind::Text {
                event.array("logprobs", |_| ());
            }
        });
    }

    /// Adds a source of the text so far. The annotation is placed at the end of that text, because a citation does not state the
    /// range of the text that it applies to.
    pub(super) fn cite(&mut self, citation: &Citation<'_>, events: &mut NumberedEvents, out: &mut String) {
        let part = self.part_of_kind(MessagePartKind::Text, events, out);
        let mut annotation = String::new();
        push_object(&mut annotation, |object| {
            object.text("type", "url_citation");
            object.number("start_index", part.characters);
            object.number("end_index", part.characters);
            object.text("url", &citation.url);
            object.text("title", citation.title.as_deref().unwrap_or(&citation.url));
        });
        push_element(&mut part.annotations, &annotation);
        let annotation_index = part.annotation_count;
        part.annotation_count += 1;
        let index = self.part_count;
        events.push_in_item(out, "response.output_text.annotation.added", &self.place, |event| {
            event.number("content_index", index);
            event.number("annotation_index", annotation_index);
            event.raw("annotation", &annotation);
        });
    }

    /// Ends the message; returns it as JSON text.
    pub(super) fn close(mut self, is_interrupted: bool, events: &mut NumberedEvents, out: &mut String) -> String {
        self.close_part(events, out);
        let item = self.json(if is_interrupted { INCOMPLETE } else { COMPLETED });
        events.push_item(out, ITEM_DONE, self.place.index, &item);
        item
    }

    /// Returns the open part if it is of this kind; otherwise ends it and begins a part of this kind.
    fn part_of_kind(
        &mut self,
        kind: MessagePartKind,
        events: &mut NumberedEvents,
        out: &mut String,
    ) -> &mut MessagePart {
        if self.part.as_ref().is_some_and(|part| part.kind != kind) {
            self.close_part(events, out);
        }
        let (place, index) = (&self.place, self.part_count);
        self.part.get_or_insert_with(|| {
            let part = MessagePart::new(kind);
            events.push_in_item(out, "response.content_part.added", place, |event| {
                event.number("content_index", index);
                event.raw("part", &part.json());
            });
            part
        })
    }

    fn close_part(&mut self, events: &mut NumberedEvents, out: &mut String) {
        let Some(part) = self.part.take() else { return };
        let index = self.part_count;
        events.push_in_item(out, part.kind.done_event(), &self.place, |event| {
            event.number("content_index", index);
            event.text(part.kind.member(), &part.text);
            if part.kind == MessagePartKind::Text {
                event.array("logprobs", |_| ());
            }
        });
        let json = part.json();
        events.push_in_item(out, "response.content_part.done", &self.place, |event| {
            event.number("content_index", index);
            event.raw("part", &json);
        });
        push_element(&mut self.parts, &json);
        self.part_count += 1;
    }

    /// Returns the message with its complete parts, as JSON text.
    fn json(&self, status: &str) -> String {
        let mut json = String::with_capacity(self.parts.len() + 128);
        push_object(&mut json, |item| {
            item.text("id", &self.place.id);
            item.text("type", "message");
            item.text("status", status);
            item.text("role", "assistant");
            item.array("content", |content| content.raw(&self.parts));
        });
        json
    }
}

/// Reasoning that has begun and whose text the client gets.
#[derive(Debug)]
pub(super) struct ReasoningItem {
    /// The place of the reasoning in the answer.
    place: ItemPlace,
    /// The text so far.
    text: String,
}

impl ReasoningItem {
    /// Begins a reasoning item and its summary, which has one part.
    pub(super) fn open(place: ItemPlace, events: &mut NumberedEvents, out: &mut String) -> Self {
        events.push_item(out, ITEM_ADDED, place.index, &reasoning_json(&place.id, None, None));
        events.push_in_item(out, "response.reasoning_summary_part.added", &place, |event| {
            event.number("summary_index", 0_u32);
            event.raw("part", &summary_part(""));
        });
        Self {
            place,
            text: String::new(),
        }
    }

    /// Adds a piece of text.
    pub(super) fn add(&mut self, piece: &str, events: &mut NumberedEvents, out: &mut String) {
        self.text.push_str(piece);
        events.push_in_item(out, "response.reasoning_summary_text.delta", &self.place, |event| {
            event.number("summary_index", 0_u32);
            event.text("delta", piece);
        });
    }

    /// Returns the text so far.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Ends the item, and returns the item as JSON text. `carrier` is the carrier of the reasoning's state.
    pub(super) fn close(self, carrier: Option<&str>, events: &mut NumberedEvents, out: &mut String) -> String {
        events.push_in_item(out, "response.reasoning_summary_text.done", &self.place, |event| {
            event.number("summary_index", 0_u32);
            event.text("text", &self.text);
        });
        let part = summary_part(&self.text);
        events.push_in_item(out, "response.reasoning_summary_part.done", &self.place, |event| {
            event.number("summary_index", 0_u32);
            event.raw("part", &part);
        });
        let item = reasoning_json(&self.place.id, Some(&part), carrier);
        events.push_item(out, ITEM_DONE, self.place.index, &item);
        item
    }
}

/// Writes reasoning whose text the client does not get; returns it as JSON text.
pub(super) fn push_hidden_reasoning(
    place: &ItemPlace,
    carrier: &str,
    events: &mut NumberedEvents,
    out: &mut String,
) -> String {
    events.push_item(out, ITEM_ADDED, place.index, &reasoning_json(&place.id, None, None));
    let item = reasoning_json(&place.id, None, Some(carrier));
    events.push_item(out, ITEM_DONE, place.index, &item);
    item
}

/// Writes the item that replaces the conversation so far; returns it as JSON text. Clients expect exactly one such item.
pub(super) fn push_compaction(
    place: &ItemPlace,
    carrier: &str,
    events: &mut NumberedEvents,
    out: &mut String,
) -> String {
    events.push_item(out, ITEM_ADDED, place.index, &compaction_json(&place.id, ""));
    let item = compaction_json(&place.id, carrier);
    events.push_item(out, ITEM_DONE, place.index, &item);
    item
}

/// Returns a compaction item as JSON text. Compaction items have no status.
fn compaction_json(id: &str, carrier: &str) -> String {
    let mut json = String::with_capacity(carrier.len() + 80);
    push_object(&mut json, |item| {
        item.text("id", id);
        item.text("type", "compaction");
        item.text("encrypted_content", carrier);
    });
    json
}

/// Returns a part of a summary as JSON text.
fn summary_part(text: &str) -> String {
    let mut json = String::with_capacity(text.len() + 40);
    push_object(&mut json, |part| {
        part.text("type", "summary_text");
        part.text("text", text);
    });
    json
}

/// Returns a reasoning item as JSON text. Reasoning items have no status.
fn reasoning_json(id: &str, summary_part: Option<&str>, carrier: Option<&str>) -> String {
    let mut json = String::new();
    push_object(&mut json, |item| {
        item.text("id", id);
        item.text("type", "reasoning");
        item.array("summary", |summary| {
            if let Some(part) = summary_part {
                summary.raw(part);
            }
        });
        if let Some(carrier) = carrier {
            item.text("encrypted_content", carrier);
        }
    });
    json
}
