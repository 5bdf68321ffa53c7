//! What many looks at the same page cost the store, and that nobody who has changed something is shown how it was before.

use std::time::Instant;

use super::{builder, signed_in};
use crate::harness::redis::RedisServer;
use crate::harness::tools::{note, skipped};

const ACCOUNTS: usize = 20;
const LOOKS: usize = 100;

/// The calls of scripts that the server has had.
fn calls(redis: &RedisServer) -> usize {
    let stats = redis.command(&["INFO", "commandstats"]);
    let count = stats
        .lines()
        .find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
    let count = count.and_then(|line| line.split(',').next());
    count.map_or(0, |count| count.parse().unwrap())
}

#[test]
fn many_looks_at_the_overview_cost_the_store_few_calls() {
    /// What a node calls each second whoever looks.
    const CALLS_A_SECOND: f64 = 16.0;
    let Some(redis) = RedisServer::start() else {
        return skipped("redis-server");
    };
    let weir = builder("http://127.0.0.1:9").redis(&redis).start();
    for number in 0..ACCOUNTS {
        weir.cli_json(&["account", "create", "--id", &format!("a{number}"), "--balance-usd", "1"]);
    }
    let tab = signed_in(&weir, "owner");
    assert!(tab.page("/").contains("$20.00"));
    let (before, began) = (calls(&redis), Instant::now());
    for _ in 0..LOOKS {
        tab.page("/");
    }
    let seconds = began.elapsed().as_secs_f64();
    let called = calls(&redis) - before;
    note(&format!("{LOOKS} looks in {seconds:.1} s: {called} calls of scripts"));
    // The time, a page of names, and of each account its state and its sums.
    let overview = 4 + 2 * ACCOUNTS;
    let allowed = LOOKS as f64 + (seconds + 1.0) * (CALLS_A_SECOND + overview as f64);
    assert!((called as f64) <= allowed, "{called} calls, {allowed:.0} are allowed");
}

#[test]
fn whoever_has_changed_something_sees_it_at_once() {
    let weir = builder("http://127.0.0.1:9").start();
    weir.cli_json(&["account", "create", "--id", "team", "--balance-usd", "1"]);
    let mut tab = signed_in(&weir, "owner");
    for (amount, sum) in [("1", "$2.00"), ("3", "$5.00"), ("5", "$10.00")] {
        let page = tab.page("/accounts/team");
        for path in ["/", "/accounts"] {
            assert!(!tab.page(path).contains(sum), "{path}");
        }
        assert_eq!(tab.fill(&page, "/accounts/team/credit", &[("usd", amount)]).status, 303);
        for path in ["/", "/accounts", "/accounts/team"] {
            assert!(tab.page(path).contains(sum), "{path}: {}", tab.page(path));
        }
    }
    weir.cli_json(&["account", "credit", "--id", "team", "--usd", "7"]);
    assert!(tab.page("/accounts").contains("$17.00"), "by the command line, too");
}
