//! The consumption log, over the reference model.

use http::Method;
use serde_json::{Value, json};

use super::{Fixture, text};
use crate::{
    domain::{
        keys::key::KeyId,
        ledger::{Change, NodeId, Settlement, Step},
        money::NanoUsd,
    },
    store::ledger::contract::row,
};

const DAY_MS: i64 = 86_400_000;

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
            row.model = format!("m-{}", seq % 2);
            let settlement = Settlement {
                request: row.request_id.clone(),
                key: row.key_id.clone(),
                at_ms: row.admitted_ms,
                tokens_estimated: 0,
                tokens_used: 0,
                cost: NanoUsd::from_nanos(3),
                row: Some(row),
            };
            let change = Change::Settle(Box::new(settlement));
            admin
                .ledger
                .apply(&node, account, &[Step { seq, change }])
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
async fn rows_come_by_account_and_day_whatever_the_size_of_a_page() {
    let (admin, now) = filled(6).await;
    let expected: Vec<String> = ["a", "b", "c"]
        .into_iter()
        .flat_map(|account| (1..=6).map(move |seq| format!("{account}{seq}")))
        .collect();
    for limit in [1, 4, 100] {
        let (all, _) = ids(&admin, &format!("limit={limit}")).await;
        assert_eq!(all, expected, "limit {limit}");
    }
    let page = admin
        .get(&format!("/v1/log?account=b&limit=1&since={}", day_before(now)))
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
async fn a_request_does_a_bounded_amount_of_work() {
    let (admin, _) = filled(1).await;
    // Three accounts with 181 days each, of which all but three are empty.
    let (all, calls) = ids(&admin, "limit=1000").await;
    assert_eq!((&*all, calls), (&["a1", "b1", "c1"].map(str::to_owned)[..], 1));
    // And seven more, which are as old and have none: what is left is for a second request.
    let node = NodeId::generate(&mut rand::rng());
    for number in 0..7 {
        let (name, change) = (format!("idle{number}"), Change::Suspend);
        assert_eq!(
            admin.ledger.apply(&node, &name, &[Step { seq: 1, change }]).await,
            Ok(1)
        );
    }
    let (all, calls) = ids(&admin, "limit=1000").await;
    assert_eq!((all.len(), calls), (3, 2));
    let page = admin.get("/v1/log").await;
    assert_eq!(
        page["rows"].as_array().map(Vec::len),
        Some(3),
        "the first page has what there is: {page}"
    );
}

#[tokio::test]
async fn days_before_an_account_was_made_are_not_looked_at() {
    let (admin, now) = filled(6).await;
    let node = NodeId::generate(&mut rand::rng());
    for account in ["a", "b", "c", "d"] {
        let change = Change::Open {
            balance: NanoUsd::ZERO,
            at: now / 1000,
            operation: None,
        };
        admin
            .ledger
            .apply(&node, account, &[Step { seq: 1, change }])
            .await
            .unwrap();
    }
    // A row of the day before is there although the account was made after it.
    let (all, _) = ids(&admin, &format!("account=a&since={}", day_before(now))).await;
    assert!(all.contains(&"a2".to_owned()), "{all:?}");
}

#[tokio::test]
async fn rows_are_chosen_by_key_model_and_time() {
    let (admin, now) = filled(6).await;
    let key = KeyId::parse("key_0000000000000001").unwrap();
    assert_eq!(ids(&admin, &format!("account=a&key={key}")).await.0.len(), 6);
    assert!(ids(&admin, "account=a&key=key_0000000000000002").await.0.is_empty());
    assert_eq!(ids(&admin, "account=a&model=m-1").await.0, ["a1", "a3", "a5"]);
    let moment = |ms: i64| jiff::Timestamp::from_millisecond(ms).unwrap().to_string();
    let between = format!("account=a&since={}&until={}", moment(now - DAY_MS / 2), moment(now));
    assert_eq!(ids(&admin, &between).await.0, ["a4", "a5"], "until is not included");
    assert_eq!(
        ids(&admin, "account=a&hours=7").await.0,
        ["a5", "a6"],
        "by the store's clock"
    );
    assert!(ids(&admin, "until=2020-01-01").await.0.is_empty());
    assert_eq!(ids(&admin, "account=c&since=2020-01-01").await.0.len(), 6);
    for (filter, expected) in [
        ("account=nobody", "there is no account"),
        ("key=weir-abc", "a key id is"),
        ("since=yesterday", "since: a time"),
        ("since=2020-01-01&hours=2", "hours: not beside since"),
        ("cursor=7", "cursor:"),
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
