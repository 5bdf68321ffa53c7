//! What the scan costs per byte on bodies that are made to cost much: many tokens, escapes, levels and names that it looks at.
#![expect(
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a bench that cannot go on shall stop, and its table is for whoever runs it"
)]

use std::{fmt::Write, hint::black_box, time::Duration};

use rustix::time::{ClockId, clock_gettime};
use weir::parts::{Protocol, ScanLimits, scan};

/// Of each body.
const BODY_BYTES: usize = 2 << 20;
/// A shape is measured so many times, and the least time counts: other work on the machine only adds to it.
const ROUNDS: usize = 5;
/// How long a round takes at least.
const ROUND: Duration = Duration::from_millis(50);
/// The depth of the deep shapes: the limit of weir's own default, less the levels around them.
const DEPTH: usize = 250;

const LIMITS: ScanLimits = ScanLimits {
    depth_max: 256,
    references_max: 1024,
};

/// A body: `head`, then `unit` until it is large, then `tail`.
struct Shape {
    name: &'static str,
    protocol: Protocol,
    head: String,
    unit: String,
    tail: String,
}

impl Shape {
    fn body(&self) -> Vec<u8> {
        let units = (BODY_BYTES - self.head.len() - self.tail.len()) / self.unit.len();
        [self.head.as_str(), &self.unit.repeat(units), &self.tail]
            .concat()
            .into_bytes()
    }

    /// Nanoseconds of processor time per byte.
    fn measure(&self) -> f64 {
        let body = self.body();
        let once = || scan(black_box(&body), self.protocol, &LIMITS);
        once().expect(self.name);
        let least = (0..ROUNDS).map(|_| {
            let (began, mut scans, mut took) = (processor_time(), 0, Duration::ZERO);
            while took < ROUND {
                black_box(once()).ok();
                scans += 1;
                took = processor_time() - began;
            }
            took / scans
        });
        least.min().unwrap_or_default().as_secs_f64() * 1e9 / body.len() as f64
    }
}

/// Prints the table, the most expensive shape last.
pub(crate) fn print_table() {
    let mut rows: Vec<(f64, &str)> = shapes().iter().map(|shape| (shape.measure(), shape.name)).collect();
    rows.sort_by(|one, other| one.0.total_cmp(&other.0));
    let mut table = String::from("\n| body of 2 MiB | ns a byte |\n|---|---|\n");
    for (cost, name) in &rows {
        writeln!(table, "| {name} | {cost:.2} |").ok();
    }
    println!("{table}");
}

/// What this thread has used of a processor, whatever else runs there.
fn processor_time() -> Duration {
    let used = clock_gettime(ClockId::ThreadCPUTime);
    let (seconds, nanos) = (u64::try_from(used.tv_sec), u32::try_from(used.tv_nsec));
    Duration::new(seconds.unwrap_or(0), nanos.unwrap_or(0))
}

/// One in the content of a Messages request.
fn in_content(name: &'static str, unit: &str, last: &str) -> Shape {
    Shape {
        name,
        protocol: Protocol::Messages,
        head: r#"{"model":"claude-sample","messages":[{"role":"user","content":["#.to_owned(),
        unit: unit.to_owned(),
        tail: format!("{last}]}}]}}"),
    }
}

/// One in a string of a Messages request.
fn in_text(name: &'static str, unit: &str) -> Shape {
    let text = in_content(name, unit, "");
    Shape {
        head: format!("{}\"", text.head),
        tail: format!("\"{}", text.tail),
        ..text
    }
}

/// One in `input` of a Responses request.
fn in_input(name: &'static str, unit: &str, last: &str) -> Shape {
    Shape {
        name,
        protocol: Protocol::Responses,
        head: r#"{"model":"gpt-sample","input":["#.to_owned(),
        unit: unit.to_owned(),
        tail: format!("{last}]}}"),
    }
}

fn around(head: &str, unit: &str, tail: &str, name: &'static str, protocol: Protocol) -> Shape {
    Shape {
        name,
        protocol,
        head: head.to_owned(),
        unit: unit.to_owned(),
        tail: tail.to_owned(),
    }
}

fn shapes() -> Vec<Shape> {
    let deep = |open: &str, close: &str| format!("{}{},", open.repeat(DEPTH), close.repeat(DEPTH));
    [plain(&deep), strings(), members()].into_iter().flatten().collect()
}

fn plain(deep: &dyn Fn(&str, &str) -> String) -> Vec<Shape> {
    vec![
        in_content("`1,1,1,…`", "1,", "1"),
        in_content("`-0.5e-3,…`", "-0.5e-3,", "1"),
        in_content("`12345678901234567890,…`", "12345678901234567890,", "1"),
        in_content("`null,true,false,…`", "null,true,false,", "1"),
        in_content("`[],[],…`", "[],", "1"),
        in_content("`{},{},…`", "{},", "1"),
        in_content("`[[[[…]]]],…`, 250 deep", &deep("[", "]"), "1"),
        in_content("`{\"a\":{\"a\":…}},…`, 200 deep", &nested(), "1"),
        in_content("white space", " \n\t\r", "1"),
        in_content("`1 , 1 , …`", "1 , ", "1"),
    ]
}

fn nested() -> String {
    format!("{}1{},", r#"{"a":"#.repeat(200), "}".repeat(200))
}

/// One more than are kept of a body.
fn models() -> String {
    ('a'..='q').map(|name| format!(r#"{{"model":"{name}"}},"#)).collect()
}

fn strings() -> Vec<Shape> {
    vec![
        in_content("`\"\",\"\",…`", "\"\",", "1"),
        in_content("`\"a\",\"a\",…`", "\"a\",", "1"),
        in_content("`\"\\n\",…`", "\"\\n\",", "1"),
        in_text("one string of `\\n`", "\\n"),
        in_text("one string of `\\\"`", "\\\""),
        in_text("one string of `a\\n`", "a\\n"),
        in_text("one string of `\\u00e9`", "\\u00e9"),
        in_text("one string of surrogate pairs", "\\ud83d\\ude00"),
        in_text("one string of halves of them", "\\ud83d"),
        in_text("one string of Chinese", "\u{6a21}\u{578b}"),
        in_text("one string of prose", "Let me look at the file first. "),
        in_content(
            "strings of 1 KiB of base64",
            &format!("\"{}\",", "iVBORw0K".repeat(128)),
            "1",
        ),
    ]
}

fn members() -> Vec<Shape> {
    vec![
        in_content("`{\"a\":1},…`", r#"{"a":1},"#, "1"),
        in_content(
            "`{\"\":1,\"\":1,…}`",
            r#"{"":1,"":1,"":1,"":1,"":1,"":1,"":1,"":1},"#,
            "1",
        ),
        in_content("`{\"\\u0061\":1},…`", r#"{"\u0061":1},"#, "1"),
        in_content("`{\"type\":\"\"},…`", r#"{"type":""},"#, "1"),
        in_content("`{\"model\":\"\"},…`", r#"{"model":""},"#, "1"),
        in_content("parts of content", r#"{"type":"text","text":"Hi."},"#, "1"),
        around(
            r#"{"model":"claude-sample","messages":["#,
            r#"{"role":"user"},{"role":"model"},"#,
            "1]}",
            "turns of `role` alone",
            Protocol::Messages,
        ),
        around(
            r#"{"model":"claude-sample","tools":["#,
            r#"{"a":1},"#,
            "1]}",
            "`{\"a\":1},…` in `tools`",
            Protocol::Messages,
        ),
        around(
            r#"{"model":"claude-sample""#,
            r#","input":[],"a":1"#,
            "}",
            "members of the top level",
            Protocol::Responses,
        ),
        in_input(
            "items with names and content",
            r#"{"id":"a","type":"message","content":"a"},"#,
            "1",
        ),
        in_input("items with a name that is none", r#"{"id":""},"#, "1"),
        in_input(
            "items with many names",
            &format!("{{{}\"role\":\"a\",\"a\":1}},", r#""id":"a","#.repeat(100)),
            "1",
        ),
        in_input(
            "items with an escaped type",
            r#"{"type":"\u0061aaaaaaaaaaaaaaaaaa","a":1},"#,
            "1",
        ),
        in_content("17 models in turns", &models(), "1"),
        around(
            r#"{"contents":["#,
            r#"{"fileUri":"\u0068ttp:\/\/a"},"#,
            "1]}",
            "files that anybody can read, escaped",
            Protocol::Gemini,
        ),
        in_input("`{},…` in `input`", "{},", "1"),
        around(
            r#"{"contents":["#,
            r#"{"fileUri":"http://a"},"#,
            "1]}",
            "files that anybody can read",
            Protocol::Gemini,
        ),
    ]
}
