//! What a provider's body edits cost on a large request, beside parsing it once and beside having no edits.

#![expect(clippy::unwrap_used, reason = "a bench that cannot go on shall stop")]

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use weir::domain::{
    json_scan::{Scan, ScanLimits, scan},
    operation::Operation,
    rules::{BodyRules, compile::compile, edit_body, shipped},
};

/// Size of the body, in bytes, give or take one message.
const BODY_BYTES: usize = 1 << 20;

/// A long agent conversation: prose with escapes, tool calls and their results, one image.
fn body() -> String {
    let mut text = String::from(
        r#"{"model":"deepseek-v4-pro","max_tokens":8192,"top_k":40,"metadata":{"user_id":"u-1"},"stream":true,"messages":["#,
    );
    text.push_str(
        r#"{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":""#,
    );
    text.push_str(&"iVBORw0KGgoAAAANSUhEUgAA".repeat(BODY_BYTES / 96));
    text.push_str(r#""}}]}"#);
    let mut turn = 0;
    while text.len() < BODY_BYTES {
        turn += 1;
        let prose = r#"Look at \"src/main.rs\" and say what it does.\n\tfn main() { println!(\"hi\"); }\n"#.repeat(8);
        text.push_str(&format!(
            r#",{{"role":"assistant","content":[{{"type":"text","text":"{prose}"}},{{"type":"tool_use","id":"toolu_{turn}","name":"read","input":{{"path":"/tmp/{turn}","lines":[{turn},12.50]}}}}]}}"#
        ));
        text.push_str(&format!(
            r#",{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"toolu_{turn}","content":"{prose}"}}]}}"#
        ));
    }
    text.push_str("]}");
    text
}

fn deepseek() -> BodyRules {
    let file = shipped()
        .into_iter()
        .find(|file| file.name.ends_with("deepseek.toml"))
        .unwrap();
    compile(&file).unwrap().provider.body
}

fn edited(rules: &BodyRules, model: &str, text: &str, facts: &Scan) -> Option<Vec<u8>> {
    edit_body(rules, Operation::Messages, model, text.as_bytes(), facts).unwrap()
}

fn rules(criterion: &mut Criterion) {
    let text = body();
    let facts = scan(text.as_bytes(), &ScanLimits { depth_max: 256 }).unwrap();
    let (rules, none) = (deepseek(), BodyRules::default());
    let untouched = text
        .replace("\"top_k\"", "\"top_j\"")
        .replace("\"metadata\"", "\"metadatb\"");
    assert!(edited(&rules, "deepseek-v4-pro", &text, &facts).is_some_and(|edited| edited.len() < text.len()));
    assert!(edited(&rules, "deepseek-v4-pro", &untouched, &facts).is_none());

    let mut group = criterion.benchmark_group("rules/1MB");
    group.throughput(Throughput::Bytes(text.len() as u64));
    group.bench_function("edits", |bencher| {
        bencher.iter(|| edited(&rules, "deepseek-v4-pro", black_box(&text), &facts));
    });
    group.bench_function("edits_that_find_nothing", |bencher| {
        bencher.iter(|| edited(&rules, "deepseek-v4-pro", black_box(&untouched), &facts));
    });
    group.bench_function("model_renamed", |bencher| {
        bencher.iter(|| edited(&none, "another", black_box(&text), &facts));
    });
    group.bench_function("no_rules", |bencher| {
        bencher.iter(|| edited(&none, "deepseek-v4-pro", black_box(&text), &facts));
    });
    group.bench_function("baseline_copy", |bencher| {
        bencher.iter(|| black_box(&text).as_bytes().to_vec())
    });
    group.bench_function("baseline_serde_json_value", |bencher| {
        bencher.iter(|| serde_json::from_slice::<serde_json::Value>(black_box(text.as_bytes())).unwrap());
    });
    group.finish();
}

criterion_group!(benches, rules);
criterion_main!(benches);
