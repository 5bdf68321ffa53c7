//! Nobody is refused while money is left: what running requests hold is waited for, and holds are near what requests cost.

use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};

use crate::harness::books::cost;
use crate::harness::client::Response;
use crate::harness::h2c;
use crate::harness::models::CLAUDE_CODE_MODEL;
use crate::harness::request::{Request, Upload, Wire};
use crate::harness::rules::RuleFolder;
use crate::harness::sample::SampleProvider;
use crate::harness::tools::rounds;
use crate::harness::{Weir, wait_until};

/// Longer than any of these tests: on a busy machine nobody is to be refused for the time that the machine takes.
const PATIENT_MS: i64 = 60_000;
const QUOTA: &str = "2";
const QUOTA_NANOS: i64 = 2_000_000_000;

/// A gateway at which a hold ends with its client: it drops the provider as soon as that has left.
fn patient(rules: &RuleFolder, provider: &SampleProvider) -> Weir {
    let weir = rules.weir_at(&provider.base_url());
    weir.set("money.held_wait_ms", PATIENT_MS).start()
}

/// A question behind 150,000 tokens that are marked for the cache. The answer takes some time, as answers do.
fn cached_prompt(key: &str) -> Request {
    let prefix = "a river and ".repeat(50_000);
    let body = json!({
        "model": CLAUDE_CODE_MODEL,
        "max_tokens": 8_192,
        "stream": true,
        "system": [{ "type": "text", "text": prefix, "cache_control": { "type": "ephemeral" } }],
        "messages": [{
            "role": "user",
            "content": "What now? [[sample: prompt_cache=true ttfb_ms=60 deltas=60 delta_bytes=30 gap_ms=1]]",
        }],
    });
    Request::post("/v1/messages")
        .header("x-api-key", key)
        .header("anthropic-version", "2023-06-01")
        .json(&body.to_string())
}

/// `clients` at once, each with `each` requests one after the other; all answers.
fn at_once(weir: &Weir, request: &Request, clients: usize, each: usize) -> Vec<Response> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..clients)
            .map(|_| scope.spawn(|| (0..each).map(|_| weir.exchange(request)).collect::<Vec<_>>()))
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn a_cached_prompt_is_never_refused_while_money_is_left() {
    let provider = SampleProvider::start();
    let rules = RuleFolder::aborting();
    let weir = patient(&rules, &provider);
    // The first of all finds nothing in the cache, and nothing learnt.
    let first = weir.key();
    assert_eq!(weir.exchange(&cached_prompt(&first.text)).status, 200);
    let clients: Vec<usize> = if rounds(0, 1) == 1 {
        (1..=12).collect()
    } else {
        vec![12, 8, 1]
    };
    for clients in clients {
        let key = weir.key_with(&["--quota-usd", QUOTA]);
        let answers = at_once(&weir, &cached_prompt(&key.text), clients, 2);
        let refused = answers.iter().filter(|answer| answer.status != 200).count();
        assert_eq!(refused, 0, "of {} by {clients} at once", answers.len());
    }
    let books = weir.books_as_billed(&provider, 0);
    let read = |row: &&Json| row["cache_read"].as_u64().is_some_and(|read| read >= 150_000);
    assert_eq!(
        books.rows.iter().filter(read).count(),
        books.rows.len() - 1,
        "all but the first"
    );
    for row in books.rows.iter().filter(read) {
        assert!((20_000_000..60_000_000).contains(&cost(row)), "{row}");
    }
}

/// A stream that stays open, of a key whose whole quota it holds.
fn running(weir: &Weir, key: &str) -> crate::harness::client::Client {
    let mut running = weir.connect();
    let request = Wire::Messages.streaming(key, "[[sample: deltas=3 stall_after=1]]");
    running.write(&request.bytes(Upload::Length));
    assert_eq!(running.head_to("POST").status, 200);
    running
}

#[test]
fn what_is_only_held_is_waited_for() {
    let provider = SampleProvider::start();
    let rules = RuleFolder::aborting();
    let weir = patient(&rules, &provider);
    let key = weir.key_with(&["--quota-usd", "0.001"]).text;
    let running = running(&weir, &key);
    std::thread::scope(|scope| {
        let waiting: Vec<_> = (0..3)
            .map(|_| scope.spawn(|| weir.exchange(&Wire::Messages.request(&key, "hi"))))
            .collect();
        wait_until("all to wait", || metric(&weir, "weir_admission_queue_length") == 3);
        // The stream ends; what it did not use is free for the others.
        drop(running);
        for answer in waiting {
            assert_eq!(answer.join().unwrap().status, 200);
        }
    });
    weir.books(4);
}

#[test]
fn what_stays_held_is_429_soon_to_be_asked_again_and_what_is_spent_is_final_at_once() {
    let provider = SampleProvider::start();
    let rules = RuleFolder::aborting();
    let weir = rules
        .weir_at(&provider.base_url())
        .set("money.held_wait_ms", 200)
        .start();
    let key = weir.key_with(&["--quota-usd", "0.001"]);
    let running = running(&weir, &key.text);
    let asked = Instant::now();
    let refused = weir.exchange(&Wire::Messages.request(&key.text, "hi"));
    assert!(asked.elapsed() >= Duration::from_millis(200), "{:?}", asked.elapsed());
    assert_eq!((refused.status, refused.header("retry-after")), (429, Some("1")));
    assert_ne!(refused.header("x-should-retry"), Some("false"));
    drop(running);
    // Now it is spent, and nobody waits for it.
    weir.cli_json(&["key", "update", &key.id, "--quota-usd", "0"]);
    let spent = weir.exchange(&Wire::Messages.request(&key.text, "hi"));
    assert_eq!((spent.status, spent.header("x-should-retry")), (429, Some("false")));
    assert_eq!(metric(&weir, "weir_admission_queue_length"), 0);
}

#[test]
fn a_client_that_leaves_waits_no_more() {
    let provider = SampleProvider::start();
    let rules = RuleFolder::aborting();
    let weir = patient(&rules, &provider);
    let key = weir.key_with(&["--quota-usd", "0.001"]).text;
    let running = running(&weir, &key);
    let mut waiting = weir.connect();
    waiting.write(&Wire::Messages.request(&key, "hi").bytes(Upload::Length));
    wait_until("it to wait", || metric(&weir, "weir_admission_queue_length") == 1);
    drop(waiting);
    wait_until("nobody to wait", || metric(&weir, "weir_admission_queue_length") == 0);
    h2c::abandon(weir.gateway, &Wire::Messages.request(&key, "hi"), || {
        wait_until("it to wait", || metric(&weir, "weir_admission_queue_length") == 1);
    });
    wait_until("nobody to wait", || metric(&weir, "weir_admission_queue_length") == 0);
    drop(running);
    weir.books(1);
    assert_eq!(provider.bills().len(), 1, "nothing was sent for it");
}

#[test]
fn more_than_may_wait_are_refused_at_once() {
    let provider = SampleProvider::start();
    let rules = RuleFolder::aborting();
    let weir = rules
        .weir_at(&provider.base_url())
        .set("money.held_wait_ms", PATIENT_MS)
        .set("money.held_waiting_account_max", 2)
        .start();
    let key = weir.key_with(&["--quota-usd", "0.001"]).text;
    let running = running(&weir, &key);
    std::thread::scope(|scope| {
        let waiting: Vec<_> = (0..2)
            .map(|_| scope.spawn(|| weir.exchange(&Wire::Messages.request(&key, "hi"))))
            .collect();
        wait_until("two to wait", || metric(&weir, "weir_admission_queue_length") == 2);
        let third = weir.exchange(&Wire::Messages.request(&key, "hi"));
        assert_eq!((third.status, third.header("retry-after")), (429, Some("1")));
        drop(running);
        for answer in waiting {
            assert_eq!(answer.join().unwrap().status, 200);
        }
    });
}

/// The value of a metric without labels.
fn metric(weir: &Weir, name: &str) -> i64 {
    let text = weir.metrics();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.map_or(-1, |value| value.parse().unwrap())
}

/// An answer of many small pieces, far longer than any of these quotas pays for, and its row.
fn long_answer(weir: &Weir, flags: &[&str]) -> (String, Json) {
    let key = weir.key_with(flags);
    let prompt = "Tell me. [[sample: deltas=1500 delta_bytes=12 gap_ms=1]]";
    let answer = weir.exchange(&Wire::Messages.streaming(&key.text, prompt));
    assert_eq!(answer.status, 200);
    let id = answer.header("x-weir-request-id").unwrap().to_owned();
    let row = crate::harness::wait::wait_for("the row", || {
        weir.rows().into_iter().find(|row| row["request_id"] == id.as_str())
    });
    (answer.text(), row)
}

#[test]
fn a_cut_comes_at_the_limit_and_not_before() {
    let provider = SampleProvider::start();
    let weir = Weir::start(&provider.base_url());
    let quota = 10_000_000;
    let (text, row) = long_answer(&weir, &["--quota-usd", "0.01", "--on-exhausted", "cut"]);
    assert_eq!(row["outcome"], "limit_reached");
    let share = cost(&row) as f64 / quota as f64;
    crate::harness::tools::note(&format!("a cut answer was charged {:.2} % of its limit", 100.0 * share));
    assert!((0.99..1.02).contains(&share), "{share}: {row}");
    // One piece at most is charged that the client did not get.
    let pieces = text.matches("content_block_delta").count() / 2;
    let passed = share * (pieces as f64) / (pieces as f64 + 1.0);
    assert!(passed >= 0.99, "{passed}");
}

#[test]
fn an_answer_that_may_finish_is_bounded_by_a_factor_of_its_key() {
    let provider = SampleProvider::start();
    let weir = Weir::start(&provider.base_url());
    let quota = 1_000_000;
    for (flags, factor) in [(&[][..], 2.0), (&["--finish-factor", "5"][..], 5.0)] {
        let (text, row) = long_answer(&weir, &[&["--quota-usd", "0.001"], flags].concat());
        assert_eq!(row["outcome"], "limit_reached", "{flags:?}");
        assert!(
            text.contains("rate_limit_error") || text.contains("billing_error"),
            "{flags:?}"
        );
        let times = cost(&row) as f64 / quota as f64;
        assert!((factor * 0.99..factor * 1.1).contains(&times), "{times} for {flags:?}");
    }
    let (_, row) = long_answer(&weir, &["--quota-usd", "0.001", "--finish-factor", "none"]);
    assert_eq!(row["outcome"], "ok");
    assert!(cost(&row) > 20 * quota, "{row}");
}

#[test]
fn no_quota_is_exceeded_by_more_than_the_published_bound() {
    let provider = SampleProvider::start();
    let rules = RuleFolder::aborting();
    let weir = patient(&rules, &provider);
    let key = weir.key_with(&["--quota-usd", QUOTA]);
    // Learnt from prompts in the cache, then one that is not: the hold was too small, and grows at the answer's start.
    for _ in 0..3 {
        assert_eq!(weir.exchange(&cached_prompt(&key.text)).status, 200);
    }
    let mut missed = cached_prompt(&key.text);
    let text = String::from_utf8(missed.body)
        .unwrap()
        .replacen("a river", "another river", 1);
    missed.body = text.into_bytes();
    missed.headers.retain(|(name, _)| name != "content-length");
    let answers = at_once(&weir, &missed, 4, 1);
    assert!(answers.iter().all(|answer| answer.status == 200));
    let books = weir.books_as_billed(&provider, 0);
    let excess = books.charged() - QUOTA_NANOS;
    let bound = weir.metrics();
    let bound = bound
        .lines()
        .find_map(|line| line.strip_prefix(r#"weir_overspend_bound_nano_usd{part="request"} "#))
        .map_or(0, |value| value.parse::<i64>().unwrap());
    assert!(excess <= bound * 4, "{excess} over, {bound} per request");
}
