//! Parts of the admin API's answers as people read them.

use jiff::Timestamp;
use maud::{Markup, html};
use serde_json::Value;

use crate::{api::values::Moment, domain::money::NanoUsd};

/// A text; empty if it is none.
pub(super) fn text<'a>(of: &'a Value, field: &str) -> &'a str {
    of.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// A list; empty if it is none.
pub(super) fn list<'a>(of: &'a Value, field: &str) -> &'a [Value] {
    of.get(field)
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default()
}

/// A count; 0 if it is none.
pub(super) fn count(of: &Value, field: &str) -> u64 {
    of.get(field).and_then(Value::as_u64).unwrap_or(0)
}

/// Whether a number is above zero (1), zero, or below it (-1); zero if it is none.
pub(super) fn signum(of: &Value, field: &str) -> i64 {
    of.get(field).and_then(Value::as_i64).map_or(0, i64::signum)
}

/// Whether it is so.
pub(super) fn is(of: &Value, field: &str) -> bool {
    of.get(field).and_then(Value::as_bool).unwrap_or(false)
}

/// What stands in a field, as text; empty for null.
pub(super) fn plain(of: &Value, field: &str) -> String {
    match of.get(field) {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

/// An amount in USD, or a word where there is none.
pub(super) fn usd(of: &Value, field: &str, without: &str) -> Markup {
    match of.get(field).and_then(Value::as_str) {
        Some(amount) => dollars(amount),
        None => html! { span class="none" { (without) } },
    }
}

/// An amount that is told in nano-USD; nothing is zero.
pub(super) fn nanos(of: &Value, field: &str) -> Markup {
    let nanos = of.get(field).and_then(Value::as_i64).unwrap_or(0);
    dollars(&NanoUsd::from_nanos(nanos).to_string())
}

/// An amount as it is written in money; never rounded.
pub(super) fn dollars(amount: &str) -> Markup {
    let (sign, digits) = amount
        .strip_prefix('-')
        .map_or(("", amount), |digits| ("\u{2212}", digits));
    html! { span class="money" { (sign) "$" (digits) } }
}

/// A number, or a word where there is none.
pub(super) fn number(of: &Value, field: &str, without: &str) -> Markup {
    figure(of.get(field).and_then(Value::as_u64), without)
}

/// A count, or a word where there is none.
pub(super) fn figure(count: Option<u64>, without: &str) -> Markup {
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

/// A time of RFC 3339, to the second and in UTC, or a word where there is none.
pub(super) fn time(of: &Value, field: &str, without: &str) -> Markup {
    moment(text(of, field), without)
}

/// A time in milliseconds since the Unix epoch.
pub(super) fn time_ms(of: &Value, field: &str) -> Markup {
    at(
        of.get(field).and_then(Value::as_i64).and_then(Moment::of_millis),
        "unknown",
    )
}

/// A time, to the second and in UTC, or a word where there is none.
pub(super) fn at(time: Option<Moment>, without: &str) -> Markup {
    moment(&time.map(|time| time.to_string()).unwrap_or_default(), without)
}

fn moment(at: &str, without: &str) -> Markup {
    match at.parse::<Timestamp>() {
        Ok(time) => html! { time datetime=(at) { (time.strftime("%Y-%m-%d %H:%M:%S")) } },
        Err(_) => html! { span class="none" { (without) } },
    }
}

/// Something that people have named, which may hold anything.
pub(super) fn name(text: &str) -> Markup {
    html! { bdi { (text) } }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_shown_as_people_read_them() {
        let of = json!({ "usd": "-1.500", "n": 1_234_567, "at": "2026-11-22T15:30:00.123Z", "nothing": null });
        assert_eq!(
            usd(&of, "usd", "?").into_string(),
            "<span class=\"money\">\u{2212}$1.500</span>"
        );
        assert_eq!(
            usd(&of, "nothing", "Unlimited").into_string(),
            "<span class=\"none\">Unlimited</span>"
        );
        assert_eq!(number(&of, "n", "?").into_string(), "1,234,567");
        let owed = json!({ "usd": -1, "none": 0 });
        assert_eq!(["usd", "none", "other"].map(|field| signum(&owed, field)), [-1, 0, 0]);
        assert_eq!(
            [0, 12, 999, 1000, 100_000].map(thousands),
            ["0", "12", "999", "1,000", "100,000"]
        );
        let shown = "<time datetime=\"2026-11-22T15:30:00.123Z\">2026-11-22 15:30:00</time>";
        assert_eq!(time(&of, "at", "never").into_string(), shown);
        assert_eq!(
            time(&of, "nothing", "never").into_string(),
            "<span class=\"none\">never</span>"
        );
        assert_eq!(
            (plain(&of, "n"), plain(&of, "nothing")),
            ("1234567".to_owned(), String::new())
        );
    }

    #[test]
    fn a_name_stays_text_and_turns_nothing_around_it() {
        let shown = name("<b>\u{202e}x").into_string();
        assert_eq!(shown, "<bdi>&lt;b&gt;\u{202e}x</bdi>");
    }
}
