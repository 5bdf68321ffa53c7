//! Charts of the admin API's answers: costs by day, and requests of the last hours.

use jiff::{Timestamp, ToSpan, civil::Date};
use maud::Markup;

use super::{
    chart::{Chart, ChartSeries, ChartUnit, colour},
    view,
};
use crate::{
    api::usage::{CostsByDay, UsagePage},
    domain::{faults::stability::StabilityWindow, ledger::usage_report::SplitBy, money::NanoUsd},
};

/// The maximum number of days: as long as sums are kept.
const DAYS_MAX: usize = 181;

/// The costs of each day of an answer.
pub(super) fn usage_chart(usage: &UsagePage, has_table: bool) -> Markup {
    // A request counts for each of its tags, so the tags' bars do not add up to the total.
    let apart = (usage.by == SplitBy::Tag).then_some(usage.total.cost_nano_usd);
    costs_chart(&usage.costs, apart, has_table)
}

/// The costs of each day. `apart` is the total, where it is not the sum of the lines; `has_table` adds a table to the chart.
pub(super) fn costs_chart(costs: &CostsByDay, apart: Option<NanoUsd>, has_table: bool) -> Markup {
    let columns = days(costs);
    let series: Vec<ChartSeries> = (0..)
        .zip(&costs.daily)
        .map(|(place, line)| ChartSeries {
            name: line.name.clone().unwrap_or_else(|| "others".to_owned()),
            colour: colour(line.name.is_some().then_some(place)),
            values: line.cost_nano_usd.iter().map(|cost| cost.nanos()).collect(),
        })
        .collect();
    let total = |place: usize| {
        let values = series.iter().filter_map(|one| one.values.get(place));
        values.fold(NanoUsd::ZERO, |sum, value| {
            sum.saturating_add(NanoUsd::from_nanos(*value))
        })
    };
    let totals: Vec<NanoUsd> = (0..columns.len()).map(total).collect();
    let sum = || totals.iter().fold(NanoUsd::ZERO, |sum, one| sum.saturating_add(*one));
    let all = apart.unwrap_or_else(sum);
    let most = totals
        .iter()
        .zip(&columns)
        .filter(|(cost, _)| **cost > NanoUsd::ZERO)
        .max_by_key(|(cost, _)| **cost);
    let caption = match (most, columns.first(), columns.last()) {
        (Some(_), Some(first), Some(last)) if apart.is_some() => format!("Spent from {first} to {last}: ${all} in all"),
        (Some((most, on)), Some(first), Some(last)) => {
            format!("Spent from {first} to {last}: ${all} in all, most on {on}, ${most}")
        }
        _ => "Nothing was spent in this time".to_owned(),
    };
    let chart = Chart {
        caption,
        over: "Day (UTC)",
        columns: columns.iter().map(Date::to_string).collect(),
        series,
        unit: ChartUnit::Money,
        has_table,
    };
    chart.draw()
}

/// All days, including those without use.
fn days(costs: &CostsByDay) -> Vec<Date> {
    let days = costs.from.0.series(1.day()).take_while(|date| *date < costs.until.0);
    days.take(DAYS_MAX).collect()
}

/// The requests of each hour of the window that succeeded and failed.
pub(super) fn requests_chart(window: &StabilityWindow) -> Markup {
    let mut columns = Vec::new();
    let (mut succeeded, mut failed) = (Vec::new(), Vec::new());
    for hour in window.now.window() {
        let start = Timestamp::from_second(hour.start_seconds()).unwrap_or_default();
        columns.push(start.strftime("%Y-%m-%d %H:00").to_string());
        let counted = window
            .models
            .iter()
            .flat_map(|model| &model.hours)
            .filter(|(of, _)| *of == hour);
        let (requests, successes) = counted.fold((0_u64, 0_u64), |(requests, successes), (_, one)| {
            (
                requests.saturating_add(one.requests),
                successes.saturating_add(one.successes),
            )
        });
        let shown = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        succeeded.push(shown(successes));
        failed.push(shown(requests.saturating_sub(successes)));
    }
    let sum = |values: &[i64]| view::thousands(values.iter().map(|value| value.unsigned_abs()).sum());
    let caption = format!(
        "Requests of the last 24 hours, hour by hour: {} succeeded, {} failed",
        sum(&succeeded),
        sum(&failed)
    );
    let series = |name: &str, colour, values| ChartSeries {
        name: name.to_owned(),
        colour,
        values,
    };
    let chart = Chart {
        caption,
        over: "Hour (UTC)",
        columns,
        series: vec![
            series("Succeeded", colour(Some(0)), succeeded),
            series("Failed", "failed", failed),
        ],
        unit: ChartUnit::Count,
        has_table: true,
    };
    chart.draw()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::{
        api::usage::CostSeries,
        domain::faults::stability::{Hour, ModelCounters, StabilityCounters},
    };

    /// Four days, and the lines of some names.
    fn costs(daily: &[(Option<&str>, [i64; 4])]) -> CostsByDay {
        let line = |(name, costs): &(Option<&str>, [i64; 4])| CostSeries {
            name: name.map(str::to_owned),
            cost_nano_usd: costs.map(NanoUsd::from_nanos).into(),
        };
        CostsByDay {
            from: "2026-11-20".parse().unwrap(),
            until: "2026-11-24".parse().unwrap(),
            daily: daily.iter().map(line).collect(),
        }
    }

    #[test]
    fn each_day_of_an_answer_has_its_column_and_each_line_its_colour() {
        let costs = costs(&[
            (Some("claude"), [0, 500_000_000, 0, 1_500_000_000]),
            (None, [0, 0, 0, 500_000_000]),
        ]);
        let drawn = costs_chart(&costs, None, false).into_string();
        for text in [
            "Spent from 2026-11-20 to 2026-11-23: $2.50 in all, most on 2026-11-23, $2.00.",
            "2026-11-21, claude: $0.50",
            "2026-11-23, others: $0.50",
            "swatch s6",
            "viewBox=\"0 0 40 ",
        ] {
            assert!(drawn.contains(text), "{text}: {drawn}");
        }
        assert_eq!(
            (drawn.matches("<rect").count(), drawn.contains("<table")),
            (3, false),
            "{drawn}"
        );
        assert!(
            costs_chart(&costs, None, true)
                .into_string()
                .contains("<td class=\"figure\">$1.50</td>")
        );
        let of_tags = costs_chart(&costs, Some(NanoUsd::from_nanos(1)), false).into_string();
        assert!(of_tags.contains("to 2026-11-23: $0.000000001 in all."), "{of_tags}");
    }

    #[test]
    fn without_any_use_there_is_no_picture() {
        assert!(
            costs_chart(&costs(&[]), None, true)
                .into_string()
                .contains("Nothing was spent in this time.")
        );
    }

    #[test]
    fn hours_show_the_requests_of_all_models_and_those_that_failed() {
        let now = Hour::from_number(480_000);
        let counted = |requests, successes| StabilityCounters {
            requests,
            successes,
            ..StabilityCounters::default()
        };
        let hour: ModelCounters = [("a".to_owned(), counted(10, 9)), ("b".to_owned(), counted(5, 5))].into();
        let window = StabilityWindow::new(now, ["a", "b"], &BTreeMap::from([(now.plus(-1), hour)]));
        let drawn = requests_chart(&window).into_string();
        for text in [
            "hour by hour: 14 succeeded, 1 failed.",
            "Succeeded: 14",
            "Failed: 1",
            "class=\"failed\"",
        ] {
            assert!(drawn.contains(text), "{text}: {drawn}");
        }
        assert_eq!(drawn.matches("<th scope=\"row\">").count(), 24);
    }
}
