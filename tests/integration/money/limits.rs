//! Who is refused, when, and in which words.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::harness::request::{ALL_WIRES, Upload, Wire};
use crate::harness::rules::RuleFolder;
use crate::harness::sample::SampleProvider;
use crate::harness::tools::rounds;
use crate::harness::{Weir, WeirBuilder, wait_until};

#[test]
fn a_key_without_money_is_refused_in_every_shape() {
    let provider = SampleProvider::start();
    let weir = Weir::start(&provider.base_url());
    let key = weir.key_with(&["--quota-usd", "0"]);
    for wire in ALL_WIRES {
        let answer = weir.exchange(&wire.request(&key.text, "hi"));
        assert_eq!(answer.status, 429, "{wire:?}");
        assert_eq!(answer.header("x-should-retry"), Some("false"));
        let body = answer.json();
        match wire {
            Wire::Messages => assert_eq!(body["error"]["type"], "billing_error"),
            Wire::Responses => assert_eq!(body["error"]["code"], "insufficient_quota"),
            Wire::Gemini => assert_eq!(body["error"]["status"], "RESOURCE_EXHAUSTED"),
        }
    }
    weir.cli_json(&["key", "update", &key.id, "--quota-usd", "unlimited"]);
    assert_eq!(
        weir.exchange(&Wire::Messages.request(&key.text, "hi")).status,
        200,
        "a cleared quota holds at once"
    );
    weir.cli_json(&["account", "suspend", "--id", "tests"]);
    assert_eq!(weir.exchange(&Wire::Messages.request(&key.text, "hi")).status, 429);
    weir.cli_json(&["account", "resume", "--id", "tests"]);
    assert_eq!(weir.exchange(&Wire::Messages.request(&key.text, "hi")).status, 200);
    weir.books(2);
    assert_eq!(provider.bills().len(), 2, "a refused request reaches no provider");
}

#[test]
fn requests_per_minute_and_at_one_time_are_held() {
    let provider = SampleProvider::start();
    let rules = RuleFolder::aborting();
    let weir = rules.weir_at(&provider.base_url()).start();
    let slow = weir.key_with(&["--rpm", "3"]).text;
    let statuses: Vec<u16> = (0..4)
        .map(|_| weir.exchange(&Wire::Messages.request(&slow, "hi")).status)
        .collect();
    assert_eq!(statuses, [200, 200, 200, 429]);
    let refused = weir.exchange(&Wire::Messages.request(&slow, "hi"));
    let wait: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=20).contains(&wait), "{wait}");
    assert_eq!(refused.header("anthropic-ratelimit-requests-limit"), Some("3"));

    let single = weir.key_with(&["--concurrency", "1"]).text;
    let mut running = weir.connect();
    let request = Wire::Messages.streaming(&single, "[[sample: deltas=3 stall_after=1]]");
    running.write(&request.bytes(Upload::Length));
    let _head = running.head_to("POST");
    let second = weir.exchange(&Wire::Messages.request(&single, "hi"));
    assert_eq!((second.status, second.header("retry-after")), (429, Some("1")));
    drop(running);
    wait_until("the place to be free again", || {
        weir.exchange(&Wire::Messages.request(&single, "hi")).status == 200
    });
    // One after the other is never more than one at a time.
    for _ in 0..20 {
        assert_eq!(weir.exchange(&Wire::Messages.request(&single, "hi")).status, 200);
    }
}

#[test]
fn an_answer_that_nothing_is_left_for_is_cut_or_finished_as_the_key_says() {
    let provider = SampleProvider::start();
    let weir = Weir::start(&provider.base_url());
    let long = "Tell me. [[sample: deltas=400 delta_bytes=40 gap_ms=5]]";
    for wire in ALL_WIRES {
        let cut = weir.key_with(&["--quota-usd", "0.0005", "--on-exhausted", "cut"]);
        let answer = weir.exchange(&wire.streaming(&cut.text, long));
        assert_eq!(answer.status, 200);
        let text = answer.text();
        let word = match wire {
            Wire::Messages => "billing_error",
            Wire::Responses => "insufficient_quota",
            Wire::Gemini => "RESOURCE_EXHAUSTED",
        };
        assert!(text.contains(word), "{wire:?} {text}");
        let finish = weir.key_with(&["--quota-usd", "0.0005", "--finish-factor", "none"]);
        let answer = weir.exchange(&wire.streaming(&finish.text, long));
        assert!(!answer.text().contains(word), "{wire:?}");
        assert_eq!(weir.exchange(&wire.request(&finish.text, "hi")).status, 429, "{wire:?}");
    }
    let books = weir.books(6);
    let cut = books.rows.iter().filter(|row| row["outcome"] == "limit_reached");
    assert_eq!(cut.count(), 3);
}

/// Whether the gateway takes the body of a request with this key: what it answers to the head alone, 100 or a refusal.
fn asked_with_the_head(weir: &Weir, wire: Wire, key: &str) -> u16 {
    let mut request = wire.request(key, "hi").header("expect", "100-continue");
    request.body = vec![b' '; 10_000_000];
    let mut client = weir.connect();
    client.write(&request.head_bytes(Upload::Length));
    // Not one byte of the body has been sent: the answer cannot have waited for it.
    let head = client.head_to("POST");
    let status = head.status;
    if status != 100 {
        assert_eq!(client.rest(head).status, status);
        assert!(client.closed_within(Duration::from_secs(10)), "no body is waited for");
    }
    status
}

/// A key that was refused is refused before its body from then on, until the moment somebody helps it, at whichever node.
fn refused_before_the_body(weir: &Weir, operator: &Weir) {
    let status = |key: &str| weir.exchange(&Wire::Messages.request(key, "hi")).status;
    let make = |words: &[&str]| operator.cli_json(words);
    weir.fund();
    make(&["account", "create", "--id", "poor"]);
    let made = make(&["key", "create", "--account", "poor", "--name", "poor"]);
    let poor = made["key"].as_str().unwrap();
    let (spent, slow) = (weir.key_with(&["--quota-usd", "0"]), weir.key_with(&["--rpm", "1"]));
    assert_eq!(status(&slow.text), 200);
    for key in [poor, &spent.text, &slow.text] {
        assert_eq!(status(key), 429);
        for wire in ALL_WIRES {
            assert_eq!(asked_with_the_head(weir, wire, key), 429, "{wire:?}");
        }
    }
    make(&["account", "credit", "--id", "poor", "--usd", "1"]);
    assert_eq!(status(poor), 200, "a credit holds at once");
    make(&["key", "update", &spent.id, "--quota-usd", "1"]);
    assert_eq!(asked_with_the_head(weir, ALL_WIRES[0], &spent.text), 100);
    assert_eq!(status(&spent.text), 200, "a raised quota holds at once");
    make(&["key", "update", &slow.id, "--rpm", "1000"]);
    assert_eq!(status(&slow.text), 200, "a raised rate holds at once");
    make(&["account", "suspend", "--id", "poor"]);
    assert_eq!(status(poor), 429);
    assert_eq!(asked_with_the_head(weir, ALL_WIRES[0], poor), 429);
    make(&["account", "resume", "--id", "poor"]);
    assert_eq!(status(poor), 200, "an account goes on at once");
}

#[test]
fn a_key_known_to_have_nothing_left_is_refused_before_its_body() {
    let provider = SampleProvider::start();
    let weir = Weir::start(&provider.base_url());
    refused_before_the_body(&weir, &weir);
}

#[test]
fn a_key_helped_at_another_node_is_served_at_once() {
    let Some(redis) = crate::harness::redis::RedisServer::start() else {
        return crate::harness::tools::skipped("redis-server");
    };
    let provider = SampleProvider::start();
    let [weir, operator] = [(); 2].map(|()| {
        WeirBuilder::new()
            .all_providers(&provider.base_url())
            .redis(&redis)
            .start()
    });
    refused_before_the_body(&weir, &operator);
}

/// A key with money for ten requests of many at once: what is spent stays within the bound, and nobody is refused while
/// something is left.
fn race(nodes: &[Weir], clients: usize) {
    let first = &nodes[0];
    let prompt = "hi [[sample: deltas=20 delta_bytes=16]]";
    let probe = first.key().text;
    assert_eq!(first.exchange(&Wire::Messages.request(&probe, prompt)).status, 200);
    let one = crate::harness::books::cost(&first.books(1).rows[0]);
    let quota = one * 10;
    let usd = format!("{}.{:09}", quota / 1_000_000_000, quota % 1_000_000_000);
    let key = first.key_with(&["--quota-usd", &usd]);
    let served = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for node in nodes {
            for _ in 0..clients {
                let (served, key) = (&served, &key.text);
                scope.spawn(move || {
                    let status = node.exchange(&Wire::Messages.request(key, prompt)).status;
                    assert!(matches!(status, 200 | 429), "{status}");
                    served.fetch_add(usize::from(status == 200), Ordering::Relaxed);
                });
            }
        }
    });
    // Those that were refused while others held the rest of the quota may come again: until it is spent.
    let mut served = served.into_inner();
    first.books(served + 1);
    while first.exchange(&Wire::Messages.request(&key.text, prompt)).status == 200 {
        served += 1;
        first.books(served + 1);
    }
    let books = first.books(served + 1);
    let spent = books.charged() - one;
    assert!(
        spent >= quota,
        "refused although something was left: {spent} of {quota}"
    );
    // The bound: every request was admitted with a hold, and each may exceed its hold by less than its own cost.
    let excess = spent - quota;
    assert!(excess < one * served as i64, "{excess} over {quota} by {served}");
}

#[test]
fn a_race_for_the_last_of_a_quota_stays_within_the_bound() {
    let provider = SampleProvider::start();
    let weir = Weir::start(&provider.base_url());
    race(&[weir], rounds(60, 200));
}

#[test]
fn two_nodes_race_for_the_last_of_a_quota() {
    let Some(redis) = crate::harness::redis::RedisServer::start() else {
        return crate::harness::tools::skipped("redis-server");
    };
    let provider = SampleProvider::start();
    let node = || {
        WeirBuilder::new()
            .all_providers(&provider.base_url())
            .redis(&redis)
            .start()
    };
    race(&[node(), node()], rounds(60, 500));
}
