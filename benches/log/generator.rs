//! Rows as an installation with many accounts has them: the same for the same numbers.

use rand::{RngExt, SeedableRng, distr::Alphanumeric, rngs::StdRng};
use weir::parts::{
    KeyId, NanoUsd, NodeId,
    log::{NumberedRow, PriceModifiers, RequestTransport, Row, Tag, Usage, UsageSource},
};

use crate::{DAY_MS, HOUR_MS};

/// The busiest first: few have most of the rows.
const ACCOUNTS: u32 = 400;
const KEYS_OF_ACCOUNT: u32 = 5;
/// A model, who serves it in which protocol, and nano-USD a token read, read from a cache, and written.
const MODELS: [(&str, &str, &str, [i64; 3]); 6] = [
    ("claude-sonnet-4-6", "anthropic", "messages", [3000, 300, 15_000]),
    ("claude-opus-4-8", "anthropic", "messages", [5000, 500, 25_000]),
    ("claude-haiku-4-5", "anthropic", "messages", [1000, 100, 5000]),
    ("gpt-5.2", "openai", "responses", [1750, 175, 14_000]),
    ("gpt-5.2-mini", "openai", "responses", [250, 25, 2000]),
    ("gemini-3-pro", "google", "gemini", [2000, 200, 12_000]),
];
const TAGS: [&str; 4] = ["team=research", "team=support", "project=atlas", "cost-center=42"];

/// Makes the rows of one hour after the other.
pub(crate) struct Generator {
    rng: StdRng,
    /// The hours that are left, and the rows.
    hour_ms: i64,
    end_ms: i64,
    left: u64,
    number: u64,
}

/// The lane that they are of.
pub(crate) fn node() -> NodeId {
    NodeId::parse("node_bench00000000001").expect("a node's name")
}

impl Generator {
    /// `rows` rows of so many days until now.
    pub(crate) fn new(rows: u64, days: i64, now_ms: i64) -> Self {
        let end_ms = now_ms.div_euclid(HOUR_MS) * HOUR_MS;
        Self {
            rng: StdRng::seed_from_u64(20_261_122),
            hour_ms: end_ms - days * DAY_MS,
            end_ms,
            left: rows,
            number: 0,
        }
    }

    /// The rows of the next hour, in the order in which they ended; `None` behind the last.
    pub(crate) fn hour(&mut self) -> Option<Vec<NumberedRow>> {
        let hours = (self.end_ms - self.hour_ms) / HOUR_MS;
        if hours == 0 {
            return None;
        }
        let count = self.left / hours as u64;
        let begin = self.hour_ms;
        let mut times: Vec<i64> = (0..count).map(|_| begin + self.rng.random_range(0..HOUR_MS)).collect();
        times.sort_unstable();
        self.left -= count;
        self.hour_ms += HOUR_MS;
        let rows = times.into_iter().map(|time_ms| {
            // The place of a record of some 500 bytes.
            self.number += self.rng.random_range(400..700);
            NumberedRow {
                number: self.number,
                row: self.row(time_ms),
            }
        });
        Some(rows.collect())
    }

    fn row(&mut self, time_ms: i64) -> Row {
        let rng = &mut self.rng;
        // The cube of an even choice.
        let chance: f64 = rng.random();
        let account = (chance * chance * chance * f64::from(ACCOUNTS)) as u32;
        let key = account * KEYS_OF_ACCOUNT + rng.random_range(0..KEYS_OF_ACCOUNT);
        // A key mostly asks for the same.
        let model = if rng.random_range(0..10) < 8 {
            key
        } else {
            rng.random_range(0..64)
        };
        let (model, provider, protocol, prices) = MODELS[model as usize % MODELS.len()];
        let failed = rng.random_range(0..100) == 0;
        // From some tens to some ten thousands, the lower ones more often.
        let mut tokens = |most: f64| (20.0 * (most / 20.0).powf(rng.random::<f64>())) as u64;
        let (uncached, cached, output) = (tokens(8000.0), tokens(60_000.0), tokens(4000.0));
        let has_cache = rng.random_range(0..2) == 0;
        let usage = Usage {
            input_uncached: uncached,
            cache_read: if has_cache { cached } else { 0 },
            output_text: if failed { 0 } else { output },
            ..Usage::default()
        };
        let cost = usage.input_uncached as i64 * prices[0]
            + usage.cache_read as i64 * prices[1]
            + usage.output_text as i64 * prices[2];
        let latency_ms = 300 + output * 12 + rng.random_range(0..400);
        let id: String = (&mut *rng).sample_iter(Alphanumeric).take(24).map(char::from).collect();
        let tags = if key.is_multiple_of(3) {
            1 + rng.random_range(0..2)
        } else {
            0
        };
        let tags = (0..tags).map(|place| TAGS[(key as usize + place) % TAGS.len()].to_owned());
        Row {
            time_ms,
            admitted_ms: time_ms - latency_ms as i64,
            request_id: format!("req_{id}").into(),
            account: format!("account-{account:03}").into(),
            key_id: KeyId::parse(&format!("key_{key:016}")).expect("a key's id"),
            protocol: protocol.into(),
            model_asked: model.into(),
            model: model.into(),
            provider: provider.into(),
            status: if failed { 502 } else { 200 },
            outcome: if failed { "upstream_broke" } else { "complete" }.into(),
            stream: rng.random_range(0..4) > 0,
            tags: tags.map(|tag| Tag::try_from(tag).expect("a tag")).collect(),
            usage,
            usage_source: if failed {
                UsageSource::Partial
            } else {
                UsageSource::Reported
            },
            parts: Vec::new(),
            modifiers: PriceModifiers::default(),
            price_version: "2026-11-01".into(),
            cost_nano_usd: NanoUsd::from_nanos(cost),
            latency_ms,
            ttft_ms: (!failed).then_some(200 + latency_ms / 20),
            hold_nano_usd: Some(NanoUsd::from_nanos(2 * cost)),
            attempts: Some(1 + u32::from(failed)),
            transport: RequestTransport::Http,
            translated: None,
            losses: Vec::new(),
        }
    }
}
