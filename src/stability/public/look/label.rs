//! A health label: its colour, its pill, and the words beside it.

use maud::{Markup, html};

use crate::domain::faults::stability::{Confidence, Counters, Health};

/// All labels, in the order in which a legend or a sum names them.
pub(crate) const ALL: [Health; 6] = [
    Health::Operational,
    Health::Healthy,
    Health::Degraded,
    Health::Unstable,
    Health::NotEnoughData,
    Health::NoData,
];

/// The class that gives a label's colours in the style sheet. One letter: a page of many models has thousands.
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

/// The label as a pill: a dot and its words.
pub(crate) fn pill(health: Health) -> Markup {
    html! { span class={ "pill " (class(health)) } { (health.as_str()) } }
}

/// What the figures are worth, in words.
pub(crate) fn confidence(counters: &Counters) -> &'static str {
    match counters.figures().confidence {
        Confidence::High => "High",
        Confidence::Medium => "Medium",
        Confidence::Low => "Low",
    }
}
