//! Observes an answer while its bytes pass, in bounded memory, and reads what the answer reports.

mod framing;
mod sink;

mod template;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

use smol_str::SmolStr;

use crate::domain::wire::UpstreamProtocol;
use crate::domain::wire::json_pick::{Picker, TextCounter};
use crate::domain::wire::protocol::AnswerFacts;
use crate::domain::wire::protocol::created_state::CreatedState;
use crate::domain::wire::protocol::dialect::AnswerDialect;
use crate::domain::wire::protocol::observer::framing::FirstBytes;
use crate::domain::wire::protocol::observer::framing::{EventStreamState, FramingState};
use crate::domain::wire::protocol::observer::sink::AnswerEventSink;
use crate::domain::wire::protocol::observer::sink::{AnswerFlags, AnswerProgress, AnswerReader, BodyProgress};
use crate::domain::wire::tokens::{CharClasses, unreadable_tokens};

pub use crate::domain::wire::protocol::observer::framing::AnswerFraming;
pub(crate) use crate::domain::wire::protocol::observer::framing::MessageBoundaries;
pub(crate) use crate::domain::wire::protocol::observer::framing::framing_from_content_type;
pub use crate::domain::wire::protocol::observer::sink::AnswerReport;

/// The maximum heap memory of one observer, in bytes.
pub const HEAP_BYTES_MAX: usize = 128 * 1024;

/// An observer of one answer. Its reports do not depend on how the bytes are split into pieces.
///
/// Its memory is bounded, however large the events and lines are ([`Observer::heap_bytes`]). In steady state, a piece causes no
/// allocation. All fields except `reading` are small because, with many streams, each piece loads them into the CPU cache again.
#[derive(Debug)]
pub struct Observer {
    frame: FramingState,
    /// The counter of the answer's text so far.
    text_counter: TextCounter,
    /// The boundaries of the messages in the last piece.
    boundaries: MessageBoundaries,
    /// The number of events that may have done more than add text.
    reports: u64,
    /// The newest sequence number that was read by means of the template ([`template`]); `None` if no event with a number has
    /// matched the template since an event was last parsed.
    last_number: Option<u64>,
    reading: Box<AnswerReader>,
    /// The first bytes of the answer, until they determine the framing; `None` after that.
    first_bytes: Option<FirstBytes>,
    flags: AnswerFlags,
    framing: AnswerFraming,
    /// Whether an earlier message was an error.
    has_failed: bool,
}

impl Observer {
    /// Creates an observer for an answer that has not begun. `framing` is the framing that the answer's head announces. The first
    /// bytes can show that it is wrong.
    pub fn new(protocol: impl Into<UpstreamProtocol>, framing: AnswerFraming) -> Self {
        let protocol = protocol.into();
        Self::with_first_bytes(protocol, framing, Some(FirstBytes::new(protocol, framing, framing)))
    }

    /// Like [`Self::new`], for an answer whose head announces an unknown content coding. If the first bytes are neither JSON nor
    /// an event, the answer is treated as encoded and is not read.
    pub(crate) fn for_unknown_coding(protocol: UpstreamProtocol, framing: AnswerFraming) -> Self {
        Self::with_first_bytes(
            protocol,
            framing,
            Some(FirstBytes::new(protocol, framing, AnswerFraming::Opaque)),
        )
    }

    /// Creates an observer for an answer that cannot be read.
    pub(crate) fn for_unreadable(protocol: UpstreamProtocol) -> Self {
        Self::with_first_bytes(protocol, AnswerFraming::Opaque, None)
    }

    fn with_first_bytes(protocol: UpstreamProtocol, framing: AnswerFraming, first_bytes: Option<FirstBytes>) -> Self {
        let dialect = AnswerDialect::new(protocol);
        Self {
            frame: FramingState::new(framing),
            text_counter: TextCounter::default(),
            boundaries: MessageBoundaries::default(),
            reports: 0,
            last_number: None,
            reading: Box::new(AnswerReader {
                picker: Picker::new(dialect.paths()),
                answer: AnswerProgress {
                    dialect,
                    facts: AnswerFacts::default(),
                },
            }),
            first_bytes,
            flags: AnswerFlags::default(),
            framing,
            has_failed: false,
        }
    }

    /// Returns the framing that the first bytes show or, before they arrive, the one that the head announces.
    pub fn framing(&self) -> AnswerFraming {
        self.framing
    }

    /// Whether the first bytes have determined the framing.
    pub(crate) fn is_framing_known(&self) -> bool {
        self.first_bytes.is_none()
    }

    /// Whether a streamed answer has begun: a complete event or element has arrived that is neither a ping nor an error.
    pub(crate) fn has_begun(&self) -> bool {
        let unfinished = self.unfinished_answer();
        unfinished.map_or(self.flags.begun, |answer| answer.facts.has_begun)
    }

    /// Reads the next bytes of the answer's body.
    pub fn push(&mut self, chunk: &[u8]) {
        self.boundaries = MessageBoundaries::at_piece_start(self.has_failed);
        let mut rest = chunk;
        if let Some(first_bytes) = &mut self.first_bytes {
            let Some(framing) = first_bytes.consume(&mut rest) else {
                return;
            };
            if framing != self.framing {
                self.framing = framing;
                self.frame = FramingState::new(framing);
            }
            if let Some(first_bytes) = self.first_bytes.take()
                && !self.read_complete_body(chunk, rest, first_bytes.consumed())
            {
                self.read(first_bytes.consumed(), 0);
            }
        }
        self.read(rest, chunk.len() - rest.len());
        self.reports += u64::from(matches!(self.frame, FramingState::Json(_)));
        if self.frame.is_open_part_harmless(&self.reading) {
            self.boundaries.open_from = chunk.len();
        }
        self.has_failed = self.boundaries.error_from.is_some();
    }

    /// Returns the boundaries of the messages in the last piece.
    pub(crate) fn boundaries(&self) -> MessageBoundaries {
        self.boundaries
    }

    /// Reads, without buffers, the body of a non-streaming answer that has arrived in one piece, as most small bodies do. Returns
    /// false and reads nothing if the piece is not such a body. `rest` is the part of the piece after `first_bytes`.
    fn read_complete_body(&mut self, chunk: &[u8], rest: &[u8], first_bytes: &[u8]) -> bool {
        let FramingState::Json(body) = &mut self.frame else {
            return false;
        };
        let start = chunk.len().checked_sub(rest.len() + first_bytes.len());
        let bytes = start.and_then(|start| chunk.get(start..)).unwrap_or_default();
        // An incomplete body seldom ends with such a bracket. If one does, it is read twice.
        if !matches!(bytes.trim_ascii_end(), [.., b'}' | b']']) {
            return false;
        }
        let AnswerReader { picker, answer } = &mut *self.reading;
        let Some(picks) = picker.pick_whole(bytes) else {
            return false;
        };
        *body = answer.on_body_end(&picks);
        picker.swap_text_counter(&mut self.text_counter);
        self.flags = AnswerFlags::from_facts(&answer.facts);
        true
    }

    /// Reads bytes that begin at offset `place` of the piece.
    fn read(&mut self, chunk: &[u8], place: usize) {
        let end = place + chunk.len();
        match &mut self.frame {
            FramingState::Sse(_) => self.read_events(chunk, place),
            FramingState::Json(body) => {
                let AnswerReader { picker, answer } = &mut *self.reading;
                if *body == BodyProgress::Open {
                    picker.swap_text_counter(&mut self.text_counter);
                    picker.push(chunk);
                    picker.swap_text_counter(&mut self.text_counter);
                    answer.facts.content_seen |= answer.dialect.body_has_content(picker);
                    if picker.is_done() {
                        *body = answer.on_body_end(picker);
                    }
                    self.flags = AnswerFlags::from_facts(&answer.facts);
                }
                if let BodyProgress::Whole { is_error } = body {
                    self.boundaries.end_message(end, *is_error);
                }
            }
            FramingState::JsonArray(framer) => {
                let (AnswerReader { picker, answer }, boundaries) = (&mut *self.reading, &mut self.boundaries);
                picker.swap_text_counter(&mut self.text_counter);
                framer.push(chunk, picker, |element, at| {
                    self.reports += 1;
                    answer.dialect.on_event(element, b"", &mut answer.facts);
                    boundaries.end_message(place + at, answer.dialect.is_error(element, b""));
                });
                picker.swap_text_counter(&mut self.text_counter);
                self.flags = AnswerFlags::from_facts(&answer.facts);
            }
            FramingState::Opaque(bytes) => {
                *bytes = bytes.saturating_add(u64::try_from(chunk.len()).unwrap_or(u64::MAX));
                // These bytes cannot be read, so they are never treated as a part of an answer.
                self.boundaries.error_from = Some(0);
            }
        }
    }

    /// Reads bytes of an event stream that begin at offset `place` of the piece. For a recognised event, the function accesses
    /// only fields that are close together in memory.
    fn read_events(&mut self, chunk: &[u8], place: usize) {
        let FramingState::Sse(events) = &mut self.frame else {
            return;
        };
        let EventStreamState { framer, head, template } = events;
        let (end, mut rest) = (place + chunk.len(), chunk);
        while !rest.is_empty() {
            let is_whole = framer.is_at_event();
            if is_whole && let Some(event) = template.recognise(rest) {
                self.text_counter.push_complete(event.text);
                self.last_number = event.number.or(self.last_number);
                if let Some(usage) = event.usage {
                    self.reports += 1;
                    self.reading.answer.dialect.set_usage(usage);
                }
                rest = event.rest;
                self.boundaries.end_message(end - rest.len(), false);
                continue;
            }
            let AnswerReader { picker, answer } = &mut *self.reading;
            if let Some(number) = self.last_number.take() {
                answer.dialect.set_number(number);
            }
            picker.swap_text_counter(&mut self.text_counter);
            let mut sink = AnswerEventSink::new(picker, answer, head);
            let used = framer.push_event(rest, &mut sink);
            self.reports += u64::from(sink.has_more_than_text());
            if sink.is_revocable() {
                template.forget();
            }
            let (event, after) = rest.split_at_checked(used).unwrap_or((rest, &[]));
            if let Some(is_error) = sink.ended_as_error() {
                self.boundaries.end_message(end - after.len(), is_error);
            }
            if is_whole && let Some(text) = sink.text_only_in(event) {
                template.learn(event, text);
            }
            picker.swap_text_counter(&mut self.text_counter);
            self.flags = AnswerFlags::from_facts(&answer.facts);
            rest = after;
        }
    }

    /// Whether generated content has arrived: text, thinking, or a tool call. Pings, comments, blank lines and
    /// `message_start` are not content.
    pub fn first_content_seen(&self) -> bool {
        self.flags.content
    }

    /// Whether the answer is complete according to its protocol. It is complete after its last event, even without the final
    /// blank line of the event; after an in-band error; or at the end of a JSON value. An opaque answer is always complete.
    pub fn is_complete(&self) -> bool {
        match &self.frame {
            FramingState::Sse(_) => {
                let unfinished = self.unfinished_answer();
                unfinished.map_or(self.flags.terminal, |answer| answer.facts.terminal)
            }
            FramingState::Json(body) => *body != BodyProgress::Open,
            FramingState::JsonArray(framer) => self.flags.terminal && framer.is_closed(),
            FramingState::Opaque(_) => true,
        }
    }

    /// Returns the answer as it would be if the current event or body ended here. Returns `None` if no event or body is
    /// unfinished, or if the JSON value of the current event is incomplete.
    fn unfinished_answer(&self) -> Option<AnswerProgress> {
        match &self.frame {
            FramingState::Sse(EventStreamState { framer, .. })
                if framer.has_open_data() && self.reading.picker.is_done() =>
            {
                let mut answer = self.reading.answer.clone();
                let AnswerProgress { dialect, facts } = &mut answer;
                dialect.on_event(&self.reading.picker, framer.open_name(), facts);
                Some(answer)
            }
            FramingState::Json(BodyProgress::Open) => {
                let mut answer = self.reading.answer.clone();
                answer.on_body(&self.reading.picker);
                Some(answer)
            }
            FramingState::Sse(_) | FramingState::Json(_) | FramingState::JsonArray(_) | FramingState::Opaque(_) => None,
        }
    }

    /// Returns the answer so far, including an event or body that has not ended.
    fn answer_so_far(&self) -> Cow<'_, AnswerProgress> {
        self.unfinished_answer()
            .map_or(Cow::Borrowed(&self.reading.answer), Cow::Owned)
    }

    /// Returns the number of output tokens so far, estimated from the text that the model has written. The call is cheap, however
    /// long the answer is.
    ///
    /// The estimate includes text, arguments of tool calls and visible reasoning, but not hidden reasoning. An opaque answer is
    /// estimated from its length.
    pub fn output_estimate(&self) -> u64 {
        match &self.frame {
            FramingState::Opaque(bytes) => unreadable_tokens(*bytes),
            FramingState::Sse(_) | FramingState::Json(_) | FramingState::JsonArray(_) => self.classes().tokens(),
        }
    }

    /// Returns the token estimate of the text so far; empty for an opaque answer.
    pub fn classes(&self) -> &CharClasses {
        self.text_counter.classes()
    }

    /// Returns the reports of the answer so far.
    pub fn observed(&self) -> AnswerReport {
        let answer = self.answer_so_far();
        let facts = &answer.facts;
        let runs = answer.dialect.runs();
        AnswerReport {
            usage: answer.dialect.usage(&runs),
            runs,
            unlimited: answer.dialect.unlimited(),
            usage_source: answer.dialect.usage_source(
                facts,
                matches!(self.frame, FramingState::Json(BodyProgress::Whole { .. })),
            ),
            modifiers: answer.dialect.modifiers(),
            finish_reason: facts.finish_reason.clone(),
            in_band_error: facts.error.clone(),
            model: facts.model.clone(),
            answer_id: facts.answer_id.clone(),
            complete: self.is_complete(),
            saw_done_marker: facts.done_marker,
        }
    }

    /// Returns the number of events that may have done more than add text, and so may have reported a usage. For a non-streaming
    /// answer, returns the number of pieces. While this number does not change, the reports do not change either. The call is
    /// always cheap.
    pub(crate) fn reports(&self) -> u64 {
        self.reports
    }

    /// Returns the number of identifiers of state in the complete events: the answer's own, and those of the state that it has
    /// created. The call is always cheap. The number is zero for a non-streaming answer, whose body is read at its end.
    pub fn state_name_count(&self) -> u16 {
        match &self.frame {
            FramingState::Json(_) => 0,
            FramingState::Sse(_) | FramingState::JsonArray(_) | FramingState::Opaque(_) => self.flags.names,
        }
    }

    /// Returns the identifier under which the provider may store the answer; `None` until it is known.
    pub fn answer_id(&self) -> Option<SmolStr> {
        match self.answer_so_far() {
            Cow::Borrowed(answer) => answer.facts.answer_id.clone(),
            Cow::Owned(answer) => answer.facts.answer_id,
        }
    }

    /// Returns the state that the answer has created at the provider so far.
    pub fn created_state(&self) -> Cow<'_, CreatedState> {
        match self.answer_so_far() {
            Cow::Borrowed(answer) => Cow::Borrowed(&answer.facts.created_state),
            Cow::Owned(answer) => Cow::Owned(answer.facts.created_state),
        }
    }

    /// Returns the number of bytes of heap memory in buffers: at most [`HEAP_BYTES_MAX`], about 2 KiB with real streams.
    pub fn heap_bytes(&self) -> usize {
        let template = match &self.frame {
            FramingState::Sse(EventStreamState { template, .. }) => template.heap_bytes(),
            FramingState::Json(_) | FramingState::JsonArray(_) | FramingState::Opaque(_) => 0,
        };
        let AnswerReader { picker, answer } = &*self.reading;
        picker.heap_bytes() + answer.dialect.heap_bytes() + answer.facts.created_state.heap_bytes() + template
    }
}
