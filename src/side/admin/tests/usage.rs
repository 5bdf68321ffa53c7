//! Reports of daily sums, and their comparison with rows, over the reference model.

use http::Method;
use serde_json::{Value, json};

use super::Fixture;
use crate::{
    domain::{
        ledger::{AccountChange, NodeId, Settlement, Step, daily_sums::DailySums, ids::Tag},
        money::NanoUsd,
    },
    store::ledger::contract::{key_id, row},
};

const DAY_MS: i64 = 86_400_000;

/// Accounts with a row a day for three days until now, of two keys and models in turn.
async fn filled(accounts: u64) -> Fixture {
    let admin = Fixture::new().await;
    let now = admin.ledger.now_ms().await.unwrap();
    let node = NodeId::generate(&mut rand::rng());
    for account in (0..accounts).map(|number| format!("account-{number:03}")) {
        for seq in 1..=3_u8 {
            let (back, cost) = (i64::from(3 - seq) * DAY_MS, NanoUsd::from_nanos(10));
            let mut row = row(&account, 1 + seq % 2, &format!("{account}{seq}"), now - back, cost);
            (row.model, row.tags) = (format!("m-{}", seq % 2).into(), vec![Tag::parse("team=a").unwrap()]);
            let change = AccountChange::Settle(Box::new(Settlement::of(row, 0)));
            let step = Step {
                seq: u64::from(seq),
                change,
            };
            admin.ledger.apply(&node, &account, &[step], 0).await.unwrap();
        }
    }
    admin
}

fn costs(answer: &Value, by: &str) -> Vec<(String, i64)> {
    let lines = answer["usage"].as_array().unwrap().iter();
    lines
        .map(|line| {
            (
                line[by].as_str().unwrap().to_owned(),
                line["cost_nano_usd"].as_i64().unwrap(),
            )
        })
        .collect()
}

fn named(name: &str, cost: i64) -> (String, i64) {
    (name.to_owned(), cost)
}

#[tokio::test]
async fn a_report_has_the_days_that_are_asked_for() {
    let admin = filled(1).await;
    let all = admin.get("/v1/usage?account=account-000").await;
    assert_eq!(
        costs(&all, "day"),
        [
            named("2026-11-19", 10),
            named("2026-11-20", 10),
            named("2026-11-21", 10)
        ]
    );
    assert_eq!(
        (&all["from"], &all["until"]),
        (&json!("2026-10-23"), &json!("2026-11-22"))
    );
    assert_eq!((&all["total"]["requests"], &all["next"]), (&json!(3), &Value::Null));
    let some = admin
        .get("/v1/usage?account=account-000&by=model&from=2026-11-20&until=2026-11-21")
        .await;
    assert_eq!(costs(&some, "model"), [named("m-0", 10)]);
    let keys = admin.get("/v1/usage?account=account-000&by=key&model=m-1").await;
    assert_eq!(costs(&keys, "key"), [named(key_id(2).as_str(), 20)]);
    assert_eq!(keys["left_out"], 0);
    let latest = admin.get("/v1/usage?account=account-000&most=2").await;
    assert_eq!(
        costs(&latest, "day"),
        [named("2026-11-20", 10), named("2026-11-21", 10)]
    );
    assert_eq!(
        (&latest["left_out"], &latest["total"]["requests"]),
        (&json!(1), &json!(3))
    );
    let dearest = admin.get("/v1/usage?account=account-000&by=model&most=1").await;
    assert_eq!(costs(&dearest, "model"), [named("m-1", 20)]);
    let tags = admin.get("/v1/usage?account=account-000&by=tag").await;
    assert_eq!(costs(&tags, "tag"), [named("team=a", 30)]);
}

#[tokio::test]
async fn all_of_a_report_by_tag_counts_each_request_once() {
    let admin = Fixture::new().await;
    let now = admin.ledger.now_ms().await.unwrap();
    let node = NodeId::generate(&mut rand::rng());
    // One request with two tags, one with one of them, one without any; the last by another model.
    let tagged: [&[&str]; 3] = [&["team=a", "project=b"], &["team=a"], &[]];
    for (seq, (tags, cost)) in (1..).zip(tagged.into_iter().zip([100, 10, 1])) {
        let mut row = row("acme", 1, &format!("r{seq}"), now, NanoUsd::from_nanos(cost));
        row.tags = tags.iter().map(|tag| Tag::parse(tag).unwrap()).collect();
        row.model = if tags.is_empty() { "m-2" } else { "m-1" }.into();
        let change = AccountChange::Settle(Box::new(Settlement::of(row, 0)));
        admin
            .ledger
            .apply(&node, "acme", &[Step { seq, change }], 0)
            .await
            .unwrap();
    }
    for (query, lines, total) in [
        ("", vec![named("project=b", 100), named("team=a", 110)], (3, 111)),
        (
            "&model=m-1",
            vec![named("project=b", 100), named("team=a", 110)],
            (2, 110),
        ),
        ("&model=m-2", vec![], (1, 1)),
        ("&tag=team%3Da", vec![named("team=a", 110)], (2, 110)),
        ("&most=1", vec![named("team=a", 110)], (3, 111)),
    ] {
        let told = admin.get(&format!("/v1/usage?account=acme&by=tag{query}")).await;
        assert_eq!(costs(&told, "tag"), lines, "{query}");
        assert_eq!(
            (&told["total"]["requests"], &told["total"]["cost_nano_usd"]),
            (&json!(total.0), &json!(total.1)),
            "{query}"
        );
    }
}

#[tokio::test]
async fn without_an_account_all_are_told_some_at_a_time() {
    let admin = filled(70).await;
    let (mut total, mut pages, mut after) = (0, 0, String::new());
    loop {
        let page = admin.get(&format!("/v1/usage?by=model&model=m-1{after}")).await;
        total += page["total"]["requests"].as_i64().unwrap();
        pages += 1;
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    assert_eq!((total, pages), (140, 3));
}

#[tokio::test]
async fn a_question_that_cannot_be_answered_says_why() {
    let admin = filled(1).await;
    for (query, why) in [
        ("by=hour", "by: unknown value; give day, model, key or tag"),
        ("from=soon", "--from: give a date"),
        (
            "from=2026-11-20&until=2026-11-20",
            "--until: the time must be after `from`",
        ),
        ("account=none", "account `none` does not exist"),
        ("key=key_0000000000000001", "key key_0000000000000001 does not exist"),
        ("account=account-000&tag=x", "--tag: name=value"),
        ("account=account-000&tag=session%3D1", "sums are not kept for sessions"),
        ("account=account-000&tag=a%3Db&by=key", "not by both together"),
    ] {
        let refused = admin
            .client
            .call(Method::GET, &format!("/v1/usage?{query}"), None)
            .await;
        let said = refused.unwrap_err().to_string();
        assert!(said.contains(why), "{query}: {said}");
    }
}

#[tokio::test]
async fn sums_and_rows_of_a_day_are_compared_and_mended() {
    let admin = filled(1).await;
    let day = "account=account-000&day=2026-11-20";
    let same = admin.get(&format!("/v1/log/verify?{day}")).await;
    assert_eq!((&same["rows"], &same["differences"]), (&json!(1), &json!([])));
    let body = json!({ "account": "account-000", "day": "2026-11-20" });
    let mended = admin
        .client
        .call(Method::POST, "/v1/log/mend", Some(&body))
        .await
        .unwrap();
    assert_eq!(mended["mended"], true);
    assert_eq!(admin.get(&format!("/v1/log/verify?{day}")).await, same);
    let (number, nothing) = (20_777, DailySums::default());
    let is_put = admin.ledger.put_sums("account-000", number, &nothing, 1);
    assert_eq!(is_put.await, Ok(true));
    let wrong = admin.get(&format!("/v1/log/verify?{day}")).await;
    assert!(!wrong["differences"].as_array().unwrap().is_empty(), "{wrong}");
    assert_eq!((&wrong["rows"], &wrong["behind"]), (&json!(1), &json!([])));
    admin.post("/v1/log/mend", body).await;
    assert_eq!(admin.get(&format!("/v1/log/verify?{day}")).await, same);
    let audit = std::fs::read_to_string(admin.folder.path().join("audit.jsonl")).unwrap();
    assert!(audit.contains("log.mend"), "{audit}");
    let wrong = json!({ "account": "account-000", "date": "2026-11-20" });
    let refused = admin.client.call(Method::POST, "/v1/log/mend", Some(&wrong)).await;
    assert!(refused.unwrap_err().to_string().contains("`date`"));
}
