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

/// Changes the account by the admin API of a node, when the others are ready too; answers with the status.
fn change(weir: &Weir, ready: &Barrier, body: &Json) -> u16 {
    let mut connection = UnixStream::connect(weir.admin_socket()).unwrap();
    let body = body.to_string();
    let request = format!(
        "PATCH {ACCOUNT} HTTP/1.1\r\nhost: weir\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    ready.wait();
    connection.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).unwrap();
    answer.split(' ').nth(1).unwrap().parse().unwrap()
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
            let changing = changing.map(|(node, body)| scope.spawn(|| change(node, &ready, body)));
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
