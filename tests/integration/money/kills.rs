//! Kills at random moments, with requests under way: after each round the log's home has each billed request once, and its sums are
//! the ledger's.

use serde_json::Value as Json;

use super::clocks::{DAY_S, OFFSET};
use super::homes::{ROWS, charge, rewrite};
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
use crate::log_postgres::{assert_same, gateway, set_up};

const SHORT: usize = 3;
const LONG: usize = 50;

/// A gateway on a Redis whose log is at home in a Postgres, with a wall clock that is so many seconds off.
fn node(provider: &SampleProvider, redis: &RedisServer, postgres: &PostgresServer, offset: i64) -> Weir {
    WeirBuilder::new()
        .all_providers(&provider.base_url())
        .redis(redis)
        .variable(OFFSET, &offset.to_string())
        .set("log.home", "postgres")
        .postgres(postgres)
        .start()
}

/// Gateways on one Redis and one Postgres, one for each of these clocks.
fn nodes(offsets: &[i64]) -> Option<Kills> {
    let (redis, postgres) = (RedisServer::start()?, PostgresServer::start()?);
    let provider = SampleProvider::start();
    let nodes = offsets.iter().map(|offset| node(&provider, &redis, &postgres, *offset));
    let nodes: Vec<Weir> = nodes.collect();
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
fn what_a_bucket_is_asked_to_keep_and_does_when_nobody_waits_any_more_it_has_once() {
    let (Some(python), Some(bucket)) = (python(".venv-parquet"), BucketServer::start()) else {
        skip!("no .venv-parquet or no .venv-s3, which tests/run makes");
    };
    let provider = SampleProvider::start();
    let builder = log_bucket::builder(&provider, &bucket);
    let builder = builder.set("log.files.bucket.answer_seconds", 1);
    let weir = builder.set("log.files.bucket.write_seconds", 1).start();
    let mut kills = Kills::new(provider, vec![weir], None, None);
    kills.bucket = Some(bucket);
    let failures = |kills: &Kills| kills.nodes[0].figure("weir_log_sink_failures_total{sink=\"files\"}");
    for round in 0..rounds(1, 10) {
        kills.begin();
        let before = failures(&kills);
        kills.kill(Victim::Bucket);
        wait_until("weir to have given up", || failures(&kills) > before);
        // What it was asked for arrives now, while it is asked again, or while weir begins anew.
        if round % 2 == 1 {
            kills.kill(Victim::Node(0));
            kills.bring_back(&[Victim::Bucket, Victim::Node(0)]);
        } else {
            kills.bring_back(&[Victim::Bucket]);
        }
        kills.pass(0..300);
        kills.rest();
        let books = kills.compare(&[Victim::Bucket]);
        assert_in_files(&kills, &books, || {
            log_bucket::read_bucket(&python, kills.bucket.as_ref().unwrap())
        });
    }
    assert!(kills.nodes[0].logs().contains("cannot hand over rows to the sink"));
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
    let Some(mut kills) = nodes(&[0, 0]) else {
        skip!("no redis-server, or no postgres")
    };
    let (one, other, postgres) = (Victim::Node(0), Victim::Node(1), Victim::Postgres);
    kill(&mut kills, &[&[one], &[other, postgres], &[one, other], &[postgres]]);
    let server = kills.postgres.as_ref().unwrap();
    assert_eq!(server.psql("SELECT count(DISTINCT node) FROM weir.log"), "2");
}

#[test]
fn a_node_on_postgres_that_is_a_day_ahead_and_is_killed_has_its_rows_there_once_on_the_right_day() {
    let Some(mut kills) = nodes(&[0, DAY_S]) else {
        skip!("no redis-server, or no postgres")
    };
    for _ in 0..rounds(2, 10) {
        let ahead_or_postgres = kills.one_of(&[Victim::Node(1), Victim::Postgres]);
        let books = kills.round(&[ahead_or_postgres]);
        assert_same(kills.postgres.as_ref().unwrap(), &books.rows);
    }
    let server = kills.postgres.as_ref().unwrap();
    assert_eq!(server.psql("SELECT count(DISTINCT node) FROM weir.log"), "2");
    let off = "SELECT count(*) FROM weir.log WHERE abs(extract(epoch FROM now() - time)) > 3600";
    assert_eq!(server.psql(off), "0");
}

#[test]
fn rows_are_moved_to_postgres_while_requests_run_and_none_is_there_twice() {
    let Some(server) = PostgresServer::start() else {
        skip!("no postgres")
    };
    let provider = SampleProvider::start();
    let mut weir = WeirBuilder::new()
        .all_providers(&provider.base_url())
        .variable(OFFSET, "-7200")
        .set("log.home", "files")
        .postgres(&server)
        .start();
    charge(&weir);
    weir.process().signal("TERM");
    weir.process().wait_ended();
    // The files alone have these.
    std::fs::remove_dir_all(weir.folder().join("journal")).unwrap();
    let (old, new) = ("home = \"files\"\n", "home = \"postgres\"\nformer_home = \"files\"\n");
    rewrite(&weir, old, new);
    set_up(&weir, &server);
    weir.next_variable(OFFSET, "0");
    weir.kill_and_restart();
    let mut kills = Kills::new(provider, vec![weir], Some(server), None);
    let twice = "SELECT count(*) - count(DISTINCT request_id) FROM weir.log";
    for round in 0..rounds(2, 10) {
        kills.begin();
        let mut brought = 0;
        wait_until("the rows to be moved", || {
            let moved = kills.nodes[0].cli(&["log", "move"], &["--to", "postgres"]);
            assert!(moved.status.success(), "{}", String::from_utf8_lossy(&moved.stderr));
            let said = String::from_utf8(moved.stdout).unwrap();
            let (_, last) = said.trim_end().rsplit_once('\n').unwrap_or(("", said.trim_end()));
            brought += last.split(' ').next().unwrap().parse::<usize>().unwrap();
            round > 0 || brought >= ROWS
        });
        assert_eq!(brought, if round == 0 { ROWS } else { 0 });
        kills.pass(0..300);
        kills.rest();
        let books = kills.compare(&[]);
        let server = kills.postgres.as_ref().unwrap();
        assert_same(server, &books.rows);
        assert_eq!(server.psql(twice), "0");
    }
}

#[test]
fn redis_and_postgres_go_away_together_under_load_and_come_back() {
    let Some(mut kills) = nodes(&[0]) else {
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
    let Some(mut kills) = nodes(&[0, 0]) else {
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
        let server = kills.postgres.as_ref().unwrap();
        assert_eq!(server.psql(twice), "0");
        kills.bring_back(&[Victim::Node(1)]);
        let books = kills.compare(&[Victim::Node(1)]);
        assert_same(kills.postgres.as_ref().unwrap(), &books.rows);
    }
}
