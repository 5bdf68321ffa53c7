//! What a provider's body edits cost on a large request, beside parsing it once and beside having no edits.

#![expect(clippy::unwrap_used, reason = "a bench that cannot go on shall stop")]

use std::{fmt::Write, hint::black_box};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use http::HeaderMap;
use weir::parts::{BodyRules, Operation, Protocol, RequestFacts, Scan, ScanLimits, compile, edit_body, scan, shipped};

/// Size of the body, in bytes, give or take one message.
const BODY_BYTES: usize = 1 << 20;

/// A long agent conversation with tools: prose with escapes, thinking, tool calls and their results, cache marks.
fn body() -> String {
    let mut text = String::from(
        r#"{"model":"deepseek-v4-pro","max_tokens":8192,"temperature":1.0,"top_k":40,"metadata":{"user_id":"u-1"},"stream":true,"thinking":{"type":"enabled","budget_tokens":4096},"tool_choice":{"type":"auto","disable_parallel_tool_use":true},"system":[{"type":"text","text":"You are an agent.","cache_control":{"type":"ephemeral"}}],"tools":["#,
    );
    for tool in 0..12 {
        let comma = if tool == 0 { "" } else { "," };
        write!(
            text,
            r#"{comma}{{"name":"tool_{tool}","description":"Reads \"files\".\nAnd more.","input_schema":{{"type":"object","properties":{{"path":{{"type":"string"}}}},"required":["path"]}},"cache_control":{{"type":"ephemeral"}}}}"#
        )
        .unwrap();
    }
    text.push_str(r#"],"messages":[{"role":"user","content":"What does the program do?"}"#);
    let prose = r#"Look at \"src/main.rs\" and say what it does.\n\tfn main() { println!(\"hi\"); }\n"#;
    let mut turn = 0;
    while text.len() < BODY_BYTES {
        turn += 1;
        let said = prose.repeat(turn % 5 + 1);
        let read = prose.repeat(turn % 17 + 1);
        write!(
            text,
            r#",{{"role":"assistant","content":[{{"type":"thinking","thinking":"{said}","signature":"c2lnbmF0dXJl"}},{{"type":"text","text":"{said}"}},{{"type":"tool_use","id":"toolu_{turn}","name":"tool_3","input":{{"path":"/tmp/{turn}","lines":[{turn},12.50]}}}}]}},{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"toolu_{turn}","is_error":false,"content":[{{"type":"text","text":"{read}"}}]}},{{"type":"text","text":"{said}","cache_control":{{"type":"ephemeral"}}}}]}}"#
        )
        .unwrap();
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

fn edited(rules: &BodyRules, upstream_model: &str, text: &str, scan: &Scan) -> Option<Vec<u8>> {
    let headers = HeaderMap::new();
    let facts = RequestFacts {
        operation: Operation::Messages.into(),
        is_translated: false,
        model: "deepseek-v4-pro",
        upstream_model,
        headers: &headers,
    };
    edit_body(rules, &facts, text.as_bytes(), scan).unwrap()
}

fn rules(criterion: &mut Criterion) {
    let text = body();
    let limits = ScanLimits {
        depth_max: 256,
        references_max: 1024,
    };
    let scanned = |text: &str| scan(text.as_bytes(), Protocol::Messages, &limits).unwrap();
    let facts = scanned(&text);
    let (rules, none) = (deepseek(), BodyRules::default());
    let clean = String::from_utf8(edited(&rules, "deepseek-v4-pro", &text, &facts).unwrap()).unwrap();
    let clean_facts = scanned(&clean);
    assert!(clean.len() < text.len());
    assert!(edited(&rules, "deepseek-v4-pro", &clean, &clean_facts).is_none());

    let mut group = criterion.benchmark_group("rules/1MB");
    group.throughput(Throughput::Bytes(text.len() as u64));
    group.bench_function("edits", |bencher| {
        bencher.iter(|| edited(&rules, "deepseek-v4-pro", black_box(&text), &facts));
    });
    group.bench_function("edits_that_find_nothing", |bencher| {
        bencher.iter(|| edited(&rules, "deepseek-v4-pro", black_box(&clean), &clean_facts));
    });
    group.bench_function("model_renamed", |bencher| {
        bencher.iter(|| edited(&none, "another", black_box(&text), &facts));
    });
    group.bench_function("no_rules", |bencher| {
        bencher.iter(|| edited(&none, "deepseek-v4-pro", black_box(&text), &facts));
    });
    group.bench_function("baseline_scan", |bencher| {
        bencher.iter(|| scanned(black_box(&text)));
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
