//! What an answer has said so far.

use smol_str::SmolStr;

use crate::domain::wire::{
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
