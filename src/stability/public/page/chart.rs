//! A chart of one figure over the hours of the window, as SVG: a line above a pale area.

use std::fmt::Write as _;

use maud::{Markup, html};

use super::measure::Measure;
use crate::stability::public::page::measure::clock;
use crate::{
    domain::faults::stability::{Confidence, Hour, ModelWindow},
    stability::public::page,
};

/// The width of the drawing in its own units. One unit is about one pixel, so text in the drawing is as large as text on the
/// page.
const WIDTH: u32 = 332;
const HEIGHT: u32 = 150;
/// The positions of the axes, in the drawing's units.
const LEFT: u32 = 60;
const TOP: u32 = 12;
const BOTTOM: u32 = 122;
/// The width of an hour, in the drawing's units.
const SLOT: u32 = 11;
/// The number of hours between two labels of the time axis.
const TICK_HOURS: usize = 6;

/// An hour with measurements, as a point of the drawing.
struct ChartPoint {
    x: f64,
    y: f64,
    hour: Hour,
    value: f64,
    sure: bool,
}

/// Returns the chart of one figure of a model. Hours without measurements are gaps.
pub(super) fn chart(measure: &Measure, model: &ModelWindow) -> Markup {
    let most = model
        .hours
        .iter()
        .filter_map(|(_, counters)| measure.value_in(counters));
    let top = round_up(most.fold(0.0, f64::max));
    let runs = runs(measure, model, top);
    let scale = levels((!runs.is_empty()).then_some(top));
    let labels = scale.iter().map(|(_, value)| measure.format(*value));
    html! {
        figure class="card chart" {
            figcaption {
                h3 { (measure.name) " " b { (measure.markup(&model.total)) } }
                p { (measure.meaning) }
            }
            svg viewBox=(page::view_box(labels, LEFT - 8, (WIDTH, HEIGHT))) role="img" aria-label={ (measure.name) ": " (range(measure, &runs)) } {
                (axes(measure, model, &scale))
                @for run in &runs {
                    path class="area" d=(area(run)) {}
                    path class="line" d=(line(run)) {}
                    @for point in run {
                        circle class=[(!point.sure).then_some("unsure")] cx={ (format!("{:.1}", point.x)) } cy={ (format!("{:.1}", point.y)) } r="2.5" {
                            title { (clock(point.hour)) " UTC: " (measure.format(point.value)) @if !point.sure { " (low confidence)" } }
                        }
                    }
                }
            }
            p class="range" { (range(measure, &runs)) }
        }
    }
}

/// Returns the points of the hours with measurements, grouped into runs of consecutive hours. `top` is the value at the top of
/// the scale.
fn runs(measure: &Measure, model: &ModelWindow, top: f64) -> Vec<Vec<ChartPoint>> {
    let mut runs = vec![Vec::new()];
    for ((hour, counters), slot) in model.hours.iter().zip(0_u32..) {
        let Some(value) = measure.value_in(counters) else {
            runs.push(Vec::new());
            continue;
        };
        let point = ChartPoint {
            x: f64::from(LEFT + slot * SLOT) + f64::from(SLOT) / 2.0,
            y: f64::from(BOTTOM) - f64::from(BOTTOM - TOP) * (value / top).clamp(0.0, 1.0),
            hour: *hour,
            value,
            sure: counters.stats().confidence > Confidence::Low,
        };
        if let Some(run) = runs.last_mut() {
            run.push(point);
        }
    }
    runs.retain(|run| !run.is_empty());
    runs
}

fn line(run: &[ChartPoint]) -> String {
    let mut path = String::new();
    for (index, point) in run.iter().enumerate() {
        let step = if index == 0 { 'M' } else { 'L' };
        let _ = write!(path, "{step}{:.1} {:.1}", point.x, point.y);
    }
    path
}

/// Returns the path of the area between the line and the time axis.
fn area(run: &[ChartPoint]) -> String {
    let start = run.first().map_or(0.0, |point| point.x);
    format!("{}V{BOTTOM}H{start:.1}Z", line(run))
}

/// Returns the positions and values of two grid lines: one in the middle of the scale and one at its top. Empty if there are no
/// measurements.
fn levels(top: Option<f64>) -> Vec<(u32, f64)> {
    let levels = |top: f64| vec![(BOTTOM - (BOTTOM - TOP) / 2, top / 2.0), (TOP, top)];
    top.map(levels).unwrap_or_default()
}

/// Renders the grid lines with their values, the zero line, and the labels of the hours.
fn axes(measure: &Measure, model: &ModelWindow, scale: &[(u32, f64)]) -> Markup {
    let right = model.hours.iter().fold(LEFT, |right, _| right + SLOT);
    html! {
        g class="axes" aria-hidden="true" {
            path d={ "M" (LEFT) " " (BOTTOM) "H" (right) } {}
            text x=(LEFT - 8) y=(BOTTOM + 4) text-anchor="end" { "0" }
            @for (y, value) in scale {
                path d={ "M" (LEFT) " " (y) "H" (right) } {}
                text x=(LEFT - 8) y=(y + 4) text-anchor="end" { (measure.format(*value)) }
            }
            @for ((hour, _), slot) in model.hours.iter().zip(0_u32..).step_by(TICK_HOURS) {
                text x=(LEFT + slot * SLOT) y=(BOTTOM + 20) { (clock(*hour)) }
            }
            text x=(right) y=(BOTTOM + 20) text-anchor="end" { "now" }
        }
    }
}

/// Returns a text with the lowest and the highest value and their hours. The text has a single value if both are formatted alike.
fn range(measure: &Measure, runs: &[Vec<ChartPoint>]) -> String {
    let points = || runs.iter().flatten();
    let least = points().min_by(|one, other| one.value.total_cmp(&other.value));
    let most = points().max_by(|one, other| one.value.total_cmp(&other.value));
    let (Some(least), Some(most)) = (least, most) else {
        return "Nothing measured in the last 24 hours".to_owned();
    };
    let (low, high) = (measure.format(least.value), measure.format(most.value));
    if low == high {
        return format!("{low} in every measured hour");
    }
    format!(
        "Lowest {low} at {}, highest {high} at {}",
        clock(least.hour),
        clock(most.hour)
    )
}

/// Rounds a value up to a number that is easy to read on a scale and whose half is also easy to read. Returns 1 for 0.
fn round_up(value: f64) -> f64 {
    let mut scale = 1.0;
    while scale < value && scale < f64::MAX / 100.0 {
        for step in [2.0, 3.0, 4.0, 6.0, 8.0, 10.0] {
            if value <= scale * step {
                return scale * step;
            }
        }
        scale *= 10.0;
    }
    scale
}
