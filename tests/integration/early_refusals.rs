//! What is refused before a request's body has been read, and what a refusal costs.

use std::time::Duration;

use crate::harness::redis::RedisServer;
use crate::harness::request::{ALL_WIRES, Upload, Wire};
use crate::harness::rules::RuleFolder;
use crate::harness::sample::SampleProvider;
use crate::harness::tools::skipped;
use crate::harness::{RecordingProvider, Request, Weir, WeirBuilder};

/// The status that the head alone gets: 100 if the body is asked for.
fn told_by_head(weir: &Weir, request: &Request) -> u16 {
    let mut client = weir.connect();
    client.write(
        &request
            .clone()
            .header("expect", "100-continue")
            .head_bytes(Upload::Length),
    );
    let head = client.head_to("POST");
    let status = head.status;
    if status != 100 {
        assert_eq!(client.rest(head).status, status);
        assert!(client.closed_within(Duration::from_secs(10)), "no body is waited for");
    }
    status
}

fn large(key: &str) -> Request {
    Wire::Messages.request(key, "hi").body(&vec![b' '; 10_000_000])
}

/// Whether it would be decoded shows in the answer, for it is no gzip at all.
fn compressed(wire: Wire, key: &str) -> Request {
    wire.request(key, "hi")
        .header("content-encoding", "gzip")
        .body(b"no gzip")
}

/// Keys that have never been seen before, and have nothing.
fn without_money(weir: &Weir) {
    weir.fund();
    weir.cli_json(&["account", "create", "--id", "poor"]);
    let poor = || {
        let made = weir.cli_json(&["key", "create", "--account", "poor", "--name", "poor"]);
        made["key"].as_str().unwrap().to_owned()
    };
    let spent = || weir.key_with(&["--quota-usd", "0"]).text;
    for wire in ALL_WIRES {
        for key in [spent(), poor()] {
            assert_eq!(weir.exchange(&compressed(wire, &key)).status, 429, "{wire:?}");
        }
    }
    for key in [spent(), poor()] {
        assert_eq!(told_by_head(weir, &large(&key)), 429);
    }
    let rich = weir.key().text;
    assert_eq!(weir.exchange(&compressed(Wire::Messages, &rich)).status, 400);
    assert_eq!(told_by_head(weir, &large(&rich)), 100);
}

#[test]
fn nothing_large_or_compressed_is_read_for_a_key_without_money() {
    without_money(&Weir::start("http://127.0.0.1:9"));
}

#[test]
fn nothing_large_or_compressed_is_read_for_a_key_without_money_in_redis() {
    let Some(redis) = RedisServer::start() else {
        return skipped("redis-server");
    };
    without_money(
        &WeirBuilder::new()
            .all_providers("http://127.0.0.1:9")
            .redis(&redis)
            .start(),
    );
}

#[test]
fn a_rate_and_the_number_of_running_requests_are_known_before_the_body() {
    let provider = SampleProvider::start();
    let rules = RuleFolder::aborting();
    let weir = rules.weir_at(&provider.base_url()).start();
    let hi = |key: &str| Wire::Messages.request(key, "hi");
    let slow = weir.key_with(&["--rpm", "1"]);
    assert_eq!(weir.exchange(&hi(&slow.text)).status, 200);
    assert_eq!(told_by_head(&weir, &hi(&slow.text)), 429);
    weir.cli_json(&["key", "update", &slow.id, "--rpm", "6000"]);
    assert_eq!(told_by_head(&weir, &hi(&slow.text)), 100, "a raised rate holds at once");
    let single = weir.key_with(&["--concurrency", "1"]);
    let mut running = weir.connect();
    let request = Wire::Messages.streaming(&single.text, "[[sample: deltas=3 stall_after=1]]");
    running.write(&request.bytes(Upload::Length));
    assert_eq!(running.head_to("POST").status, 200);
    assert_eq!(told_by_head(&weir, &hi(&single.text)), 429);
    weir.cli_json(&["key", "update", &single.id, "--concurrency", "2"]);
    assert_eq!(
        told_by_head(&weir, &hi(&single.text)),
        100,
        "a raised limit holds at once"
    );
}

#[test]
fn a_refused_request_takes_as_much_of_its_keys_rate_as_a_served_one() {
    let provider = RecordingProvider::recorded();
    let weir = Weir::start(&provider.base_url());
    for wire in ALL_WIRES {
        let key = weir.key_with(&["--rpm", "4"]).text;
        let broken = wire.request(&key, "hi").body(b"{");
        let statuses: Vec<u16> = [
            &broken,
            &wire.request(&key, "hi"),
            &compressed(wire, &key),
            &broken,
            &broken,
        ]
        .into_iter()
        .map(|request| weir.exchange(request).status)
        .collect();
        assert_eq!(statuses, [400, 200, 400, 400, 429], "{wire:?}");
        let refused = weir.exchange(&wire.request(&key, "hi"));
        assert_eq!(refused.status, 429, "{wire:?}");
        let wait: u64 = refused.header("retry-after").unwrap().parse().unwrap();
        assert!(
            (1..=15).contains(&wait),
            "a refusal by the rate takes nothing more: {wait}"
        );
    }
    let free = weir.key().text;
    for _ in 0..50 {
        let broken = Wire::Messages.request(&free, "hi").body(b"{");
        assert_eq!(
            weir.exchange(&broken).status,
            400,
            "without a rate there is none to take of"
        );
    }
    assert_eq!(weir.exchange(&Wire::Messages.request(&free, "hi")).status, 200);
}

/// How many commands Redis has done, those within scripts too.
fn calls(redis: &RedisServer) -> u64 {
    calls_of(redis, &["evalsha", "hgetall", "get", "hmget", "fcall", "eval"])
}

/// How many of these commands Redis has done.
pub(crate) fn calls_of(redis: &RedisServer, names: &[&str]) -> u64 {
    let stats = redis.command(&["INFO", "commandstats"]);
    let of = |name: &str| {
        let start = format!("cmdstat_{name}:calls=");
        let line = stats.lines().find_map(|line| line.strip_prefix(&start));
        line.map_or(0, |rest| rest.split(',').next().unwrap().parse::<u64>().unwrap())
    };
    names.iter().map(|name| of(name)).sum()
}

#[test]
fn a_compressed_body_of_a_key_in_use_costs_no_further_call() {
    let Some(redis) = RedisServer::start() else {
        return skipped("redis-server");
    };
    let provider = RecordingProvider::recorded();
    let weir = WeirBuilder::new()
        .all_providers(&provider.base_url())
        .redis(&redis)
        .start();
    let key = weir.key().text;
    let plain = Wire::Messages.request(&key, &"hi ".repeat(1000));
    let packed = crate::harness::packed::packed("gzip", &plain.body);
    let coded = plain.clone().header("content-encoding", "gzip").body(&packed);
    let calls_of = |request: &Request| {
        let before = calls(&redis);
        for _ in 0..30 {
            assert_eq!(weir.exchange(request).status, 200);
        }
        calls(&redis) - before
    };
    calls_of(&plain);
    let (of_plain, of_coded) = (calls_of(&plain), calls_of(&coded));
    // What runs in the background asks a little, whoever is served meanwhile; a call more for each would be 30.
    assert!(
        of_coded < of_plain + 20,
        "{of_coded} calls, {of_plain} without a coding"
    );
}
