//! Clocks that are off: a node's own, and that of an embedded store. Rows, hours and retention do not follow them.

use serde_json::Value as Json;

use crate::harness::load::assert_served;
use crate::harness::redis::RedisServer;
use crate::harness::request::ALL_WIRES;
use crate::harness::sample::SampleProvider;
use crate::harness::tools::skip;
use crate::harness::{Weir, WeirBuilder, wait_until};

/// By how much a gateway's wall clock is off, in seconds.
pub(super) const OFFSET: &str = "WEIR_CLOCK_OFFSET_SECONDS";
pub(super) const DAY_S: i64 = 86_400;
const HOUR_MS: i64 = 3_600_000;

fn now_ms() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}

fn serve_one(weir: &Weir, key: &str) {
    let wire = ALL_WIRES[0];
    assert_served(wire, &weir.exchange(&wire.request(key, "hi")));
}

/// Within ten minutes of now.
fn is_now(time_ms: &Json) -> bool {
    (time_ms.as_i64().unwrap() - now_ms()).abs() < 600_000
}

#[test]
fn rows_and_hours_are_filed_by_the_stores_clock_whatever_the_nodes() {
    let Some(redis) = RedisServer::start() else {
        skip!("redis-server is not installed")
    };
    let provider = SampleProvider::start();
    let node = |offset: i64| {
        WeirBuilder::new()
            .all_providers(&provider.base_url())
            .redis(&redis)
            .variable(OFFSET, &offset.to_string())
            .start()
    };
    let first_hour = now_ms().div_euclid(HOUR_MS);
    // One that is right, one that is a day ahead, one that is in 1970.
    let nodes = [node(0), node(DAY_S), node(-now_ms() / 1000)];
    let key = nodes[0].key().text;
    for weir in &nodes {
        serve_one(weir, &key);
    }
    for weir in &nodes {
        let books = weir.books(nodes.len());
        for row in &books.rows {
            assert!(is_now(&row["time_ms"]) && is_now(&row["admitted_ms"]), "{row}");
        }
    }
    wait_until("the hours to be told", || {
        let counted = nodes[0].kept().map_or(0, |kept| {
            let here = kept.hours.iter().filter(|((hour, _), _)| *hour >= first_hour);
            here.map(|(_, counted)| counted[0]).sum::<u64>()
        });
        counted == nodes.len() as u64
    });
    let last_hour = now_ms().div_euclid(HOUR_MS);
    let kept = nodes[0].kept().unwrap();
    assert!(
        kept.hours
            .keys()
            .all(|(hour, _)| (first_hour..=last_hour).contains(hour)),
        "{:?}",
        kept.hours
    );
}

#[test]
fn a_node_whose_clock_is_off_says_so_and_serves() {
    let Some(redis) = RedisServer::start() else {
        skip!("redis-server is not installed")
    };
    let provider = SampleProvider::start();
    let node = |offset: i64| {
        WeirBuilder::new()
            .all_providers(&provider.base_url())
            .redis(&redis)
            .variable(OFFSET, &offset.to_string())
            .start()
    };
    let (right, ahead) = (node(20), node(DAY_S));
    let offset = |weir: &Weir| {
        let metrics = weir.metrics();
        let line = metrics
            .lines()
            .find_map(|line| line.strip_prefix("weir_clock_offset_seconds "));
        line.and_then(|value| value.parse::<f64>().ok())
    };
    for (weir, seconds, warnings) in [(&right, 20.0, "[]"), (&ahead, 86_400.0, "[\"clock_off\"]")] {
        wait_until("the store's clock to be known", || {
            offset(weir).is_some_and(|offset| (offset - seconds).abs() < 5.0)
        });
        let ready = weir.ops_get("/readyz");
        assert_eq!(ready.status, 200);
        let said = ready.text();
        assert!(said.contains(&format!("\"warnings\":{warnings}")), "{said}");
    }
    assert!(
        ahead.logs().contains("clock differs from the store's"),
        "{}",
        ahead.logs()
    );
    assert!(!right.logs().contains("clock differs from the store's"));
    serve_one(&ahead, &ahead.key().text);
}

#[test]
fn one_start_far_ahead_keeps_the_log() {
    let provider = SampleProvider::start();
    let mut weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    serve_one(&weir, &key);
    weir.books(1);
    wait_until("the hour to be told", || {
        weir.kept().is_some_and(|kept| !kept.hours.is_empty())
    });
    let before = weir.kept().unwrap();
    weir.next_variable(OFFSET, &(200 * DAY_S).to_string());
    weir.kill_and_restart();
    wait_until("it to keep house", || {
        weir.logs()
            .contains("old daily sums and old hours of the stability record are removed only one day")
    });
    weir.next_variable(OFFSET, "0");
    weir.kill_and_restart();
    let after = weir.kept().unwrap();
    assert_eq!(after.rows, before.rows);
    assert_eq!(after.hours, before.hours);
    weir.books(1);
}
