//! The reports of an answer, and how far it has been read.

use smol_str::SmolStr;

use crate::domain::wire::{
    json_pick::{Picker, Picks},
    protocol::{InBandError, dialect::AnswerDialect, facts::AnswerFacts},
    usage::{PriceModifiers, Run, UnlimitedWork, Usage, UsageSource},
};

/// The reports of an answer so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnswerReport {
    /// The reported usage of all models that worked on the answer; `None` without a report.
    pub usage: Option<Usage>,
    /// The usage of each run of a model, if there were several; their total is `usage`. Empty for a single run.
    pub runs: Vec<Run>,
    /// The work that the requested output limit does not cover.
    pub unlimited: UnlimitedWork,
    /// Whether the usage is final ([`UsageSource::Reported`]) or incomplete ([`UsageSource::Partial`]: the answer was
    /// interrupted, or a count was missing or unreadable); `None` without any. An explicit zero is a count.
    pub usage_source: Option<UsageSource>,
    /// The properties of the answer that change its price, as the provider wrote them.
    pub modifiers: PriceModifiers,
    /// The protocol's own word for why the answer ended (`end_turn`, `completed`, `STOP`, ...).
    pub finish_reason: Option<SmolStr>,
    /// The provider's error inside the answer.
    pub in_band_error: Option<InBandError>,
    /// The model that answered, by the provider's report.
    pub model: Option<SmolStr>,
    /// The identifier under which the provider may keep the answer (Messages, Responses).
    pub answer_id: Option<SmolStr>,
    /// Whether the answer's end has arrived (see [`super::Observer::is_complete`]).
    pub complete: bool,
    /// Whether `data: [DONE]` has arrived.
    pub saw_done_marker: bool,
}

/// The state of an answer: in its protocol, and common to all protocols.
#[derive(Clone, Debug)]
pub(super) struct AnswerProgress {
    pub(super) dialect: AnswerDialect,
    pub(super) facts: AnswerFacts,
}

/// Reads messages into an answer's state. It is large and boxed, because most events of a stream are recognised without it.
#[derive(Debug)]
pub(super) struct AnswerReader {
    /// The event, element or body in progress.
    pub(super) picker: Picker,
    pub(super) answer: AnswerProgress,
}

/// The facts of an answer that are read after each piece.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct AnswerFlags {
    pub(super) begun: bool,
    pub(super) content: bool,
    pub(super) terminal: bool,
    /// The number of identifiers of state: the answer's own, and those of the state that it has created. `MADE_MAX` limits it.
    pub(super) names: u16,
}

impl AnswerFlags {
    /// Copies them from `facts`.
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

/// Whether a body that is not a stream has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyProgress {
    /// The body has not ended, or never will, because it is not JSON.
    Open,
    /// The body has ended.
    Whole { is_error: bool },
}

impl AnswerProgress {
    /// Handles a body that is not a stream, as far as it was read.
    pub(super) fn on_body(&mut self, picks: &Picks<'_>) {
        self.facts.content_seen |= self.dialect.body_has_content(picks);
        self.dialect.on_body(picks, &mut self.facts);
        self.dialect.record_created_state(picks, &mut self.facts.created_state);
    }

    /// Handles such a body at its end.
    pub(super) fn on_body_end(&mut self, picks: &Picks<'_>) -> BodyProgress {
        self.on_body(picks);
        BodyProgress::Whole {
            is_error: self.dialect.is_body_error(picks),
        }
    }
}
