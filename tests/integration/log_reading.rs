//! The log is read whole: the rows of its home, and those that this process has not brought there yet; each row once.

use std::collections::BTreeSet;

use serde_json::Value as Json;

use crate::harness::postgres::PostgresServer;
use crate::harness::request::Wire;
use crate::harness::sample::SampleProvider;
use crate::harness::tools::skip;
use crate::harness::{Weir, WeirBuilder, wait_for, wait_until};

const EACH: usize = 6;

/// Half of the requests have a tag.
fn say(weir: &Weir, key: &str) {
    for number in 0..EACH {
        let request = Wire::Messages.request(key, "Tell me of weirs. [[sample: deltas=3]]");
        let request = match number % 2 {
            0 => request.header("x-weir-tag", "team=research"),
            _ => request,
        };
        assert_eq!(weir.exchange(&request).status, 200);
    }
}

fn query_result(weir: &Weir, words: &[&str]) -> Result<String, String> {
    let done = weir.cli(words, &[]);
    let (out, error) = (
        String::from_utf8(done.stdout).unwrap(),
        String::from_utf8(done.stderr).unwrap(),
    );
    if done.status.success() { Ok(out) } else { Err(error) }
}

fn ids(lines: &str) -> Vec<String> {
    let rows = lines.lines().map(|line| serde_json::from_str::<Json>(line).unwrap());
    rows.map(|row| row["request_id"].as_str().unwrap().to_owned()).collect()
}

fn query(weir: &Weir, filter: &[&str]) -> Vec<String> {
    ids(&query_result(weir, &[&["log", "query", "--json"], filter].concat()).unwrap())
}

/// Two nodes with a store each, and one log: each has half of the rows from nowhere but the log's home.
fn is_whole(nodes: &[Weir; 2]) {
    let keys = [nodes[0].key(), nodes[1].key()];
    for (weir, key) in std::iter::zip(nodes, &keys) {
        say(weir, &key.text);
    }
    let [weir, other] = nodes;
    wait_until("all rows to be in the log's home", || {
        query(weir, &[]).len() == 2 * EACH && query(other, &[]).len() == 2 * EACH
    });
    let all = query(weir, &[]);
    assert_eq!(all, query(other, &[]), "in one order, whoever is asked");
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), 2 * EACH, "each once");
    for (filter, expected) in [
        (vec!["--tag", "team=research"], EACH),
        (vec!["--key", keys[1].id.as_str()], EACH),
        (
            vec![
                "--key",
                keys[0].id.as_str(),
                "--tag",
                "team=research",
                "--status",
                "200",
            ],
            EACH / 2,
        ),
        (vec!["--status", "5xx"], 0),
        (vec!["--account", "tests", "--status", "2xx", "--limit", "5"], 5),
        (vec!["--until", "2020-01-01"], 0),
    ] {
        assert_eq!(query(weir, &filter).len(), expected, "{filter:?}");
    }
    assert_eq!(
        ids(&query_result(weir, &["log", "export", "--format", "jsonl"]).unwrap()),
        all
    );
    let csv = query_result(weir, &["log", "export", "--format", "csv"]).unwrap();
    let column = csv
        .lines()
        .skip(1)
        .map(|line| line.split(',').nth(1).unwrap().to_owned());
    assert_eq!(column.collect::<Vec<_>>(), all);
}

#[test]
fn rows_of_two_nodes_are_read_together_from_their_files() {
    let provider = SampleProvider::start();
    let folder = tempfile::tempdir().unwrap();
    let node = || {
        let builder = WeirBuilder::new().all_providers(&provider.base_url());
        let builder = builder
            .set("log.home", "files")
            .set("log.files.path", folder.path().join("log").display().to_string())
            .set("log.files.seconds", 1)
            .set("log.files.rows_max", 4);
        builder.start()
    };
    let nodes = [node(), node()];
    is_whole(&nodes);
}

#[test]
fn rows_of_two_nodes_are_read_together_from_postgres_and_never_with_a_gap() {
    let Some(mut server) = PostgresServer::start() else {
        skip!("no postgres")
    };
    let provider = SampleProvider::start();
    let node = || crate::log_postgres::gateway(&server, &provider);
    let nodes = [node(), node()];
    crate::log_postgres::set_up(&nodes[0], &server);
    is_whole(&nodes);
    server.down();
    for words in [vec!["log", "query"], vec!["log", "export", "--format", "csv"]] {
        // Its processes end one by one.
        let error = wait_for("postgres to be away", || query_result(&nodes[0], &words).err());
        assert!(error.contains("the log backend cannot be read"), "{error}");
    }
    server.up();
    wait_until("postgres to be read again", || {
        query_result(&nodes[0], &["log", "query"]).is_ok()
    });
}
