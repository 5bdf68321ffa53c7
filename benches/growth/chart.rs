//! What was measured as a drawing: lines over what grows, in panels side by side. It follows the reader's light or dark page, and
//! lines differ by more than their colour.

use std::fmt::Write;

/// A panel's outer size, and where its axes are in it.
const WIDTH: f64 = 320.0;
const HEIGHT: f64 = 240.0;
const LEFT: f64 = 52.0;
const RIGHT: f64 = 304.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 188.0;
/// Of the line that names the lines.
const LEGEND_HEIGHT: f64 = 30.0;
/// Values that are further apart than this are drawn by their powers of ten.
const LINEAR_MAX: f64 = 20.0;
/// Colours for light and dark pages, and dashes. Further lines begin anew.
const STYLES: [(&str, &str, &str); 4] = [
    ("#46566b", "#b4c2d3", "2 3"),
    ("#1d5fae", "#76b2f5", "none"),
    ("#a86a00", "#e0a63c", "7 3"),
    ("#1a7a4c", "#63cf97", "7 3 2 3"),
];

/// Lines of one measure.
pub(crate) struct Panel {
    title: &'static str,
    across: &'static str,
    lines: Vec<(&'static str, Vec<(f64, f64)>)>,
}

/// From values to places.
struct Scale {
    low: f64,
    high: f64,
    is_log: bool,
}

impl Panel {
    /// Of what is measured, over what grows.
    pub(crate) fn new(title: &'static str, across: &'static str) -> Self {
        Self {
            title,
            across,
            lines: Vec::new(),
        }
    }

    /// Adds the next point of a line.
    pub(crate) fn add(&mut self, line: &'static str, across: f64, value: f64) {
        match self.lines.iter_mut().find(|(name, _)| *name == line) {
            Some((_, points)) => points.push((across, value)),
            None => self.lines.push((line, vec![(across, value)])),
        }
    }

    fn points(&self) -> impl Iterator<Item = (f64, f64)> {
        self.lines.iter().flat_map(|(_, points)| points.iter().copied())
    }
}

impl Scale {
    /// From the least to the greatest; from nothing where that is not too far.
    fn of(values: impl Iterator<Item = f64>, from_zero: bool) -> Self {
        let (low, high) = values.fold((f64::MAX, f64::MIN), |(low, high), value| {
            (low.min(value), high.max(value))
        });
        let is_log = low > 0.0 && high / low > LINEAR_MAX;
        match (is_log, from_zero) {
            (true, true) => Self {
                low: 10_f64.powf(low.log10().floor()),
                high: 10_f64.powf(high.log10().ceil()),
                is_log,
            },
            (false, true) => Self {
                low: 0.0,
                high: round_up(high),
                is_log,
            },
            (_, false) => Self { low, high, is_log },
        }
    }

    /// Between 0 and 1.
    fn part(&self, value: f64) -> f64 {
        let scaled = |value: f64| if self.is_log { value.log10() } else { value };
        let width = scaled(self.high) - scaled(self.low);
        if width > 0.0 {
            (scaled(value) - scaled(self.low)) / width
        } else {
            0.5
        }
    }

    /// What the axis names: powers of ten, or nothing, half and all.
    fn ticks(&self) -> Vec<f64> {
        if !self.is_log {
            return vec![self.low, (self.low + self.high) / 2.0, self.high];
        }
        let powers = (self.low.log10().ceil() as i32)..=(self.high.log10().floor() as i32);
        powers.map(|power| 10_f64.powi(power)).collect()
    }
}

/// The drawing of some panels, with the names of their lines below them.
pub(crate) fn svg(title: &str, panels: &[Panel]) -> String {
    let (width, height) = (WIDTH * panels.len() as f64, HEIGHT + LEGEND_HEIGHT);
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in panels.iter().flat_map(|panel| &panel.lines) {
        if !names.contains(name) {
            names.push(name);
        }
    }
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         role=\"img\" aria-label=\"{title}\">\n{}<rect class=\"page\" width=\"{width}\" height=\"{height}\" rx=\"8\"/>\n",
        style()
    );
    for (place, panel) in panels.iter().enumerate() {
        let _ = writeln!(text, "<g transform=\"translate({} 0)\">", WIDTH * place as f64);
        draw(&mut text, panel, &names);
        text.push_str("</g>\n");
    }
    let mut x = LEFT;
    let y = HEIGHT + 8.0;
    for (place, name) in names.iter().enumerate() {
        let style = place % STYLES.len();
        let (end, label) = (x + 28.0, x + 36.0);
        let _ = writeln!(text, "<path class=\"line l{style}\" d=\"M{x} {y}H{end}\"/>");
        let _ = writeln!(text, "<text x=\"{label}\" y=\"{}\">{name}</text>", y + 4.0);
        x = label + 7.0 * name.len() as f64 + 24.0;
    }
    text + "</svg>\n"
}

fn draw(text: &mut String, panel: &Panel, names: &[&str]) {
    let across = Scale::of(panel.points().map(|(x, _)| x), false);
    let up = Scale::of(panel.points().map(|(_, y)| y), true);
    let x = |value: f64| LEFT + across.part(value) * (RIGHT - LEFT);
    let y = |value: f64| BOTTOM - up.part(value) * (BOTTOM - TOP);
    let middle = (LEFT + RIGHT) / 2.0;
    let _ = writeln!(
        text,
        "<text class=\"title\" x=\"{LEFT}\" y=\"22\">{}</text>",
        panel.title
    );
    for tick in up.ticks() {
        let (at, number) = (y(tick), short(tick));
        let _ = writeln!(text, "<path class=\"axis\" d=\"M{LEFT} {at:.1}H{RIGHT}\"/>");
        let (left, below) = (LEFT - 6.0, at + 4.0);
        let _ = writeln!(
            text,
            "<text class=\"tick end\" x=\"{left}\" y=\"{below:.1}\">{number}</text>"
        );
    }
    for tick in ticks_across(panel, &across) {
        let (at, below, number) = (x(tick), BOTTOM + 18.0, short(tick));
        let _ = writeln!(
            text,
            "<text class=\"tick middle\" x=\"{at:.1}\" y=\"{below}\">{number}</text>"
        );
    }
    let below = BOTTOM + 36.0;
    let _ = writeln!(
        text,
        "<text class=\"tick middle\" x=\"{middle}\" y=\"{below}\">{}</text>",
        panel.across
    );
    for (name, points) in &panel.lines {
        let style = names.iter().position(|known| known == name).unwrap_or(0) % STYLES.len();
        let mut path = String::new();
        for (place, (across, value)) in points.iter().enumerate() {
            let step = if place == 0 { 'M' } else { 'L' };
            let _ = write!(path, "{step}{:.1} {:.1}", x(*across), y(*value));
        }
        let _ = writeln!(text, "<path class=\"line l{style}\" d=\"{path}\"/>");
        for (across, value) in points {
            let (cx, cy, at, told) = (x(*across), y(*value), short(*across), number(*value));
            let _ = writeln!(
                text,
                "<circle class=\"l{style}\" cx=\"{cx:.1}\" cy=\"{cy:.1}\" r=\"2.5\"><title>{name}, {at} {}: \
                 {told}</title></circle>",
                panel.across
            );
        }
    }
}

/// What was measured, where that is little; else the powers of ten.
fn ticks_across(panel: &Panel, across: &Scale) -> Vec<f64> {
    if across.is_log {
        return across.ticks();
    }
    let mut all: Vec<f64> = panel.points().map(|(x, _)| x).collect();
    all.sort_by(f64::total_cmp);
    all.dedup();
    all
}

fn style() -> String {
    let (mut light, mut dark) = (String::new(), String::new());
    for (place, (on_light, on_dark, dashes)) in STYLES.iter().enumerate() {
        let _ = writeln!(
            light,
            "path.l{place} {{ stroke: {on_light}; stroke-dasharray: {dashes} }} circle.l{place} {{ fill: {on_light} }}"
        );
        let _ = writeln!(
            dark,
            "path.l{place} {{ stroke: {on_dark} }} circle.l{place} {{ fill: {on_dark} }}"
        );
    }
    format!(
        "<style>\n\
         .page {{ fill: #ffffff }} .axis {{ stroke: #b6c2d1; stroke-width: 0.8 }} .line {{ fill: none; stroke-width: 1.8 }}\n\
         text {{ font: 11.5px system-ui, -apple-system, \"Segoe UI\", \"DejaVu Sans\", sans-serif; fill: #17202c }}\n\
         .title {{ font-size: 13px; font-weight: 600 }} .tick {{ fill: #46566b }} .end {{ text-anchor: end }} \
         .middle {{ text-anchor: middle }}\n{light}\
         @media (prefers-color-scheme: dark) {{\n.page {{ fill: #0e141c }} .axis {{ stroke: #41536b }} text {{ fill: #eef3f9 }} \
         .tick {{ fill: #b4c2d3 }}\n{dark}}}\n</style>\n"
    )
}

/// The next value that people can read on a scale, as can its half.
fn round_up(value: f64) -> f64 {
    let scale = 10_f64.powf(value.max(f64::MIN_POSITIVE).log10().floor());
    let steps = [1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0];
    let step = steps.into_iter().find(|step| value <= step * scale * 1.000_001);
    step.unwrap_or(10.0) * scale
}

/// As an axis has it.
fn short(value: f64) -> String {
    match value {
        millions if millions >= 1e6 => format!("{}M", number(millions / 1e6)),
        thousands if thousands >= 1e3 => format!("{}k", number(thousands / 1e3)),
        few => number(few),
    }
}

/// With as many digits as say something.
fn number(value: f64) -> String {
    let text = if value < 100.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.0}")
    };
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}
