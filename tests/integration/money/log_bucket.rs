//! The log's files in a bucket have each billed request once, whenever the process dies and the bucket stands still; pyarrow and
//! DuckDB read them there.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value as Json;

use super::clocks::{DAY_S, OFFSET};
use super::homes::day;
use super::log_files::{assert_same, read_by_others, rows_in_files, streams};
use crate::harness::books::cost;
use crate::harness::bucket::{BUCKET, BucketServer};
use crate::harness::port::free_port;
use crate::harness::redis::RedisServer;
use crate::harness::sample::SampleProvider;
use crate::harness::tools::{python, rounds, skip};
use crate::harness::{WeirBuilder, wait_until};

const PREFIX: &str = "weir/log";
const ID: &str = "AKIAWEIRCANARY";
const SECRET: &str = "canary-Wq7f-secret";

/// A gateway whose log has a home in the bucket, in files of few rows that wait for a second.
pub(super) fn builder(provider: &SampleProvider, bucket: &BucketServer) -> WeirBuilder {
    let builder = WeirBuilder::new().all_providers(&provider.base_url());
    builder
        .set("log.home", "files")
        .set("log.files.path", "log")
        .set("log.files.seconds", 1)
        .set("log.files.rows_max", 7)
        .set("log.files.bucket.name", BUCKET)
        .set("log.files.bucket.prefix", PREFIX)
        .set("log.files.bucket.endpoint", bucket.endpoint())
        .set("log.files.bucket.access_key_id", "env:WEIR_TEST_BUCKET_ID")
        .set("log.files.bucket.secret_access_key", "env:WEIR_TEST_BUCKET_KEY")
        .variable("WEIR_TEST_BUCKET_ID", ID)
        .variable("WEIR_TEST_BUCKET_KEY", SECRET)
}

/// What pyarrow, pandas and DuckDB find in the bucket.
#[track_caller]
pub(super) fn read_bucket(python: &Path, bucket: &BucketServer) -> Json {
    read_by_others(python, &[&bucket.endpoint(), &format!("{BUCKET}/{PREFIX}")])
}

#[test]
fn two_nodes_one_of_them_a_day_ahead_write_to_one_bucket() {
    let Some(python) = python(".venv-parquet") else {
        skip!("no .venv-parquet, which tests/run makes");
    };
    let (Some(bucket), Some(redis)) = (BucketServer::start(), RedisServer::start()) else {
        skip!("no .venv-s3, which tests/run makes, or no redis-server");
    };
    let provider = SampleProvider::start();
    let node = |offset: i64| {
        let builder = builder(&provider, &bucket).redis(&redis);
        builder.variable(OFFSET, &offset.to_string()).start()
    };
    let mut nodes = [node(0), node(DAY_S)];
    let key = nodes[0].key().text;
    let (mut requests, count) = (0, 6);
    for round in 0..rounds(2, 10) {
        for weir in &nodes {
            for mut client in streams(weir, &key, count) {
                let _ = client.head_to("POST");
            }
            requests += count;
        }
        nodes[round % 2].kill_and_restart();
    }
    let books = nodes[0].books(requests);
    for weir in &nodes {
        wait_until("the bucket to have all rows", || {
            rows_in_files(weir, &books.rows) == requests
        });
    }
    assert_same(&read_bucket(&python, &bucket), &books.rows);
}

#[test]
fn what_a_node_that_never_returns_has_billed_is_charged_and_its_lane_and_rows_are_named() {
    let (Some(bucket), Some(redis)) = (BucketServer::start(), RedisServer::start()) else {
        skip!("no .venv-s3, which tests/run makes, or no redis-server");
    };
    let provider = SampleProvider::start();
    let node = |endpoint: &str| {
        let builder = builder(&provider, &bucket).set("log.files.bucket.endpoint", endpoint);
        builder.redis(&redis).start()
    };
    let nowhere = format!("http://127.0.0.1:{}", free_port());
    let (stays, mut lost) = (node(&bucket.endpoint()), node(&nowhere));
    let key = stays.key().text;
    let count = 6;
    for weir in [&stays, &lost] {
        for mut client in streams(weir, &key, count) {
            assert_eq!(client.response_to("POST").status, 200);
        }
    }
    for weir in [&stays, &lost] {
        wait_until("all to be charged", || {
            weir.figure("weir_settlements_unacknowledged") == 0 && weir.account()["running"] == 0
        });
    }
    let error = lost.cli(&["log", "query"], &[]).stderr;
    let error = String::from_utf8(error).unwrap();
    assert!(error.contains("the log backend cannot be read"), "{error}");
    // Its journal, which has what the bucket lacks, goes with it.
    lost.process().signal("KILL");
    drop(lost);
    let shown = || stays.rows();
    wait_until("the bucket to have the rows of the node that stays", || {
        let rows = shown();
        rows.len() == count && rows_in_files(&stays, &rows) == count
    });
    let of_it: i64 = shown().iter().map(cost).sum();
    assert!(
        stays.account()["spent_nano_usd"].as_i64() > Some(of_it),
        "both are charged"
    );
    let told = stays.cli(&["log", "verify"], &["--from", &day(0), "--until", &day(1)]);
    let said = String::from_utf8_lossy(&told.stdout);
    let named = format!("{count} rows of those in the sums missing");
    assert!(
        told.status.success() && said.contains("files: open: node_") && said.contains(&named),
        "{said}"
    );
    assert_eq!((rows_in_files(&stays, &shown()), shown().len()), (count, count));
}

#[test]
fn killed_at_any_moment_the_bucket_has_each_billed_request_once() {
    let Some(python) = python(".venv-parquet") else {
        skip!("no .venv-parquet, which tests/run makes");
    };
    let Some(bucket) = BucketServer::start() else {
        skip!("no .venv-s3, which tests/run makes");
    };
    let provider = SampleProvider::start();
    let mut weir = builder(&provider, &bucket).start();
    let keys = [weir.key().text, weir.key().text];
    let mut requests = 0;
    for round in 0..rounds(2, 50) {
        let count = 12;
        let mut clients = streams(&weir, &keys[round % 2], count);
        for client in &mut clients {
            let _ = client.head_to("POST");
        }
        requests += count;
        let die = Instant::now() + Duration::from_millis(300 + 397 * round as u64 % 1500);
        wait_until("the moment to die", || Instant::now() > die);
        // In every other round what is on its way arrives when weir is gone.
        let stands_still = round % 2 == 1;
        if stands_still {
            bucket.process.signal("STOP");
        }
        weir.kill_and_restart();
        if stands_still {
            bucket.process.signal("CONT");
        }
    }
    let books = weir.books(requests);
    wait_until("the bucket to have all rows", || {
        rows_in_files(&weir, &books.rows) >= requests
    });
    assert_eq!(rows_in_files(&weir, &books.rows), requests);
    assert_same(&read_bucket(&python, &bucket), &books.rows);
    let logs = weir.logs();
    for secret in [SECRET, ID, "X-Amz-"] {
        assert!(!logs.contains(secret), "{secret} is in the log");
    }
}
