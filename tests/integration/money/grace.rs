//! While Redis is away a node serves within what it knew of keys and accounts: nobody gets by the outage what was refused.

use crate::harness::load::{assert_not_now, assert_served};
use crate::harness::redis::RedisServer;
use crate::harness::request::{ALL_WIRES, Upload, Wire};
use crate::harness::sample::SampleProvider;
use crate::harness::tools::skip;
use crate::harness::weir::Key;
use crate::harness::{Weir, WeirBuilder, wait_until};

const WIRE: Wire = Wire::Messages;

/// A key of another account, which has `balance`.
fn key_of(weir: &Weir, account: &str, balance: &str) -> Key {
    weir.cli_json(&["account", "create", "--id", account, "--balance-usd", balance]);
    further_key(weir, account)
}

fn further_key(weir: &Weir, account: &str) -> Key {
    let made = weir.cli_json(&["key", "create", "--account", account, "--name", account]);
    let text = |name: &str| made[name].as_str().unwrap().to_owned();
    Key {
        id: text("id"),
        text: text("key"),
    }
}

fn on(redis: &RedisServer, provider: &SampleProvider) -> WeirBuilder {
    WeirBuilder::new().all_providers(&provider.base_url()).redis(redis)
}

fn status(weir: &Weir, key: &Key) -> u16 {
    weir.exchange(&WIRE.request(&key.text, "hi")).status
}

/// Nano-USD as the command line wants them.
fn usd(nanos: i64) -> String {
    format!("{}.{:09}", nanos / 1_000_000_000, nanos % 1_000_000_000)
}

fn bound(weir: &Weir, part: &str) -> i64 {
    weir.figure(&format!("weir_overspend_bound_nano_usd{{part=\"{part}\"}}"))
}

fn number(json: &serde_json::Value, name: &str) -> i64 {
    json[name].as_i64().unwrap_or_else(|| panic!("no {name} in {json}"))
}

/// Whoever was refused, and what is left to the others, before Redis goes.
struct Scene {
    redis: RedisServer,
    provider: SampleProvider,
    weir: Weir,
    /// What one request costs.
    one: i64,
}

impl Scene {
    fn set() -> Option<Scene> {
        let redis = RedisServer::start()?;
        let provider = SampleProvider::start();
        let weir = on(&redis, &provider).start();
        let key = weir.key();
        assert_eq!(status(&weir, &key), 200);
        let one = weir.books(1).charged();
        Some(Scene {
            redis,
            provider,
            weir,
            one,
        })
    }
}

#[test]
fn nobody_who_was_refused_is_served_while_redis_is_away() {
    let Some(mut scene) = Scene::set() else {
        skip!("redis-server is not installed")
    };
    let weir = &scene.weir;
    let poor = key_of(weir, "poor", "0");
    let stopped = key_of(weir, "stopped", "10");
    assert_eq!(status(weir, &stopped), 200);
    weir.cli_json(&["account", "suspend", "--id", "stopped"]);
    let spent = weir.key_with(&["--quota-usd", "0"]);
    for key in [&poor, &stopped, &spent] {
        assert_eq!(status(weir, key), 429);
    }
    let bills = scene.provider.bills().len();
    scene.redis.down();
    weir.wait_for_store(false);
    for round in 0..30 {
        for key in [&poor, &stopped, &spent] {
            let wire = ALL_WIRES[round % 3];
            assert_not_now(wire, &weir.exchange(&wire.request(&key.text, "hi")));
        }
    }
    assert_eq!(scene.provider.bills().len(), bills, "nothing was forwarded");
    assert_eq!(weir.figure("weir_admitted_by_grace_total"), 0);
    assert!(scene.redis.up());
    weir.wait_for_store(true);
    weir.cli_json(&["account", "credit", "--id", "poor", "--usd", "1"]);
    wait_until("the key to be served", || status(weir, &poor) == 200);
}

#[test]
fn balance_quota_rates_and_concurrency_hold_while_redis_is_away() {
    let Some(mut scene) = Scene::set() else {
        skip!("redis-server is not installed")
    };
    let (weir, one) = (&scene.weir, scene.one);
    let rated = weir.key_with(&["--rpm", "3"]);
    let single = weir.key_with(&["--concurrency", "1"]);
    let nearly = weir.key_with(&["--quota-usd", &usd(one * 5 / 2)]);
    let small = key_of(weir, "small", &usd(one * 5 / 2));
    for key in [&rated, &single, &nearly, &small, &nearly, &small] {
        assert_eq!(status(weir, key), 200);
        // What is held for the last request is free when the store has its charge.
        wait_until("the store to know of it", || {
            weir.figure("weir_settlements_unacknowledged") == 0
        });
    }
    scene.redis.down();
    weir.wait_for_store(false);

    let statuses: Vec<u16> = (0..10).map(|_| status(weir, &rated)).collect();
    let served = statuses.iter().filter(|status| **status == 200).count();
    // A slow machine may see one more to come back.
    assert!((2..=3).contains(&served) && statuses[9] == 429, "{statuses:?}");
    let refused = weir.exchange(&WIRE.request(&rated.text, "hi"));
    let wait: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=20).contains(&wait), "{wait}");

    let mut running = weir.connect();
    let request = WIRE.streaming(&single.text, "[[sample: deltas=30 gap_ms=100]]");
    running.write(&request.bytes(Upload::Length));
    let head = running.head_to("POST");
    let refused = weir.exchange(&WIRE.request(&single.text, "hi"));
    assert_eq!((refused.status, refused.header("retry-after")), (429, Some("1")));
    assert_served(WIRE, &running.rest(head));
    wait_until("the place to be free again", || status(weir, &single) == 200);

    let mut served = [0_i64; 2];
    for (key, served) in [&nearly, &small].into_iter().zip(&mut served) {
        for _ in 0..50 {
            let answer = weir.exchange(&WIRE.request(&key.text, "hi"));
            if answer.status == 200 {
                assert_served(WIRE, &answer);
                *served += 1;
            } else {
                assert_not_now(WIRE, &answer);
            }
        }
    }
    assert!(served.iter().all(|served| (0..=1).contains(served)), "{served:?}");

    assert!(scene.redis.up());
    weir.wait_for_store(true);
    wait_until("the store to know of all", || {
        weir.figure("weir_settlements_unacknowledged") == 0
    });
    let (per_request, per_key) = (bound(weir, "request"), bound(weir, "grace"));
    let over_quota = number(&weir.key_shown(&nearly.id), "spent_nano_usd") - one * 5 / 2;
    let account = weir.cli_json_at_last(&["account", "show", "--id", "small"]);
    let over_balance = -number(&account, "balance_nano_usd");
    for over in [over_quota, over_balance] {
        assert!(over <= one, "one request ran when it was used up: {over} of {one}");
        assert!(over <= per_request + per_key, "{over} > {per_request} + {per_key}");
    }
}

#[test]
fn many_keys_of_an_account_share_one_bound_while_redis_is_away() {
    const KEYS: usize = 6;
    let Some(mut scene) = Scene::set() else {
        skip!("redis-server is not installed")
    };
    let (one, redis) = (scene.one, &scene.redis);
    let weir = on(redis, &scene.provider)
        .set("money.grace_usd", usd(3 * one))
        .set("money.grace_account_usd", usd(5 * one))
        .start();
    let mut keys = vec![key_of(&weir, "many", "10")];
    keys.resize_with(KEYS, || further_key(&weir, "many"));
    for key in &keys {
        assert_eq!(status(&weir, key), 200);
    }
    scene.redis.down();
    weir.wait_for_store(false);
    let mut served = 0;
    for _ in 0..20 {
        served += keys.iter().filter(|key| status(&weir, key) == 200).count();
    }
    let spent = weir.figure("weir_grace_committed_nano_usd");
    let most = bound(&weir, "grace_account") + bound(&weir, "request");
    assert_eq!(bound(&weir, "grace_account"), 5 * one);
    assert!(served >= 5 && spent <= most, "{served} served, {spent} of {most}");
    assert_eq!(weir.figure("weir_admitted_by_grace_total"), served as i64);
}

#[test]
fn a_key_is_revoked_while_redis_is_out_of_memory() {
    let Some(scene) = Scene::set() else {
        skip!("redis-server is not installed")
    };
    let (weir, redis) = (&scene.weir, &scene.redis);
    let doomed = weir.key();
    assert_eq!(status(weir, &doomed), 200);
    wait_until("the store to know of it", || {
        weir.figure("weir_settlements_unacknowledged") == 0
    });
    redis.command(&["CONFIG", "SET", "maxmemory", "1"]);
    assert_eq!(status(weir, &doomed), 200, "it is served within its grace");
    assert_eq!(weir.figure("weir_admitted_by_grace_total"), 1);
    weir.cli_json(&["key", "revoke", &doomed.id]);
    wait_until("the key to be refused", || status(weir, &doomed) == 401);
    redis.command(&["CONFIG", "SET", "maxmemory", "0"]);
    wait_until("the store to know of all", || {
        weir.figure("weir_settlements_unacknowledged") == 0
    });
    assert_eq!(status(weir, &doomed), 401);
    weir.books_as_billed(&scene.provider, 0);
}
