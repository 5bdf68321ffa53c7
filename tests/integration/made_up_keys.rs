//! Keys that nobody was given. Their checksum can be computed by anybody, so only the store can tell them from real ones: how
//! often it is asked, what happens to real keys meanwhile, and what clients are told.

use std::time::Instant;

use crate::harness::client::Response;
use crate::harness::request::Wire;
use crate::harness::shapes::{assert_refusal, assert_unauthorized};
use crate::harness::{Request, Weir, WeirBuilder, wait_until};

/// What one address may ask for that is not there, at once and in a second, as shipped.
const BURST: u64 = 100;
const PER_SECOND: u64 = 10;

/// A text in the form of this service's keys, checksum and all.
fn made_up(number: u64) -> String {
    let body = format!("weir-{number:043}");
    let mut rest = crc32fast::hash(body.as_bytes());
    let mut checksum = [b'0'; 6];
    for place in checksum.iter_mut().rev() {
        *place = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"[(rest % 62) as usize];
        rest /= 62;
    }
    body + std::str::from_utf8(&checksum).unwrap()
}

/// The list of models, which needs a key and nothing else.
fn list(key: &str) -> Request {
    Request::get("/v1/models").header("authorization", &format!("Bearer {key}"))
}

/// How often something happened in the key cache.
fn events(weir: &Weir, name: &str) -> u64 {
    let begin = format!("weir_key_cache_total{{event=\"{name}\"}} ");
    let metrics = weir.metrics();
    let line = metrics.lines().find_map(|line| line.strip_prefix(&begin));
    line.map_or(0, |value| value.parse().unwrap())
}

#[test]
fn made_up_keys_cost_few_lookups_and_push_no_real_key_out() {
    let weir = WeirBuilder::new().set("key_cache.entries_max", 160).start();
    let real = [weir.key().text, weir.key().text];
    let served = |key: &str| assert_eq!(weir.exchange(&list(key)).status, 200);
    wait_until("the keys are at hand", || {
        let before = events(&weir, "miss");
        real.iter().for_each(|key| served(key));
        events(&weir, "miss") == before
    });
    let (start, before) = (Instant::now(), events(&weir, "miss"));
    let mut client = weir.connect();
    for number in 0..2000 {
        let status = client.exchange(&list(&made_up(number))).status;
        assert!([401, 429].contains(&status), "{status}");
    }
    let asked = events(&weir, "miss") - before;
    let limit = BURST + PER_SECOND * (start.elapsed().as_secs() + 1);
    let before = events(&weir, "miss");
    real.iter().for_each(|key| served(key));
    assert_eq!(
        events(&weir, "miss") - before,
        0,
        "a real key had to be looked up again"
    );
    assert!(asked <= limit, "{asked} lookups, {limit} are allowed");
}

/// A gateway where few unknown keys are a lot, behind a proxy on this machine.
fn strict(settings: &[(&str, i64)]) -> Weir {
    let builder = WeirBuilder::new()
        .set("stability.trusted_proxies", vec!["127.0.0.1"])
        .set("key_cache.negative_seconds", 60);
    let builder = settings.iter().fold(builder, |builder, (name, value)| {
        builder.set(&format!("key_cache.unknown.{name}"), *value)
    });
    builder.start()
}

/// A request with a made-up key, through the proxy.
fn asked(weir: &Weir, address: &str, number: u64) -> Response {
    weir.exchange(&list(&made_up(number)).header("x-forwarded-for", address))
}

#[test]
fn an_address_that_asks_too_often_is_put_off_in_its_protocols_shape_and_no_other_is() {
    let weir = strict(&[("per_minute", 1), ("burst", 2)]);
    let known = weir.key().text;
    let from = |wire: Wire, key: &str, address: &str| {
        weir.exchange(&wire.request(key, "hi").header("x-forwarded-for", address))
    };
    for (wire, network, kind) in [
        (Wire::Messages, "203.0.113", "rate_limit_error"),
        (Wire::Responses, "198.51.100", "rate_limit_exceeded"),
        (Wire::Gemini, "192.0.2", "RESOURCE_EXHAUSTED"),
    ] {
        let (one, other) = (format!("{network}.1"), format!("{network}.2"));
        for number in 0..2 {
            assert_unauthorized(wire, &from(wire, &made_up(number + 10 * wire as u64), &one));
        }
        for _ in 0..2 {
            let refused = from(wire, &made_up(9 + 10 * wire as u64), &one);
            assert_refusal(wire, &refused, 429, kind);
            let wait: u64 = refused.header("retry-after").unwrap().parse().unwrap();
            assert!((1..=60).contains(&wait), "{wait}");
            assert_eq!(refused.header("x-should-retry"), None, "it is to come back");
            assert!(refused.text().contains("It may be valid"), "{}", refused.text());
        }
        // One that is at hand as unknown costs nothing and is told so.
        assert_unauthorized(wire, &from(wire, &made_up(10 * wire as u64), &one));
        assert_unauthorized(wire, &from(wire, &made_up(9 + 10 * wire as u64), &other));
        let served = |key: &str| weir.exchange(&list(key).header("x-forwarded-for", &one)).status;
        assert_eq!(served(&known), 200, "a key in use is not concerned");
        let new = weir.key().text;
        wait_until("the new key to be known", || served(&new) == 200);
    }
    assert!(events(&weir, "limited_address") >= 6);
    assert_eq!(events(&weir, "limited_all"), 0);
    let refusals = "weir_refusals_total{protocol=\"gemini\",reason=\"key_not_looked_up\"} 2";
    assert!(weir.metrics().lines().any(|line| line == refusals));
}

#[test]
fn many_addresses_together_have_a_limit_too() {
    let weir = strict(&[("total_per_minute", 1), ("total_burst", 3)]);
    let statuses: Vec<u16> = (1..=5)
        .map(|number| asked(&weir, &format!("2001:db8:0:{number}::1"), number).status)
        .collect();
    assert_eq!(statuses, [401, 401, 401, 429, 429]);
    assert_eq!((events(&weir, "unknown"), events(&weir, "limited_all")), (3, 2));
}

#[test]
fn one_ipv6_network_is_one_address_and_nobody_else_is_believed_who_asks() {
    let weir = strict(&[("per_minute", 1), ("burst", 1)]);
    assert_eq!(asked(&weir, "2001:db8:1:2::1", 1).status, 401);
    assert_eq!(asked(&weir, "2001:db8:1:2:ffff::9", 2).status, 429);
    assert_eq!(asked(&weir, "2001:db8:1:3::1", 3).status, 401);
    let direct = WeirBuilder::new()
        .set("key_cache.unknown.per_minute", 1)
        .set("key_cache.unknown.burst", 1)
        .start();
    assert_eq!(asked(&direct, "203.0.113.1", 1).status, 401);
    assert_eq!(asked(&direct, "203.0.113.2", 2).status, 429, "nobody trusts it");
}

#[test]
fn many_real_keys_come_cold_from_one_address() {
    let mut weir = WeirBuilder::new()
        .set("key_cache.unknown.per_minute", 1)
        .set("key_cache.unknown.burst", 1)
        .start();
    let keys: Vec<String> = (0..5).map(|_| weir.key().text).collect();
    weir.kill_and_restart();
    for key in &keys {
        assert_eq!(weir.exchange(&list(key)).status, 200);
    }
    assert_eq!(events(&weir, "unknown"), 0);
    assert_eq!(weir.exchange(&list(&made_up(1))).status, 401, "none of them counted");
}
