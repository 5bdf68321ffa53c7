//! Operators who change one account at the same time, at one node or at two: what each of them has changed holds.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Barrier;

use serde_json::{Value as Json, json};

use crate::harness::redis::RedisServer;
use crate::harness::sample::SampleProvider;
use crate::harness::tools::{note, rounds, skip};
use crate::harness::{Weir, WeirBuilder};

const ACCOUNT: &str = "/v1/accounts/tests";

/// An answer of the admin API: its status, its head, and its JSON.
struct Answer {
    status: u16,
    head: String,
    body: Json,
}

/// Asks the admin API of a node for something about the account, when `ready` says so. `fields`: further ones of the head.
fn ask(weir: &Weir, method: &str, fields: &str, body: &str, ready: impl FnOnce()) -> Answer {
    let mut connection = UnixStream::connect(weir.admin_socket()).unwrap();
    let request = format!(
        "{method} {ACCOUNT} HTTP/1.1\r\nhost: weir\r\nconnection: close\r\ncontent-type: application/json\r\n{fields}\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    ready();
    connection.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    Answer {
        status: head.split(' ').nth(1).unwrap().parse().unwrap(),
        head: head.to_owned(),
        body: serde_json::from_str(body).unwrap(),
    }
}

/// Two operators, each at one of two nodes, which may be the same: in each round one changes the requests per minute and the
/// other the tokens per minute.
fn race(nodes: [&Weir; 2]) {
    nodes.iter().for_each(|node| node.fund());
    let all = rounds(20, 200);
    let mut lost = 0;
    for round in 0..all {
        let (rpm, tpm) = (1_000 + round, 1_000_000 + round);
        let ready = Barrier::new(2);
        let changes = [json!({ "rpm": rpm }), json!({ "tpm": tpm })];
        let statuses: Vec<u16> = std::thread::scope(|scope| {
            let changing = nodes.iter().zip(&changes);
            let changing = changing.map(|(node, body)| {
                let ready = || {
                    ready.wait();
                };
                scope.spawn(move || ask(node, "PATCH", "", &body.to_string(), ready).status)
            });
            let changing: Vec<_> = changing.collect();
            changing.into_iter().map(|one| one.join().unwrap()).collect()
        });
        assert_eq!(statuses, [200, 200], "round {round}");
        let account = nodes[round % 2].cli_json(&["account", "show", "tests"]);
        lost += usize::from(account["rpm"] != json!(rpm)) + usize::from(account["tpm"] != json!(tpm));
    }
    note(&format!("{lost} changes of an account were lost in {all} rounds"));
    assert_eq!(lost, 0, "so many changes were lost in {all} rounds");
}

#[test]
fn two_nodes_at_one_redis_lose_no_change_of_an_account() {
    let Some(redis) = RedisServer::start() else {
        skip!("redis-server is not installed")
    };
    let provider = SampleProvider::start();
    let node = || {
        WeirBuilder::new()
            .all_providers(&provider.base_url())
            .redis(&redis)
            .set("store.redis.budget_ms", 2_000)
            .start()
    };
    race([&node(), &node()]);
}

#[test]
fn one_node_with_its_own_store_loses_no_change_of_an_account() {
    let provider = SampleProvider::start();
    let weir = Weir::start(&provider.base_url());
    race([&weir, &weir]);
}

#[test]
fn a_change_from_a_version_that_is_no_more_changes_nothing() {
    let provider = SampleProvider::start();
    let weir = Weir::start(&provider.base_url());
    weir.fund();
    let show = || weir.cli_json(&["account", "show", "tests"]);
    let version = || show()["version"].as_str().unwrap().to_owned();
    let first = version();
    assert!(first.starts_with("0-"), "{first}");
    let shown = ask(&weir, "GET", "", "", || {});
    assert!(shown.head.contains(&format!("etag: \"{first}\"")), "{}", shown.head);
    let update = |version: &str, rpm: &str| {
        weir.cli(
            &["account", "update", "tests", "--rpm", rpm, "--if-version", version],
            &[],
        )
    };
    assert!(update(&first, "100").status.success());
    let second = version();
    assert!(second.starts_with("1-"), "{second}");
    // What is so already succeeds, whatever the version: a command that is run again does no harm.
    assert!(update(&first, "100").status.success());
    assert_eq!(version(), second);

    let refused = update(&first, "200");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{said}");
    let expected =
        format!("nothing was changed, because account `tests` now has version {second} and not version {first}");
    assert!(said.contains(&expected), "{said}");
    for verb in ["suspend", "resume"] {
        let done = weir.cli(&["account", verb, "tests", "--if-version", &first], &[]);
        assert_eq!(done.status.success(), verb == "resume", "it is not suspended");
    }
    assert_eq!((show()["rpm"].clone(), version()), (json!(100), second.clone()));
    assert!(
        !weir
            .cli(&["account", "suspend", "tests", "--if-version", "1"], &[])
            .status
            .success()
    );

    for (tag, status) in [
        (format!("\"{first}\""), 412),
        ("\"\"".to_owned(), 400),
        (second.clone(), 400),
        (format!("\"{first}\", \"{second}\""), 400),
        (format!("W/\"{second}\""), 400),
        (format!("\"{second}\""), 200),
        (format!("\"{second}\""), 412),
        ("*".to_owned(), 200),
    ] {
        let rpm = show()["rpm"].as_u64().unwrap() + 1;
        let body = json!({ "rpm": rpm }).to_string();
        let before = version();
        let answer = ask(&weir, "PATCH", &format!("if-match: {tag}\r\n"), &body, || {});
        assert_eq!(answer.status, status, "{tag}: {}", answer.body);
        assert_eq!(version() == before, status != 200, "{tag}");
        if status == 412 {
            let error = &answer.body["error"];
            assert_eq!(
                (&error["code"], &error["version"]),
                (&json!("changed"), &json!(before)),
                "{tag}"
            );
        }
    }
}
