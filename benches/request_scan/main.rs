//! What reading a request costs: the scan against building a serde_json tree, on bodies as agents send them; and per byte, on
//! bodies that are made to cost much.

mod shapes;

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use weir::parts::{Protocol, ScanLimits, scan};

const LIMITS: ScanLimits = ScanLimits {
    depth_max: 256,
    references_max: 1024,
};

/// A Messages body of about `size` bytes: turns of text and tool use, and for half of it one picture in base64. The
/// model comes last, as it may.
fn agent_body(size: usize) -> Vec<u8> {
    let picture = "iVBORw0KGgoAAAANSUhEUgAAAAUA".repeat(size / 2 / 28);
    let mut turns = vec![format!(
        r#"{{"role":"user","content":[{{"type":"image","source":{{"type":"base64","media_type":"image/png","data":"{picture}"}}}}]}}"#
    )];
    let mut length = picture.len();
    while length < size {
        let turn = format!(
            r#"{{"role":"assistant","content":[{{"type":"text","text":"Let me look at the file first.\nThen I will say \"done\" and run the tests again, na\u00efve as they are."}},{{"type":"tool_use","id":"toolu_{:08}","name":"read_file","input":{{"path":"src/main.rs","lines":[1,200],"follow":true}}}}]}}"#,
            turns.len()
        );
        length += turn.len() + 1;
        turns.push(turn);
    }
    let turns = turns.join(",");
    format!(r#"{{"max_tokens":4096,"stream":true,"messages":[{turns}],"model":"claude-sample"}}"#).into_bytes()
}

/// A body of about `size` bytes that is one picture.
fn picture_body(size: usize) -> Vec<u8> {
    let picture = "iVBORw0KGgoAAAANSUhEUgAAAAUA".repeat(size / 28);
    format!(r#"{{"messages":[{{"role":"user","content":[{{"type":"image","data":"{picture}"}}]}}],"model":"claude-sample"}}"#)
        .into_bytes()
}

/// A body of about `size` bytes that is all text: files, as tools give them back.
fn text_body(size: usize) -> Vec<u8> {
    let file = r#"fn main() {\n    let mut total = 0_u64;\n    for line in input.lines() {\n        total += line.len();\n    }\n    println!(\"{total}\");\n}\n\n"#;
    let turn = format!(
        r#"{{"role":"user","content":[{{"type":"tool_result","content":"{}"}}]}}"#,
        file.repeat(20)
    );
    let turns = vec![turn.as_str(); size / turn.len()].join(",");
    format!(r#"{{"max_tokens":4096,"messages":[{turns}],"model":"claude-sample"}}"#).into_bytes()
}

fn request_scan(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("request_scan");
    for (name, body) in [
        ("2KB", agent_body(2 << 10)),
        ("64KB", agent_body(64 << 10)),
        ("1MB", agent_body(1 << 20)),
        ("1MB_text", text_body(1 << 20)),
        ("32MB_picture", picture_body(32 << 20)),
    ] {
        group.throughput(Throughput::Bytes(body.len() as u64));
        group.bench_with_input(BenchmarkId::new("scan", name), &body, |bencher, body| {
            bencher.iter(|| scan(black_box(body), Protocol::Messages, &LIMITS));
        });
        group.bench_with_input(BenchmarkId::new("serde_json_value", name), &body, |bencher, body| {
            bencher.iter(|| serde_json::from_slice::<serde_json::Value>(black_box(body)));
        });
    }
    group.finish();
}

/// Measures the shapes, whose time Criterion would take minutes for.
fn hostile_shapes(_: &mut Criterion) {
    shapes::print_table();
}

criterion_group!(benches, request_scan, hostile_shapes);
criterion_main!(benches);
