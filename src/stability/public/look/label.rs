//! Health labels: their colours and their markup.

use maud::{Markup, html};

use crate::domain::faults::stability::{Confidence, Health, StabilityCounters};

/// All labels, in the order of legends and summaries.
pub(crate) const ALL: [Health; 6] = [
    Health::Operational,
    Health::Healthy,
    Health::Degraded,
    Health::Unstable,
    Health::NotEnoughData,
    Health::NoData,
];

/// The CSS class of a label's colours. One letter, because a page of many models has thousands.
pub(crate) const fn class(health: Health) -> &'static str {
    match health {
        Health::Operational => "o",
        Health::Healthy => "h",
        Health::Degraded => "d",
        Health::Unstable => "u",
        Health::NotEnoughData => "l",
        Health::NoData => "n",
    }
}

/// The label as a pill: a dot and its name.
pub(crate) fn pill(health: Health) -> Markup {
    html! { span class={ "pill " (class(health)) } { (health.as_str()) } }
}

/// The confidence of the figures, as a word.
pub(crate) fn confidence(counters: &StabilityCounters) -> &'static str {
    match counters.stats().confidence {
        Confidence::High => "High",
        Confidence::Medium => "Medium",
        Confidence::Low => "Low",
    }
}
