//! Charts of values by day or hour, as stacked bars: an image without scripts, and the same values as a table.

use maud::{Markup, html};

use super::view;
use crate::domain::money::NanoUsd;

/// The width of a column in the image's own units. The image is stretched to the width of the page.
const COLUMN: u32 = 10;
const HEIGHT: i64 = 1000;
/// The width of a bar within its column.
const BAR: u32 = 8;
/// The minimum height of a bar with a value, so that it is visible.
const HEIGHT_MIN: i64 = 8;
/// The CSS classes of the series' colours; the last is for all other series together.
const COLOURS: [&str; 7] = ["s0", "s1", "s2", "s3", "s4", "s5", "s6"];

/// The unit of the values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChartUnit {
    /// Nano-USD.
    Money,
    /// A number.
    Count,
}

/// The values of one name, one per column.
pub(super) struct ChartSeries {
    pub(super) name: String,
    pub(super) colour: &'static str,
    pub(super) values: Vec<i64>,
}

/// A chart.
pub(super) struct Chart {
    /// What it shows: a sentence without its full stop.
    pub(super) caption: String,
    /// The table's heading for the names of the columns, such as `Day (UTC)`.
    pub(super) over: &'static str,
    /// The names of the columns, the earliest first.
    pub(super) columns: Vec<String>,
    pub(super) series: Vec<ChartSeries>,
    pub(super) unit: ChartUnit,
    /// Whether to add the values as a table, because the page does not have them.
    pub(super) has_table: bool,
}

/// The colour of the series at this index; `None` for all others together.
pub(super) fn colour(place: Option<usize>) -> &'static str {
    let [own @ .., others] = &COLOURS;
    place.and_then(|place| own.get(place)).unwrap_or(others)
}

impl Chart {
    /// The chart; only its caption if all values are zero.
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

    /// The bar of a column: its series stacked, the first at the bottom.
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

    /// The sum of a column.
    fn total(&self, place: usize) -> i64 {
        let values = self.series.iter().filter_map(|series| series.values.get(place));
        values.fold(0, |sum, value| sum.saturating_add(*value))
    }

    fn format_value(&self, value: i64) -> String {
        match self.unit {
            ChartUnit::Money => format!("${}", NanoUsd::from_nanos(value)),
            ChartUnit::Count => view::thousands(u64::try_from(value).unwrap_or(0)),
        }
    }
}

/// The height of a value, in the image's units.
fn scaled_height(value: i64, top: i64) -> i64 {
    let part = i128::from(value) * i128::from(HEIGHT) / i128::from(top.max(1));
    i64::try_from(part).unwrap_or(HEIGHT)
}

/// The next value that is easy to read on a scale, and whose half is too.
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

    /// What stands in an attribute of each bar.
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
