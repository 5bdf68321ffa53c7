//! Renders usage as tables and as charts.

use jiff::{Timestamp, ToSpan, civil::Date};
use maud::{Markup, html};

use crate::{
    api::usage::{CostsByDay, UsagePage, UsageSums},
    console::layout,
    domain::{faults::stability::StabilityWindow, ledger::reports::SplitBy, money::NanoUsd},
};

/// The maximum number of lines of a table.
pub(super) const LINES_MAX: usize = 100;

/// Renders usage as a table. Days are in descending order; other lines are ordered by cost, the highest first. `name` renders the
/// name of a line.
pub(super) fn usage_table(usage: &UsagePage, name: impl Fn(&str) -> Markup) -> Markup {
    let by = usage.by;
    let mut lines: Vec<_> = usage.usage.iter().collect();
    if by == SplitBy::Day {
        lines.reverse();
    } else {
        lines.sort_by_key(|line| std::cmp::Reverse(line.sums.cost_nano_usd));
    }
    let heading = match by {
        SplitBy::Day => "Day (UTC)",
        SplitBy::Model => "Model",
        SplitBy::Key => "Key",
        SplitBy::Tag => "Tag",
    };
    html! {
        div class="scroll" tabindex="0" role="region" aria-label={ "Use by " (by) } {
            table class="list" {
                thead { tr {
                    th scope="col" { (heading) } th scope="col" class="figure" { "Requests" } th scope="col" class="figure" { "Failed" }
                    th scope="col" class="figure" { "In" } th scope="col" class="figure" { "Out" } th scope="col" class="figure" { "Cost" }
                } }
                tbody {
                    @for line in lines { (sums_row(&name(line.of.name()), &line.sums)) }
                    (sums_row(&html! { "All" }, &usage.total))
                }
            }
        }
        @if by == SplitBy::Tag {
            p class="none" { "A request counts for each of its tags, and once in All. Requests without a tag are in All only." }
        }
        @if usage.left_out > 0 { p class="none" { "And " (usage.left_out) " more, which are included in All." } }
    }
}

fn sums_row(name: &Markup, of: &UsageSums) -> Markup {
    html! {
        tr {
            th scope="row" { (name) }
            td class="figure" { (layout::thousands(of.requests)) }
            td class="figure" { (layout::thousands(of.errors)) }
            td class="figure" { (layout::thousands(of.usage.input_total())) }
            td class="figure" { (layout::thousands(of.usage.output_total())) }
            td class="figure" { (layout::amount(of.cost_nano_usd)) }
        }
    }
}

/// The maximum number of days of a chart, which is the number of days for which sums are stored.
const DAYS_MAX: usize = 181;

/// Renders a chart of the costs of each day in `usage`.
pub(super) fn usage_chart(usage: &UsagePage, has_table: bool) -> Markup {
    // The chart gets the total separately: a request counts for each of its tags, so the bars of tags do not add up to the total.
    let apart = (usage.by == SplitBy::Tag).then_some(usage.total.cost_nano_usd);
    costs_chart(&usage.costs, apart, has_table)
}

/// Renders a chart of the costs of each day. `apart` is the total, if the total is not the sum of the lines. With `has_table`,
/// the values are also rendered as a table.
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

/// Returns all days of the period, including days without usage.
fn days(costs: &CostsByDay) -> Vec<Date> {
    let days = costs.from.0.series(1.day()).take_while(|date| *date < costs.until.0);
    days.take(DAYS_MAX).collect()
}

/// Renders a chart of the requests that succeeded and failed in each hour of the window.
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
    let sum = |values: &[i64]| layout::thousands(values.iter().map(|value| value.unsigned_abs()).sum());
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

/// The width of a column in the units of the image. The image is stretched to the width of the page.
const COLUMN: u32 = 10;
const HEIGHT: i64 = 1000;
/// The width of a bar within its column, in the units of the image.
const BAR: u32 = 8;
/// The minimum height of a bar with a value, in the units of the image, so that it is visible.
const HEIGHT_MIN: i64 = 8;
/// The CSS classes for the colours of series. The last class is for all other series together.
const COLOURS: [&str; 7] = ["s0", "s1", "s2", "s3", "s4", "s5", "s6"];

/// The unit of a chart's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChartUnit {
    /// Amounts in nano-USD.
    Money,
    /// Numbers without a unit.
    Count,
}

/// A named series of a chart, with one value for each column.
pub(super) struct ChartSeries {
    pub(super) name: String,
    pub(super) colour: &'static str,
    pub(super) values: Vec<i64>,
}

/// A bar chart.
pub(super) struct Chart {
    /// The caption: a sentence about the content of the chart, without its full stop.
    pub(super) caption: String,
    /// The heading for the names of the columns in the table, such as `Day (UTC)`.
    pub(super) over: &'static str,
    /// The names of the columns, in chronological order.
    pub(super) columns: Vec<String>,
    pub(super) series: Vec<ChartSeries>,
    pub(super) unit: ChartUnit,
    /// Whether the values are also rendered as a table. This is necessary if the page does not contain the values elsewhere.
    pub(super) has_table: bool,
}

/// Returns the CSS class for the colour of the series at the index `place`. If `place` is `None`, returns the class for the
/// series that combines all other series.
pub(super) fn colour(place: Option<usize>) -> &'static str {
    let [own @ .., others] = &COLOURS;
    place.and_then(|place| own.get(place)).unwrap_or(others)
}

impl Chart {
    /// Renders the chart. If all values are zero, only its caption is rendered.
    pub(super) fn draw(&self) -> Markup {
        let most = (0..self.columns.len())
            .map(|place| self.total(place))
            .max()
            .unwrap_or(0);
        let (Some(first), Some(last)) = (self.columns.first(), self.columns.last()) else {
            return html! {};
        };
        if most <= 0 {
            return html! { p class="card none" { (self.caption) "." } };
        }
        let top = round_up(most);
        html! {
            figure class="card chart" {
                div class="plot" {
                    div class="scale" aria-hidden="true" {
                        span { (self.format_value(top)) } span { (self.format_value(top / 2)) } span { (self.format_value(0)) }
                    }
                    div class="bars" { (self.bars(top)) }
                    div class="ends" aria-hidden="true" { span { (first) } span { (last) } }
                }
                @if self.series.len() > 1 { (self.legend()) }
                figcaption { (self.caption) "." }
                @if self.has_table { details { summary { "As a table" } (self.table()) } }
            }
        }
    }

    fn bars(&self, top: i64) -> Markup {
        let width = u32::try_from(self.columns.len())
            .unwrap_or(u32::MAX)
            .saturating_mul(COLUMN);
        html! {
            svg viewBox={ "0 0 " (width) " " (HEIGHT) } preserveAspectRatio="none" role="img" aria-label=(self.caption) {
                @for (place, name) in (0_u32..).zip(&self.columns) { (self.bar(place, name, top)) }
            }
        }
    }

    /// Renders the bar of a column. The series are stacked in the bar, with the first at the bottom.
    fn bar(&self, place: u32, name: &str, top: i64) -> Markup {
        let x = place.saturating_mul(COLUMN).saturating_add((COLUMN - BAR) / 2);
        let mut foot = HEIGHT;
        let mut parts = Vec::new();
        for series in &self.series {
            let value = series.values.get(place as usize).copied().unwrap_or(0);
            if value > 0 {
                let height = scaled_height(value, top).max(HEIGHT_MIN).min(foot);
                foot -= height;
                parts.push((series, value, foot, height));
            }
        }
        html! {
            @for (series, value, y, height) in parts {
                rect class=(series.colour) x=(x) y=(y) width=(BAR) height=(height) {
                    title { (name) @if self.series.len() > 1 { ", " (series.name) } ": " (self.format_value(value)) }
                }
            }
        }
    }

    fn legend(&self) -> Markup {
        html! {
            ul class="plain legend" {
                @for series in &self.series { li { span class={ "swatch " (series.colour) } {} " " (series.name) } }
            }
        }
    }

    fn table(&self) -> Markup {
        html! {
            div class="scroll" tabindex="0" role="region" aria-label=(self.caption) {
                table class="list" {
                    thead { tr {
                        th scope="col" { (self.over) }
                        @for series in &self.series { th scope="col" class="figure" { (series.name) } }
                    } }
                    tbody {
                        @for (place, name) in self.columns.iter().enumerate().rev() {
                            tr {
                                th scope="row" { (name) }
                                @for series in &self.series {
                                    td class="figure" { (self.format_value(series.values.get(place).copied().unwrap_or(0))) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }

    /// Returns the sum of all values in a column.
    fn total(&self, place: usize) -> i64 {
        let values = self.series.iter().filter_map(|series| series.values.get(place));
        values.fold(0, |sum, value| sum.saturating_add(*value))
    }

    fn format_value(&self, value: i64) -> String {
        match self.unit {
            ChartUnit::Money => format!("${}", NanoUsd::from_nanos(value)),
            ChartUnit::Count => layout::thousands(u64::try_from(value).unwrap_or(0)),
        }
    }
}

/// Returns the height of a value, in the units of the image. `top` is the value at the top of the image.
fn scaled_height(value: i64, top: i64) -> i64 {
    let part = i128::from(value) * i128::from(HEIGHT) / i128::from(top.max(1));
    i64::try_from(part).unwrap_or(HEIGHT)
}

/// Rounds a value up to a number that is easy to read on a scale. Half of the returned number is easy to read, too.
fn round_up(value: i64) -> i64 {
    let mut scale: i64 = 2;
    loop {
        for step in [1, 2, 5] {
            let Some(top) = scale.checked_mul(step) else {
                return i64::MAX;
            };
            if top >= value {
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
    use super::*;
    use crate::{
        api::usage::CostSeries,
        domain::faults::stability::{Hour, ModelCounters, StabilityCounters},
    };
    use std::collections::BTreeMap;

    /// The costs of four days, with the lines of some names.
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

    fn chart(series: &[(&str, &[i64])], unit: ChartUnit) -> Chart {
        let columns = series.first().map_or(0, |(_, values)| values.len());
        Chart {
            caption: "Spent".to_owned(),
            over: "Day (UTC)",
            columns: (0..columns).map(|day| format!("2026-11-{:02}", day + 20)).collect(),
            series: (0..)
                .zip(series)
                .map(|(place, (name, values))| ChartSeries {
                    name: (*name).to_owned(),
                    colour: colour(Some(place)),
                    values: values.to_vec(),
                })
                .collect(),
            unit,
            has_table: true,
        }
    }

    /// Returns the values of an attribute of all bars.
    fn bars(drawn: &str, attribute: &str) -> Vec<i64> {
        let rects = drawn.split("<rect").skip(1);
        let read = |rect: &str| {
            rect.split(&format!("{attribute}=\""))
                .nth(1)?
                .split('"')
                .next()?
                .parse()
                .ok()
        };
        rects.map(|rect| read(rect).unwrap()).collect()
    }

    #[test]
    fn each_column_with_a_value_has_a_bar_of_its_height() {
        let drawn = chart(&[("all", &[0, 500_000_000, 0, 2_000_000_000])], ChartUnit::Money)
            .draw()
            .into_string();
        assert_eq!(
            (bars(&drawn, " x"), bars(&drawn, "height")),
            (vec![11, 31], vec![250, 1000])
        );
        assert_eq!(bars(&drawn, " y"), [750, 0]);
        for text in [
            "2026-11-21: $0.50",
            "2026-11-23: $2.00",
            "<span>$1.00</span>",
            "viewBox=\"0 0 40 1000\"",
        ] {
            assert!(drawn.contains(text), "{text}: {drawn}");
        }
        assert!(!drawn.contains("legend"), "{drawn}");
    }

    #[test]
    fn series_stand_one_on_the_other_and_the_smallest_can_be_seen() {
        let drawn = chart(&[("a", &[900]), ("b", &[1]), ("c", &[99])], ChartUnit::Count)
            .draw()
            .into_string();
        assert_eq!(
            bars(&drawn, "height"),
            [900, 8, 92],
            "all of them fill the scale, which is not left"
        );
        assert_eq!(bars(&drawn, " y"), [100, 92, 0]);
        for text in [
            "swatch s2",
            "2026-11-20, a: 900",
            "<th scope=\"col\" class=\"figure\">c</th>",
        ] {
            assert!(drawn.contains(text), "{text}: {drawn}");
        }
    }

    #[test]
    fn without_a_value_there_is_no_picture() {
        assert_eq!(
            chart(&[("all", &[0, 0])], ChartUnit::Money).draw().into_string(),
            "<p class=\"card none\">Spent.</p>"
        );
        assert_eq!(chart(&[], ChartUnit::Money).draw().into_string(), "");
    }

    #[test]
    fn scales_can_be_read() {
        for (value, top) in [
            (1, 2),
            (3, 4),
            (7, 10),
            (11, 20),
            (101, 200),
            (2_000_000_000, 2_000_000_000),
        ] {
            assert_eq!(round_up(value), top, "{value}");
        }
        assert_eq!(round_up(i64::MAX), i64::MAX);
    }
}
