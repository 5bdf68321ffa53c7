//! The consumption log, over the reference model.

use std::sync::Arc;

use http::Method;
use serde_json::{Value, json};

use super::{Fixture, text};
use crate::{
    domain::{
        keys::KeyId,
        ledger::{AccountChange, NodeId, Settlement, Step, consumption::Row, log_query::LogFilter},
        money::NanoUsd,
    },
    edges::clock,
    sinks::reading::{LogCursor, LogReader},
    store::ledger::contract::row,
};

const DAY_MS: i64 = 86_400_000;
/// How long a piece of an export may take.
const WAIT: std::time::Duration = std::time::Duration::from_secs(10);

/// Rows of three accounts: `count` each, one every six hours until now, the model in turn.
async fn filled(count: u64) -> (Fixture, i64) {
    let admin = Fixture::new().await;
    let now = admin.ledger.now_ms().await.unwrap();
    let node = NodeId::generate(&mut rand::rng());
    for account in ["a", "b", "c"] {
        for seq in 1..=count {
            let back = i64::try_from(count - seq).unwrap() * DAY_MS / 4;
            let mut row = row(
                account,
                1,
                &format!("{account}{seq}"),
                now - back,
                NanoUsd::from_nanos(3),
            );
            row.model = format!("m-{}", seq % 2).into();
            let settlement = Settlement {
                lease: None,
                request: row.request_id.clone(),
                key: row.key_id.clone(),
                at_ms: row.admitted_ms,
                tokens_estimated: 0,
                tokens_used: 0,
                cost: NanoUsd::from_nanos(3),
                row: Some(row.into()),
            };
            let change = AccountChange::Settle(Box::new(settlement));
            admin
                .ledger
                .apply(&node, account, &[Step { seq, change }], 0)
                .await
                .unwrap();
        }
    }
    (admin, now)
}

/// The request ids that a query gives, and how many calls it took.
async fn ids(admin: &Fixture, filter: &str) -> (Vec<String>, usize) {
    let (mut ids, mut calls, mut cursor) = (Vec::new(), 0, String::new());
    loop {
        let page = admin.get(&format!("/v1/log?{filter}{cursor}")).await;
        calls += 1;
        ids.extend(
            page["rows"]
                .as_array()
                .unwrap()
                .iter()
                .map(|row| text(row, "request_id")),
        );
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return (ids, calls),
        }
    }
}

#[tokio::test]
async fn rows_come_by_day_and_account_whatever_the_size_of_a_page() {
    let (admin, now) = filled(6).await;
    let of_day = |seq: i64| (now - (6 - seq) * DAY_MS / 4).div_euclid(DAY_MS);
    let mut expected: Vec<(i64, String)> = ["a", "b", "c"]
        .into_iter()
        .flat_map(|account| (1..=6).map(move |seq| (of_day(seq), format!("{account}{seq}"))))
        .collect();
    expected.sort();
    let expected: Vec<String> = expected.into_iter().map(|(_, id)| id).collect();
    for limit in [1, 4, 100] {
        let (all, _) = ids(&admin, &format!("limit={limit}")).await;
        assert_eq!(all, expected, "limit {limit}");
    }
    let page = admin
        .get(&format!("/v1/log?account=b&limit=1&from={}", day_before(now)))
        .await;
    let first = &page["rows"][0];
    assert_eq!((&first["account"], &first["cost_nano_usd"]), (&json!("b"), &json!(3)));
    assert!(text(first, "time").ends_with('Z') && first["time_ms"].is_i64());
}

fn day_before(now: i64) -> String {
    let moment = jiff::Timestamp::from_millisecond(now - 2 * DAY_MS).unwrap();
    moment.strftime("%Y-%m-%d").to_string()
}

#[tokio::test]
async fn the_first_page_has_what_there_is_however_many_accounts_have_none() {
    let (admin, _) = filled(1).await;
    let node = NodeId::generate(&mut rand::rng());
    for number in 0..40 {
        let (name, change) = (format!("Idle{number}"), AccountChange::nothing());
        assert_eq!(
            admin.ledger.apply(&node, &name, &[Step { seq: 1, change }], 0).await,
            Ok(1)
        );
    }
    let (all, calls) = ids(&admin, "limit=1000").await;
    assert_eq!((&*all, calls), (&["a1", "b1", "c1"].map(str::to_owned)[..], 1));
    let (all, calls) = ids(&admin, "limit=1000&from=2020-01-01").await;
    assert_eq!((all.len(), calls), (3, 1));
}

#[tokio::test]
async fn a_request_that_has_looked_long_enough_answers_with_where_it_goes_on() {
    let (admin, now) = filled(6).await;
    let reading = Arc::new(LogReader::new(Arc::clone(&admin.rows) as _, None));
    let filter = LogFilter::between(now - 3 * DAY_MS, now + 1);
    let (mut cursor, mut found, mut pages) = (Some(LogCursor::before(&filter)), 0, 0);
    while let Some(from) = cursor {
        let rows = reading.rows(filter.clone(), from);
        let page = crate::admin::log::read_page(rows, 1000, clock::instant())
            .await
            .unwrap();
        (found, pages, cursor) = (found + page.rows.len(), pages + 1, page.next);
    }
    assert_eq!(found, 18);
    assert!(
        (2..=10).contains(&pages),
        "an account's day at least in each of {pages}"
    );
}

#[tokio::test]
async fn the_newest_rows_come_first_page_by_page() {
    let (admin, _) = filled(6).await;
    let (mut times, mut found, mut cursor) = (Vec::new(), std::collections::BTreeSet::new(), String::new());
    loop {
        let page = admin.get(&format!("/v1/log/newest?limit=4{cursor}")).await;
        let rows = page["rows"].as_array().unwrap();
        assert!(rows.len() <= 4 && page["looked_at"] == json!(rows.len()), "{page}");
        times.extend(rows.iter().map(|row| row["time_ms"].as_i64().unwrap()));
        found.extend(rows.iter().map(|row| text(row, "request_id")));
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert!(times.is_sorted_by(|one, other| one >= other), "{times:?}");
    assert_eq!((times.len(), found.len()), (18, 18), "each once");
    let of_one = admin.get("/v1/log/newest?account=b&model=m-1&limit=2").await;
    let ids: Vec<String> = of_one["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| text(row, "request_id"))
        .collect();
    assert_eq!(ids, ["b5", "b3"]);
    let wrong = admin.refused(Method::GET, "/v1/log/newest?cursor=7.0..", None).await;
    assert!(
        wrong.contains("cursor: the value is not a cursor for this order"),
        "{wrong}"
    );
}

#[tokio::test]
async fn an_export_has_the_same_rows_in_each_form() {
    let (admin, _) = filled(6).await;
    let export = async |form: &str| {
        let mut bytes = Vec::new();
        let path = format!("/v1/log/export/{form}?account=b&model=m-1");
        admin.client.download_within(WAIT, &path, &mut bytes).await.unwrap();
        bytes
    };
    let lines = String::from_utf8(export("jsonl").await).unwrap();
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let found: Vec<String> = lines.iter().map(|line| text(line, "request_id")).collect();
    assert_eq!(found, ["b1", "b3", "b5"]);
    let page = admin.get("/v1/log?account=b&model=m-1").await;
    assert_eq!(page["rows"], Value::Array(lines), "as the pages have them");
    let csv = String::from_utf8(export("csv").await).unwrap();
    let ids = csv.split("\r\n").skip(1).filter_map(|line| line.split(',').nth(1));
    assert!(ids.eq(["b1", "b3", "b5"]), "{csv}");
    assert!(export("parquet").await.ends_with(b"PAR1"));
    for (path, expected) in [
        ("/v1/log/export/xml", "jsonl, csv or parquet"),
        ("/v1/log/export/csv?model=m-2", "did you mean `m-1`?"),
        ("/v1/log/export/csv?from=yesterday", "from: give a time"),
    ] {
        let error = admin
            .client
            .download_within(WAIT, path, &mut Vec::new())
            .await
            .unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[tokio::test]
async fn rows_are_chosen_by_key_model_and_time() {
    let (admin, now) = filled(6).await;
    let key = KeyId::parse("key_0000000000000001").unwrap();
    assert_eq!(ids(&admin, &format!("account=a&key={key}")).await.0.len(), 6);
    assert!(ids(&admin, "account=a&key=key_0000000000000002").await.0.is_empty());
    assert_eq!(ids(&admin, "account=a&model=m-1").await.0, ["a1", "a3", "a5"]);
    assert_eq!(
        ids(&admin, "account=a&model=m-1&status=2xx").await.0,
        ["a1", "a3", "a5"]
    );
    assert!(ids(&admin, "status=429").await.0.is_empty());
    let moment = |ms: i64| jiff::Timestamp::from_millisecond(ms).unwrap().to_string();
    let between = format!("account=a&from={}&until={}", moment(now - DAY_MS / 2), moment(now));
    assert_eq!(ids(&admin, &between).await.0, ["a4", "a5"], "until is not included");
    assert_eq!(
        ids(&admin, "account=a&hours=7").await.0,
        ["a5", "a6"],
        "by the store's clock"
    );
    assert!(ids(&admin, "until=2020-01-01").await.0.is_empty());
    assert_eq!(ids(&admin, "account=c&from=2020-01-01").await.0.len(), 6);
    for (filter, expected) in [
        ("account=nobody", "account `nobody` does not exist"),
        ("key=weir-abc", "give a key id"),
        ("from=yesterday", "from: give a time"),
        (
            "from=2020-01-01&hours=2",
            "hours: the field cannot be combined with `from`",
        ),
        ("cursor=7", "cursor:"),
        ("status=bad", "status:"),
    ] {
        let message = admin.refused(Method::GET, &format!("/v1/log?{filter}"), None).await;
        assert!(message.contains(expected), "{message}");
    }
    let empty = Fixture::new().await.get("/v1/log").await;
    assert_eq!(empty["rows"], Value::Array(vec![]));
}

#[tokio::test]
async fn the_latest_rows_of_a_key_come_first_and_are_no_others() {
    let (admin, _) = filled(9).await;
    let latest = async |query: &str| {
        let answer = admin.get(&format!("/v1/log/latest?{query}")).await;
        let rows = answer["rows"].as_array().unwrap().clone();
        rows.iter().map(|row| text(row, "request_id")).collect::<Vec<String>>()
    };
    let key = "key_0000000000000001";
    let mine = latest(&format!("account=b&key={key}&limit=4")).await;
    assert_eq!(mine, ["b9", "b8", "b7", "b6"]);
    assert_eq!(latest(&format!("account=b&key={key}")).await.len(), 9);
    assert!(latest("account=b&key=key_0000000000000000").await.is_empty());
}

#[tokio::test]
async fn the_lines_of_a_charge_are_told_on_request_where_its_prices_are_in_force() {
    let (admin, now) = filled(1).await;
    let free = Row {
        model: "m-1".into(),
        provider: "p".into(),
        price_version: "free".into(),
        parts: Vec::new(),
        ..row("a", 1, "free", now, NanoUsd::ZERO)
    };
    let change = AccountChange::Settle(Box::new(Settlement::of(free, 0)));
    let node = NodeId::generate(&mut rand::rng());
    admin
        .ledger
        .apply(&node, "a", &[Step { seq: 1, change }], 0)
        .await
        .unwrap();
    let lines = async |path: &str| {
        let answer = admin.get(path).await;
        let rows = answer["rows"].as_array().unwrap().clone();
        let of = |id: &str| {
            rows.iter()
                .find(|row| row["request_id"] == id)
                .unwrap()
                .get("price_lines")
                .cloned()
        };
        (of("free"), of("a1"))
    };
    let told = (Some(json!([])), Some(Value::Null));
    assert_eq!(lines("/v1/log?account=a&lines=true").await, told);
    assert_eq!(lines("/v1/log?account=a").await, (None, None));
    let key = "key_0000000000000001";
    assert_eq!(
        lines(&format!("/v1/log/latest?account=a&key={key}&lines=true")).await,
        told
    );
    assert_eq!(
        lines(&format!("/v1/log/latest?account=a&key={key}")).await,
        (None, None)
    );
}
