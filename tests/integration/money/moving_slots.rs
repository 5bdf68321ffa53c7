//! `redis-cli --cluster reshard` under load: the accounts move from master to master with all their old rows, and stay whole.

use serde_json::Value as Json;

use crate::harness::books::{FUNDS, cost};
use crate::harness::cluster::Cluster;
use crate::harness::load::Load;
use crate::harness::sample::SampleProvider;
use crate::harness::tools::{note, program, rounds, skip};
use crate::harness::weir::Key;
use crate::harness::{Weir, WeirBuilder, wait_for, wait_until};

const DAY_MS: i64 = 86_400_000;
/// Each time the slots come to the next of three masters, so that they are back in the end.
const RESHARDS: usize = 3;

struct Account {
    id: String,
    key: Key,
}

fn old_days() -> i64 {
    rounds(80, 180) as i64
}

/// Makes accounts whose slots are among the first so many, which are moved.
fn accounts(weir: &Weir, slots: usize, count: usize) -> Vec<Account> {
    let ids = (0..).map(|number| format!("account-{number}"));
    let moved = ids.filter(|id| (Cluster::slot_of(&format!("{{weir:a:{id}}}")) as usize) < slots);
    let make = |id: String| {
        weir.cli_json_at_last(&["account", "create", "--id", &id, "--balance-usd", "1000"]);
        let made = weir.cli_json_at_last(&["key", "create", "--account", &id, "--name", "a test's key"]);
        let text = |name: &str| made[name].as_str().unwrap().to_owned();
        let key = Key {
            id: text("id"),
            text: text("key"),
        };
        Account { id, key }
    };
    moved.take(count).map(make).collect()
}

/// Gives an account that has a row one on each day of its log before, for nothing.
fn give_history(weir: &Weir, cluster: &Cluster, account: &Account) {
    let mut row: Json = wait_for("the account's first row", || rows(weir, account).pop());
    row["cost_nano_usd"] = 0.into();
    let today = row["time_ms"].as_i64().unwrap() / DAY_MS;
    let (mut logs, mut texts) = (Vec::new(), Vec::new());
    for day in today - old_days()..today {
        row["time_ms"] = ((day + 1) * DAY_MS - 1).into();
        row["admitted_ms"] = row["time_ms"].clone();
        row["request_id"] = format!("old-{day}").into();
        logs.push(format!("{{weir:a:{}}}:log:{day}", account.id));
        texts.push(row.to_string());
    }
    let push = "for i, log in ipairs(KEYS) do redis.call('RPUSH', log, ARGV[i]) end return #KEYS";
    let count = old_days().to_string();
    let mut words = vec!["EVAL", push, &count];
    words.extend(logs.iter().chain(&texts).map(String::as_str));
    let (master, _) = Cluster::place_of(&logs[0]);
    let pushed = cluster.servers[master].command(&words);
    assert!(pushed.starts_with(&format!(":{count}")), "{pushed}");
}

/// All that its log has.
fn rows(weir: &Weir, account: &Account) -> Vec<Json> {
    let since = "2020-01-01T00:00:00Z";
    let words = [
        "log",
        "query",
        "--account",
        &account.id,
        "--limit",
        "1000000",
        "--from",
        since,
    ];
    match weir.cli_json_at_last(&words) {
        Json::Array(rows) => rows,
        row => vec![row],
    }
}

/// Checks that an account's counters are those of its rows, and that no old row is gone. How many new ones it has.
fn assert_whole(weir: &Weir, account: &Account) -> usize {
    let rows = rows(weir, account);
    let is_old = |row: &&Json| row["request_id"].as_str().unwrap().starts_with("old-");
    let old = rows.iter().filter(is_old).count();
    assert_eq!(old as i64, old_days(), "old rows of {}", account.id);
    let charged: i64 = rows.iter().map(cost).sum();
    let view = weir.cli_json_at_last(&["account", "show", "--id", &account.id]);
    assert_eq!(view["spent_nano_usd"], charged, "{view}");
    assert_eq!(view["balance_nano_usd"], FUNDS - charged, "{view}");
    assert_eq!(
        (&view["held_nano_usd"], &view["running"]),
        (&0.into(), &0.into()),
        "{view}"
    );
    assert_eq!(
        weir.key_shown(&account.key.id)["spent_nano_usd"],
        charged,
        "{}",
        account.id
    );
    let mut ids: Vec<&str> = rows.iter().map(|row| row["request_id"].as_str().unwrap()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), rows.len(), "a request has two rows");
    rows.len() - old
}

#[test]
fn resharding_a_cluster_under_load_loses_no_row() {
    if program("redis-cli").is_none() {
        skip!("redis-cli is not installed")
    }
    let Some(cluster) = Cluster::start_bare() else {
        skip!("redis-server is not installed")
    };
    let (slots, count) = (rounds(60, 5_000), rounds(4, 8));
    let provider = SampleProvider::start();
    let weir = WeirBuilder::new()
        .all_providers(&provider.base_url())
        .cluster(&cluster)
        // A busy machine's Redis is not away.
        .set("store.redis.budget_ms", 2_000)
        .start();
    let accounts = accounts(&weir, slots, count);
    let keys: Vec<&str> = accounts.iter().map(|account| account.key.text.as_str()).collect();
    let load = Load::start(&weir, &keys, 8);
    for account in &accounts {
        give_history(&weir, &cluster, account);
    }
    for round in 0..RESHARDS {
        load.serve(8);
        let before = (load.served(), load.refused());
        let moved = cluster.reshard(round % 3, (round + 1) % 3, slots);
        let (served, refused) = (load.served() - before.0, load.refused() - before.1);
        note(&format!("resharding {slots} slots: {served} served, {refused} refused"));
        assert_eq!(moved, Ok(()));
    }
    load.serve(8);
    let served = load.end();
    wait_until("the store to know of all", || {
        weir.figure("weir_settlements_unacknowledged") == 0
    });
    wait_until("nothing to be held", || {
        accounts.iter().all(|account| {
            let view = weir.cli_json_at_last(&["account", "show", "--id", &account.id]);
            view["running"] == 0 && view["held_nano_usd"] == 0
        })
    });
    let new: usize = accounts.iter().map(|account| assert_whole(&weir, account)).sum();
    assert_eq!(new, served, "rows, and requests that were served");
    assert_eq!(new, provider.bills().len(), "rows, and what the provider billed");
}
