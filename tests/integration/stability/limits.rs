//! How often one address may ask, and whose word is taken for which address that is.

use super::http::{SUMMARY, from, side, started, weir};
use crate::harness::{Client, Request};

#[test]
fn one_address_that_asks_too_often_is_refused_on_both_ports_and_no_other() {
    let weir = started(weir().set("stability.requests_per_minute", 1).set("stability.burst", 3));
    for address in [weir.stability, weir.gateway, weir.stability] {
        assert_eq!(Client::connect(address).exchange(&Request::get(SUMMARY)).status, 200);
    }
    for address in [weir.stability, weir.gateway] {
        let refused = Client::connect(address).exchange(&Request::get(SUMMARY));
        assert_eq!(refused.status, 429);
        assert_eq!(refused.json()["error"]["code"], "rate_limited");
        let wait: u64 = refused.header("retry-after").unwrap().parse().unwrap();
        assert!((1..=60).contains(&wait), "{wait}");
        let claiming = Request::get(SUMMARY).header("x-forwarded-for", "203.0.113.7");
        assert_eq!(
            Client::connect(address).exchange(&claiming).status,
            429,
            "nobody trusts it"
        );
    }
    for address in [weir.stability, weir.gateway] {
        assert_eq!(from([127, 0, 0, 2], address, &Request::get(SUMMARY)).status, 200);
    }
    let models = weir.exchange(&Request::get("/v1/models"));
    assert_eq!(models.status, 401, "what needs a key is not limited by address");
}

#[test]
fn a_trusted_proxy_says_who_asks() {
    let builder = weir()
        .set("stability.requests_per_minute", 1)
        .set("stability.burst", 1)
        .set("stability.trusted_proxies", vec!["127.0.0.1", "10.0.0.0/8"]);
    let weir = started(builder);
    let asked = |lines: &[&str]| {
        let request = lines.iter().fold(Request::get(SUMMARY), |request, line| {
            request.header("x-forwarded-for", line)
        });
        side(&weir, &request).status
    };
    assert_eq!(asked(&["203.0.113.1"]), 200);
    assert_eq!(asked(&["203.0.113.1"]), 429);
    assert_eq!(asked(&["203.0.113.2, 10.1.1.1"]), 200);
    assert_eq!(
        asked(&["9.9.9.9", "203.0.113.2", "10.2.2.2"]),
        429,
        "what a client writes in front is not believed"
    );
    assert_eq!(asked(&["2001:db8:1:2::1"]), 200);
    assert_eq!(asked(&["2001:db8:1:2:ffff::1"]), 429, "one network");
    assert_eq!(asked(&["::ffff:203.0.113.1"]), 429, "the same address");
    assert_eq!(asked(&["nonsense"]), 200, "the proxy itself");
    assert_eq!(asked(&[]), 429);
    let untrusted = Request::get(SUMMARY).header("x-forwarded-for", "203.0.113.99");
    assert_eq!(from([127, 0, 0, 2], weir.stability, &untrusted).status, 200);
    assert_eq!(from([127, 0, 0, 2], weir.stability, &untrusted).status, 429);
    assert_eq!(asked(&["203.0.113.99"]), 200);
}
