//! The observer reads an answer's bytes as they pass, in bounded memory.

mod answer_progress;
mod boundaries;
mod frame;
mod framing;
mod sink;
mod tail;
mod template;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

use smol_str::SmolStr;

use crate::domain::wire::json_pick::{Heard, Picker};
use crate::domain::wire::protocol::Protocol;
use crate::domain::wire::protocol::dialect::Dialect;
use crate::domain::wire::protocol::facts::Facts;
use crate::domain::wire::protocol::made::Made;
use crate::domain::wire::tokens::{CharClasses, unreadable_tokens};
use answer_progress::{AnswerProgress, Body, Reading, Seen};
use frame::{Events, Frame};
use framing::FirstBytes;
use sink::Sink;

pub use answer_progress::Observed;
pub(crate) use boundaries::Boundaries;
pub use framing::Framing;
pub(crate) use framing::framing_of;

/// The most heap memory that an observer uses, in bytes.
pub const HEAP_BYTES_MAX: usize = 128 * 1024;

/// Reads one answer. Any division of the same bytes into chunks gives the same result.
///
/// Memory is bounded whatever the size of an event or line ([`Observer::heap_bytes`]), and in steady state a chunk
/// allocates nothing. All but `reading` is small, because each piece of each of many streams fetches it anew.
#[derive(Debug)]
pub struct Observer {
    frame: Frame,
    /// The text so far.
    heard: Heard,
    /// How the last piece was divided.
    boundaries: Boundaries,
    /// How many events have said more than text.
    reports: u64,
    /// The number of the last event, if that was recognised and has one.
    number: Option<u64>,
    reading: Box<Reading>,
    /// The first bytes, until they have told the framing.
    first_bytes: Option<FirstBytes>,
    seen: Seen,
    framing: Framing,
    /// A message has come that is an error.
    has_failed: bool,
}

impl Observer {
    /// An observer for an answer that has not begun, whose head announces this framing. Its first bytes may tell another.
    pub fn new(protocol: Protocol, framing: Framing) -> Self {
        Self::beginning(protocol, framing, Some(FirstBytes::new(protocol, framing, framing)))
    }

    /// The same, for an answer whose head announces a content coding that weir does not know. If its first bytes are neither
    /// JSON nor an event, it is taken for coded, so that nothing of it can be read.
    pub(crate) fn of_unknown_coding(protocol: Protocol, framing: Framing) -> Self {
        Self::beginning(
            protocol,
            framing,
            Some(FirstBytes::new(protocol, framing, Framing::Opaque)),
        )
    }

    /// An observer for an answer of which nothing can be read.
    pub(crate) fn of_unreadable(protocol: Protocol) -> Self {
        Self::beginning(protocol, Framing::Opaque, None)
    }

    fn beginning(protocol: Protocol, framing: Framing, first_bytes: Option<FirstBytes>) -> Self {
        let dialect = Dialect::new(protocol);
        Self {
            frame: Frame::new(framing),
            heard: Heard::default(),
            boundaries: Boundaries::default(),
            reports: 0,
            number: None,
            reading: Box::new(Reading {
                picker: Picker::new(dialect.paths()),
                answer: AnswerProgress {
                    dialect,
                    facts: Facts::default(),
                },
            }),
            first_bytes,
            seen: Seen::default(),
            framing,
            has_failed: false,
        }
    }

    /// How the body is divided: as its first bytes tell, or, before them, as its head announces.
    pub fn framing(&self) -> Framing {
        self.framing
    }

    /// Whether the framing is known, because the first bytes that mean something have arrived.
    pub(crate) fn is_framing_known(&self) -> bool {
        self.first_bytes.is_none()
    }

    /// Whether an answer that consists of events or elements has begun: the first one has arrived whole, and it is neither
    /// a ping nor an error.
    pub(crate) fn has_begun(&self) -> bool {
        let unfinished = self.unfinished();
        unfinished.map_or(self.seen.begun, |answer| answer.facts.begun)
    }

    /// Reads the next bytes of the body.
    pub fn push(&mut self, chunk: &[u8]) {
        self.boundaries = Boundaries::within(self.has_failed);
        let mut rest = chunk;
        if let Some(first_bytes) = &mut self.first_bytes {
            let Some(framing) = first_bytes.take(&mut rest) else {
                return;
            };
            if framing != self.framing {
                self.framing = framing;
                self.frame = Frame::new(framing);
            }
            if let Some(first_bytes) = self.first_bytes.take()
                && !self.read_whole(chunk, rest, first_bytes.taken())
            {
                self.read(first_bytes.taken(), 0);
            }
        }
        self.read(rest, chunk.len() - rest.len());
        self.reports += u64::from(matches!(self.frame, Frame::Json(_)));
        if self.frame.is_open_part_harmless(&self.reading) {
            self.boundaries.open_from = chunk.len();
        }
        self.has_failed = self.boundaries.error_from.is_some();
    }

    /// How the last piece was divided into messages.
    pub(crate) fn boundaries(&self) -> Boundaries {
        self.boundaries
    }

    /// Reads a body that has come in one piece, as most small ones do, without the buffers that one in several needs. False if
    /// it has not, or is no such body: then nothing has been read. What of the piece follows the first bytes is `rest`.
    fn read_whole(&mut self, chunk: &[u8], rest: &[u8], first_bytes: &[u8]) -> bool {
        let Frame::Json(body) = &mut self.frame else {
            return false;
        };
        let start = chunk.len().checked_sub(rest.len() + first_bytes.len());
        let bytes = start.and_then(|start| chunk.get(start..)).unwrap_or_default();
        // One that goes on is seldom cut here, and then looked through twice.
        if !matches!(bytes.trim_ascii_end(), [.., b'}' | b']']) {
            return false;
        }
        let Reading { picker, answer } = &mut *self.reading;
        let Some(picks) = picker.pick_whole(bytes) else {
            return false;
        };
        *body = answer.whole_body(&picks);
        picker.swap_heard(&mut self.heard);
        self.seen = Seen::of(&answer.facts);
        true
    }

    /// Reads bytes that stand at this place of the piece.
    fn read(&mut self, chunk: &[u8], place: usize) {
        let end = place + chunk.len();
        match &mut self.frame {
            Frame::Sse(_) => self.read_events(chunk, place),
            Frame::Json(body) => {
                let Reading { picker, answer } = &mut *self.reading;
                if *body == Body::Open {
                    picker.swap_heard(&mut self.heard);
                    picker.push(chunk);
                    picker.swap_heard(&mut self.heard);
                    answer.facts.content_seen |= answer.dialect.body_has_content(picker);
                    if picker.is_done() {
                        *body = answer.whole_body(picker);
                    }
                    self.seen = Seen::of(&answer.facts);
                }
                if let Body::Whole { is_error } = body {
                    self.boundaries.end_message(end, *is_error);
                }
            }
            Frame::JsonArray(framer) => {
                let (Reading { picker, answer }, boundaries) = (&mut *self.reading, &mut self.boundaries);
                picker.swap_heard(&mut self.heard);
                framer.push(chunk, picker, |element, at| {
                    self.reports += 1;
                    answer.dialect.event(element, b"", &mut answer.facts);
                    boundaries.end_message(place + at, answer.dialect.is_error(element, b""));
                });
                picker.swap_heard(&mut self.heard);
                self.seen = Seen::of(&answer.facts);
            }
            Frame::Opaque(bytes) => {
                *bytes = bytes.saturating_add(u64::try_from(chunk.len()).unwrap_or(u64::MAX));
                // No answer: whatever it is, it is not read as one.
                self.boundaries.error_from = Some(0);
            }
        }
    }

    /// The same of a stream of events. One that is recognised touches nothing but what lies together here.
    fn read_events(&mut self, chunk: &[u8], place: usize) {
        let Frame::Sse(events) = &mut self.frame else { return };
        let Events { framer, head, template } = events;
        let (end, mut rest) = (place + chunk.len(), chunk);
        while !rest.is_empty() {
            let is_whole = framer.is_at_event();
            if is_whole && let Some(event) = template.split(rest) {
                self.heard.push_text(event.text);
                self.number = event.number.or(self.number);
                if let Some(usage) = event.usage {
                    self.reports += 1;
                    self.reading.answer.dialect.used(usage);
                }
                rest = event.rest;
                self.boundaries.end_message(end - rest.len(), false);
                continue;
            }
            let Reading { picker, answer } = &mut *self.reading;
            if let Some(number) = self.number.take() {
                answer.dialect.numbered(number);
            }
            picker.swap_heard(&mut self.heard);
            let mut sink = Sink::new(picker, answer, head);
            let used = framer.push_event(rest, &mut sink);
            self.reports += u64::from(sink.says_more());
            if sink.can_be_taken_back() {
                template.forget();
            }
            let (event, after) = rest.split_at_checked(used).unwrap_or((rest, &[]));
            if let Some(is_error) = sink.ended_as_error() {
                self.boundaries.end_message(end - after.len(), is_error);
            }
            if is_whole && let Some(text) = sink.text_in(event) {
                template.learn(event, text);
            }
            picker.swap_heard(&mut self.heard);
            self.seen = Seen::of(&answer.facts);
            rest = after;
        }
    }

    /// Whether generated content has passed: text, thinking, or a tool call. Pings, comments, blank lines and
    /// `message_start` are not content.
    pub fn first_content_seen(&self) -> bool {
        self.seen.content
    }

    /// Whether the end by the protocol was seen: its last event, an in-band error, or the end of a JSON value. An
    /// opaque answer is always complete.
    ///
    /// An event that lacks only its final blank line counts.
    pub fn is_complete(&self) -> bool {
        match &self.frame {
            Frame::Sse(_) => {
                let unfinished = self.unfinished();
                unfinished.map_or(self.seen.terminal, |answer| answer.facts.terminal)
            }
            Frame::Json(body) => *body != Body::Open,
            Frame::JsonArray(framer) => self.seen.terminal && framer.is_closed(),
            Frame::Opaque(_) => true,
        }
    }

    /// The answer with what an event says that lacks only its end, or a body that has not ended; `None` if there is no such.
    fn unfinished(&self) -> Option<AnswerProgress> {
        match &self.frame {
            Frame::Sse(Events { framer, .. }) if framer.has_open_data() && self.reading.picker.is_done() => {
                let mut answer = self.reading.answer.clone();
                let AnswerProgress { dialect, facts } = &mut answer;
                dialect.event(&self.reading.picker, framer.open_name(), facts);
                Some(answer)
            }
            Frame::Json(Body::Open) => {
                let mut answer = self.reading.answer.clone();
                answer.body(&self.reading.picker);
                Some(answer)
            }
            Frame::Sse(_) | Frame::Json(_) | Frame::JsonArray(_) | Frame::Opaque(_) => None,
        }
    }

    /// The answer as it is, with what is unfinished.
    fn answer(&self) -> Cow<'_, AnswerProgress> {
        self.unfinished()
            .map_or(Cow::Borrowed(&self.reading.answer), Cow::Owned)
    }

    /// The output tokens so far, estimated from the text that the model has written. Cheap at any time.
    ///
    /// Counts text, arguments of tool calls and visible reasoning; hidden reasoning cannot be seen. An opaque answer is
    /// estimated by its bytes.
    pub fn output_estimate(&self) -> u64 {
        match &self.frame {
            Frame::Opaque(bytes) => unreadable_tokens(*bytes),
            Frame::Sse(_) | Frame::Json(_) | Frame::JsonArray(_) => self.classes().tokens(),
        }
    }

    /// The kinds of bytes in the text so far; empty for an opaque answer.
    pub fn classes(&self) -> &CharClasses {
        self.heard.classes()
    }

    /// All that the answer has reported so far.
    pub fn observed(&self) -> Observed {
        let answer = self.answer();
        let facts = &answer.facts;
        let runs = answer.dialect.runs();
        Observed {
            usage: answer.dialect.usage(&runs),
            runs,
            unlimited: answer.dialect.unlimited(),
            usage_source: answer
                .dialect
                .usage_source(facts, matches!(self.frame, Frame::Json(Body::Whole { .. }))),
            modifiers: answer.dialect.modifiers(),
            finish_reason: facts.finish_reason.clone(),
            in_band_error: facts.error.clone(),
            model: facts.model.clone(),
            answer_id: facts.answer_id.clone(),
            complete: self.is_complete(),
            saw_done_marker: facts.done_marker,
        }
    }

    /// How many events may have told of a usage, because they said more than text; of a body in one piece, how many pieces have
    /// come. While it stays, what the answer has reported stays. Cheap at any time.
    pub(crate) fn reports(&self) -> u64 {
        self.reports
    }

    /// How many names of state have been seen in complete events: the answer's own, and those of what it has created.
    /// Cheap at any time. Zero for a body in one piece, which is read at its end.
    pub fn names(&self) -> u16 {
        match &self.frame {
            Frame::Json(_) => 0,
            Frame::Sse(_) | Frame::JsonArray(_) | Frame::Opaque(_) => self.seen.names,
        }
    }

    /// The identifier under which the provider may keep the answer, once known.
    pub fn answer_id(&self) -> Option<SmolStr> {
        match self.answer() {
            Cow::Borrowed(answer) => answer.facts.answer_id.clone(),
            Cow::Owned(answer) => answer.facts.answer_id,
        }
    }

    /// The state that the answer has created at the provider so far.
    pub fn made(&self) -> Cow<'_, Made> {
        match self.answer() {
            Cow::Borrowed(answer) => Cow::Borrowed(&answer.facts.made),
            Cow::Owned(answer) => Cow::Owned(answer.facts.made),
        }
    }

    /// The heap memory in buffers: at most [`HEAP_BYTES_MAX`], about 2 KiB with real streams.
    pub fn heap_bytes(&self) -> usize {
        let template = match &self.frame {
            Frame::Sse(Events { template, .. }) => template.heap_bytes(),
            Frame::Json(_) | Frame::JsonArray(_) | Frame::Opaque(_) => 0,
        };
        let Reading { picker, answer } = &*self.reading;
        picker.heap_bytes() + answer.dialect.heap_bytes() + answer.facts.made.heap_bytes() + template
    }
}
