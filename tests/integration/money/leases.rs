//! Keys that ask often are admitted by their node alone, out of budget that Redis has lent it: few calls, and the same money.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::harness::books::cost;
use crate::harness::redis::RedisServer;
use crate::harness::request::{Upload, Wire};
use crate::harness::sample::SampleProvider;
use crate::harness::tools::{note, rounds, skipped};
use crate::harness::weir::Key;
use crate::harness::{Weir, WeirBuilder, wait_until};

const CLIENTS: usize = 8;
/// How soon a rate is used up, on a machine that serves it at all.
const USED_UP_IN: Duration = Duration::from_secs(300);
/// Longer than any of these tests: on a busy machine nobody is to be refused for the time that the machine takes.
const PATIENT_MS: i64 = 60_000;

fn gateway(redis: &RedisServer, provider: &SampleProvider) -> Weir {
    WeirBuilder::new()
        .all_providers(&provider.base_url())
        .redis(redis)
        .set("money.held_wait_ms", PATIENT_MS)
        .start()
}

fn ask(weir: &Weir, key: &Key) -> u16 {
    weir.exchange(&Wire::Messages.request(&key.text, "hi")).status
}

/// So many requests by several clients at once, over all of the nodes.
fn ask_all(nodes: &[&Weir], key: &Key, requests: usize) {
    let asked = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for number in 0..CLIENTS {
            let (asked, node) = (&asked, nodes[number % nodes.len()]);
            scope.spawn(move || {
                while asked.fetch_add(1, Ordering::Relaxed) < requests {
                    assert_eq!(ask(node, key), 200);
                }
            });
        }
    });
}

/// Asks until the nodes have a lease for the key, and use it.
fn until_leased(nodes: &[&Weir], key: &Key) {
    for node in nodes {
        let before = node.figure("weir_admitted_leased_total");
        wait_until("a lease that is used", || {
            ask_all(&[node], key, 4 * CLIENTS);
            node.figure("weir_admitted_leased_total") > before
        });
    }
}

/// The calls of scripts since the server's figures were set back, and what they called inside.
fn calls(redis: &RedisServer) -> (u64, u64) {
    let stats = redis.command(&["INFO", "commandstats"]);
    let calls = |line: &str| -> Option<(bool, u64)> {
        let (name, rest) = line.trim().strip_prefix("cmdstat_")?.split_once(":calls=")?;
        let count = rest.split(',').next()?.parse().ok()?;
        Some((name == "evalsha", count))
    };
    let all: Vec<(bool, u64)> = stats.lines().filter_map(calls).collect();
    let sum = |scripts: bool| {
        all.iter()
            .filter(|(is, _)| *is == scripts)
            .map(|(_, count)| count)
            .sum()
    };
    (sum(true), sum(false))
}

#[test]
fn a_key_far_from_its_limit_costs_redis_few_calls() {
    costs_redis_few_calls(&[]);
}

#[test]
fn so_does_a_key_far_from_its_rates_and_places() {
    costs_redis_few_calls(&["--rpm", "4000000", "--tpm", "900000000", "--concurrency", "2000"]);
}

fn costs_redis_few_calls(limits: &[&str]) {
    /// What a node calls each second whoever asks: for its leases, their settlements, keys, hours and clock.
    const CALLS_A_SECOND: f64 = 16.0;
    const CALLS_A_REQUEST: f64 = 0.03;
    let Some(redis) = RedisServer::start() else {
        return skipped("redis-server");
    };
    let provider = SampleProvider::start();
    let weir = gateway(&redis, &provider);
    let key = weir.key_with(limits);
    until_leased(&[&weir], &key);
    let requests = rounds(1_000, 10_000);
    let leased = weir.figure("weir_admitted_leased_total");
    redis.command(&["CONFIG", "RESETSTAT"]);
    let began = Instant::now();
    ask_all(&[&weir], &key, requests);
    let took = began.elapsed();
    let (scripts, inside) = calls(&redis);
    let leased = weir.figure("weir_admitted_leased_total") - leased;
    note(&format!(
        "{requests} requests in {took:?}: {leased} out of a lease, {scripts} calls of scripts, {inside} other commands"
    ));
    // On a slow machine the same requests take longer, and the calls of each second come on top of theirs.
    let allowed = requests as f64 * CALLS_A_REQUEST + took.as_secs_f64() * CALLS_A_SECOND;
    assert!((scripts as f64) <= allowed, "{scripts} calls, {allowed} are allowed");
    let books = weir.books_as_billed(&provider, 0);
    assert_eq!(
        books.account["held_nano_usd"], 0,
        "a lease that nobody uses is given back"
    );
    // What each had reserved, in the store or out of the lease: in this test the same.
    let held = |row: &serde_json::Value| row["hold_nano_usd"].as_i64().unwrap();
    assert!(books.rows.iter().all(|row| held(row) > 0 && row["attempts"] == 1));
}

#[test]
fn two_nodes_with_leases_use_a_quota_up_and_refuse_nobody_before() {
    let Some(redis) = RedisServer::start() else {
        return skipped("redis-server");
    };
    let provider = SampleProvider::start();
    let [one, two] = [(); 2].map(|()| gateway(&redis, &provider));
    let probe = one.key();
    assert_eq!(ask(&one, &probe), 200);
    let price = cost(&one.books(1).rows[0]);
    let quota = price * i64::try_from(rounds(1_200, 6_000)).unwrap();
    let usd = format!("{}.{:09}", quota / 1_000_000_000, quota % 1_000_000_000);
    let key = one.key_with(&["--quota-usd", &usd]);
    until_leased(&[&one, &two], &key);
    let early = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for number in 0..CLIENTS {
            let (early, key, node) = (&early, &key, [&one, &two][number % 2]);
            scope.spawn(move || {
                loop {
                    let answer = node.exchange(&Wire::Messages.request(&key.text, "hi"));
                    if answer.status == 200 {
                        continue;
                    }
                    assert_eq!(answer.status, 429);
                    // What is spent is said once; what is only held, to be repeated.
                    let is_spent = answer.header("x-should-retry") == Some("false");
                    early.fetch_add(usize::from(!is_spent), Ordering::Relaxed);
                    break;
                }
            });
        }
    });
    assert_eq!(early.into_inner(), 0, "refused while money was left");
    let books = one.books_as_billed(&provider, 0);
    let spent = books.charged() - price;
    let excess = |node: &Weir| node.figure("weir_overspend_bound_nano_usd{part=\"request\"}");
    let bound = i64::try_from(CLIENTS).unwrap() * excess(&one).max(excess(&two));
    note(&format!(
        "a quota of {quota}: {spent} spent, the bound is {bound} beyond it"
    ));
    assert!(spent >= quota, "{spent} of {quota}");
    assert!(
        spent - quota <= bound,
        "{spent} of {quota}, {bound} beyond it are allowed"
    );
    let leased: i64 = [&one, &two]
        .iter()
        .map(|node| node.figure("weir_admitted_leased_total"))
        .sum();
    assert!(leased > 0);
}

#[test]
fn two_nodes_with_leases_use_a_rate_up_and_refuse_nobody_before() {
    let Some(redis) = RedisServer::start() else {
        return skipped("redis-server");
    };
    let provider = SampleProvider::start();
    let [one, two] = [(); 2].map(|()| gateway(&redis, &provider));
    // Two nodes of a debug build serve more than is refilled, also beside other programs.
    let a_minute = rounds(3_000, 9_000);
    let began = Instant::now();
    let key = one.key_with(&["--rpm", &a_minute.to_string()]);
    let served = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for number in 0..CLIENTS {
            let (served, key, node) = (&served, &key, [&one, &two][number % 2]);
            scope.spawn(move || {
                loop {
                    let answer = node.exchange(&Wire::Messages.request(&key.text, "hi"));
                    if answer.status != 200 {
                        assert_eq!((answer.status, answer.header("retry-after")), (429, Some("1")));
                        return;
                    }
                    served.fetch_add(1, Ordering::Relaxed);
                    let took = began.elapsed();
                    assert!(took < USED_UP_IN, "{a_minute} a minute are not used up after {took:?}");
                }
            });
        }
    });
    let took = began.elapsed();
    let leased: i64 = [&one, &two]
        .iter()
        .map(|node| node.figure("weir_admitted_leased_total"))
        .sum();
    let served = served.into_inner();
    note(&format!(
        "{a_minute} a minute: {served} served in {took:?}, {leased} of them out of leases"
    ));
    assert!(served >= a_minute, "refused while some of the rate was left: {served}");
    let most = a_minute as f64 * (1.0 + took.as_secs_f64() / 60.0) + 1.0;
    assert!(served as f64 <= most, "{served} were served, {most} may be");
    assert!(leased > 0);
}

/// Asks until a moment has passed, and a few times more: those are all refused.
fn assert_refused_from(node: &Weir, key: &Key, from: Instant, status: u16) {
    while Instant::now() < from {
        ask(node, key);
    }
    for _ in 0..20 {
        assert_eq!(ask(node, key), status);
    }
}

#[test]
fn suspension_and_revocation_hold_within_a_second_at_nodes_that_have_leases() {
    let Some(redis) = RedisServer::start() else {
        return skipped("redis-server");
    };
    let provider = SampleProvider::start();
    let [weir, operator] = [(); 2].map(|()| gateway(&redis, &provider));
    let [key, lowered, doomed] = [(); 3].map(|()| operator.key());
    let second = Duration::from_secs(1);

    until_leased(&[&weir], &key);
    operator.cli_json(&["account", "suspend", "--id", "tests"]);
    assert_refused_from(&weir, &key, Instant::now() + second, 429);
    operator.cli_json(&["account", "resume", "--id", "tests"]);

    until_leased(&[&weir], &lowered);
    operator.cli_json(&["key", "update", &lowered.id, "--quota-usd", "0"]);
    wait_until("the lowered quota to hold", || ask(&weir, &lowered) == 429);
    assert_refused_from(&weir, &lowered, Instant::now(), 429);

    until_leased(&[&weir], &doomed);
    operator.cli_json(&["key", "revoke", &doomed.id]);
    wait_until("the revocation to hold", || ask(&weir, &doomed) == 401);
    assert_refused_from(&weir, &doomed, Instant::now(), 401);

    until_leased(&[&weir], &key);
    let balance = weir.account()["balance_usd"].as_str().unwrap().to_owned();
    let all = format!("-{balance}");
    operator.cli_json(&[
        "account",
        "adjust",
        "--id",
        "tests",
        "--usd",
        &all,
        "--reason",
        "all of it",
    ]);
    assert_refused_from(&weir, &key, Instant::now() + second, 429);
}

#[test]
fn what_ran_in_a_lease_is_charged_after_a_kill_and_the_lease_is_given_back() {
    let Some(redis) = RedisServer::start() else {
        return skipped("redis-server");
    };
    let provider = SampleProvider::start();
    let mut weir = gateway(&redis, &provider);
    let key = weir.key();
    until_leased(&[&weir], &key);
    // Streams that nobody sees the end of, in the lease as far as it is still there.
    let running: Vec<_> = (0..4)
        .map(|_| {
            ask_all(&[&weir], &key, CLIENTS);
            let mut client = weir.connect();
            let request = Wire::Messages.streaming(&key.text, "[[sample: deltas=3 stall_after=1]]");
            client.write(&request.bytes(Upload::Length));
            assert_eq!(client.head_to("POST").status, 200);
            client
        })
        .collect();
    let killed = Instant::now();
    weir.kill_and_restart();
    drop(running);
    wait_until("all to be charged and nothing to be held", || {
        let account = weir.account();
        let is_told = weir.figure("weir_settlements_unacknowledged") == 0;
        is_told && account["running"] == 0 && account["held_nano_usd"] == 0
    });
    note(&format!("nothing was held {:?} after the kill", killed.elapsed()));
    let rows = weir.rows().len();
    let books = weir.books(rows);
    let crashed = books.rows.iter().filter(|row| row["outcome"] == "crash").count();
    assert_eq!(crashed, 4);
    assert_eq!(ask(&weir, &key), 200);
}
