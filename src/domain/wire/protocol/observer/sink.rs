//! Handles the events and bodies of an answer, and defines what an observer reports about the answer.

use smol_str::SmolStr;

use crate::domain::wire::{
    json_pick::{Picker, Picks, TextSpan},
    protocol::{AnswerFacts, InBandError, dialect::AnswerDialect, observer::template::TextOnlyEvent},
    sse::EventSink,
    usage::{PriceModifiers, Run, UnlimitedWork, Usage, UsageSource},
};

pub(super) const DONE_MARKER: &[u8] = b"[DONE]";

/// A comparison of an event's data with the `[DONE]` marker, which is not JSON.
#[derive(Debug, Default)]
pub(super) struct DoneMarkerMatch {
    /// The number of bytes that have matched the marker so far.
    same: u8,
    /// Whether bytes have arrived that differ from the marker.
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

/// A receiver for the data of one event in an answer.
pub(super) struct AnswerEventSink<'a> {
    picker: &'a mut Picker,
    answer: &'a mut AnswerProgress,
    head: &'a mut DoneMarkerMatch,
    /// The number of pieces in which the data arrived. `piece_bytes` is the length of the last piece in bytes.
    pieces: usize,
    piece_bytes: usize,
    /// The position of the text, if the event has ended and only added text. Its offset is relative to the last piece of the
    /// data.
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

    /// Returns whether the event is an error; `None` if it has not ended.
    pub(super) fn ended_as_error(&self) -> Option<bool> {
        self.ended_as_error
    }

    /// Whether the event has ended and reported something that a later event would revoke, even if the later event only adds text
    /// (see [`crate::domain::wire::protocol::dialect::AnswerDialect::is_revocable`]).
    pub(super) fn is_revocable(&self) -> bool {
        self.is_revocable
    }

    /// Whether the event has ended and may have done more than add text.
    pub(super) fn has_more_than_text(&self) -> bool {
        self.has_more_than_text
    }

    /// Returns the position of the text in `event`, if the event only added text; otherwise `None`.
    pub(super) fn text_only_in(&self, event: &[u8]) -> Option<TextOnlyEvent> {
        let text = self.text_only.filter(|_| self.pieces == 1)?;
        // The data is the last line of the event.
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
            dialect.on_done(facts);
        } else {
            let is_first = !facts.content_seen;
            self.is_revocable = dialect.is_revocable(self.picker, facts);
            dialect.on_event(self.picker, name, facts);
            let spoken = dialect.text_delta(self.picker);
            let has_usage_or_more = spoken.is_none_or(|spoken| spoken.usage.is_some());
            self.has_more_than_text = is_first || self.is_revocable || has_usage_or_more;
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

/// The reports of an answer so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnswerReport {
    /// The reported usage of all models that worked on the answer; `None` without a report.
    pub usage: Option<Usage>,
    /// The usage of each run of a model, if there were several; their total is `usage`. Empty for a single run.
    pub runs: Vec<Run>,
    /// The work in the answer that the requested output limit does not cover.
    pub unlimited: UnlimitedWork,
    /// Whether the usage is final ([`UsageSource::Reported`]) or incomplete ([`UsageSource::Partial`]); `None` without a report.
    /// It is incomplete if the answer was interrupted, or if a count was missing or unreadable. A count that is reported as zero
    /// is not missing.
    pub usage_source: Option<UsageSource>,
    /// The properties of the answer that change its price, as the provider wrote them.
    pub modifiers: PriceModifiers,
    /// The reason why the answer ended, as the protocol names it (`end_turn`, `completed`, `STOP`, ...).
    pub finish_reason: Option<SmolStr>,
    /// The error that the provider has put into the answer; `None` if there is none.
    pub in_band_error: Option<InBandError>,
    /// The model that answered, as the provider reported it.
    pub model: Option<SmolStr>,
    /// The identifier under which the provider may store the answer (Messages, Responses); `None` if it has none.
    pub answer_id: Option<SmolStr>,
    /// Whether the answer is complete according to its protocol (see [`super::Observer::is_complete`]).
    pub complete: bool,
    /// Whether `data: [DONE]` has arrived.
    pub saw_done_marker: bool,
}

/// The state of reading an answer: the state of its protocol, and the facts that are common to all protocols.
#[derive(Clone, Debug)]
pub(super) struct AnswerProgress {
    pub(super) dialect: AnswerDialect,
    pub(super) facts: AnswerFacts,
}

/// A reader of an answer's messages. It is large, and is therefore boxed: most events of a stream are recognised without it.
#[derive(Debug)]
pub(super) struct AnswerReader {
    /// The picker that reads the current event, element or body.
    pub(super) picker: Picker,
    pub(super) answer: AnswerProgress,
}

/// The facts of an answer that are needed after each piece.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct AnswerFlags {
    pub(super) begun: bool,
    pub(super) content: bool,
    pub(super) terminal: bool,
    /// The number of identifiers of state: the answer's own, and those of the state that it has created. Each list of created
    /// state has at most `MADE_MAX` identifiers.
    pub(super) names: u16,
}

impl AnswerFlags {
    /// Copies the flags from `facts`.
    pub(super) fn from_facts(facts: &AnswerFacts) -> Self {
        let names =
            usize::from(facts.answer_id.is_some()) + facts.created_state.kept.len() + facts.created_state.always.len();
        Self {
            begun: facts.has_begun,
            content: facts.content_seen,
            terminal: facts.terminal,
            names: u16::try_from(names).unwrap_or(u16::MAX),
        }
    }
}

/// Whether the body of a non-streaming answer has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyProgress {
    /// The body has not ended. A body that is not JSON never ends.
    Open,
    /// The body has ended.
    Whole { is_error: bool },
}

impl AnswerProgress {
    /// Handles the body of a non-streaming answer, as far as it was read.
    pub(super) fn on_body(&mut self, picks: &Picks<'_>) {
        self.facts.content_seen |= self.dialect.body_has_content(picks);
        self.dialect.on_body(picks, &mut self.facts);
        self.dialect.record_created_state(picks, &mut self.facts.created_state);
    }

    /// Handles the body of a non-streaming answer at its end.
    pub(super) fn on_body_end(&mut self, picks: &Picks<'_>) -> BodyProgress {
        self.on_body(picks);
        BodyProgress::Whole {
            is_error: self.dialect.is_body_error(picks),
        }
    }
}
