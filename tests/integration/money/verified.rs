//! `weir log verify` finds a counter that is off by a nano-dollar, and a row that only the journal still has.

use std::sync::atomic::{AtomicBool, Ordering};

use super::homes::{OFFSET, ROWS, builder, charge, day};
use crate::harness::at_end::SetAtEnd;
use crate::harness::postgres::PostgresServer;
use crate::harness::redis::RedisServer;
use crate::harness::request::{ALL_WIRES, Wire};
use crate::harness::sample::SampleProvider;
use crate::harness::tools::{rounds, skip};
use crate::harness::{Weir, WeirBuilder, wait_until};
use crate::log_postgres::{gateway, set_up};

/// How it ended, what it printed, and what it says is wrong.
fn verify(weir: &Weir, flags: &[&str]) -> (bool, String, String) {
    verify_from(weir, -6, flags)
}

fn verify_from(weir: &Weir, first: i64, flags: &[&str]) -> (bool, String, String) {
    let (from, until) = (day(first), day(1));
    let range = ["--from", &from, "--until", &until];
    let told = weir.cli(&["log", "verify"], &[&range, flags].concat());
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (told.status.success(), text(told.stdout), text(told.stderr))
}

#[test]
fn a_counter_that_is_off_by_a_nano_dollar_is_found_and_named() {
    let Some(redis) = RedisServer::start() else {
        skip!("redis-server is not installed")
    };
    let provider = SampleProvider::start();
    let weir = WeirBuilder::new()
        .all_providers(&provider.base_url())
        .redis(&redis)
        .start();
    let key = weir.key();
    for wire in ALL_WIRES {
        assert_eq!(weir.exchange(&wire.request(&key.text, "Tell me.")).status, 200);
    }
    weir.books(ALL_WIRES.len());
    let (fine, said, _) = verify_from(&weir, 0, &[]);
    assert!(fine && said.contains("counters of 4 periods compared"), "{said}");
    let in_store = format!(
        "{} rows of this node's journal compared with the store",
        ALL_WIRES.len()
    );
    assert!(said.contains(&in_store), "{said}");
    let listed = redis.command(&["KEYS", "*:spent:*"]);
    let counters: Vec<&str> = listed.lines().filter(|line| line.contains(":spent:")).collect();
    assert_eq!(counters.len(), 4, "{listed}");
    for counter in counters {
        let (_, period) = counter.rsplit_once(':').unwrap();
        redis.command(&["HINCRBY", counter, &key.id, "1"]);
        let (fine, said, wrong) = verify_from(&weir, 0, &[]);
        let named = format!("tests  key {}  {period}: the counter is ", key.id);
        assert!(!fine && said.contains(&named), "{said}");
        assert!(wrong.contains("1 counter not matching the daily sums"), "{wrong}");
        redis.command(&["HINCRBY", counter, &key.id, "-1"]);
    }
    let account = redis.command(&["KEYS", "*:a:tests}:state"]);
    let account = account.lines().find(|line| line.contains(":state")).unwrap();
    redis.command(&["HINCRBY", account, "spent", "-1"]);
    let (fine, said, _) = verify_from(&weir, 0, &[]);
    assert!(!fine && said.contains("tests  account  all: the counter is "), "{said}");
    redis.command(&["HINCRBY", account, "spent", "1"]);
    assert!(verify_from(&weir, 0, &[]).0);
}

#[test]
fn a_row_that_a_redis_has_lost_is_missed_by_the_journal_where_the_store_is_the_home() {
    let Some(redis) = RedisServer::start() else {
        skip!("redis-server is not installed")
    };
    let provider = SampleProvider::start();
    let builder = WeirBuilder::new().all_providers(&provider.base_url());
    let weir = builder.redis(&redis).start();
    let key = weir.key();
    for wire in ALL_WIRES {
        assert_eq!(weir.exchange(&wire.request(&key.text, "Tell me.")).status, 200);
    }
    weir.books(ALL_WIRES.len());
    wait_until("the store to have acknowledged all", || {
        weir.figure("weir_settlements_unacknowledged") == 0
    });
    let listed = redis.command(&["KEYS", "*:log:*"]);
    let list = listed.lines().find(|line| line.contains(":log:")).unwrap();
    redis.command(&["RPOP", list]);
    let (fine, said, wrong) = verify_from(&weir, 0, &[]);
    assert!(!fine && said.contains("journal: 1 row missing in the log"), "{said}");
    assert!(
        wrong.contains("1 row of this node's journal missing in the store: --fill copies what is missing"),
        "{wrong}"
    );
    let (fine, said, wrong) = verify_from(&weir, 0, &["--fill"]);
    assert!(fine && said.contains("1 row copied"), "{said}{wrong}");
    let (fine, said, wrong) = verify_from(&weir, 0, &["--fill"]);
    assert!(fine && !said.contains("copied"), "{said}{wrong}");
    weir.books(ALL_WIRES.len());
}

/// Larger than what the connections of a test may need on the way.
const BALLAST_BYTES: usize = 8 << 20;

/// Has a Redis evict those keys, a large one that is nobody's, and no others: it chooses among all by how long they were not used.
fn evict(redis: &RedisServer, wanted: impl Fn(&str) -> bool) {
    // It would expire meanwhile.
    redis.command(&["DEL", "{weir:keys}:log-homes"]);
    let listed = redis.command(&["KEYS", "*"]);
    let keys: Vec<&str> = listed.lines().filter(|line| line.starts_with('{')).collect();
    let (doomed, others): (Vec<&str>, Vec<&str>) = keys.into_iter().partition(|key| wanted(key));
    assert!(!doomed.is_empty() && !others.is_empty(), "{listed}");
    let until_idle = |keys: &[&str]| {
        wait_until("nobody to have used them for a while", || {
            keys.iter().all(|key| {
                let idle = redis.command(&["OBJECT", "IDLETIME", key]);
                let seconds = idle.lines().next().and_then(|line| line.strip_prefix(':'));
                seconds.is_some_and(|seconds| seconds.parse::<u64>().unwrap() >= 2)
            })
        });
    };
    until_idle(&doomed);
    // It goes after these, and makes more room than is asked for.
    redis.command(&["SET", "ballast", &"x".repeat(BALLAST_BYTES)]);
    until_idle(&["ballast"]);
    redis.command(&[&["TOUCH"], &others[..]].concat());
    let info = redis.command(&["INFO", "memory"]);
    let used = info.lines().find_map(|line| line.strip_prefix("used_memory:")).unwrap();
    let most = used.trim().parse::<usize>().unwrap() - BALLAST_BYTES / 2;
    redis.command(&["CONFIG", "SET", "maxmemory-samples", "64"]);
    redis.command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    redis.command(&["CONFIG", "SET", "maxmemory", &most.to_string()]);
    redis.command(&["SET", "unrelated", "x"]);
    let exist = |keys: &[&str]| redis.command(&[&["EXISTS"], keys].concat());
    assert!(
        exist(&doomed).starts_with(":0"),
        "{}",
        redis.command(&["INFO", "stats"])
    );
    assert!(exist(&["ballast"]).starts_with(":0"));
    assert!(exist(&others).starts_with(&format!(":{}", others.len())));
    redis.command(&["CONFIG", "SET", "maxmemory", "0"]);
    redis.command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
}

#[test]
fn a_redis_that_has_evicted_says_so_and_gets_back_what_the_journal_still_has() {
    let Some(redis) = RedisServer::start() else {
        skip!("redis-server is not installed")
    };
    let provider = SampleProvider::start();
    let builder = WeirBuilder::new().all_providers(&provider.base_url());
    let mut weir = builder.redis(&redis).start();
    let key = weir.key();
    for wire in ALL_WIRES {
        assert_eq!(weir.exchange(&wire.request(&key.text, "Tell me.")).status, 200);
    }
    let charged = weir.books(ALL_WIRES.len()).charged();
    wait_until("the store to have acknowledged all", || {
        weir.figure("weir_settlements_unacknowledged") == 0
    });
    weir.process().signal("TERM");
    weir.process().wait_ended();
    evict(&redis, |key| {
        key.contains("a:tests}:log:") || key.contains("a:tests}:sums:")
    });
    weir.kill_and_restart();
    let evicted = "evicted_keys 3: redis has evicted keys, possibly weir's";
    let ready = || weir.ops_get("/readyz");
    wait_until("it to be said", || {
        let answer = ready();
        answer.status == 200 && answer.json()["warnings"].to_string().contains("store_evicted")
    });
    assert!(
        ready().json()["details"].to_string().contains(evicted),
        "{}",
        ready().text()
    );
    let warning = |value| format!("weir_store_warning{{kind=\"evicted\"}} {value}");
    assert!(weir.metrics().contains(&warning(1)));
    assert!(weir.logs().contains("redis has evicted keys"), "{}", weir.logs());
    let conf = weir.folder().join("weir.toml");
    let checked = std::process::Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["check", "--store", "--conf"])
        .arg(conf)
        .output()
        .unwrap();
    let told = String::from_utf8(checked.stdout).unwrap();
    assert!(checked.status.success() && told.contains(evicted), "{told}");
    assert_eq!(told.matches("has evicted keys").count(), 1, "{told}");

    let (fine, said, wrong) = verify_from(&weir, 0, &[]);
    let missing = format!("journal: {} rows missing in the log", ALL_WIRES.len());
    assert!(!fine && said.contains(&missing), "{said}{wrong}");
    let (fine, said, wrong) = verify_from(&weir, 0, &["--fill", "--mend"]);
    assert!(
        fine && said.contains(&format!("{} rows copied", ALL_WIRES.len())),
        "{said}{wrong}"
    );
    assert!(verify_from(&weir, 0, &[]).0, "rows and sums are whole");
    assert_eq!(
        weir.books(ALL_WIRES.len()).charged(),
        charged,
        "nothing is charged again"
    );
    redis.command(&["CONFIG", "RESETSTAT"]);
    wait_until("the warning to end", || weir.metrics().contains(&warning(0)));
    assert!(!ready().text().contains("evicted"), "{}", ready().text());
}

#[test]
fn a_row_that_only_the_journal_has_is_found_and_brought_from_there() {
    let Some(server) = PostgresServer::start() else {
        skip!("no postgres")
    };
    let provider = SampleProvider::start();
    let mut weir = builder(&provider).set("log.home", "postgres").postgres(&server).start();
    set_up(&weir, &server);
    charge(&weir);
    weir.next_variable(OFFSET, "0");
    weir.kill_and_restart();
    wait_until("the rows to be in postgres", || {
        server.psql("SELECT count(*) FROM weir.log") == ROWS.to_string()
    });
    let (fine, said, _) = verify(&weir, &[]);
    assert!(
        fine && said.contains(&format!("{ROWS} rows of this node's journal compared with postgres")),
        "{said}"
    );
    let lost = "number = (SELECT min(number) FROM weir.log)";
    let request = server.psql(&format!("SELECT request_id FROM weir.log WHERE {lost}"));
    server.psql(&format!("DELETE FROM weir.log WHERE {lost}"));
    let (fine, said, wrong) = verify(&weir, &[]);
    assert!(!fine && said.contains("journal: 1 row missing in the log"), "{said}");
    assert!(said.contains(&request), "{said}");
    assert!(
        wrong.contains("1 row of this node's journal missing in postgres"),
        "{wrong}"
    );
    let (fine, said, wrong) = verify(&weir, &["--fill"]);
    assert!(fine && said.contains("1 row copied"), "{said}{wrong}");
    let (fine, said, _) = verify(&weir, &[]);
    assert!(fine, "{said}");
    let there = format!("SELECT count(*) FROM weir.log WHERE request_id = '{request}'");
    assert_eq!(server.psql(&there), "1");
    let dearer = format!("UPDATE weir.log SET cost_nano_usd = cost_nano_usd + 1 WHERE request_id = '{request}'");
    server.psql(&dearer);
    wait_until("the other charge to be found", || {
        verify(&weir, &[])
            .2
            .contains("1 row in postgres with a different charge")
    });
}

/// Values that no row has.
const OTHERS: [(&str, &str); 12] = [
    ("time", "time + interval '1 millisecond'"),
    ("admitted_at", "admitted_at - interval '1 millisecond'"),
    ("provider", "'another'"),
    ("outcome", "'another'"),
    ("model_asked", "'another'"),
    ("price_version", "'another'"),
    ("service_tier", "'another'"),
    ("latency_ms", "latency_ms + 1"),
    ("hold_nano_usd", "coalesce(hold_nano_usd, 0) + 1"),
    ("transport", "'websocket'"),
    ("translated", "'messages->chat'"),
    ("losses", "ARRAY['dropped top_k']"),
];

#[test]
fn a_row_of_today_that_is_another_in_any_column_is_found_and_requests_go_on_meanwhile() {
    let Some(server) = PostgresServer::start() else {
        skip!("no postgres")
    };
    let provider = SampleProvider::start();
    let weir = gateway(&server, &provider);
    set_up(&weir, &server);
    let key = weir.key();
    let ask = |wire: &Wire| assert_eq!(weir.exchange(&wire.request(&key.text, "Tell me.")).status, 200);
    ALL_WIRES.iter().for_each(ask);
    weir.books(ALL_WIRES.len());
    let proven = format!("{} rows in postgres compared with their daily sums", ALL_WIRES.len());
    wait_until("the rows to be proven", || {
        let (fine, said, _) = verify_from(&weir, 0, &[]);
        fine && said.contains(&proven) && !said.contains("are open")
    });
    let row = "number = (SELECT min(number) FROM weir.log)";
    for (column, other) in OTHERS {
        let before = server.psql(&format!("SELECT quote_nullable({column}) FROM weir.log WHERE {row}"));
        server.psql(&format!("UPDATE weir.log SET {column} = {other} WHERE {row}"));
        let (fine, said, wrong) = verify_from(&weir, 0, &[]);
        assert!(!fine && said.contains("another column (digest "), "{column}: {said}");
        assert!(
            wrong.contains("the rows of 1 account day in postgres do not match the daily sums"),
            "{wrong}"
        );
        server.psql(&format!("UPDATE weir.log SET {column} = {before} WHERE {row}"));
        assert!(verify_from(&weir, 0, &[]).0, "{column}");
    }
    // Rows that come while they are compared are no difference.
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stop = SetAtEnd([&stop]);
        scope.spawn(|| {
            while !stop.load(Ordering::SeqCst) {
                ask(&Wire::Messages);
            }
        });
        for _ in 0..rounds(3, 50) {
            let (fine, said, wrong) = verify_from(&weir, 0, &[]);
            assert!(fine, "{said}{wrong}");
        }
    });
    server.psql(&format!("DELETE FROM weir.log WHERE {row}"));
    wait_until("the lost row to be missed", || {
        verify_from(&weir, 0, &[])
            .2
            .contains("in postgres do not match the daily sums")
    });
}

#[test]
fn rows_on_their_way_count_and_a_lane_of_another_node_is_named_while_it_may_bring_rows() {
    let Some(redis) = RedisServer::start() else {
        skip!("redis-server is not installed")
    };
    let provider = SampleProvider::start();
    // A folder each: neither ever sees the rows of the other.
    let node = || {
        let builder = WeirBuilder::new().all_providers(&provider.base_url());
        let builder = builder.set("log.home", "files").set("log.files.path", "log");
        builder.set("log.files.seconds", 3600).redis(&redis).start()
    };
    let (one, other) = (node(), node());
    let key = one.key();
    let ask = |weir: &Weir| {
        assert_eq!(
            weir.exchange(&Wire::Messages.request(&key.text, "Tell me.")).status,
            200
        )
    };
    ask(&one);
    one.books(1);
    let (fine, said, wrong) = verify_from(&one, 0, &[]);
    assert!(
        fine && said.contains("1 further row, not in files yet, compared with the same sums") && !said.contains("open"),
        "{said}{wrong}"
    );
    let (fine, said, wrong) = verify_from(&other, 0, &[]);
    assert!(
        fine && said.contains("files: open: node_") && said.contains("1 row of those in the sums missing"),
        "{said}{wrong}"
    );
    ask(&other);
    wait_until("both lanes to be in the sums", || {
        let (fine, said, _) = verify_from(&one, 0, &[]);
        fine && said.contains("files: open: node_") && said.contains("1 row of those in the sums")
    });
}

#[test]
fn a_node_whose_files_are_all_gone_gets_them_back_from_its_journal() {
    let provider = SampleProvider::start();
    let weir = WeirBuilder::new()
        .all_providers(&provider.base_url())
        .set("log.home", "files")
        .set("log.files.path", "log")
        .set("log.files.seconds", 1)
        .start();
    let key = weir.key();
    for wire in ALL_WIRES {
        assert_eq!(weir.exchange(&wire.request(&key.text, "Tell me.")).status, 200);
    }
    let rows = ALL_WIRES.len();
    let proven = format!("{rows} rows in files compared");
    let is_proven = |(fine, said, _): (bool, String, String)| fine && said.contains(&proven) && !said.contains("open");
    wait_until("the rows to be proven", || is_proven(verify_from(&weir, 0, &[])));
    for day in std::fs::read_dir(weir.folder().join("log")).unwrap() {
        let day = day.unwrap().path();
        if day.is_dir() {
            std::fs::remove_dir_all(day).unwrap();
        }
    }
    let (fine, said, wrong) = verify_from(&weir, 0, &[]);
    assert!(
        !fine && said.contains(&format!("journal: {rows} rows missing in the log")),
        "{said}{wrong}"
    );
    let (fine, said, wrong) = verify_from(&weir, 0, &["--fill"]);
    assert!(fine && said.contains(&format!("{rows} rows copied")), "{said}{wrong}");
    assert!(is_proven(verify_from(&weir, 0, &[])));
    assert_eq!(
        weir.exchange(&Wire::Messages.request(&key.text, "Tell me.")).status,
        200
    );
    let more = format!("{} rows in files compared", rows + 1);
    wait_until("the next row to be proven", || {
        let (fine, said, _) = verify_from(&weir, 0, &[]);
        fine && said.contains(&more) && !said.contains("open")
    });
}

#[test]
fn what_a_lost_journal_alone_was_to_bring_is_charged_and_named_by_lane_and_number() {
    let Some(server) = PostgresServer::start() else {
        skip!("no postgres")
    };
    let provider = SampleProvider::start();
    let mut weir = builder(&provider).set("log.home", "postgres").postgres(&server).start();
    // The home has no tables yet, so it gets nothing.
    let key = weir.key();
    for wire in ALL_WIRES {
        assert_eq!(weir.exchange(&wire.request(&key.text, "Tell me.")).status, 200);
    }
    let rows = ALL_WIRES.len();
    wait_until("all to be charged", || {
        weir.account()["running"] == 0 && weir.figure("weir_settlements_unacknowledged") == 0
    });
    let spent = weir.account()["spent_nano_usd"].clone();
    // Not killed: the store's file is written behind its memory, and what it lacks only the journal has.
    weir.process().signal("TERM");
    weir.process().wait_ended();
    std::fs::remove_dir_all(weir.folder().join("journal")).unwrap();
    set_up(&weir, &server);
    weir.next_variable(OFFSET, "0");
    weir.kill_and_restart();
    assert_eq!(weir.account()["spent_nano_usd"], spent, "charges stay");
    let (fine, said, wrong) = verify(&weir, &[]);
    let named = format!("{rows} rows of those in the sums missing");
    assert!(
        fine && said.contains("postgres: open: node_") && said.contains(&named),
        "{said}{wrong}"
    );
}
