//! One figure over the window's hours, as a line above a pale area, drawn on the server.

use std::fmt::Write as _;

use maud::{Markup, html};

use super::measure::Measure;
use super::strip::clock;
use crate::{
    domain::faults::stability::{Confidence, Hour, ModelWindow},
    stability::public::look,
};

/// The drawing, in its own units: about as many pixels, so that its text is as large as the page's.
const WIDTH: u32 = 332;
const HEIGHT: u32 = 150;
/// Where the axes are.
const LEFT: u32 = 60;
const TOP: u32 = 12;
const BOTTOM: u32 = 122;
/// The width of an hour.
const SLOT: u32 = 11;
/// Every so many hours the axis says which.
const TICK_HOURS: usize = 6;

/// A measured hour in the drawing.
struct Point {
    x: f64,
    y: f64,
    hour: Hour,
    value: f64,
    sure: bool,
}

/// The chart of one figure of a model. Hours in which nothing was measured are gaps.
pub(super) fn chart(measure: &Measure, model: &ModelWindow) -> Markup {
    let most = model.hours.iter().filter_map(|(_, counters)| measure.of(counters));
    let top = round_up(most.fold(0.0, f64::max));
    let runs = runs(measure, model, top);
    let scale = levels((!runs.is_empty()).then_some(top));
    let labels = scale.iter().map(|(_, value)| measure.words(*value));
    html! {
        figure class="card chart" {
            figcaption {
                h3 { (measure.name) " " b { (measure.shown(&model.total)) } }
                p { (measure.meaning) }
            }
            svg viewBox=(look::view_box(labels, LEFT - 8, (WIDTH, HEIGHT))) role="img" aria-label={ (measure.name) ": " (range(measure, &runs)) } {
                (axes(measure, model, &scale))
                @for run in &runs {
                    path class="area" d=(area(run)) {}
                    path class="line" d=(line(run)) {}
                    @for point in run {
                        circle class=[(!point.sure).then_some("unsure")] cx={ (format!("{:.1}", point.x)) } cy={ (format!("{:.1}", point.y)) } r="2.5" {
                            title { (clock(point.hour)) " UTC: " (measure.words(point.value)) @if !point.sure { " (low confidence)" } }
                        }
                    }
                }
            }
            p class="range" { (range(measure, &runs)) }
        }
    }
}

/// The measured hours, in runs without a gap.
fn runs(measure: &Measure, model: &ModelWindow, top: f64) -> Vec<Vec<Point>> {
    let mut runs = vec![Vec::new()];
    for ((hour, counters), slot) in model.hours.iter().zip(0_u32..) {
        let Some(value) = measure.of(counters) else {
            runs.push(Vec::new());
            continue;
        };
        let point = Point {
            x: f64::from(LEFT + slot * SLOT) + f64::from(SLOT) / 2.0,
            y: f64::from(BOTTOM) - f64::from(BOTTOM - TOP) * (value / top).clamp(0.0, 1.0),
            hour: *hour,
            value,
            sure: counters.figures().confidence > Confidence::Low,
        };
        if let Some(run) = runs.last_mut() {
            run.push(point);
        }
    }
    runs.retain(|run| !run.is_empty());
    runs
}

fn line(run: &[Point]) -> String {
    let mut path = String::new();
    for (index, point) in run.iter().enumerate() {
        let step = if index == 0 { 'M' } else { 'L' };
        let _ = write!(path, "{step}{:.1} {:.1}", point.x, point.y);
    }
    path
}

/// The same down to the axis.
fn area(run: &[Point]) -> String {
    let start = run.first().map_or(0.0, |point| point.x);
    format!("{}V{BOTTOM}H{start:.1}Z", line(run))
}

/// The lines at half and all of the scale: where they are, and their values. Without a scale, nothing was measured.
fn levels(top: Option<f64>) -> Vec<(u32, f64)> {
    let levels = |top: f64| vec![(BOTTOM - (BOTTOM - TOP) / 2, top / 2.0), (TOP, top)];
    top.map(levels).unwrap_or_default()
}

/// The lines with their values, that at nothing, and the hours.
fn axes(measure: &Measure, model: &ModelWindow, scale: &[(u32, f64)]) -> Markup {
    let right = model.hours.iter().fold(LEFT, |right, _| right + SLOT);
    html! {
        g class="axes" aria-hidden="true" {
            path d={ "M" (LEFT) " " (BOTTOM) "H" (right) } {}
            text x=(LEFT - 8) y=(BOTTOM + 4) text-anchor="end" { "0" }
            @for (y, value) in scale {
                path d={ "M" (LEFT) " " (y) "H" (right) } {}
                text x=(LEFT - 8) y=(y + 4) text-anchor="end" { (measure.words(*value)) }
            }
            @for ((hour, _), slot) in model.hours.iter().zip(0_u32..).step_by(TICK_HOURS) {
                text x=(LEFT + slot * SLOT) y=(BOTTOM + 20) { (clock(*hour)) }
            }
            text x=(right) y=(BOTTOM + 20) text-anchor="end" { "now" }
        }
    }
}

/// The least and the most, and when; one value where people would read the same for both.
fn range(measure: &Measure, runs: &[Vec<Point>]) -> String {
    let points = || runs.iter().flatten();
    let least = points().min_by(|one, other| one.value.total_cmp(&other.value));
    let most = points().max_by(|one, other| one.value.total_cmp(&other.value));
    let (Some(least), Some(most)) = (least, most) else {
        return "Nothing measured in the last 24 hours".to_owned();
    };
    let (low, high) = (measure.words(least.value), measure.words(most.value));
    if low == high {
        return format!("{low} in every measured hour");
    }
    format!(
        "Lowest {low} at {}, highest {high} at {}",
        clock(least.hour),
        clock(most.hour)
    )
}

/// The next value that people can read on a scale, as can its half. 1 where all is 0.
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
