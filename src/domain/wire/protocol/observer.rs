//! The observer reads an answer's bytes as they pass, in bounded memory.

mod answer_progress;
mod boundaries;
mod frame;
mod framing;
mod sink;
mod template;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

use smol_str::SmolStr;

use crate::domain::wire::json_pick::Picker;
use crate::domain::wire::protocol::dialect::Dialect;
use crate::domain::wire::protocol::facts::Facts;
use crate::domain::wire::protocol::made::Made;
use crate::domain::wire::protocol::{Break, Protocol};
use crate::domain::wire::tokens::{CharClasses, unreadable_tokens};
use answer_progress::{AnswerProgress, Body};
use frame::Frame;
use framing::FirstBytes;
use sink::{DONE_MARKER, Sink};

pub use answer_progress::Observed;
pub(crate) use boundaries::Boundaries;
pub use framing::Framing;
pub(crate) use framing::framing_of;

/// The most heap memory that an observer uses, in bytes.
pub const HEAP_BYTES_MAX: usize = 128 * 1024;

/// Reads one answer. Any division of the same bytes into chunks gives the same result.
///
/// Memory is bounded whatever the size of an event or line ([`Observer::heap_bytes`]), and in steady state a chunk
/// allocates nothing.
#[derive(Debug)]
pub struct Observer {
    /// The event, element or body in progress.
    picker: Picker,
    answer: AnswerProgress,
    frame: Frame,
    framing: Framing,
    /// The first bytes, until they have told the framing.
    first_bytes: Option<FirstBytes>,
    /// How many events have said more than text.
    reports: u64,
    /// How the last piece was divided.
    boundaries: Boundaries,
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
            picker: Picker::new(dialect.paths()),
            answer: AnswerProgress {
                dialect,
                facts: Facts::default(),
            },
            frame: Frame::new(framing),
            framing,
            first_bytes,
            reports: 0,
            boundaries: Boundaries::default(),
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
        self.answer().facts.begun
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
        if self.frame.is_open_part_harmless(&self.picker, &self.answer.dialect) {
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
        match self.picker.pick_whole(bytes) {
            Some(picks) => *body = self.answer.whole_body(&picks),
            None => return false,
        }
        true
    }

    /// Reads bytes that stand at this place of the piece.
    fn read(&mut self, chunk: &[u8], place: usize) {
        let Self {
            picker,
            answer,
            frame,
            reports,
            boundaries,
            ..
        } = self;
        let end = place + chunk.len();
        match frame {
            Frame::Sse { framer, head, template } => {
                let mut rest = chunk;
                while !rest.is_empty() {
                    let is_whole = framer.is_at_event();
                    if is_whole && let Some(event) = template.split(rest) {
                        picker.hear(event.text);
                        if let Some(number) = event.number {
                            answer.dialect.numbered(number);
                        }
                        if let Some(usage) = event.usage {
                            *reports += 1;
                            answer.dialect.used(usage);
                        }
                        rest = event.rest;
                        boundaries.end_message(end - rest.len(), false);
                        continue;
                    }
                    let mut sink = Sink::new(picker, answer, head);
                    let used = framer.push_event(rest, &mut sink);
                    *reports += u64::from(sink.says_more());
                    if sink.can_be_taken_back() {
                        template.forget();
                    }
                    let (event, after) = rest.split_at_checked(used).unwrap_or((rest, &[]));
                    if let Some(is_error) = sink.ended_as_error() {
                        boundaries.end_message(end - after.len(), is_error);
                    }
                    if is_whole && let Some(text) = sink.text_in(event) {
                        template.learn(event, text);
                    }
                    rest = after;
                }
            }
            Frame::Json(body) => {
                if *body == Body::Open {
                    picker.push(chunk);
                    answer.facts.content_seen |= answer.dialect.body_has_content(picker);
                    if picker.is_done() {
                        *body = answer.whole_body(picker);
                    }
                }
                if let Body::Whole { is_error } = body {
                    boundaries.end_message(end, *is_error);
                }
            }
            Frame::JsonArray(framer) => {
                framer.push(chunk, picker, |element, at| {
                    *reports += 1;
                    answer.dialect.event(element, b"", &mut answer.facts);
                    boundaries.end_message(place + at, answer.dialect.is_error(element, b""));
                });
            }
            Frame::Opaque(bytes) => {
                *bytes = bytes.saturating_add(u64::try_from(chunk.len()).unwrap_or(u64::MAX));
                // No answer: whatever it is, it is not read as one.
                boundaries.error_from = Some(0);
            }
        }
    }

    /// Whether generated content has passed: text, thinking, or a tool call. Pings, comments, blank lines and
    /// `message_start` are not content.
    pub fn first_content_seen(&self) -> bool {
        self.answer.facts.content_seen
    }

    /// Whether the end by the protocol was seen: its last event, an in-band error, or the end of a JSON value. An
    /// opaque answer is always complete.
    ///
    /// An event that lacks only its final blank line counts.
    pub fn is_complete(&self) -> bool {
        match &self.frame {
            Frame::Sse { .. } => self.answer().facts.terminal,
            Frame::Json(body) => *body != Body::Open,
            Frame::JsonArray(framer) => self.answer.facts.terminal && framer.is_closed(),
            Frame::Opaque(_) => true,
        }
    }

    /// The answer as it is, with what an event says that lacks only its end, and a body that has not ended.
    fn answer(&self) -> Cow<'_, AnswerProgress> {
        match &self.frame {
            Frame::Sse { framer, .. } if framer.has_open_data() && self.picker.is_done() => {
                let mut answer = self.answer.clone();
                let AnswerProgress { dialect, facts } = &mut answer;
                dialect.event(&self.picker, framer.open_name(), facts);
                Cow::Owned(answer)
            }
            Frame::Json(Body::Open) => {
                let mut answer = self.answer.clone();
                answer.body(&self.picker);
                Cow::Owned(answer)
            }
            Frame::Sse { .. } | Frame::Json(_) | Frame::JsonArray(_) | Frame::Opaque(_) => Cow::Borrowed(&self.answer),
        }
    }

    /// The output tokens so far, estimated from the text that the model has written. Cheap at any time.
    ///
    /// Counts text, arguments of tool calls and visible reasoning; hidden reasoning cannot be seen. An opaque answer is
    /// estimated by its bytes.
    pub fn output_estimate(&self) -> u64 {
        match &self.frame {
            Frame::Opaque(bytes) => unreadable_tokens(*bytes),
            Frame::Sse { .. } | Frame::Json(_) | Frame::JsonArray(_) => self.classes().tokens(),
        }
    }

    /// The kinds of bytes in the text so far; empty for an opaque answer.
    pub fn classes(&self) -> &CharClasses {
        self.picker.heard().classes()
    }

    /// All that the answer has reported so far.
    pub fn observed(&self) -> Observed {
        let answer = self.answer();
        let facts = &answer.facts;
        Observed {
            usage: answer.dialect.usage(),
            runs: answer.dialect.runs(),
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
    pub fn names(&self) -> usize {
        if matches!(self.frame, Frame::Json(_)) {
            return 0;
        }
        let facts = &self.answer.facts;
        usize::from(facts.answer_id.is_some()) + facts.made.kept.len() + facts.made.always.len()
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

    /// The bytes to append to a complete stream: the `[DONE]` marker, where the protocol has one and the provider sent none.
    ///
    /// Providers of the Responses protocol send none, although clients here are promised it (docs/interface.md, Streams).
    pub fn closing(&self) -> Option<Vec<u8>> {
        let Frame::Sse { framer, head, .. } = &self.frame else {
            return None;
        };
        let AnswerProgress { dialect, facts } = &self.answer;
        if !dialect.ends_with_done() || facts.done_marker || !self.is_complete() {
            return None;
        }
        if framer.has_open_data() && head.is_marker() {
            // It is there, but for the blank line without which no client acts on it.
            return Some(b"\n\n".to_vec());
        }
        let before: &[u8] = if framer.is_between_events() { b"" } else { b"\n\n" };
        Some([before, b"data: ", DONE_MARKER, b"\n\n"].concat())
    }

    /// The bytes to append so that the client sees the protocol's in-band error.
    ///
    /// `None` if the error cannot be expressed in band (a unary or opaque body, or a closed array); the connection must
    /// be broken then.
    pub fn failure_tail(&self, why: Break) -> Option<Vec<u8>> {
        let AnswerProgress { dialect, facts } = &self.answer;
        match &self.frame {
            Frame::Sse { framer, .. } => {
                let event = dialect.failure_event(why, facts);
                let is_inside_field = self.first_bytes.as_ref().is_some_and(|first| !first.taken().is_empty());
                // Two line ends: the first may belong to a CR before it, or to half a line.
                let before: &[u8] = if framer.is_between_events() && !is_inside_field {
                    b""
                } else {
                    b"\n\n"
                };
                Some([before, event.as_slice()].concat())
            }
            Frame::JsonArray(framer) => framer.failure_tail(&self.picker, &dialect.failure_element(why)?),
            Frame::Json(_) | Frame::Opaque(_) => None,
        }
    }

    /// The heap memory in buffers: at most [`HEAP_BYTES_MAX`], about 2 KiB with real streams.
    pub fn heap_bytes(&self) -> usize {
        let template = match &self.frame {
            Frame::Sse { template, .. } => template.heap_bytes(),
            Frame::Json(_) | Frame::JsonArray(_) | Frame::Opaque(_) => 0,
        };
        self.picker.heap_bytes() + self.answer.dialect.heap_bytes() + self.answer.facts.made.heap_bytes() + template
    }
}
