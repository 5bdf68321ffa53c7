//! The tests that every sink must pass.

pub(crate) mod pages;

use std::{future::poll_fn, sync::Arc, task::Poll};

use async_trait::async_trait;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use smol_str::SmolStr;

use crate::{
    domain::{
        keys::KeyId,
        ledger::{
            NodeId,
            consumption::{CostShare, PriceModifiers, RequestTransport, Row, UsageSource},
            ids::Tag,
        },
        money::NanoUsd,
        wire::usage::{RunKind, Usage},
    },
    journal::NumberedRow,
    sinks::{Batch, Sink, SinkError},
};

/// The place in which a sink stores its rows.
#[async_trait]
pub(crate) trait Place: Send + Sync {
    /// Opens a sink on this place, as a process that has just started would.
    async fn open(&self) -> Arc<dyn Sink>;

    /// Returns the stored rows of a lane in the order of their numbers. If possible, does not use the sink's own code to read
    /// them.
    async fn rows(&self, node: &NodeId) -> Vec<Arc<NumberedRow>>;
}

/// Tests the complete contract with a sink on an empty place.
pub(crate) async fn obeys(place: &dyn Place) {
    a_batch_is_there_once_with_its_watermark(place, &node(1)).await;
    what_does_not_follow_is_refused_and_changes_nothing(place, &node(2)).await;
    lanes_have_nothing_to_do_with_each_other(place, [&node(3), &node(4)]).await;
    a_call_that_is_cut_off_leaves_all_or_nothing(place, &node(5)).await;
}

/// Creates a batch of `count` rows that begins at the number `after`.
pub(crate) fn batch(node: &NodeId, after: u64, count: usize) -> Batch {
    let rows = rows(after + 1, count);
    let upto = rows.last().map_or(after, |last| last.number + 1);
    Batch {
        node: node.clone(),
        after,
        upto,
        rows,
    }
}

async fn a_batch_is_there_once_with_its_watermark(place: &dyn Place, node: &NodeId) {
    let sink = place.open().await;
    assert_eq!(sink.watermark(node).await, Ok(0), "nothing is there yet");
    let first = batch(node, 0, 40);
    let second = batch(node, first.upto, 3);
    sink.append(&first).await.unwrap();
    assert_eq!(sink.watermark(node).await, Ok(first.upto));
    sink.append(&first).await.unwrap();
    sink.append(&second).await.unwrap();
    let sink = place.open().await;
    sink.append(&first).await.unwrap();
    sink.append(&second).await.unwrap();
    assert_eq!(sink.watermark(node).await, Ok(second.upto), "after a start");
    assert_eq!(place.rows(node).await, [first.rows, second.rows].concat());
}

async fn what_does_not_follow_is_refused_and_changes_nothing(place: &dyn Place, node: &NodeId) {
    let sink = place.open().await;
    let first = batch(node, 0, 5);
    let watermark = first.upto;
    let refused = Err(SinkError::OutOfOrder { watermark });
    let early = batch(node, 7, 5);
    assert_eq!(sink.append(&early).await, Err(SinkError::OutOfOrder { watermark: 0 }));
    sink.append(&first).await.unwrap();
    assert_eq!(
        sink.append(&batch(node, watermark + 1, 5)).await,
        refused,
        "it leaves something out"
    );
    assert_eq!(
        sink.append(&batch(node, watermark - 1, 5)).await,
        refused,
        "a part of it is there"
    );
    assert_eq!(sink.watermark(node).await, Ok(watermark));
    assert_eq!(place.rows(node).await, first.rows);
}

async fn lanes_have_nothing_to_do_with_each_other(place: &dyn Place, nodes: [&NodeId; 2]) {
    let sinks = [place.open().await, place.open().await];
    let fed = std::iter::zip(&sinks, nodes).map(|(sink, node)| async move {
        let mut all = Vec::new();
        for _ in 0..5 {
            let watermark = sink.watermark(node).await.unwrap();
            let batch = batch(node, watermark, 20);
            sink.append(&batch).await.unwrap();
            all.extend(batch.rows);
        }
        all
    });
    let sent = futures_util::future::join_all(fed).await;
    for (node, sent) in std::iter::zip(nodes, sent) {
        assert_eq!(place.rows(node).await, sent);
    }
}

async fn a_call_that_is_cut_off_leaves_all_or_nothing(place: &dyn Place, node: &NodeId) {
    let (mut watermark, mut there) = (0, Vec::new());
    for polls in 0..12 {
        let batch = batch(node, watermark, 30);
        let sink = place.open().await;
        let mut left = polls;
        let mut call = sink.append(&batch);
        let _ = poll_fn(|context| match call.as_mut().poll(context) {
            Poll::Pending if left > 0 => {
                left -= 1;
                Poll::Pending
            }
            Poll::Pending => Poll::Ready(None),
            Poll::Ready(done) => Poll::Ready(Some(done)),
        })
        .await;
        drop(call);
        let sink = place.open().await;
        let now = sink.watermark(node).await.unwrap();
        assert!([watermark, batch.upto].contains(&now), "{now} after {polls} polls");
        sink.append(&batch).await.unwrap();
        there.extend(batch.rows);
        watermark = batch.upto;
        assert_eq!(place.rows(node).await, there, "cut off after {polls} polls");
    }
}

/// The time at which the request of row number 0 of [`rows`] ended, in milliseconds since the Unix epoch: 2026-11-01T00:00:00Z.
pub(crate) const BEGIN_MS: i64 = 1_793_491_200_000;
const MODELS: [&str; 4] = ["claude-opus-4-8", "claude-haiku-4-5", "gpt-5.2", "gemini-3-pro"];

/// Returns the name of a lane.
pub(crate) fn node(number: u32) -> NodeId {
    NodeId::parse(&format!("node_{number:016}")).unwrap()
}

/// Creates `count` rows with numbers from `first` on. Consecutive numbers differ by 3, and the requests of consecutive rows ended
/// 3 seconds apart. Their other properties vary.
pub(crate) fn rows(first: u64, count: usize) -> Vec<Arc<NumberedRow>> {
    let numbers = (first..).step_by(3).take(count);
    let place = |number: u64| i64::try_from(number).unwrap();
    numbers
        .map(|number| NumberedRow {
            number,
            row: row(number, BEGIN_MS + 1000 * place(number)),
        })
        .map(Arc::new)
        .collect()
}

/// Creates a row whose request ended at `time_ms`. Its other properties are derived from `seed`.
pub(crate) fn row(seed: u64, time_ms: i64) -> Row {
    let mut rng = StdRng::seed_from_u64(seed);
    let model = MODELS[rng.random_range(0..MODELS.len())];
    let key = rng.random_range(0..20_u32);
    let id = format!("req_{:016x}{:016x}", rng.random::<u64>(), rng.random::<u64>());
    let latency_ms = rng.random_range(100..60_000);
    let usage = usage(&mut rng);
    let cost = NanoUsd::from_nanos(rng.random_range(0..5_000_000_000));
    let tags = ["team=research", "project=atlas", "cost-center=42"];
    let tags = tags
        .iter()
        .take(rng.random_range(0..=3))
        .map(|tag| Tag::parse(tag).unwrap());
    let is_rare = rng.random_range(0..10) == 0;
    let rarely = |text: &str| is_rare.then(|| text.to_owned());
    let part = |cost| CostShare {
        run: RunKind::Fallback,
        model: "claude-haiku-4-5".to_owned(),
        usage,
        priced_as: rarely("claude-haiku-4-5"),
        price_version: rarely("2026-10-01"),
        above_input_tokens: 200_000,
        cost_nano_usd: cost,
    };
    Row {
        time_ms,
        admitted_ms: time_ms - i64::try_from(latency_ms).unwrap(),
        request_id: id.into(),
        account: format!("account-{}", key / 4).into(),
        key_id: KeyId::parse(&format!("key_{key:016}")).unwrap(),
        protocol: "messages".into(),
        model_asked: model.into(),
        model: model.into(),
        provider: "anthropic".into(),
        status: if is_rare { 502 } else { 200 },
        outcome: if is_rare { "upstream_broke" } else { "ok" }.into(),
        stream: rng.random(),
        tags: tags.collect(),
        usage,
        usage_source: if is_rare {
            UsageSource::Partial
        } else {
            UsageSource::Reported
        },
        parts: if is_rare {
            vec![part(cost), part(NanoUsd::ZERO)]
        } else {
            Vec::new()
        },
        modifiers: PriceModifiers {
            service_tier: rarely("priority").map(SmolStr::from),
            speed: None,
            geo: rarely("us").map(SmolStr::from),
        },
        price_version: "2026-11-01".into(),
        cost_nano_usd: cost,
        latency_ms,
        ttft_ms: (!is_rare).then_some(latency_ms / 4),
        hold_nano_usd: (!is_rare).then_some(cost),
        attempts: (!is_rare).then_some(1 + key % 3),
        transport: match key % 3 {
            0 => RequestTransport::WebSocket,
            _ => RequestTransport::Http,
        },
        translated: rarely("messages->chat").map(SmolStr::from),
        losses: match is_rare {
            true => vec!["adapted thinking".into(), "dropped tools[0].cache_control".into()],
            false => Vec::new(),
        },
    }
}

fn usage(rng: &mut StdRng) -> Usage {
    let input = rng.random_range(100..40_000);
    Usage {
        input_uncached: input / 4,
        cache_read: input - input / 4,
        output_text: rng.random_range(1..3_000),
        output_reasoning: rng.random_range(0..4) * 100,
        web_searches: u64::from(rng.random_range(0..20) == 0),
        input_audio: u64::from(rng.random_range(0..4) == 0) * 700,
        output_image: u64::from(rng.random_range(0..4) == 0) * 1_290,
        ..Usage::default()
    }
}
