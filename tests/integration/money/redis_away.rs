//! Redis is killed, hangs, or takes nothing more: answers under way go on, keys at hand have their grace, and what was spent
//! meanwhile is in the books when it is back.

use std::time::{Duration, Instant};

use crate::harness::client::{Client, Head};
use crate::harness::load::{Load, assert_not_now, assert_served};
use crate::harness::redis::RedisServer;
use crate::harness::request::{ALL_WIRES, Upload};
use crate::harness::sample::SampleProvider;
use crate::harness::tools::{note, rounds, skip};
use crate::harness::weir::Key;
use crate::harness::{Weir, WeirBuilder, wait_until};

const CLIENTS: usize = 6;

/// A gateway on a Redis, with a key that is at hand and one that never was.
struct Scene {
    redis: RedisServer,
    provider: SampleProvider,
    weir: Weir,
    key: Key,
    spare: Key,
    unseen: Key,
}

impl Scene {
    fn set() -> Option<Scene> {
        let redis = RedisServer::start()?;
        let provider = SampleProvider::start();
        let weir = WeirBuilder::new()
            .all_providers(&provider.base_url())
            .redis(&redis)
            .set("money.grace_usd", "0.02")
            .start();
        let [key, spare, unseen] = [(); 3].map(|()| weir.key());
        for wire in ALL_WIRES {
            assert_served(wire, &weir.exchange(&wire.request(&spare.text, "hi")));
        }
        Some(Scene {
            redis,
            provider,
            weir,
            key,
            spare,
            unseen,
        })
    }

    /// One long stream in each protocol, begun.
    fn streams(&self) -> Vec<(Client, Head)> {
        let streams = ALL_WIRES.iter().map(|wire| {
            let mut client = self.weir.connect();
            let prompt = "Tell me. [[sample: deltas=300 gap_ms=10]]";
            client.write(&wire.streaming(&self.key.text, prompt).bytes(Upload::Length));
            let mut head = client.head_to("POST");
            client.piece(&mut head);
            (client, head)
        });
        streams.collect()
    }

    /// What is promised while the store is away and the key of the load has used up its grace.
    fn assert_away(&self) {
        for wire in ALL_WIRES {
            assert_not_now(wire, &self.weir.exchange(&wire.request(&self.unseen.text, "hi")));
            assert_not_now(wire, &self.weir.exchange(&wire.request(&self.key.text, "hi")));
        }
        let wire = ALL_WIRES[0];
        assert_served(wire, &self.weir.exchange(&wire.request(&self.spare.text, "hi")));
        assert!(self.weir.figure("weir_admitted_by_grace_total") > 1);
        assert!(self.weir.figure("weir_settlements_unacknowledged") > 0);
    }

    /// Ends the load and compares the books.
    fn settle(&self, load: Load, streams: Vec<(Client, Head)>) {
        let more = streams.len();
        for ((mut client, head), wire) in streams.into_iter().zip(ALL_WIRES) {
            assert_served(wire, &client.rest(head));
        }
        // Three before it all, one on the grace of the spare key.
        let served = load.end() + more + 4;
        let books = self.weir.books_as_billed(&self.provider, 0);
        assert_eq!(books.rows.len(), served);
        assert_eq!(self.weir.figure("weir_settlements_unacknowledged"), 0);
        assert_eq!(self.weir.figure("weir_journal_write_failures_total"), 0);
    }
}

#[test]
fn killed_under_load() {
    let Some(mut scene) = Scene::set() else {
        skip!("redis-server is not installed")
    };
    let load = Load::start(&scene.weir, &[&scene.key.text], CLIENTS);
    load.serve(30);
    let streams = scene.streams();
    scene.redis.down();
    scene.weir.wait_for_store(false);
    load.refuse_all();
    scene.assert_away();
    assert!(scene.redis.up());
    scene.weir.wait_for_store(true);
    load.serve(30);
    scene.settle(load, streams);
}

#[test]
fn stopped_under_load() {
    let Some(scene) = Scene::set() else {
        skip!("redis-server is not installed")
    };
    let load = Load::start(&scene.weir, &[&scene.key.text], CLIENTS);
    load.serve(30);
    let streams = scene.streams();
    scene.redis.signal("STOP");
    scene.weir.wait_for_store(false);
    load.refuse_all();
    let noticed = Instant::now();
    scene.assert_away();
    let length = Duration::from_secs(rounds(2, 10) as u64);
    wait_until("the pause to be over", || noticed.elapsed() > length);
    // Whoever asked when it was known that nobody answers did not wait for an answer.
    let waits = load.waits_since(noticed);
    let (middle, longest) = (waits[waits.len() / 2], waits[waits.len() - 1]);
    note(&format!(
        "redis away: stopped, waits of {middle:?}, {longest:?} at most"
    ));
    // A machine that does much else besides is late.
    let (middle_max, longest_max) = (rounds(1000, 100), rounds(5000, 1500));
    assert!(
        middle < Duration::from_millis(middle_max as u64),
        "refused after {middle:?} only"
    );
    assert!(longest < Duration::from_millis(longest_max as u64), "{longest:?}");
    scene.redis.signal("CONT");
    scene.weir.wait_for_store(true);
    load.serve(30);
    scene.settle(load, streams);
}

#[test]
fn out_of_memory_under_load() {
    let Some(scene) = Scene::set() else {
        skip!("redis-server is not installed")
    };
    let load = Load::start(&scene.weir, &[&scene.key.text], CLIENTS);
    load.serve(30);
    let streams = scene.streams();
    assert!(
        scene
            .redis
            .command(&["CONFIG", "SET", "maxmemory", "1"])
            .starts_with("+OK")
    );
    load.refuse_all();
    let wire = ALL_WIRES[0];
    assert_not_now(wire, &scene.weir.exchange(&wire.request(&scene.key.text, "hi")));
    assert_served(wire, &scene.weir.exchange(&wire.request(&scene.spare.text, "hi")));
    assert!(scene.weir.figure("weir_settlements_unacknowledged") > 0);
    assert!(
        scene
            .redis
            .command(&["CONFIG", "SET", "maxmemory", "0"])
            .starts_with("+OK")
    );
    load.serve(30);
    scene.settle(load, streams);
}
