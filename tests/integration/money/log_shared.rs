//! DuckDB reads a shared folder while two nodes write files there and merge them: it finds each billed request once, to the nano-USD.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value as Json;
use tempfile::TempDir;

use super::log_files::{assert_same, builder, read_by_others, rows_in_files};
use crate::harness::books::cost;
use crate::harness::process::Process;
use crate::harness::redis::RedisServer;
use crate::harness::request::ALL_WIRES;
use crate::harness::sample::SampleProvider;
use crate::harness::tools::{python, repository, rounds, skip};
use crate::harness::wait::wait_within;
use crate::harness::{Weir, wait_until};

/// How long files stay at most that were merged: a minute, and until the next ones are merged or ten minutes have passed.
const GONE_WITHIN: Duration = Duration::from_secs(720);

/// The names of the files of each lane, without it: which rows they have.
fn files_of_lanes(folder: &Path) -> BTreeMap<String, BTreeSet<(String, String)>> {
    let mut lanes: BTreeMap<String, BTreeSet<(String, String)>> = BTreeMap::new();
    let folders = std::fs::read_dir(folder).unwrap().flatten();
    let days = folders.filter_map(|day| std::fs::read_dir(day.path()).ok());
    for file in days.flat_map(Iterator::flatten) {
        let name = file.file_name().into_string().unwrap();
        let Some(name) = name.strip_suffix(".parquet") else {
            continue;
        };
        let [lane, after, upto] = name.split('-').collect::<Vec<_>>()[..] else {
            panic!("{name}");
        };
        lanes
            .entry(lane.to_owned())
            .or_default()
            .insert((after.to_owned(), upto.to_owned()));
    }
    lanes
}

/// How many lanes have a file with the rows of others. Numbers are as long as each other, so texts compare as they do.
fn merged_lanes(folder: &Path) -> usize {
    let has_merged = |files: &BTreeSet<(String, String)>| {
        let is_in =
            |one: &(String, String), other: &(String, String)| one != other && other.0 <= one.0 && one.1 <= other.1;
        files.iter().any(|one| files.iter().any(|other| is_in(one, other)))
    };
    files_of_lanes(folder)
        .values()
        .filter(|files| has_merged(files))
        .count()
}

/// Some requests at each node; says how many.
fn say(nodes: &[Weir], key: &str) -> usize {
    let mut requests = 0;
    for weir in nodes {
        for number in 0..21 {
            let request = ALL_WIRES[number % 3].request(key, "Tell me.");
            assert_eq!(weir.exchange(&request).status, 200);
            requests += 1;
        }
    }
    requests
}

/// What has been found so far.
fn answers(watcher: &Process) -> Vec<Json> {
    let told = watcher.out();
    let (complete, _) = told.rsplit_once('\n').unwrap_or_default();
    complete
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn duckdb_finds_each_request_once_while_two_nodes_write_to_one_folder_and_merge_its_files() {
    let Some(python) = python(".venv-parquet") else {
        skip!("no .venv-parquet, which tests/run makes");
    };
    let Some(redis) = RedisServer::start() else {
        skip!("no redis-server");
    };
    let provider = SampleProvider::start();
    let shared = TempDir::new().unwrap();
    let folder = shared.path().to_str().unwrap();
    // Some rows a file, so that there are many soon.
    let node = || {
        let builder = builder(&provider).redis(&redis).set("log.files.path", folder);
        builder.set("log.files.rows_max", 5).start()
    };
    let nodes = [node(), node()];
    let key = nodes[0].key().text;
    let mut requests = say(&nodes, &key);
    wait_until("each node to have written a file", || {
        files_of_lanes(shared.path()).len() == nodes.len()
    });
    let mut command = Command::new(&python);
    command.arg(repository().join("tests/sdk/watch_log.py")).arg(folder);
    let watcher = Process::start(&command, nodes[0].folder(), "watcher");
    wait_until("DuckDB to read the files", || !answers(&watcher).is_empty());
    wait_until("each node to have merged some of its files", || {
        requests += say(&nodes, &key);
        merged_lanes(shared.path()) == nodes.len()
    });
    if rounds(0, 1) == 1 {
        let there = files_of_lanes(shared.path());
        let gone = wait_within(GONE_WITHIN, || {
            requests += say(&nodes, &key);
            let now = files_of_lanes(shared.path());
            let is_gone = there.iter().all(|(lane, files)| !files.is_subset(&now[lane]));
            is_gone.then_some(())
        });
        assert!(gone.is_some(), "files that were merged go");
    }
    let books = nodes[0].books(requests);
    for weir in &nodes {
        wait_until("the files to have all rows", || {
            rows_in_files(weir, &books.rows) == requests
        });
    }
    let all = || answers(&watcher).pop().is_some_and(|last| last["rows"] == requests);
    wait_until("DuckDB to have all rows", all);
    let (found, refused): (Vec<Json>, Vec<Json>) = answers(&watcher)
        .into_iter()
        .partition(|answer| answer["error"].is_null());
    for answer in &found {
        assert_eq!(answer["wrong"], Json::Array(Vec::new()), "{answer}");
    }
    // A file may go between the list and its turn; which one is said, and the next time it is not there.
    for answer in &refused {
        assert!(answer["error"].as_str().unwrap().contains(".parquet"), "{answer}");
    }
    assert_eq!(
        found.last().unwrap()["nano_usd"],
        books.rows.iter().map(cost).sum::<i64>()
    );
    assert_same(&read_by_others(&python, &[folder]), &books.rows);
}
