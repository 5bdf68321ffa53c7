//! Values of the admin API's answers, formatted for people.

use jiff::Timestamp;
use maud::{Markup, html};

use crate::{
    api::values::{Moment, Usd},
    domain::money::NanoUsd,
};

/// An amount in USD; `without` stands in for a missing one.
pub(super) fn money(amount: Option<Usd>, without: &str) -> Markup {
    match amount {
        Some(amount) => dollars(&amount.to_string()),
        None => html! { span class="none" { (without) } },
    }
}

/// An amount.
pub(super) fn amount(amount: NanoUsd) -> Markup {
    dollars(&amount.to_string())
}

/// An amount with its currency sign; never rounded.
pub(super) fn dollars(amount: &str) -> Markup {
    let (sign, digits) = amount
        .strip_prefix('-')
        .map_or(("", amount), |digits| ("\u{2212}", digits));
    html! { span class="money" { (sign) "$" (digits) } }
}

/// A count; `without` stands in for a missing one.
pub(super) fn count_or(count: Option<u64>, without: &str) -> Markup {
    match count {
        Some(count) => html! { (thousands(count)) },
        None => html! { span class="none" { (without) } },
    }
}

/// `1,234,567`
pub(super) fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A time to the second, in UTC; `without` stands in for a missing one.
pub(super) fn timestamp(time: Option<Moment>, without: &str) -> Markup {
    timestamp_text(&time.map(|time| time.to_string()).unwrap_or_default(), without)
}

fn timestamp_text(at: &str, without: &str) -> Markup {
    match at.parse::<Timestamp>() {
        Ok(time) => html! { time datetime=(at) { (time.strftime("%Y-%m-%d %H:%M:%S")) } },
        Err(_) => html! { span class="none" { (without) } },
    }
}

/// A name that a person has chosen: it may contain any character, also ones that change the direction of text.
pub(super) fn name(text: &str) -> Markup {
    html! { bdi { (text) } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_shown_as_people_read_them() {
        assert_eq!(
            money("-1.500".parse().ok(), "?").into_string(),
            "<span class=\"money\">\u{2212}$1.50</span>"
        );
        assert_eq!(
            money(None, "Unlimited").into_string(),
            "<span class=\"none\">Unlimited</span>"
        );
        assert_eq!(count_or(Some(1_234_567), "?").into_string(), "1,234,567");
        assert_eq!(
            [0, 12, 999, 1000, 100_000].map(thousands),
            ["0", "12", "999", "1,000", "100,000"]
        );
        let shown = "<time datetime=\"2026-11-22T15:30:00.123Z\">2026-11-22 15:30:00</time>";
        assert_eq!(
            timestamp("2026-11-22T15:30:00.123Z".parse().ok(), "never").into_string(),
            shown
        );
        assert_eq!(
            timestamp(None, "never").into_string(),
            "<span class=\"none\">never</span>"
        );
    }

    #[test]
    fn a_name_stays_text_and_turns_nothing_around_it() {
        let shown = name("<b>\u{202e}x").into_string();
        assert_eq!(shown, "<bdi>&lt;b&gt;\u{202e}x</bdi>");
    }
}
