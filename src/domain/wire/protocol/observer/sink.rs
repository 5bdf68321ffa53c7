//! Handles one event of a stream.

use super::answer_progress::AnswerProgress;
use super::template::TextOnlyEvent;
use crate::domain::wire::json_pick::{Picker, TextSpan};
use crate::domain::wire::sse::EventSink;

pub(super) const DONE_MARKER: &[u8] = b"[DONE]";

/// Compares an event's data with the `[DONE]` marker, which is not JSON.
#[derive(Debug, Default)]
pub(super) struct DoneMarkerMatch {
    /// The number of bytes that equal those of the marker.
    same: u8,
    /// Other bytes have arrived.
    differs: bool,
}

impl DoneMarkerMatch {
    fn push(&mut self, bytes: &[u8]) {
        if !self.differs {
            let rest = DONE_MARKER.get(usize::from(self.same)..).unwrap_or_default();
            self.differs = !rest.starts_with(bytes);
            self.same += u8::try_from(bytes.len()).unwrap_or(0);
        }
    }

    pub(super) fn is_marker(&self) -> bool {
        !self.differs && usize::from(self.same) == DONE_MARKER.len()
    }
}

/// Receives the data of one event.
pub(super) struct AnswerEventSink<'a> {
    picker: &'a mut Picker,
    answer: &'a mut AnswerProgress,
    head: &'a mut DoneMarkerMatch,
    /// The number of pieces of data, and the length of the last one.
    pieces: usize,
    piece_bytes: usize,
    /// Set if the event has ended and only added text; its offset is in the last piece of data.
    text_only: Option<TextOnlyEvent>,
    has_more_than_text: bool,
    is_revocable: bool,
    /// Whether the event is an error; `None` if it has not ended.
    ended_as_error: Option<bool>,
}

impl<'a> AnswerEventSink<'a> {
    pub(super) fn new(picker: &'a mut Picker, answer: &'a mut AnswerProgress, head: &'a mut DoneMarkerMatch) -> Self {
        Self {
            picker,
            answer,
            head,
            pieces: 0,
            piece_bytes: 0,
            text_only: None,
            has_more_than_text: false,
            is_revocable: false,
            ended_as_error: None,
        }
    }

    /// Whether the event is an error; `None` if it has not ended.
    pub(super) fn ended_as_error(&self) -> Option<bool> {
        self.ended_as_error
    }

    /// Whether the event has ended, and an event that only adds text would revoke what it says (see
    /// [`crate::domain::wire::protocol::dialect::Dialect::can_be_taken_back`]).
    pub(super) fn is_revocable(&self) -> bool {
        self.is_revocable
    }

    /// Whether the event has ended and may have had more than text.
    pub(super) fn has_more_than_text(&self) -> bool {
        self.has_more_than_text
    }

    /// The position of the text in an event that only added text.
    pub(super) fn text_only_in(&self, event: &[u8]) -> Option<TextOnlyEvent> {
        let text = self.text_only.filter(|_| self.pieces == 1)?;
        // The data are the event's last line.
        let lines = event
            .strip_suffix(b"\r\n\r\n")
            .or_else(|| event.strip_suffix(b"\n\n"))?;
        let data_at = lines.len().checked_sub(self.piece_bytes)?;
        let before = event.get(..data_at)?;
        let at = data_at + text.at;
        (before == b"data: " || before.ends_with(b"\ndata: ")).then_some(TextOnlyEvent { at, ..text })
    }
}

impl EventSink for AnswerEventSink<'_> {
    fn on_data(&mut self, bytes: &[u8]) {
        self.pieces += 1;
        self.piece_bytes = bytes.len();
        self.head.push(bytes);
        self.picker.push(bytes);
    }

    fn on_event_end(&mut self, name: &[u8]) {
        let AnswerProgress { dialect, facts } = &mut *self.answer;
        let is_marker = self.head.is_marker();
        self.ended_as_error = Some(!is_marker && dialect.is_error(self.picker, name));
        if is_marker {
            facts.done_marker = true;
        } else {
            let is_first = !facts.content_seen;
            self.is_revocable = dialect.is_revocable(self.picker, facts);
            dialect.on_event(self.picker, name, facts);
            let spoken = dialect.text_delta(self.picker);
            self.has_more_than_text = is_first || spoken.is_none_or(|spoken| spoken.usage.is_some());
            if let TextSpan::Once { at, length } = self.picker.text_span()
                && !is_first
                && self.picker.is_done()
                && let Some(spoken) = spoken
            {
                self.text_only = Some(TextOnlyEvent {
                    at,
                    length,
                    delta: spoken,
                });
            }
        }
        *self.head = DoneMarkerMatch::default();
        self.picker.reset();
    }
}
