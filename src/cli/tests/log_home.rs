//! Tests of the commands that concern the log backend.

use super::*;

/// Returns the answer about a day. Unless it is `complete`, a journal may still send rows of the day. If it `lacks` rows, the
/// rows do not match the sums.
fn verified(complete: bool, rows: u64, lacks: bool) -> (u16, Value) {
    let difference = json!({
        "of": "account", "name": null, "model": "m", "kept": { "requests": 2 }, "rows": { "requests": rows },
    });
    let differences = if lacks { vec![difference] } else { Vec::new() };
    let behind = if complete { Vec::new() } else { vec!["node_1"] };
    let answer = json!({
        "account": "a", "day": "2026-11-01", "home": "files", "rows": rows, "on_their_way": 0, "again": 0, "behind": behind,
        "missing": 2 - rows, "sums_agree": true, "differences": differences,
    });
    (200, answer)
}

fn home(name: &str, former: Option<&str>) -> (u16, Value) {
    (
        200,
        json!({ "home": name, "former": former, "from": "2026-11-01", "until": "2026-11-03" }),
    )
}

/// Returns the answer that the log lacks no row of the journal.
fn journal() -> (u16, Value) {
    let day = json!({
        "account": "a", "day": "2026-11-01", "rows": 2, "missing": 0, "differing": 0, "brought": 0, "requests": [],
    });
    (200, json!({ "days": [day], "next": null }))
}

/// Returns the answer that `rows` rows were copied to the log backend.
fn brought(rows: u64) -> (u16, Value) {
    let answer = json!({ "account": "a", "day": "2026-11-01", "home": "files", "rows": rows });
    (200, answer)
}

/// Returns the answer that no counter differs.
fn counters() -> (u16, Value) {
    let periods = ["d20261101", "w2026W44", "m202611", "all"];
    let answer =
        json!({ "account": "a", "compared": periods, "moving": [], "older_than_sums": false, "differences": [] });
    (200, answer)
}

/// Returns the answers to all calls about one day, of which `verified` is the comparison of the rows.
fn all(verified: (u16, Value)) -> Vec<(u16, Value)> {
    vec![home("files", None), journal(), verified, counters()]
}

const VERIFY: &str = "log verify --from 2026-11-01 --until 2026-11-02 --account a";

#[tokio::test]
async fn verify_compares_each_day_once_and_one_that_a_lane_may_bring_rows_of_is_open() {
    let (told, asked) = run(all(verified(true, 2, false)), VERIFY).await;
    assert_eq!(
        told.unwrap(),
        "1 account\n2 rows in files compared with their daily sums\n2 rows of this node's journal compared with files\ncounters of \
         4 periods compared with the daily sums\nno differences from 2026-11-01 up to but not including 2026-11-02\n"
    );
    assert_eq!(asked[1].1, "/v1/log/journal?from=2026-11-01&until=2026-11-02&account=a");
    assert_eq!(asked[2].1, "/v1/log/verify?account=a&day=2026-11-01");
    assert_eq!(
        asked[3].1,
        "/v1/log/counters?account=a&from=2026-11-01&until=2026-11-02"
    );
    let (_, mut on_its_way) = verified(true, 1, false);
    on_its_way["on_their_way"] = 1.into();
    let (told, _) = run(all((200, on_its_way)), VERIFY).await;
    let told = told.unwrap();
    assert!(
        told.contains(
            "1 row in files compared with their daily sums\n1 further row, not in files yet, compared with the same sums\n"
        ),
        "{told}"
    );
    let (told, _) = run(all(verified(false, 1, true)), VERIFY).await;
    let told = told.unwrap();
    assert!(
        told.contains("files: open: node_1 may still send rows; 1 row of those in the sums missing")
            && told.contains("1 account day open"),
        "{told}"
    );
}

#[tokio::test]
async fn verify_names_what_the_home_lacks_and_brings_it_from_the_home_before_if_asked() {
    let (told, _) = run(all(verified(true, 1, true)), VERIFY).await;
    let error = told.unwrap_err().to_string();
    assert!(
        error.contains("the rows of 1 account day in files do not match the daily sums") && error.contains("--fill"),
        "{error}"
    );
    let answers = vec![
        home("files", Some("store")),
        journal(),
        verified(true, 1, true),
        brought(1),
        verified(true, 2, false),
        counters(),
    ];
    let (told, asked) = run(answers, &format!("{VERIFY} --fill")).await;
    let told = told.unwrap();
    assert!(
        told.contains("a  2026-11-01  files: account model m: sums requests 2; rows requests 1"),
        "{told}"
    );
    assert!(told.contains("1 row copied"), "{told}");
    assert_eq!(
        (asked[1].0.as_str(), asked[1].1.as_str()),
        ("POST", "/v1/log/journal/fill")
    );
    let (method, path, body) = &asked[3];
    assert_eq!((method.as_str(), path.as_str()), ("POST", "/v1/log/home/fill"));
    assert_eq!(*body, json!({ "account": "a", "day": "2026-11-01" }));
    let answers = all(verified(true, 1, true));
    let (told, asked) = run(answers, &format!("{VERIFY} --fill")).await;
    assert!(
        told.is_err() && asked.len() == 4,
        "there is no home before it: {asked:?}"
    );
}

#[tokio::test]
async fn verify_mends_the_sums_of_days_that_differ_and_of_no_others() {
    let mended = json!({ "account": "a", "day": "2026-11-01", "mended": true });
    let line = format!("{VERIFY} --mend");
    let mut answers = all(verified(true, 1, true));
    answers.insert(3, (200, mended));
    let (told, asked) = run(answers, &line).await;
    assert!(told.unwrap().contains("a  2026-11-01  corrected"));
    let (method, path, body) = &asked[3];
    assert_eq!((method.as_str(), path.as_str()), ("POST", "/v1/log/mend"));
    assert_eq!(*body, json!({ "account": "a", "day": "2026-11-01" }));
    let (_, mut twice) = verified(true, 2, true);
    twice["again"] = 1.into();
    for answer in [verified(false, 1, true), verified(true, 2, false), (200, twice)] {
        let (_, asked) = run(all(answer), &line).await;
        assert_eq!(asked.len(), 4);
    }
}

#[tokio::test]
async fn verify_names_rows_that_are_there_twice_also_where_the_sums_are_right() {
    let (_, mut answer) = verified(true, 2, false);
    answer["again"] = 1.into();
    let (told, _) = run(all((200, answer)), VERIFY).await;
    let error = told.unwrap_err().to_string();
    assert!(
        error.contains("the rows of 1 account day") && error.contains("docs/log.md"),
        "{error}"
    );
}

#[tokio::test]
async fn verify_names_counters_that_differ_and_rows_that_only_the_journal_has() {
    let (_, mut off) = counters();
    off["differences"] = json!([{
        "of": "key", "name": "key_1", "period": "d20261101", "counter_usd": "0.000000002", "expected_usd": "0.000000001",
        "by": "daily sums",
    }]);
    let lost = json!({
        "account": "a", "day": "2026-11-01", "rows": 9, "missing": 6, "differing": 1, "brought": 0, "requests": ["r1", "r2"],
    });
    let lost = || (200, json!({ "days": [lost], "next": "node_1.5" }));
    for (name, shown) in [("files", "files"), ("store", "the store")] {
        let answers = vec![
            home(name, None),
            lost(),
            journal(),
            verified(true, 2, false),
            (200, off.clone()),
        ];
        let (told, asked) = run(answers, VERIFY).await;
        let error = told.unwrap_err().to_string();
        for part in [
            format!("6 rows of this node's journal missing in {shown}").as_str(),
            format!("1 row in {shown} with a different charge").as_str(),
            "1 counter not matching the daily sums",
        ] {
            assert!(error.contains(part), "{error}");
        }
        assert!(asked[2].1.ends_with("&after=node_1.5"), "{}", asked[2].1);
    }
}

#[tokio::test]
async fn a_day_of_all_accounts_without_a_difference_is_told_to_weir() {
    let account = json!({
        "id": "a", "version": "1-00000000", "state": "active", "balance_usd": "1", "balance_nano_usd": 1_000_000_000,
        "held_usd": "0", "held_nano_usd": 0, "spent_usd": "0", "spent_nano_usd": 0, "running": 0, "balance_is_low": false,
        "provider_state": "own",
    });
    let accounts = || (200, json!({ "accounts": [account], "next": null }));
    let line = "log verify --from 2026-11-01 --until 2026-11-02";
    let noted = (200, json!({ "counts": true }));
    let answers = |verified| {
        let mut answers = all(verified);
        answers.insert(2, accounts());
        answers
    };
    let whole = [answers(verified(true, 2, false)), vec![noted]].concat();
    let (told, asked) = run(whole, line).await;
    assert!(told.is_ok(), "{told:?}");
    let (method, path, body) = &asked[5];
    assert_eq!((method.as_str(), path.as_str()), ("POST", "/v1/log/verified"));
    assert_eq!(*body, json!({ "from": "2026-11-01", "until": "2026-11-02" }));
    for complete in [false, true] {
        let (_, asked) = run(answers(verified(complete, 2, true)), line).await;
        assert_eq!(asked.len(), 5, "it is not known to be whole");
    }
}

#[tokio::test]
async fn move_brings_all_days_that_are_kept_and_only_to_the_home_there_is() {
    let (told, asked) = run(
        vec![home("files", Some("postgres")), brought(3), brought(0)],
        "log move --to files --account a",
    )
    .await;
    assert_eq!(told.unwrap(), "a  2026-11-01  3 rows copied\n3 rows copied to files\n");
    assert_eq!(asked.len(), 3);
    for (homes, flags, why) in [
        (
            home("store", Some("files")),
            "",
            "the log backend is the store, not files",
        ),
        (home("files", None), "", "set `[log] former_home` to the backend"),
        (
            home("files", Some("postgres")),
            "--remove",
            "but the previous log backend is postgres",
        ),
    ] {
        let (told, asked) = run(vec![homes], &format!("log move --to files {flags}")).await;
        let error = told.unwrap_err().to_string();
        assert!(error.contains(why) && asked.len() == 1, "{error}");
    }
}

#[tokio::test]
async fn move_removes_the_rows_of_proven_days_from_the_store_and_says_how_many_stay() {
    let removed = |rows: u64, proven: bool| {
        let answer = json!({ "account": "a", "day": "2026-11-01", "rows": rows, "proven": proven });
        (200, answer)
    };
    let line = "log move --to files --account a --remove";
    let answers = |last| {
        let homes = home("files", Some("store"));
        vec![homes, brought(3), removed(5, true), brought(0), last]
    };
    let (told, asked) = run(answers(removed(0, true)), line).await;
    assert_eq!(
        told.unwrap(),
        "a  2026-11-01  3 rows copied, 5 removed\n3 rows copied to files\n5 rows removed from the store\n"
    );
    let (method, path, body) = &asked[2];
    assert_eq!((method.as_str(), path.as_str()), ("POST", "/v1/log/former/remove"));
    assert_eq!(*body, json!({ "account": "a", "day": "2026-11-01" }));
    let (told, _) = run(answers(removed(0, false)), line).await;
    let error = told.unwrap_err().to_string();
    assert!(error.contains("the rows of 1 account day stay in the store"), "{error}");
}
