//! How much of the memory for request bodies one key and one address may hold, each at its limit.

use std::net::TcpStream;

use crate::harness::crowd::Crowd;
use crate::harness::request::{ALL_WIRES, Upload, Wire};
use crate::harness::shapes::assert_refusal;
use crate::harness::{Client, RecordingProvider, Weir, WeirBuilder, wait_for, wait_until};

/// The bodies of these tests, and how much of each has arrived.
const BODY: usize = 300_000;
const ARRIVED: usize = 200_000;

fn weir(provider: &RecordingProvider) -> WeirBuilder {
    WeirBuilder::new()
        .all_providers(&provider.base_url())
        .set("gateway.body_bytes_max", BODY as i64)
        .set("gateway.body_budget_bytes", 1_200_000)
        .set("gateway.body_key_bytes", 1_200_000)
        .set("gateway.body_address_bytes", 1_200_000)
}

/// A request under way, and the rest of its body.
fn begin(over: TcpStream, key: &str) -> (Client, Vec<u8>) {
    let small = Wire::Messages.request(key, "").body.len();
    let request = Wire::Messages.request(key, &"x".repeat(BODY - small));
    let mut client = Client::over(over);
    client.write(&request.head_bytes(Upload::Length));
    let (arrived, rest) = request.body.split_at(ARRIVED);
    client.write(arrived);
    (client, rest.to_vec())
}

#[track_caller]
fn wait_held(weir: &Weir, bytes: usize) {
    let held = format!("weir_body_bytes_buffered {bytes}\n");
    wait_until(&format!("{bytes} bytes of bodies"), || weir.metrics().contains(&held));
}

fn connect(weir: &Weir) -> TcpStream {
    TcpStream::connect(weir.gateway).unwrap()
}

fn limited(wire: Wire) -> &'static str {
    match wire {
        Wire::Messages => "rate_limit_error",
        Wire::Responses => "rate_limit_exceeded",
        Wire::Gemini => "RESOURCE_EXHAUSTED",
    }
}

/// Checks that nothing more is taken from `over`, with this key, and that what was taken is served at last.
#[track_caller]
fn full(weir: &Weir, over: impl Fn() -> TcpStream, key: &str, begun: Vec<(Client, Vec<u8>)>, reason: &str) {
    for wire in ALL_WIRES {
        let mut client = Client::over(over());
        let answer = client.exchange(&wire.request(key, "hi"));
        assert_refusal(wire, &answer, 429, limited(wire));
        assert_eq!(answer.header("retry-after"), Some("1"), "{wire:?}");
        assert!(answer.header("x-should-retry").is_none(), "{wire:?}");
        assert!(answer.text().contains("400000 bytes"), "{}", answer.text());
        let protocol = format!("{wire:?}").to_lowercase();
        let counted = format!("weir_refusals_total{{protocol=\"{protocol}\",reason=\"{reason}\"}} 1\n");
        wait_until(&counted, || weir.metrics().contains(&counted));
    }
    let mut begun = begun.into_iter();
    // One ends without its answer, so that there is room for the rest of the other.
    drop(begun.next());
    wait_held(weir, ARRIVED);
    let (mut last, rest) = begun.next().unwrap();
    last.write(&rest);
    assert_eq!(last.response_to("POST").status, 200);
    wait_for("room again", || {
        let answer = Client::over(over()).exchange(&Wire::Messages.request(key, "hi"));
        Some(()).filter(|()| answer.status == 200)
    });
}

#[test]
fn a_key_holds_its_share_and_no_other_key_is_concerned() {
    let provider = RecordingProvider::recorded();
    let weir = weir(&provider)
        .set("gateway.body_key_bytes", 2 * ARRIVED as i64)
        .start();
    let (key, other) = (weir.key().text, weir.key().text);
    let begun = vec![begin(connect(&weir), &key), begin(connect(&weir), &key)];
    wait_held(&weir, 2 * ARRIVED);
    assert_eq!(weir.exchange(&Wire::Messages.request(&other, "hi")).status, 200);
    full(&weir, || connect(&weir), &key, begun, "key_bodies_limited");
}

#[test]
fn an_address_holds_its_share_whatever_keys_it_has() {
    let provider = RecordingProvider::recorded();
    let weir = weir(&provider)
        .set("gateway.body_address_bytes", 2 * ARRIVED as i64)
        .start();
    let keys = [(); 3].map(|()| weir.key().text);
    let crowd = Crowd::new(weir.gateway);
    let begun = vec![begin(crowd.connect(2), &keys[0]), begin(crowd.connect(2), &keys[1])];
    wait_held(&weir, 2 * ARRIVED);
    for key in &keys {
        let answer = Client::over(crowd.connect(3)).exchange(&Wire::Messages.request(key, "hi"));
        assert_eq!(answer.status, 200, "from elsewhere: {}", answer.text());
    }
    full(&weir, || crowd.connect(2), &keys[2], begun, "address_bodies_limited");
}

#[test]
fn a_trusted_proxy_has_no_share_and_those_it_names_have() {
    let provider = RecordingProvider::recorded();
    let weir = weir(&provider)
        .set("gateway.body_address_bytes", 2 * ARRIVED as i64)
        .set("stability.trusted_proxies", vec!["127.0.0.2".to_owned()])
        .start();
    let key = weir.key().text;
    let crowd = Crowd::new(weir.gateway);
    let begun: Vec<_> = (0..3).map(|_| begin(crowd.connect(2), &key)).collect();
    wait_held(&weir, 3 * ARRIVED);
    let small = Wire::Messages.request(&key, "hi");
    let named = small.clone().header("x-forwarded-for", "203.0.113.5");
    for request in [&small, &named] {
        assert_eq!(Client::over(crowd.connect(2)).exchange(request).status, 200);
    }
    drop(begun);
    wait_held(&weir, 0);
}
