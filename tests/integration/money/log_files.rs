//! The log's files have each billed request once, to the nano-USD, whenever the process dies; others than weir read them.

use std::collections::BTreeMap;
use std::path::Path;
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

/// What programs other than weir read of the log's files in a folder, or in a bucket.
#[track_caller]
pub(super) fn read_by_others(python: &Path, words: &[&str]) -> Json {
    let script = repository().join("tests/sdk/read_log.py");
    let read = Command::new(python).arg(script).args(words).output().unwrap();
    assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
    serde_json::from_slice(&read.stdout).unwrap()
}

/// Each of them has found what the ledger's rows say.
#[track_caller]
pub(super) fn assert_same(read: &Json, rows: &[Json]) {
    let expected = expected(rows);
    for reader in ["duckdb", "pyarrow", "pandas"] {
        assert_eq!(read[reader], expected, "{reader}");
    }
}

/// What the ledger's rows say, in the form of `tests/sdk/read_log.py`.
fn expected(rows: &[Json]) -> Json {
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
    let read = read_by_others(&python, &[weir.folder().join("log").to_str().unwrap()]);
    assert_same(&read, &books.rows);
    assert_eq!(read["per_key"], serde_json::to_value(per_key(&books.rows)).unwrap());
}

/// What each key has cost.
fn per_key<'a>(rows: impl IntoIterator<Item = &'a Json>) -> BTreeMap<&'a str, i64> {
    let mut per_key: BTreeMap<&str, i64> = BTreeMap::new();
    for row in rows {
        *per_key.entry(row["key_id"].as_str().unwrap()).or_default() += books::cost(row);
    }
    per_key
}

/// The numbers of one column of a query's answer.
fn column(answer: &Json, place: usize) -> Vec<f64> {
    let rows = answer.as_array().unwrap().iter();
    rows.map(|row| row[place].as_f64().unwrap()).collect()
}

const TAGS: [&str; 3] = ["team=research", "team=search", "project=atlas"];

/// Thirty requests of two keys in all protocols, with up to three tags and with input from a cache.
fn say_with_tags(weir: &Weir) {
    let keys = [weir.key().text, weir.key().text];
    for number in 0..30 {
        let order = format!(
            "[[sample: deltas={} cache_read={} cache_write=300]]",
            1 + number % 7,
            number * 100
        );
        let request = ALL_WIRES[number % 3].request(&keys[usize::from(number % 5 == 0)], &format!("Tell me. {order}"));
        let request = match number % 4 {
            0 => request,
            several => request.header("x-weir-tag", &TAGS[..several].join(", ")),
        };
        assert_eq!(weir.exchange(&request).status, 200);
    }
}

#[test]
fn the_documented_queries_give_what_the_rows_say() {
    let Some(python) = python(".venv-parquet") else {
        skip!("no .venv-parquet, which tests/run makes");
    };
    let provider = SampleProvider::start();
    let weir = start(&provider);
    say_with_tags(&weir);
    let rows = weir.books(30).rows;
    wait_until("the files to have all rows", || {
        rows_in_files(&weir, &rows) == rows.len()
    });
    let read = read_by_others(&python, &[weir.folder().join("log").to_str().unwrap(), "--documented"]);
    assert_same(&read, &rows);
    let documented = &read["documented"];
    let all = serde_json::to_value(per_key(&rows)).unwrap();
    assert_eq!((&documented["pyarrow"], &documented["pandas"]), (&all, &all));
    let [bill, dearest, shares, by_tag] = documented["answers"].as_array().unwrap().as_slice() else {
        panic!("docs/log.md has other queries: {documented}");
    };
    let month = documented["month"].as_str().unwrap();
    let of_month = rows
        .iter()
        .filter(|row| row["time"].as_str().unwrap().starts_with(month));
    let mut expected: Vec<(&str, i64)> = per_key(of_month).into_iter().collect();
    expected.sort_by_key(|(_, cost)| -cost);
    assert_eq!(*bill, serde_json::to_value(expected).unwrap());
    let mut costs: Vec<f64> = rows.iter().map(|row| books::cost(row) as f64 / 1e9).collect();
    costs.sort_by(|one, other| other.total_cmp(one));
    assert_eq!(column(dearest, 4), costs[..20]);
    let number = |row: &Json, name: &str| row[name].as_f64().unwrap_or(0.0);
    let (mut read_of, mut usd_of) = (BTreeMap::<&str, [f64; 2]>::new(), BTreeMap::<&str, f64>::new());
    for row in &rows {
        let [read, of] = read_of.entry(row["model"].as_str().unwrap()).or_default();
        *read += number(row, "cache_read");
        *of += books::INPUT.iter().map(|name| number(row, name)).sum::<f64>();
        for tag in row["tags"].as_array().into_iter().flatten() {
            *usd_of.entry(tag.as_str().unwrap()).or_default() += books::cost(row) as f64 / 1e9;
        }
    }
    let models: Vec<&str> = shares
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row[0].as_str().unwrap())
        .collect();
    assert_eq!(models, read_of.keys().copied().collect::<Vec<_>>());
    for (found, [read, of]) in std::iter::zip(column(shares, 1), read_of.values()) {
        assert!((found - 100.0 * read / of).abs() <= 0.051 && found > 0.0, "{shares}");
    }
    assert_eq!(by_tag.as_array().unwrap().len(), TAGS.len());
    for row in by_tag.as_array().unwrap() {
        let usd = usd_of[row[0].as_str().unwrap()];
        assert!((row[1].as_f64().unwrap() - usd).abs() < 1e-9, "{by_tag}");
    }
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
