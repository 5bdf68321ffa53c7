//! Tests of `public`: what is answered, byte by byte, and what it costs.

use std::{
    collections::BTreeMap,
    io::Read,
    sync::atomic::{AtomicUsize, Ordering},
};

use arc_swap::{ArcSwap, ArcSwapOption};
use serde_json::{Value as Json, json};

use super::*;
use crate::domain::{
    catalogue::{CatalogueSettings, RawModel},
    faults::stability::{ModelCounters, StabilityCounters},
    keys::secret::Secret,
    money::price::PriceList,
    rules::shipped,
};

mod answers;
mod negotiation;

const HOUR_MS: i64 = 3_600_000;
/// 00:30 of a day.
const NOW_MS: i64 = 20_500 * 24 * HOUR_MS + HOUR_MS / 2;

/// What the service reads in these tests.
#[derive(Default)]
struct Reads {
    catalogue: ArcSwap<Catalogue>,
    snapshot: ArcSwapOption<Snapshot>,
    asked: AtomicUsize,
}

impl StabilitySource for Arc<Reads> {
    fn catalogue(&self) -> Arc<Catalogue> {
        self.catalogue.load_full()
    }

    fn snapshot(&self) -> Option<Arc<Snapshot>> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        self.snapshot.load_full()
    }
}

struct Service {
    public: PublicService,
    reads: Arc<Reads>,
    start: Instant,
}

impl Service {
    fn new(buckets: BTreeMap<Hour, ModelCounters>) -> Self {
        Self::limited(1_000_000, 1_000_000, buckets)
    }

    fn limited(per_minute: u32, burst: u32, buckets: BTreeMap<Hour, ModelCounters>) -> Self {
        let reads = Arc::<Reads>::default();
        reads.snapshot.store(Some(Arc::new(Snapshot {
            read_at_ms: NOW_MS - 1234,
            buckets,
        })));
        let start = crate::edges::clock::instant();
        let settings = PublicSettings {
            refresh: Duration::from_secs(5),
            allowance: RateAllowance {
                per_minute,
                burst,
                clients_max: 1000,
            },
            trusted_proxies: vec!["10.0.0.0/8".parse().unwrap()],
        };
        let public = PublicService::new(settings, Box::new(Arc::clone(&reads)), start);
        Self { public, reads, start }
    }

    fn ask(&self, method: &Method, target: &str, headers: &[(&'static str, &str)]) -> Option<PublicResponse> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        let (path, query) = match target.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (target, None),
        };
        self.public.answer(&PublicRequest {
            method,
            path,
            query,
            headers: &map,
            peer: IpAddr::from([192, 0, 2, 1]),
            now_ms: NOW_MS,
            now: self.start,
        })
    }

    fn get(&self, target: &str) -> PublicResponse {
        self.get_with(target, &[])
    }

    fn get_with(&self, target: &str, headers: &[(&'static str, &str)]) -> PublicResponse {
        self.ask(&Method::GET, target, headers).expect("a public path")
    }
}

fn header<'a>(answer: &'a PublicResponse, name: &str) -> &'a str {
    answer.headers.get(name).map_or("", |value| value.to_str().unwrap())
}

fn json(answer: &PublicResponse) -> Json {
    serde_json::from_slice(&answer.body).expect("JSON")
}

fn code(answer: &PublicResponse) -> String {
    let body = json(answer);
    assert_eq!(body["success"], false);
    assert!(!body["error"]["message"].as_str().unwrap().is_empty());
    assert_eq!(body["error"].as_object().unwrap().len(), 2);
    body["error"]["code"].as_str().unwrap().to_owned()
}

fn this_hour() -> Hour {
    Hour::from_unix_ms(NOW_MS)
}

/// 123 requests of which 122 succeeded, 2 of them in the hour before the last of the window.
fn counted(name: &str) -> BTreeMap<Hour, ModelCounters> {
    let now = StabilityCounters {
        requests: 121,
        successes: 120,
        latency_ms: 121_000,
        ttft_ms: 600,
        ttft_count: 3,
        output_tokens: 1000,
        generation_ms: 8000,
    };
    let before = StabilityCounters {
        requests: 2,
        successes: 2,
        latency_ms: 25,
        ..StabilityCounters::default()
    };
    let bucket = |counters| ModelCounters::from([(name.to_owned(), counters)]);
    BTreeMap::from([
        (this_hour(), bucket(now)),
        (this_hour().plus(-23), bucket(before)),
        // Out of the window.
        (this_hour().plus(-24), bucket(now)),
        (this_hour().plus(1), bucket(now)),
    ])
}

/// The shipped providers, of which those have a secret that `on` names, and one model more.
fn catalogue(on: &'static [&'static str]) -> Catalogue {
    let settings = CatalogueSettings {
        models: vec![RawModel {
            name: "org/house:model".to_owned(),
            aliases: vec!["house@alias".to_owned()],
            providers: vec!["anthropic".to_owned()],
            free: true,
            ..RawModel::default()
        }],
        ..CatalogueSettings::default()
    };
    let secrets = |reference: &crate::domain::catalogue::SecretRef| {
        let there = on.iter().any(|name| reference.to_string().contains(name));
        Ok(there.then(|| Secret::new("secret-of-a-provider")))
    };
    let built = Catalogue::build(&shipped(), &settings, &PriceList::shipped().unwrap(), &secrets);
    built.unwrap_or_else(|errors| panic!("{errors:?}")).0
}
