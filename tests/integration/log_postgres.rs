//! The consumption log at home in Postgres: each billed request is there once, whatever is killed when.

use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value as Json;

use crate::harness::postgres::{POSTGRES_URL, PostgresServer, WRITER};
use crate::harness::request::Wire;
use crate::harness::sample::SampleProvider;
use crate::harness::tools::{note, repository, rounds, skip};
use crate::harness::wait::wait_within;
use crate::harness::{RecordingProvider, Weir, WeirBuilder, wait_until};
use crate::money::disk::Disk;

const OWNER: &str = "WEIR_TEST_POSTGRES_OWNER";
const CLIENTS: usize = 4;
/// By how much the process may grow while half of the rows come: less than they would take. 100,000 rows are some 60 MB.
const WAITING_BYTES_MAX: usize = 32 << 20;

/// A gateway whose log is at home there, in a role that `weir log init` has given its rights.
pub(crate) fn gateway(server: &PostgresServer, provider: &SampleProvider) -> Weir {
    let builder = WeirBuilder::new().all_providers(&provider.base_url());
    builder.set("log.home", "postgres").postgres(server).start()
}

/// Runs `weir log init` with the configuration of a gateway.
fn init(weir: &Weir, server: &PostgresServer, words: &[&str]) -> (bool, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command
        .args(["log", "init", "--conf"])
        .arg(weir.folder().join("weir.toml"))
        .args(words);
    command
        .env(POSTGRES_URL, server.url_of_weir())
        .env(OWNER, server.owner_url());
    let done = command.output().unwrap();
    let said = [done.stdout, done.stderr].concat();
    (done.status.success(), String::from_utf8(said).unwrap())
}

pub(crate) fn set_up(weir: &Weir, server: &PostgresServer) {
    let owner = format!("env:{OWNER}");
    let (done, said) = init(weir, server, &["--owner", &owner, "--grant-writer", WRITER]);
    assert!(done, "{said}");
}

fn say(weir: &Weir, key: &str, times: usize) {
    for _ in 0..times {
        let answer = weir.exchange(&Wire::Messages.request(key, "Tell me of weirs. [[sample: deltas=3]]"));
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
}

/// Waits until the table has the rows of these gateways, and compares them: each once, and their sums to the nano-dollar.
#[track_caller]
pub(crate) fn assert_same(server: &PostgresServer, rows: &[Json]) {
    wait_until("the rows to be in postgres", || {
        server.psql("SELECT count(*) FROM weir.log") == rows.len().to_string()
    });
    let mut sent: Vec<String> = rows
        .iter()
        .map(|row| {
            format!(
                "{}|{}|{}",
                row["request_id"].as_str().unwrap(),
                row["cost_nano_usd"],
                row["model"].as_str().unwrap()
            )
        })
        .collect();
    sent.sort();
    let found = server.psql("SELECT request_id, cost_nano_usd, model FROM weir.log");
    let mut found: Vec<&str> = found.lines().collect();
    found.sort_unstable();
    assert_eq!(found, sent);
    let cost: i64 = rows.iter().map(crate::harness::books::cost).sum();
    assert_eq!(server.psql("SELECT sum(cost_nano_usd) FROM weir.log"), cost.to_string());
}

#[test]
fn a_database_is_set_up_by_its_owner_and_written_by_a_role_with_few_rights() {
    let Some(server) = PostgresServer::start() else {
        skip!("no postgres")
    };
    let provider = SampleProvider::start();
    let weir = gateway(&server, &provider);
    let key = weir.key().text;
    // Nothing is there yet, and weir serves and charges.
    say(&weir, &key, 2);
    wait_until("both to be charged", || {
        weir.account()["spent_nano_usd"].as_i64() > Some(0) && weir.account()["running"] == 0
    });
    let unread = weir.cli(&["log", "query"], &[]);
    let error = String::from_utf8(unread.stderr).unwrap();
    assert!(
        !unread.status.success() && error.contains("the log backend cannot be read"),
        "{error}"
    );
    wait_until("weir to say what to do", || weir.logs().contains("weir log init"));
    let (done, said) = init(&weir, &server, &[]);
    assert!(
        !done && said.contains("42501"),
        "a role without rights sets nothing up: {said}"
    );
    set_up(&weir, &server);
    let owner = format!("env:{OWNER}");
    let (_, again) = init(&weir, &server, &["--owner", &owner, "--json"]);
    assert_eq!(again.trim(), r#"{"home":"postgres","applied":[]}"#);
    say(&weir, &key, 3);
    let books = weir.books(5);
    assert_same(&server, &books.rows);
    for question in documented("docs/postgres.md") {
        assert!(!server.psql(&question).is_empty(), "{question}");
    }
    wait_until("the rows to be counted", || {
        weir.metrics().contains("weir_log_sink_rows_total{sink=\"postgres\"} 5")
    });
}

/// The SQL of a document.
fn documented(file: &str) -> Vec<String> {
    let text = std::fs::read_to_string(repository().join(file)).unwrap();
    let blocks = text.split("```sql\n").skip(1);
    let blocks: Vec<String> = blocks
        .map(|rest| rest.split("```").next().unwrap().to_owned())
        .collect();
    assert!(blocks.len() >= 5, "{file} has its questions");
    blocks
}

#[test]
fn each_billed_request_is_in_postgres_once_whatever_is_killed() {
    let Some(mut server) = PostgresServer::start() else {
        skip!("no postgres")
    };
    let provider = SampleProvider::start();
    let mut weir = gateway(&server, &provider);
    set_up(&weir, &server);
    let key = weir.key().text;
    let mut charged = 0;
    let began = Instant::now();
    let rounds = rounds(2, 50);
    for round in 0..rounds {
        say(&weir, &key, 3);
        charged += 3;
        // Rows are gathered for a second: the kills fall before, into and behind their transaction.
        let until = Instant::now() + Duration::from_millis((round as u64 * 397 + 700) % 1500);
        wait_until("the moment to die", || Instant::now() > until);
        if round % 3 != 0 {
            server.down();
            // It is away, and weir serves.
            say(&weir, &key, 2);
            charged += 2;
        }
        if round % 3 != 1 {
            weir.kill_and_restart();
        }
        if round % 3 != 0 {
            server.up();
        }
    }
    let books = weir.books(charged);
    assert_same(&server, &books.rows);
    note(&format!(
        "postgres: {rounds} rounds of kills, {charged} rows, {:?}",
        began.elapsed()
    ));
}

#[test]
fn two_nodes_write_to_one_database() {
    let Some(server) = PostgresServer::start() else {
        skip!("no postgres")
    };
    let provider = SampleProvider::start();
    let nodes = [gateway(&server, &provider), gateway(&server, &provider)];
    set_up(&nodes[0], &server);
    let mut rows = Vec::new();
    std::thread::scope(|scope| {
        for weir in &nodes {
            scope.spawn(move || say(weir, &weir.key().text, 5));
        }
    });
    for weir in &nodes {
        rows.extend(weir.books(5).rows);
    }
    assert_same(&server, &rows);
    assert_eq!(server.psql("SELECT count(DISTINCT node) FROM weir.log"), "2");
    assert_eq!(server.psql("SELECT count(*) FROM weir.sink"), "2");
}

#[test]
fn rows_wait_in_the_journal_while_the_disk_of_postgres_is_full() {
    let (Some(server), Some(disk)) = (PostgresServer::start(), Disk::mount(1 << 20)) else {
        skip!("no postgres, or a tmpfs cannot be mounted here")
    };
    server.lies_in(disk.path());
    let provider = SampleProvider::start();
    let weir = gateway(&server, &provider);
    set_up(&weir, &server);
    let key = weir.key().text;
    say(&weir, &key, 3);
    assert_same(&server, &weir.books(3).rows);
    disk.fill();
    // More than the last pages of the table and its index have room for.
    say(&weir, &key, 60);
    wait_until("postgres to refuse rows", || weir.logs().contains("53100"));
    assert_eq!(weir.ops_get("/readyz").status, 200);
    let books = weir.books(63);
    assert_ne!(server.psql("SELECT count(*) FROM weir.log"), "63");
    disk.free();
    assert_same(&server, &books.rows);
}

#[test]
fn postgres_that_is_away_since_the_start_is_behind_and_not_taken_for_one_that_lacks_nothing() {
    let Some(mut server) = PostgresServer::start() else {
        skip!("no postgres")
    };
    let provider = SampleProvider::start();
    let mut weir = gateway(&server, &provider);
    let behind = |weir: &Weir| weir.figure("weir_log_sink_behind_seconds{sink=\"postgres\"}");
    let key = weir.key().text;
    say(&weir, &key, 1);
    // `weir log init` has not run.
    weir.kill_and_restart();
    wait_until("the row to be lacking", || behind(&weir) >= 1);
    set_up(&weir, &server);
    assert_same(&server, &weir.books(1).rows);
    wait_until("nothing to be lacking", || behind(&weir) == 0);
    server.down();
    say(&weir, &key, 1);
    weir.kill_and_restart();
    wait_until("the row to be lacking", || behind(&weir) >= 1);
    server.up();
    assert_same(&server, &weir.books(2).rows);
    wait_until("nothing to be lacking", || behind(&weir) == 0);
}

/// How long 200,000 rows may take that have waited.
const ALL_WAIT: Duration = Duration::from_secs(300);

/// A connection ends by itself after some thousands.
const REQUESTS_PER_CONNECTION: usize = 500;

/// Requests of a few clients.
fn say_often(weir: &Weir, key: &str, times: usize) {
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let (mut client, request) = (weir.connect(), Wire::Messages.request(key, "hi"));
                for number in 1..=times / CLIENTS {
                    assert_eq!(client.exchange(&request).status, 200);
                    if number % REQUESTS_PER_CONNECTION == 0 {
                        client = weir.connect();
                    }
                }
            });
        }
    });
    wait_until("all to be charged", || weir.account()["running"] == 0);
}

#[test]
fn rows_that_wait_for_a_home_that_refuses_take_no_memory_and_come_when_it_is_back() {
    let Some(mut server) = PostgresServer::start() else {
        skip!("no postgres")
    };
    let provider = RecordingProvider::recorded();
    let mut weir = WeirBuilder::new()
        .all_providers(&provider.base_url())
        .set("log.home", "postgres")
        .postgres(&server)
        .start();
    set_up(&weir, &server);
    let key = weir.key().text;
    weir.cli_json(&["account", "credit", "--id", "tests", "--usd", "1000000"]);
    server.down();
    let half = rounds(1_000, 100_000);
    say_often(&weir, &key, half);
    let before = weir.process().memory();
    say_often(&weir, &key, half);
    let after = weir.process().memory();
    note(&format!(
        "postgres: {half} more rows that wait: memory {before} -> {after} bytes"
    ));
    assert!(after < before + WAITING_BYTES_MAX, "{before} -> {after} bytes");
    server.up();
    let all = (2 * half).to_string();
    let are_there = wait_within(ALL_WAIT, || {
        (server.psql("SELECT count(*) FROM weir.log") == all).then_some(())
    });
    assert_eq!(are_there, Some(()), "all rows come to postgres");
    let charged = weir.account()["spent_nano_usd"].to_string();
    let told = server.psql("SELECT count(DISTINCT request_id), sum(cost_nano_usd) FROM weir.log");
    assert_eq!(told, format!("{all}|{charged}"));
}
