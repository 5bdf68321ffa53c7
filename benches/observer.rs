//! What looking at a stream costs, beside what copying the same chunks costs.
//!
//! `observe` pushes a stream in chunks of 150 bytes, which is what providers write; `copy` copies the same chunks into one buffer.
//! `observe_uncounted` pushes the same stream with the text under a name of the same length that nobody knows: what `observe`
//! takes longer is the price of counting text.
//! `observed` is what a look at a running answer costs, at most ten times a second.
//! `classes` counts the text in such a stream by kinds of bytes, which is a part of `observe`; its throughput is of the stream's bytes.

use std::hint::black_box;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main};
use weir::parts::CharClasses;
use weir::parts::{AnswerFraming, Observer, Protocol};

const CHUNK_BYTES: usize = 150;
const EVENTS: usize = 500;

/// What comes once, and what then comes over and over.
fn messages() -> (Vec<u8>, Vec<u8>) {
    let head = b"event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_01\",\"model\":\"m\",\"usage\":{\"input_tokens\":25,\"output_tokens\":1}}}\n\n";
    let delta = b"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"a few words of it\"}}\n\n";
    (head.to_vec(), delta.repeat(EVENTS))
}

fn responses() -> (Vec<u8>, Vec<u8>) {
    let head = b"event: response.created\ndata: {\"type\":\"response.created\",\"sequence_number\":0,\"response\":{\"id\":\"resp_1\",\"model\":\"m\",\"usage\":null}}\n\n";
    let delta = |number| {
        format!(
            "event: response.output_text.delta\ndata: {{\"type\":\"response.output_text.delta\",\"sequence_number\":{number},\"item_id\":\"msg_1\",\"output_index\":0,\"content_index\":0,\"delta\":\"a few words\",\"logprobs\":[]}}\n\n"
        )
    };
    let deltas: String = (1..=EVENTS).map(delta).collect();
    (head.to_vec(), deltas.into_bytes())
}

fn gemini() -> (Vec<u8>, Vec<u8>) {
    let chunk = |tokens| {
        format!(
            "data: {{\"candidates\":[{{\"content\":{{\"parts\":[{{\"text\":\"a few words of it\"}}],\"role\":\"model\"}},\"index\":0}}],\"usageMetadata\":{{\"promptTokenCount\":8,\"candidatesTokenCount\":{tokens},\"totalTokenCount\":{}}},\"modelVersion\":\"m\"}}\r\n\r\n",
            tokens + 8
        )
    };
    let stream: String = (1..=EVENTS).map(chunk).collect();
    (chunk(1).repeat(2).into_bytes(), stream.into_bytes())
}

fn measure(criterion: &mut Criterion) {
    for (protocol, (head, stream)) in [
        (Protocol::Messages, messages()),
        (Protocol::Responses, responses()),
        (Protocol::Gemini, gemini()),
    ] {
        let mut group = criterion.benchmark_group(protocol.as_str());
        group.throughput(Throughput::Bytes(u64::try_from(stream.len()).unwrap_or(0)));
        let mut observer = Observer::new(protocol, AnswerFraming::Sse);
        observer.push(&head);
        group.bench_function("observe", |bencher| {
            bencher.iter(|| push(&mut observer, black_box(&stream)))
        });
        let uncounted = without_known_text(&stream);
        let mut observer = Observer::new(protocol, AnswerFraming::Sse);
        observer.push(&head);
        group.bench_function("observe_uncounted", |bencher| {
            bencher.iter(|| push(&mut observer, black_box(&uncounted)))
        });
        group.bench_function("observed", |bencher| bencher.iter(|| black_box(&observer).observed()));
        bencher_of_classes(&mut group);
        let mut copy = Vec::with_capacity(stream.len());
        group.bench_function("copy", |bencher| {
            bencher.iter(|| {
                copy.clear();
                for chunk in black_box(&stream).chunks(CHUNK_BYTES) {
                    copy.extend_from_slice(chunk);
                }
                black_box(copy.len())
            });
        });
        group.finish();
    }
}

fn bencher_of_classes(group: &mut BenchmarkGroup<'_, WallTime>) {
    let mut classes = CharClasses::default();
    group.bench_function("classes", |bencher| {
        bencher.iter(|| {
            for _ in 0..EVENTS {
                classes.push(black_box(b"a few words of it"));
            }
        });
    });
    group.bench_function("estimate", |bencher| {
        bencher.iter(|| black_box(&classes).tokens());
    });
}

fn without_known_text(stream: &[u8]) -> Vec<u8> {
    String::from_utf8_lossy(stream)
        .replace("\"text\":\"a few", "\"tezt\":\"a few")
        .replace("\"delta\":\"a few", "\"delto\":\"a few")
        .into_bytes()
}

fn push(observer: &mut Observer, stream: &[u8]) {
    for chunk in stream.chunks(CHUNK_BYTES) {
        observer.push(chunk);
    }
}

criterion_group!(benches, measure);
criterion_main!(benches);
