//! Creates rows for tests. The same arguments always create the same rows.

use std::sync::Arc;

use rand::{RngExt, SeedableRng, rngs::StdRng};
use smol_str::SmolStr;

use crate::{
    domain::{
        keys::key::KeyId,
        ledger::{
            NodeId,
            consumption::{CostShare, PriceModifiers, Row, UsageSource},
            tag::Tag,
        },
        money::NanoUsd,
        wire::usage::{RunKind, Usage},
    },
    journal::NumberedRow,
};

/// When the first row of [`rows`] ended, in milliseconds since the Unix epoch: 2026-11-01T00:00:00Z.
pub(crate) const BEGIN_MS: i64 = 1_793_491_200_000;
const MODELS: [&str; 4] = ["claude-opus-4-8", "claude-haiku-4-5", "gpt-5.2", "gemini-3-pro"];

/// Returns the name of a lane.
pub(crate) fn node(number: u32) -> NodeId {
    NodeId::parse(&format!("node_{number:016}")).unwrap()
}

/// Creates `count` rows with numbers from `first` on. Consecutive numbers differ by 3, and the rows ended 3 seconds apart. Their
/// other properties vary.
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

/// Creates a row that ended at `time_ms`. Its other properties are derived from `seed`.
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
