//! Kills at random moments, with requests under way: after each round the log's home has each billed request once, and its sums are
//! the ledger's.

use serde_json::Value as Json;

use super::log_files::rows_in_files;
use super::{log_bucket, log_files};
use crate::harness::books::Books;
use crate::harness::bucket::BucketServer;
use crate::harness::faulty_way::{Fault, FaultyWay};
use crate::harness::kills::{Kills, Victim};
use crate::harness::postgres::PostgresServer;
use crate::harness::redis::RedisServer;
use crate::harness::sample::SampleProvider;
use crate::harness::tools::{python, rounds, skip};
use crate::harness::{Weir, WeirBuilder, wait_until};
use crate::log_postgres::{URL, assert_same, gateway, set_up};

const SHORT: usize = 3;
const LONG: usize = 50;

/// A gateway on a Redis whose log is at home in a Postgres.
fn node(provider: &SampleProvider, redis: &RedisServer, postgres: &PostgresServer) -> Weir {
    WeirBuilder::new()
        .all_providers(&provider.base_url())
        .redis(redis)
        .set("log.home", "postgres")
        .set("log.postgres.url", format!("env:{URL}"))
        .variable(URL, &postgres.url_of_weir())
        .start()
}

/// So many gateways on one Redis and one Postgres.
fn nodes(count: usize) -> Option<Kills> {
    let (redis, postgres) = (RedisServer::start()?, PostgresServer::start()?);
    let provider = SampleProvider::start();
    let nodes: Vec<Weir> = (0..count).map(|_| node(&provider, &redis, &postgres)).collect();
    set_up(&nodes[0], &postgres);
    Some(Kills::new(provider, nodes, Some(postgres), Some(redis)))
}

/// The rounds, each with one of these choices of victims, the first ones first.
#[track_caller]
fn kill(kills: &mut Kills, choices: &[&[Victim]]) {
    for round in 0..rounds(SHORT, LONG) {
        let victims = match choices.get(round) {
            Some(victims) => *victims,
            None => kills.one_of(choices),
        };
        let books = kills.round(victims);
        assert_same(kills.postgres.as_ref().unwrap(), &books.rows);
    }
}

/// Waits until `weir log verify` finds as many rows in the files, and has them read by others: each row once, with its tokens and its
/// charge, and what they report is what the provider has billed.
#[track_caller]
fn assert_in_files(kills: &Kills, books: &Books, read: impl Fn() -> Json) {
    let (weir, rows) = (&kills.nodes[0], books.rows.len());
    wait_until("the files to have all rows", || {
        rows_in_files(weir, &books.rows) >= rows
    });
    assert_eq!(rows_in_files(weir, &books.rows), rows);
    let read = read();
    log_files::assert_same(&read, &books.rows);
    kills.assert_billed(read["reported"].as_array().unwrap());
}

#[test]
fn killed_under_load_the_files_have_each_billed_request_once_after_every_round() {
    let Some(python) = python(".venv-parquet") else {
        skip!("no .venv-parquet, which tests/run makes");
    };
    let provider = SampleProvider::start();
    let weir = log_files::builder(&provider).start();
    let mut kills = Kills::new(provider, vec![weir], None, None);
    let folder = kills.nodes[0].folder().join("log");
    for _ in 0..rounds(SHORT, LONG) {
        let books = kills.round(&[Victim::Node(0)]);
        assert_in_files(&kills, &books, || {
            log_files::read_by_others(&python, &[folder.to_str().unwrap()])
        });
    }
}

#[test]
fn killed_under_load_while_the_bucket_stands_still_it_has_each_billed_request_once_after_every_round() {
    let (Some(python), Some(bucket)) = (python(".venv-parquet"), BucketServer::start()) else {
        skip!("no .venv-parquet or no .venv-s3, which tests/run makes");
    };
    let provider = SampleProvider::start();
    let weir = log_bucket::builder(&provider, &bucket).start();
    let mut kills = Kills::new(provider, vec![weir], None, None);
    kills.bucket = Some(bucket);
    let (weir, bucket) = (Victim::Node(0), Victim::Bucket);
    let choices: [&[Victim]; 3] = [&[bucket, weir], &[weir], &[weir, bucket]];
    for round in 0..rounds(SHORT, LONG) {
        let books = kills.round(choices[round % choices.len()]);
        assert_in_files(&kills, &books, || {
            log_bucket::read_bucket(&python, kills.bucket.as_ref().unwrap())
        });
    }
}

#[test]
fn killed_under_load_while_the_bucket_fails_it_has_each_billed_request_once_after_every_round() {
    let (Some(python), Some(bucket)) = (python(".venv-parquet"), BucketServer::start()) else {
        skip!("no .venv-parquet or no .venv-s3, which tests/run makes");
    };
    let (provider, way) = (SampleProvider::start(), FaultyWay::to(bucket.port()));
    let builder = log_bucket::builder(&provider, &bucket);
    let weir = builder.set("log.files.bucket.endpoint", way.endpoint()).start();
    let mut kills = Kills::new(provider, vec![weir], None, None);
    (kills.bucket, kills.way) = (Some(bucket), Some(way));
    let faults = [Fault::AnswerLost, Fault::Refused, Fault::Slow].map(Victim::Way);
    for round in 0..rounds(SHORT, LONG) {
        // In every other round of the long form weir is not killed, and does what it failed to do again by itself.
        let victims = [faults[round % 3], Victim::Node(0)];
        let books = kills.round(&victims[..2 - round / 3 % 2]);
        assert_in_files(&kills, &books, || {
            log_bucket::read_bucket(&python, kills.bucket.as_ref().unwrap())
        });
    }
}

#[test]
fn weir_and_postgres_killed_under_load_each_billed_request_is_there_once_after_every_round() {
    let Some(postgres) = PostgresServer::start() else {
        skip!("no postgres")
    };
    let provider = SampleProvider::start();
    let weir = gateway(&postgres, &provider);
    set_up(&weir, &postgres);
    let mut kills = Kills::new(provider, vec![weir], Some(postgres), None);
    let (weir, postgres) = (Victim::Node(0), Victim::Postgres);
    kill(
        &mut kills,
        &[&[weir, postgres], &[weir], &[postgres], &[postgres, weir]],
    );
}

#[test]
fn of_two_nodes_on_one_postgres_either_is_killed_under_load_and_nothing_is_twice() {
    let Some(mut kills) = nodes(2) else {
        skip!("no redis-server, or no postgres")
    };
    let (one, other, postgres) = (Victim::Node(0), Victim::Node(1), Victim::Postgres);
    kill(&mut kills, &[&[one], &[other, postgres], &[one, other], &[postgres]]);
    let server = kills.postgres.as_ref().unwrap();
    assert_eq!(server.psql("SELECT count(DISTINCT node) FROM weir.log"), "2");
}

#[test]
fn redis_and_postgres_go_away_together_under_load_and_come_back() {
    let Some(mut kills) = nodes(1) else {
        skip!("no redis-server, or no postgres")
    };
    let (weir, redis, postgres) = (Victim::Node(0), Victim::Redis, Victim::Postgres);
    kill(
        &mut kills,
        &[
            &[redis, postgres],
            &[postgres, redis, weir],
            &[redis, postgres],
            &[redis],
        ],
    );
}

#[test]
fn a_node_that_was_given_up_and_returns_brings_what_it_owes_once() {
    let Some(mut kills) = nodes(2) else {
        skip!("no redis-server, or no postgres")
    };
    let twice = "SELECT count(*) - count(DISTINCT request_id) FROM weir.log";
    for _ in 0..rounds(1, 10) {
        // What it has billed last is in its journal alone when it dies: neither the store nor the home has it.
        kills.begin();
        kills.kill(Victim::Redis);
        kills.kill(Victim::Postgres);
        kills.pass(50..200);
        kills.kill(Victim::Node(1));
        kills.bring_back(&[Victim::Redis, Victim::Postgres]);
        kills.nodes[0].wait_for_store(true);
        kills.pass(0..300);
        kills.rest();
        let stays = &kills.nodes[0];
        wait_until("what the other owes to be settled", || {
            stays.figure("weir_settlements_unacknowledged") == 0
        });
        // Whoever takes it for lost brings what the store has, and nothing of it by a guess.
        let moved = stays.cli(&["log", "move"], &["--to", "postgres"]);
        assert!(moved.status.success(), "{}", String::from_utf8_lossy(&moved.stderr));
        let server = kills.postgres.as_ref().unwrap();
        assert_eq!(server.psql(twice), "0");
        kills.bring_back(&[Victim::Node(1)]);
        let books = kills.compare(&[Victim::Node(1)]);
        assert_same(kills.postgres.as_ref().unwrap(), &books.rows);
    }
}
