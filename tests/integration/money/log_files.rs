//! The log's files have each billed request once, to the nano-USD, whenever the process dies; others than weir read them.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, Instant};

use jiff::civil::Date;
use serde_json::Value as Json;

use super::disk::Disk;
use crate::harness::request::{ALL_WIRES, Upload};
use crate::harness::sample::SampleProvider;
use crate::harness::tools::{python, repository, rounds, skip, skipped};
use crate::harness::{Client, Weir, WeirBuilder, books, wait_until};

const SUMMED: [&str; 7] = [
    "cost_nano_usd",
    "input_uncached",
    "cache_read",
    "cache_write_short",
    "cache_write_long",
    "output_text",
    "output_reasoning",
];

/// A gateway whose log has a home in files of few rows, that wait for a second.
fn start(provider: &SampleProvider) -> Weir {
    builder(provider).start()
}

pub(super) fn builder(provider: &SampleProvider) -> WeirBuilder {
    let builder = WeirBuilder::new().all_providers(&provider.base_url());
    builder
        .set("log.home", "files")
        .set("log.files.path", "log")
        .set("log.files.seconds", 1)
        .set("log.files.rows_max", 7)
}

/// How many rows `weir log verify` finds in the files, on the days of these rows.
pub(super) fn rows_in_files(weir: &Weir, rows: &[Json]) -> usize {
    let days = rows
        .iter()
        .filter_map(|row| row["time"].as_str()?.get(..10)?.parse::<Date>().ok());
    let (first, last) = (days.clone().min().unwrap(), days.max().unwrap());
    let (from, until) = (first.to_string(), last.tomorrow().unwrap().to_string());
    let told = weir.cli(&["log", "verify"], &["--from", &from, "--until", &until]);
    assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
    let told = String::from_utf8(told.stdout).unwrap();
    let line = told
        .lines()
        .find(|line| line.contains(" rows in files "))
        .expect("files are compared");
    line.split(' ').next().unwrap().parse().unwrap()
}

pub(super) fn streams(weir: &Weir, key: &str, count: usize) -> Vec<Client> {
    let opened = (0..count).map(|number| {
        let deltas = 5 + number * 20;
        let prompt = format!("Tell me. [[sample: deltas={deltas} delta_bytes=40 gap_ms=5]]");
        let mut client = weir.connect();
        client.write(&ALL_WIRES[number % 3].streaming(key, &prompt).bytes(Upload::Length));
        client
    });
    opened.collect()
}

/// What the ledger's rows say, in the form of `tests/sdk/read_log.py`.
pub(super) fn expected(rows: &[Json]) -> Json {
    let sum = |name: &str| rows.iter().map(|row| row[name].as_i64().unwrap_or(0)).sum::<i64>();
    let mut sums: serde_json::Map<String, Json> = SUMMED
        .iter()
        .map(|name| ((*name).to_owned(), sum(name).into()))
        .collect();
    sums.insert("rows".to_owned(), rows.len().into());
    sums.insert("ids".to_owned(), rows.len().into());
    Json::Object(sums)
}

#[test]
fn killed_at_any_moment_the_files_have_each_billed_request_once() {
    let Some(python) = python(".venv-parquet") else {
        skip!("no .venv-parquet, which tests/run makes");
    };
    let provider = SampleProvider::start();
    let mut weir = start(&provider);
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
        weir.kill_and_restart();
    }
    let books = weir.books(requests);
    wait_until("the files to have all rows", || {
        rows_in_files(&weir, &books.rows) >= requests
    });
    let folder = weir.folder().join("log");
    let read = Command::new(&python)
        .arg(repository().join("tests/sdk/read_log.py"))
        .arg(&folder)
        .output()
        .unwrap();
    assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
    let read: Json = serde_json::from_slice(&read.stdout).unwrap();
    let expected = expected(&books.rows);
    assert_eq!(read["duckdb"], expected);
    assert_eq!(read["pyarrow"], expected);
    let mut per_key: BTreeMap<&str, i64> = BTreeMap::new();
    for row in &books.rows {
        *per_key.entry(row["key_id"].as_str().unwrap()).or_default() += books::cost(row);
    }
    assert_eq!(read["per_key"], serde_json::to_value(&per_key).unwrap());
    assert_eq!(read["documented"]["bill"], serde_json::to_value(&per_key).unwrap());
    let answers = read["documented"]["rows"].as_array().unwrap();
    assert!(answers.len() >= 4, "docs/log.md has its queries: {answers:?}");
    // The first is of one month, and the rows may be of another.
    assert!(answers.iter().skip(1).take(2).all(|rows| *rows != 0), "{answers:?}");
}

#[test]
fn rows_wait_in_the_journal_while_the_disk_of_the_files_is_full() {
    let Some(disk) = Disk::mount(1 << 20) else {
        return skipped("a tmpfs cannot be mounted here");
    };
    let provider = SampleProvider::start();
    let weir = builder(&provider)
        .set("log.files.path", disk.path().to_str().unwrap())
        .start();
    let key = weir.key().text;
    let say = || {
        for wire in ALL_WIRES {
            assert_eq!(weir.exchange(&wire.streaming(&key, "Tell me.")).status, 200);
        }
    };
    say();
    let first = weir.books(ALL_WIRES.len());
    wait_until("the files to have the first rows", || {
        rows_in_files(&weir, &first.rows) == ALL_WIRES.len()
    });
    disk.fill();
    say();
    // Charged and in the store; the files lack them, and weir says so.
    let books = weir.books(2 * ALL_WIRES.len());
    wait_until("the files to refuse rows", || {
        let metrics = weir.metrics();
        let failures = metrics
            .lines()
            .find_map(|line| line.strip_prefix("weir_log_sink_failures_total{sink=\"files\"} "));
        failures.is_some_and(|count| count != "0")
    });
    assert_eq!(weir.ops_get("/readyz").status, 200);
    disk.free();
    wait_until("the files to have all rows", || {
        rows_in_files(&weir, &books.rows) == 2 * ALL_WIRES.len()
    });
}

#[test]
fn rows_from_before_the_files_were_the_home_are_brought_there_and_no_row_twice() {
    let provider = SampleProvider::start();
    let weir = start(&provider);
    let key = weir.key().text;
    for wire in ALL_WIRES {
        assert_eq!(weir.exchange(&wire.streaming(&key, "Tell me.")).status, 200);
    }
    let books = weir.books(ALL_WIRES.len());
    wait_until("the files to have all rows", || {
        rows_in_files(&weir, &books.rows) == ALL_WIRES.len()
    });
    let moved = weir.cli(&["log", "move"], &["--to", "files"]);
    assert!(moved.status.success(), "{}", String::from_utf8_lossy(&moved.stderr));
    assert!(String::from_utf8_lossy(&moved.stdout).ends_with("0 rows brought to files\n"));
    assert_eq!(rows_in_files(&weir, &books.rows), ALL_WIRES.len());
}
