//! Handles one event of a stream.

use super::answer_progress::AnswerProgress;
use super::template::MereText;
use crate::domain::wire::json_pick::{Picker, Said};
use crate::domain::wire::sse::EventSink;

pub(super) const DONE_MARKER: &[u8] = b"[DONE]";

/// The first bytes of an event's data, to know the `[DONE]` marker, which is no JSON.
#[derive(Debug, Default)]
pub(super) struct Head {
    /// The bytes that were as in the marker.
    same: u8,
    /// Others came.
    differs: bool,
}

impl Head {
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

/// Where the data of one event go.
pub(super) struct Sink<'a> {
    picker: &'a mut Picker,
    answer: &'a mut AnswerProgress,
    head: &'a mut Head,
    /// The pieces of data that came, and the bytes of the last.
    pieces: usize,
    piece_bytes: usize,
    /// The event has ended and was nothing but more text, which stands there in the last piece of data.
    mere_text: Option<MereText>,
    says_more: bool,
    can_be_taken_back: bool,
    /// The event has ended; whether it is an error.
    ended_as_error: Option<bool>,
}

impl<'a> Sink<'a> {
    pub(super) fn new(picker: &'a mut Picker, answer: &'a mut AnswerProgress, head: &'a mut Head) -> Self {
        Self {
            picker,
            answer,
            head,
            pieces: 0,
            piece_bytes: 0,
            mere_text: None,
            says_more: false,
            can_be_taken_back: false,
            ended_as_error: None,
        }
    }

    /// Whether the event is an error; `None` if it has not ended.
    pub(super) fn ended_as_error(&self) -> Option<bool> {
        self.ended_as_error
    }

    /// Whether the event has ended and said what an event of mere text takes back (see
    /// [`crate::domain::wire::protocol::dialect::Dialect::can_be_taken_back`]).
    pub(super) fn can_be_taken_back(&self) -> bool {
        self.can_be_taken_back
    }

    /// Whether the event has ended and may have said more than text.
    pub(super) fn says_more(&self) -> bool {
        self.says_more
    }

    /// Where the text stands in an event that was nothing but more text.
    pub(super) fn text_in(&self, event: &[u8]) -> Option<MereText> {
        let text = self.mere_text.filter(|_| self.pieces == 1)?;
        // Its data are its last line.
        let lines = event
            .strip_suffix(b"\r\n\r\n")
            .or_else(|| event.strip_suffix(b"\n\n"))?;
        let data_at = lines.len().checked_sub(self.piece_bytes)?;
        let before = event.get(..data_at)?;
        let at = data_at + text.at;
        (before == b"data: " || before.ends_with(b"\ndata: ")).then_some(MereText { at, ..text })
    }
}

impl EventSink for Sink<'_> {
    fn data(&mut self, bytes: &[u8]) {
        self.pieces += 1;
        self.piece_bytes = bytes.len();
        self.head.push(bytes);
        self.picker.push(bytes);
    }

    fn end(&mut self, name: &[u8]) {
        let AnswerProgress { dialect, facts } = &mut *self.answer;
        let is_marker = self.head.is_marker();
        self.ended_as_error = Some(!is_marker && dialect.is_error(self.picker, name));
        if is_marker {
            facts.done_marker = true;
        } else {
            let is_first = !facts.content_seen;
            self.can_be_taken_back = dialect.can_be_taken_back(self.picker, facts);
            dialect.event(self.picker, name, facts);
            let spoken = dialect.only_speaks(self.picker);
            self.says_more = is_first || spoken.is_none_or(|spoken| spoken.usage.is_some());
            if let Said::Once { at, length } = self.picker.said()
                && !is_first
                && self.picker.is_done()
                && let Some(spoken) = spoken
            {
                self.mere_text = Some(MereText { at, length, spoken });
            }
        }
        *self.head = Head::default();
        self.picker.reset();
    }
}
