//! The log's home is lost, moved or put back, and nothing that counts its rows changes.

use std::process::Command;

use jiff::{Timestamp, ToSpan, tz::TimeZone};
use serde_json::Value as Json;
use tempfile::TempDir;

use crate::harness::postgres::PostgresServer;
use crate::harness::redis::RedisServer;
use crate::harness::request::ALL_WIRES;
use crate::harness::sample::SampleProvider;
use crate::harness::tools::skip;
use crate::harness::wait::wait_for;
use crate::harness::{Weir, WeirBuilder, wait_until};
use crate::log_postgres::set_up;

/// By how much a gateway's wall clock is off, in seconds.
pub(super) const OFFSET: &str = "WEIR_CLOCK_OFFSET_SECONDS";
const DAYS_AGO: i64 = 4;
pub(super) const ROWS: usize = 6;

pub(super) fn builder(provider: &SampleProvider) -> WeirBuilder {
    let builder = WeirBuilder::new().all_providers(&provider.base_url());
    builder
        .set("log.files.seconds", 1)
        .variable(OFFSET, &(-DAYS_AGO * 86_400).to_string())
}

/// Some requests of that time; answers with what their key has used.
pub(super) fn charge(weir: &Weir) -> Json {
    let key = weir.key();
    for _ in 0..ROWS / ALL_WIRES.len() {
        for wire in ALL_WIRES {
            assert_eq!(weir.exchange(&wire.request(&key.text, "Tell me.")).status, 200);
        }
    }
    weir.books(ROWS);
    used(weir)
}

/// What the account has used, by key.
fn used(weir: &Weir) -> Json {
    let from = day(-DAYS_AGO - 1);
    weir.cli_json(&["usage", "--account", "tests", "--by", "key", "--from", &from])
}

/// A day, by its distance from today.
pub(super) fn day(distance: i64) -> String {
    let today = Timestamp::now().to_zoned(TimeZone::UTC).date();
    (today + distance.days()).to_string()
}

/// What `weir log verify` says of all these days, which agree.
fn verified(weir: &Weir) -> String {
    let told = weir.cli(&["log", "verify"], &["--from", &day(-DAYS_AGO - 2), "--until", &day(1)]);
    assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
    String::from_utf8(told.stdout).unwrap()
}

#[track_caller]
fn assert_proven(weir: &Weir, home: &str) {
    let told = verified(weir);
    let line = format!("{ROWS} rows in {home} compared with their daily sums");
    assert!(told.contains(&line) && !told.contains("are open"), "{told}");
}

#[test]
fn a_restored_store_and_the_files_beside_it_are_the_whole_log_again() {
    let provider = SampleProvider::start();
    let mut weir = builder(&provider).start();
    let before = charge(&weir);
    let rows = |weir: &Weir| {
        let rows = weir.cli_json(&["log", "query", "--from", &day(-DAYS_AGO - 1)]);
        let mut rows: Vec<Json> = rows.as_array().unwrap().clone();
        rows.sort_by_key(|row| row["request_id"].as_str().unwrap().to_owned());
        rows
    };
    let all = rows(&weir);
    weir.next_variable(OFFSET, "0");
    weir.kill_and_restart();
    let backup = weir.folder().join("backup.jsonl");
    let file = backup.to_str().unwrap();
    assert!(weir.store_command(&["backup", "--out", file]).status.success());
    let told = std::fs::read_to_string(&backup).unwrap();
    assert!(
        !told.contains(all[0]["request_id"].as_str().unwrap()),
        "the rows are with the files alone"
    );
    weir.process().signal("TERM");
    weir.process().wait_ended();
    std::fs::rename(weir.folder().join("store"), weir.folder().join("store-lost")).unwrap();
    let restored = weir.store_command(&["restore", "--from", file]);
    assert!(
        restored.status.success(),
        "{}",
        String::from_utf8_lossy(&restored.stderr)
    );
    weir.kill_and_restart();
    assert_eq!(rows(&weir), all);
    assert_eq!(used(&weir), before);
    assert_proven(&weir, "files");
    assert!(weir.folder().join("log").is_dir(), "beside the store");
    // A home that was lost with the store, and has a copy no older than the journal goes back.
    std::fs::remove_dir_all(weir.folder().join("log")).unwrap();
    weir.kill_and_restart();
    wait_until("the files to have what the journal has", || rows(&weir) == all);
    assert_proven(&weir, "files");
}

/// Says that something else is in the configuration when it is read next.
pub(super) fn rewrite(weir: &Weir, from: &str, to: &str) {
    let conf = weir.folder().join("weir.toml");
    let said = std::fs::read_to_string(&conf).unwrap();
    assert!(said.contains(from), "{said}");
    std::fs::write(&conf, said.replace(from, to)).unwrap();
}

#[test]
fn a_home_is_moved_to_another_and_read_in_both_until_then() {
    let Some(server) = PostgresServer::start() else {
        skip!("no postgres")
    };
    let provider = SampleProvider::start();
    let mut weir = builder(&provider).set("log.home", "files").postgres(&server).start();
    let before = charge(&weir);
    weir.next_variable(OFFSET, "0");
    weir.kill_and_restart();
    weir.process().signal("TERM");
    weir.process().wait_ended();
    // As one that has had the files for so long that no journal has their rows any more.
    std::fs::remove_dir_all(weir.folder().join("journal")).unwrap();
    let (old, new) = ("home = \"files\"\n", "home = \"postgres\"\nformer_home = \"files\"\n");
    rewrite(&weir, old, new);
    set_up(&weir, &server);
    weir.kill_and_restart();
    let rows = |weir: &Weir| {
        let rows = weir.cli_json(&["log", "query", "--from", &day(-DAYS_AGO - 1)]);
        rows.as_array().unwrap().len()
    };
    assert_eq!(rows(&weir), ROWS, "they are read where they were");
    let range = ["--from", &day(-DAYS_AGO - 2), "--until", &day(1)];
    // Of a lane that is lost nobody knows whether it comes back.
    let open = weir.cli(&["log", "verify"], &range);
    let said = String::from_utf8_lossy(&open.stdout);
    assert!(
        open.status.success() && said.contains("postgres: open: node_"),
        "{said}"
    );
    for brought in [ROWS, 0] {
        let moved = weir.cli(&["log", "move"], &["--to", "postgres"]);
        let said = String::from_utf8_lossy(&moved.stdout);
        let wanted = format!("{brought} rows copied to postgres\n");
        assert!(moved.status.success() && said.ends_with(&wanted), "{said}");
    }
    assert_eq!(rows(&weir), ROWS, "each is read once");
    assert_proven(&weir, "postgres");
    rewrite(&weir, "former_home = \"files\"\n", "");
    weir.kill_and_restart();
    std::fs::remove_dir_all(weir.folder().join("log")).unwrap();
    assert_eq!(rows(&weir), ROWS);
    assert_eq!(server.psql("SELECT count(*) FROM weir.log"), ROWS.to_string());
    assert_eq!(used(&weir), before);
}

/// Removes the rows that `docs/postgres.md` says are there twice.
fn remove_what_is_there_twice(server: &PostgresServer) {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/postgres.md")).unwrap();
    let (_, rest) = text.split_once("```\nDELETE").unwrap();
    let (statement, _) = rest.split_once("```").unwrap();
    server.psql(&format!("DELETE{statement}"));
}

#[test]
fn a_home_that_lost_rows_gets_them_again_and_rows_that_are_there_twice_are_found() {
    let Some(server) = PostgresServer::start() else {
        skip!("no postgres")
    };
    let provider = SampleProvider::start();
    let mut weir = WeirBuilder::new()
        .all_providers(&provider.base_url())
        // A day that has been over for an hour, whatever the hour is now, and rows that the store still has.
        .variable(OFFSET, "-93600")
        .set("log.home", "postgres")
        .postgres(&server)
        .start();
    set_up(&weir, &server);
    charge(&weir);
    let there = || server.psql("SELECT count(*) FROM weir.log");
    wait_until("the rows to be in postgres", || there() == ROWS.to_string());
    weir.next_variable(OFFSET, "0");
    weir.kill_and_restart();
    let range = ["--from", &day(-2), "--until", &day(1)];
    let verify = |flags: &[&str]| weir.cli(&["log", "verify"], &[&range, flags].concat());

    server.psql("DELETE FROM weir.log WHERE number = (SELECT min(number) FROM weir.log)");
    wait_until("the loss to be found", || !verify(&[]).status.success());
    let filled = verify(&["--fill"]);
    let said = String::from_utf8_lossy(&filled.stdout);
    assert!(filled.status.success() && said.contains("1 row copied"), "{said}");
    assert_eq!(there(), ROWS.to_string());
    assert!(verify(&[]).status.success());

    // One more, and another like it less: the sums are what they were.
    server.psql(
        "CREATE TEMPORARY TABLE one AS SELECT * FROM weir.log ORDER BY request_id LIMIT 1;
         DELETE FROM weir.log WHERE model = (SELECT model FROM one) AND request_id <> (SELECT request_id FROM one);
         UPDATE one SET number = number - 1;
         INSERT INTO weir.log SELECT * FROM one",
    );
    assert_eq!(there(), ROWS.to_string());
    let found = verify(&[]);
    let said = String::from_utf8_lossy(&found.stdout);
    assert!(!found.status.success(), "{said}");
    assert!(said.contains("1 duplicate row"), "{said}");
    assert!(!said.contains("sums requests"), "{said}");
    remove_what_is_there_twice(&server);
    assert_eq!(there(), (ROWS - 1).to_string());
    assert!(verify(&["--fill"]).status.success());
    assert_eq!(there(), ROWS.to_string());
}

#[test]
fn rows_of_a_redis_go_to_postgres_and_are_removed_there_when_they_are_proven() {
    let (Some(server), Some(redis)) = (PostgresServer::start(), RedisServer::start()) else {
        skip!("no postgres, or no redis-server")
    };
    let provider = SampleProvider::start();
    let mut weir = WeirBuilder::new()
        .all_providers(&provider.base_url())
        .set("log.home", "store")
        .postgres(&server)
        .redis(&redis)
        .start();
    charge(&weir);
    let lists = || redis.command(&["KEYS", "*:log:*"]);
    assert!(lists().contains(":log:"), "{}", lists());
    weir.process().signal("TERM");
    weir.process().wait_ended();
    let (old, new) = ("home = \"store\"\n", "home = \"postgres\"\nformer_home = \"store\"\n");
    rewrite(&weir, old, new);
    set_up(&weir, &server);
    weir.kill_and_restart();
    assert_eq!(weir.rows().len(), ROWS, "each is read once");
    let key = weir.key().text;
    assert_eq!(weir.exchange(&ALL_WIRES[0].request(&key, "Tell me.")).status, 200);
    weir.books(ROWS + 1);
    // The journal brings them: it has them still.
    let moved = wait_for("the rows to be proven and removed", || {
        let moved = weir.cli(&["log", "move"], &["--to", "postgres", "--remove"]);
        moved.status.success().then(|| String::from_utf8(moved.stdout).unwrap())
    });
    assert!(
        moved.ends_with(&format!(
            "0 rows copied to postgres\n{ROWS} rows removed from the store\n"
        )),
        "{moved}"
    );
    assert!(!lists().contains(":log:"), "{}", lists());
    assert_eq!(server.psql("SELECT count(*) FROM weir.log"), (ROWS + 1).to_string());
    weir.books(ROWS + 1);
    rewrite(&weir, "former_home = \"store\"\n", "");
    weir.kill_and_restart();
    assert_eq!(weir.rows().len(), ROWS + 1);
}

/// What `weir check --store` says with the configuration of a gateway.
fn checked(weir: &Weir) -> String {
    let conf = weir.folder().join("weir.toml");
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    let done = command.args(["check", "--store", "--conf"]).arg(conf).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

#[test]
fn nodes_of_one_redis_whose_logs_have_different_homes_are_named() {
    const SAID: &str = "the nodes of this store keep the log in different places: ";
    let Some(redis) = RedisServer::start() else {
        skip!("redis-server is not installed")
    };
    let provider = SampleProvider::start();
    let node = || WeirBuilder::new().all_providers(&provider.base_url()).redis(&redis);
    let nodes = || redis.command(&["HLEN", "{weir:keys}:log-homes"]);
    let in_store = [(); 2].map(|()| node().start());
    wait_until("both to be recorded", || nodes().starts_with(":2"));
    assert!(!checked(&in_store[0]).contains(SAID));
    let folder = TempDir::new().unwrap();
    let in_folder = node()
        .set("log.home", "files")
        .set("log.files.path", folder.path().to_str().unwrap())
        .start();
    let (alike, other) = (&in_store[0], format!("{SAID}this node in store, node_"));
    wait_until("each to warn of the others", || {
        let warned = in_folder.logs();
        alike.logs().contains(&other) && warned.contains(&format!("{SAID}this node in files (folder), node_"))
    });
    assert!(
        alike.logs().contains(" in files (folder). None of them reads"),
        "{}",
        alike.logs()
    );
    assert_eq!(alike.logs().matches(SAID).count(), 1, "once");
    let wrong = format!("warning: {SAID}this configuration in store, node_");
    assert!(checked(alike).contains(&wrong), "{}", checked(alike));
    let address = folder.path().to_str().unwrap().as_bytes();
    let is_told = redis
        .stored_bytes()
        .windows(address.len())
        .any(|window| window == address);
    assert!(!is_told, "the address stays at its node");
}
