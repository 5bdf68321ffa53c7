//! What an answer has said so far.

use smol_str::SmolStr;

use crate::domain::wire::{
    json_pick::{Picker, Picks},
    protocol::{InBandError, dialect::Dialect, facts::Facts},
    usage::{Modifiers, Run, Unlimited, Usage, UsageSource},
};

/// What an answer has reported so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// The usage that the provider reported, if it reported any: that of all models that worked on the answer.
    pub usage: Option<Usage>,
    /// What each of several runs of models consumed, which make that usage; empty if there was one run.
    pub runs: Vec<Run>,
    /// What was done beside the requested limit of output.
    pub unlimited: Unlimited,
    /// Whether those figures are the provider's last word ([`UsageSource::Reported`]) or only some of them
    /// ([`UsageSource::Partial`]: the answer broke off, or the provider left a count out or sent none that can be read); `None`
    /// without any. An explicit zero is a figure.
    pub usage_source: Option<UsageSource>,
    /// What the answer said that changes its price, as it spelt it.
    pub modifiers: Modifiers,
    /// The protocol's own word for why the answer ended (`end_turn`, `completed`, `STOP`, ...).
    pub finish_reason: Option<SmolStr>,
    /// The error that the provider put into the answer.
    pub in_band_error: Option<InBandError>,
    /// The model that says it answered.
    pub model: Option<SmolStr>,
    /// The identifier under which the provider may keep the answer (Messages, Responses).
    pub answer_id: Option<SmolStr>,
    /// Whether the answer's end was seen (see [`super::Observer::is_complete`]).
    pub complete: bool,
    /// Whether `data: [DONE]` was seen.
    pub saw_done_marker: bool,
}

/// What the answer has said, as its protocol keeps it.
#[derive(Clone, Debug)]
pub(super) struct AnswerProgress {
    pub(super) dialect: Dialect,
    pub(super) facts: Facts,
}

/// What reads a message, and what all that were read have said. It is large and lies apart, because most pieces of a stream are
/// recognised and need none of it.
#[derive(Debug)]
pub(super) struct Reading {
    /// The event, element or body in progress.
    pub(super) picker: Picker,
    pub(super) answer: AnswerProgress,
}

/// What is asked of an answer with each piece.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) begun: bool,
    pub(super) content: bool,
    pub(super) terminal: bool,
    /// Names of state: the answer's own, and those of what it has created. `MADE_MAX` limits them.
    pub(super) names: u16,
}

impl Seen {
    /// What these facts say.
    pub(super) fn of(facts: &Facts) -> Self {
        let names = usize::from(facts.answer_id.is_some()) + facts.made.kept.len() + facts.made.always.len();
        Self {
            begun: facts.begun,
            content: facts.content_seen,
            terminal: facts.terminal,
            names: u16::try_from(names).unwrap_or(u16::MAX),
        }
    }
}

/// How far a body in one piece has been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Body {
    /// Its end has not come, or never will, because it is no JSON.
    Open,
    /// Its end has come, and what it says is known.
    Whole { is_error: bool },
}

impl AnswerProgress {
    /// Takes in all that a body in one piece says.
    pub(super) fn body(&mut self, picks: &Picks<'_>) {
        self.facts.content_seen |= self.dialect.body_has_content(picks);
        self.dialect.body(picks, &mut self.facts);
        self.dialect.made(picks, &mut self.facts.made);
    }

    /// The same at the body's end.
    pub(super) fn whole_body(&mut self, picks: &Picks<'_>) -> Body {
        self.body(picks);
        Body::Whole {
            is_error: self.dialect.is_body_error(picks),
        }
    }
}
