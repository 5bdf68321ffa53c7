//! What was spent day by day, as bars that are drawn here.

use std::collections::BTreeMap;

use jiff::{ToSpan, civil::Date};
use maud::{Markup, html};
use serde_json::Value;

use super::view;
use crate::{domain::money::NanoUsd, stability::public::look};

/// The drawing, in its own units: about as many pixels on a phone, so that its text can be read there.
const WIDTH: u32 = 480;
const HEIGHT: u32 = 150;
/// Where the axes are.
const LEFT: u32 = 66;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 122.0;
/// The most days: as long as sums are kept.
const DAYS_MAX: usize = 181;
/// The bars' part of the room that a day has.
const FILLED: f64 = 0.8;

/// A day with what was spent on it.
struct Day {
    date: Date,
    cost: i64,
    requests: u64,
}

/// The chart of an answer of the admin API's `/v1/usage?by=day`.
pub(super) fn chart(usage: &Value) -> Markup {
    let days = days(usage);
    let most = days.iter().max_by_key(|day| day.cost).filter(|day| day.cost > 0);
    let (Some(first), Some(last), Some(most)) = (days.first(), days.last(), most) else {
        return html! { p class="card none" { "Nothing was spent in this time." } };
    };
    let top = round_up(most.cost);
    let width = f64::from(WIDTH - LEFT) / days.iter().fold(0.0, |count, _| count + 1.0);
    let total = usage.get("total").unwrap_or(&Value::Null);
    let told = format!(
        "Spent from {} to {}: ${} in all, most on {}, ${}",
        first.date,
        last.date,
        view::text(total, "cost_usd"),
        most.date,
        NanoUsd::from_nanos(most.cost)
    );
    html! {
        figure class="card chart" {
            svg viewBox=(look::view_box(levels(top).map(|(_, label)| label), LEFT - 8, (WIDTH, HEIGHT))) role="img" aria-label=(told) {
                (axes(first, last, top))
                @for (place, day) in days.iter().enumerate().filter(|(_, day)| day.cost > 0) {
                    (bar(place, day, width, top))
                }
            }
            figcaption { (told) "." }
        }
    }
}

/// All days of the answer, also those without any use.
fn days(usage: &Value) -> Vec<Day> {
    let date = |field: &str| view::text(usage, field).parse::<Date>();
    let (Ok(from), Ok(until)) = (date("from"), date("until")) else {
        return Vec::new();
    };
    let lines = view::list(usage, "usage").iter();
    let lines: BTreeMap<&str, &Value> = lines.map(|line| (view::text(line, "day"), line)).collect();
    let dates = from.series(1.day()).take_while(|date| *date < until).take(DAYS_MAX);
    let day = |date: Date| {
        let line = lines.get(&*date.to_string()).copied().unwrap_or(&Value::Null);
        Day {
            date,
            cost: line.get("cost_nano_usd").and_then(Value::as_i64).unwrap_or(0),
            requests: view::count(line, "requests"),
        }
    };
    dates.map(day).collect()
}

fn bar(place: usize, day: &Day, width: f64, top: i64) -> Markup {
    // A chart has few days.
    let place = f64::from(u16::try_from(place).unwrap_or(u16::MAX));
    // What can be seen at all is.
    let height = (part(day.cost, top) * (BOTTOM - TOP)).max(1.0);
    let (x, wide) = (
        f64::from(LEFT) + place * width + width * (1.0 - FILLED) / 2.0,
        width * FILLED,
    );
    html! {
        rect class="day" x=(format!("{x:.1}")) y=(format!("{:.1}", BOTTOM - height)) width=(format!("{wide:.1}")) height=(format!("{height:.1}")) {
            title { (day.date) ": $" (NanoUsd::from_nanos(day.cost)) ", " (view::thousands(day.requests)) " requests" }
        }
    }
}

/// The lines at nothing, half and all of the scale: where they are, and their values.
fn levels(top: i64) -> [(f64, String); 3] {
    let levels = [(BOTTOM, 0), ((BOTTOM + TOP) / 2.0, top / 2), (TOP, top)];
    levels.map(|(y, value)| (y, format!("${}", NanoUsd::from_nanos(value))))
}

/// The lines with their values, and the first and the last day.
fn axes(first: &Day, last: &Day, top: i64) -> Markup {
    html! {
        g class="axes" aria-hidden="true" {
            @for (y, value) in levels(top) {
                path d={ "M" (LEFT) " " (y) "H" (WIDTH) } {}
                text x=(LEFT - 8) y=(y + 4.0) text-anchor="end" { (value) }
            }
            text x=(LEFT) y=(BOTTOM + 20.0) { (first.date) }
            text x=(WIDTH) y=(BOTTOM + 20.0) text-anchor="end" { (last.date) }
        }
    }
}

/// An amount as a part of the scale, to a thousandth.
fn part(cost: i64, top: i64) -> f64 {
    let thousandths = i128::from(cost) * 1000 / i128::from(top.max(1));
    f64::from(u16::try_from(thousandths).unwrap_or(1000)) / 1000.0
}

/// The next amount that people can read on a scale, as can its half.
fn round_up(nanos: i64) -> i64 {
    let mut scale: i64 = 2;
    loop {
        for step in [1, 2, 5] {
            let Some(top) = scale.checked_mul(step) else {
                return i64::MAX;
            };
            if top >= nanos {
                return top;
            }
        }
        let Some(next) = scale.checked_mul(10) else {
            return i64::MAX;
        };
        scale = next;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_day_has_its_place_and_those_with_use_a_bar() {
        let usage = json!({
            "from": "2026-11-20", "until": "2026-11-24",
            "usage": [
                { "day": "2026-11-21", "cost_nano_usd": 500_000_000, "requests": 3 },
                { "day": "2026-11-23", "cost_nano_usd": 2_000_000_000_i64, "requests": 1234 },
            ],
            "total": { "cost_usd": "2.50" },
        });
        assert_eq!(days(&usage).len(), 4);
        let drawn = chart(&usage).into_string();
        assert_eq!(drawn.matches("<rect").count(), 2, "{drawn}");
        for text in [
            "2026-11-21: $0.50, 3 requests",
            "2026-11-23: $2.00, 1,234 requests",
            "$2.50 in all, most on 2026-11-23, $2.00",
        ] {
            assert!(drawn.contains(text), "{text}: {drawn}");
        }
        let heights: Vec<&str> = drawn
            .split("height=\"")
            .skip(1)
            .map(|rest| rest.split('"').next().unwrap())
            .collect();
        assert_eq!(heights, ["27.5", "110.0"], "a quarter, and all");
    }

    #[test]
    fn without_any_use_there_is_no_drawing() {
        let none = json!({ "from": "2026-11-20", "until": "2026-11-24", "usage": [] });
        for usage in [none, Value::Null] {
            assert!(!chart(&usage).into_string().contains("<svg"));
        }
    }

    #[test]
    fn scales_are_round() {
        for (most, top) in [(1, 2), (3, 4), (11, 20), (101, 200), (2_000_000_000, 2_000_000_000)] {
            assert_eq!(round_up(most), top, "{most}");
        }
        assert_eq!(round_up(i64::MAX), i64::MAX);
    }
}
