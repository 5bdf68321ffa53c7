//! A store that was emptied: nothing is admitted, and a backup with the journal behind it makes the books whole again.

use std::process::Command;

use crate::harness::load::{assert_not_now, assert_served};
use crate::harness::process::Process;
use crate::harness::redis::RedisServer;
use crate::harness::request::ALL_WIRES;
use crate::harness::sample::SampleProvider;
use crate::harness::tools::skip;
use crate::harness::{Weir, WeirBuilder, wait_until};

/// What is credited after the backup: 5 USD.
const CREDIT: i64 = 5_000_000_000;

/// One request in each protocol, and a stream.
fn ask(weir: &Weir, key: &str) {
    for wire in ALL_WIRES {
        assert_served(
            wire,
            &weir.exchange(&wire.request(key, "Tell me. [[sample: deltas=9]]")),
        );
        assert_served(
            wire,
            &weir.exchange(&wire.streaming(key, "Tell me. [[sample: deltas=30]]")),
        );
    }
}

#[test]
fn an_emptied_redis_is_restored_to_the_last_charge() {
    let Some(redis) = RedisServer::start() else {
        skip!("redis-server is not installed")
    };
    let provider = SampleProvider::start();
    let weir = WeirBuilder::new()
        .all_providers(&provider.base_url())
        .redis(&redis)
        .set("store.redis.budget_ms", 2_000)
        .set("money.grace_usd", "0")
        .start();
    let [key, revoked] = [(); 2].map(|()| weir.key());
    ask(&weir, &key.text);
    ask(&weir, &revoked.text);
    weir.books_as_billed(&provider, 0);
    let backup = weir.folder().join("backup").to_str().unwrap().to_owned();
    let made = weir.store_command(&["backup", "--out", &backup]);
    assert!(made.status.success(), "{made:?}");

    // What comes after the backup is in the journal.
    let later = weir.key();
    ask(&weir, &key.text);
    ask(&weir, &later.text);
    weir.cli_json(&["key", "revoke", &revoked.id]);
    weir.cli_json(&["account", "credit", "--id", "tests", "--usd", "5"]);
    let before = weir.books_as_billed(&provider, CREDIT);

    assert!(redis.command(&["FLUSHALL"]).starts_with("+OK"));
    weir.wait_for_store(false);
    for wire in ALL_WIRES {
        for text in [&key.text, &later.text] {
            assert_not_now(wire, &weir.exchange(&wire.request(text, "hi")));
        }
    }
    let elsewhere = Weir::start(&provider.base_url()).key().text;
    assert_not_now(ALL_WIRES[0], &weir.exchange(&ALL_WIRES[0].request(&elsewhere, "hi")));
    wait_until("an alarm", || {
        weir.logs().contains("does not have the accounts of this installation")
    });
    assert_eq!(
        provider.bills().len(),
        before.rows.len(),
        "something was served for free"
    );

    let restored = weir.store_command(&["restore", "--from", &backup]);
    assert!(restored.status.success(), "{restored:?}");
    weir.wait_for_store(true);
    // Nothing has to happen for it: what the backup lacks comes by itself.
    assert_eq!(weir.books_as_billed(&provider, CREDIT).charged(), before.charged());
    ask(&weir, &key.text);
    wait_until("a key that is younger than the backup", || {
        weir.exchange(&ALL_WIRES[0].request(&later.text, "hi")).status == 200
    });
    wait_until("the revocation", || {
        weir.exchange(&ALL_WIRES[0].request(&revoked.text, "hi")).status == 401
    });
    weir.books_as_billed(&provider, CREDIT);
}

/// Starts weir on its own files, which it must refuse to serve on; what it says.
fn refused(weir: &Weir) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(["serve", "--conf"]).arg(weir.folder().join("weir.toml"));
    let mut process = Process::start(&command, weir.folder(), "refused");
    let status = process.wait_ended();
    assert!(!status.success(), "it serves without its accounts");
    process.err()
}

#[test]
fn a_lost_embedded_ledger_is_refused_until_a_backup_is_put_back() {
    let provider = SampleProvider::start();
    let mut weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    ask(&weir, &key);
    weir.books_as_billed(&provider, 0);
    let backup = weir.folder().join("backup").to_str().unwrap().to_owned();
    let made = weir.store_command(&["backup", "--out", &backup]);
    assert!(made.status.success(), "{made:?}");
    ask(&weir, &key);
    let before = weir.books_as_billed(&provider, 0);
    weir.process().kill();

    let store = weir.folder().join("store");
    for empty in [false, true] {
        std::fs::remove_file(store.join("ledger.redb")).unwrap();
        if empty {
            std::fs::write(store.join("ledger.redb"), "").unwrap();
        }
        // The second time over the new file that the first start has made.
        for _ in 0..2 {
            let told = refused(&weir);
            assert!(
                told.contains("has no accounts, but the journal has 1") && told.contains("weir store restore"),
                "{told}"
            );
        }
    }
    std::fs::rename(&store, weir.folder().join("aside")).unwrap();
    let restored = weir.store_command(&["restore", "--from", &backup]);
    assert!(restored.status.success(), "{restored:?}");
    weir.kill_and_restart();
    assert_eq!(weir.books_as_billed(&provider, 0).charged(), before.charged());
    ask(&weir, &key);
    weir.books_as_billed(&provider, 0);
}

#[test]
fn a_lost_embedded_ledger_can_be_made_from_a_journal_that_has_everything() {
    let provider = SampleProvider::start();
    let mut weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    ask(&weir, &key);
    let before = weir.books_as_billed(&provider, 0);
    weir.process().kill();
    std::fs::remove_file(weir.folder().join("store").join("ledger.redb")).unwrap();
    refused(&weir);
    let adopted = weir.store_command(&["init", "--adopt"]);
    assert!(adopted.status.success(), "{adopted:?}");
    weir.kill_and_restart();
    assert_eq!(weir.books_as_billed(&provider, 0).charged(), before.charged());
}
