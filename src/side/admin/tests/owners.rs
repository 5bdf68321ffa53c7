//! What the portal may do to a key, and how keys are found.

use http::Method;
use serde_json::{Value, json};

use super::{Fixture, text};
use crate::{
    domain::{
        keys::{KeyId, change::ChangePrecondition},
        ledger::{AccountChange, NodeId, Settlement, Step, consumption::Row},
        money::NanoUsd,
    },
    store::ledger::contract::row,
};

async fn key(admin: &Fixture, body: Value) -> String {
    text(&admin.create(body).await, "id")
}

#[tokio::test]
async fn a_limit_is_lowered_and_never_raised() {
    let admin = Fixture::new().await;
    let made = json!({ "name": "k", "account": "a", "quota_usd": "5", "rpm": 60, "expires_at": "2100-01-01" });
    let path = format!("/v1/keys/{}/lower", key(&admin, made).await);
    for (raised, field) in [
        (json!({ "quota_usd": "5.01" }), "--quota-usd"),
        (json!({ "quota_usd": null }), "--quota-usd"),
        (json!({ "rpm": 61 }), "--rpm"),
        (json!({ "rpm": null, "quota_usd": "1" }), "--rpm"),
        (json!({ "expires_at": "2100-01-02" }), "--expires"),
        (json!({ "expires_at": null }), "--expires"),
        (json!({ "name": "other" }), "name"),
        (json!({ "models": null }), "models"),
        (json!({}), "nothing to change"),
    ] {
        let said = admin.refused(Method::POST, &path, Some(raised.clone())).await;
        assert!(said.contains(field), "{raised}: {said}");
    }
    let lowered = admin
        .post(
            &path,
            json!({ "quota_usd": "5", "rpm": 1, "tpm": 1000, "expires_at": "2099-01-01" }),
        )
        .await;
    assert_eq!(
        (&lowered["quota_usd"], &lowered["rpm"], &lowered["tpm"]),
        (&json!("5.00"), &json!(1), &json!(1000))
    );
    assert_eq!(lowered["expires_at"], "2099-01-01T00:00:00Z");
    assert!(admin.audit().contains("\"operation\":\"key.lower\""));
}

#[tokio::test]
async fn keys_are_found_by_what_people_know_of_them() {
    let admin = Fixture::new().await;
    for name in ["Laptop", "build server", "laptop of somebody"] {
        key(&admin, json!({ "name": name, "account": "a" })).await;
    }
    let found = async |query: &str| {
        let page = admin.get(&format!("/v1/keys?{query}")).await;
        let keys = page["keys"].as_array().unwrap().clone();
        keys.iter().map(|key| text(key, "name")).collect::<Vec<String>>()
    };
    assert_eq!(found("search=LAPTOP").await.len(), 2);
    assert_eq!(found("search=build").await, ["build server"]);
    assert_eq!(found("search=nothing").await, [""; 0]);
    let page = admin.get("/v1/keys?limit=1&search=laptop").await;
    let next = text(&page, "next");
    assert_eq!(found(&format!("limit=1&search=laptop&after={next}")).await.len(), 1);
    let all = admin.get("/v1/keys").await;
    let last = &all["keys"][1];
    assert_eq!(found(&format!("search={}", text(last, "id"))).await.len(), 1);
    assert!(!found(&format!("search={}", text(last, "hint"))).await.is_empty());
}

#[tokio::test]
async fn lists_are_paged_and_filtered_by_account() {
    let admin = Fixture::new().await;
    admin.post("/v1/accounts", json!({ "id": "even" })).await;
    for number in 0..7 {
        let account = if number % 2 == 0 { "even" } else { "a" };
        admin
            .create(json!({ "name": format!("k{number}"), "account": account }))
            .await;
    }
    let mut seen = Vec::new();
    let mut after = String::new();
    loop {
        let page = admin
            .client
            .call(Method::GET, &format!("/v1/keys?limit=2&account=even{after}"), None)
            .await
            .unwrap();
        seen.extend(page["keys"].as_array().unwrap().iter().map(|key| text(key, "account")));
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    assert_eq!(seen, ["even"; 4]);
}

#[tokio::test]
async fn an_operation_makes_one_key_however_often_it_is_asked_for() {
    let admin = Fixture::new().await;
    let body = json!({ "name": "laptop", "account": "a", "operation_id": "op_1" });
    let made = admin.create(body.clone()).await;
    assert!(made["key"].is_string() && made.get("operation_id").is_none());
    let again = admin.refused(Method::POST, "/v1/keys", Some(body.clone())).await;
    assert!(
        again.contains(&text(&made, "id")) && again.contains("rotate"),
        "{again}"
    );
    let other = json!({ "name": "laptop", "account": "a", "operation_id": "op_2" });
    assert_ne!(admin.create(other).await["id"], made["id"]);
    let listed = admin.get("/v1/keys").await;
    assert_eq!(listed["keys"].as_array().unwrap().len(), 2);
    let wrong = json!({ "name": "laptop", "account": "a", "operation_id": "with space" });
    let said = admin.refused(Method::POST, "/v1/keys", Some(wrong)).await;
    assert!(said.contains("1 to 64"), "{said}");
    assert!(admin.audit().contains("\"operation_id\":\"op_1\""));
    let id = KeyId::parse(&text(&made, "id")).unwrap();
    admin.store.delete(&id, &ChangePrecondition::Anything).await.unwrap();
    let said = admin.refused(Method::POST, "/v1/keys", Some(body)).await;
    assert!(
        said.contains("use another operation id"),
        "a deleted key comes back: {said}"
    );
}

/// Three keys: `old` and `new` end and were used one after the other, and have spent 1.5 and 2 USD; `idle` has done nothing.
async fn used() -> Fixture {
    let admin = Fixture::new().await;
    let make = async |name: &str, body: Value| {
        let mut wanted = json!({ "name": name, "account": "a" });
        wanted
            .as_object_mut()
            .unwrap()
            .extend(body.as_object().unwrap().clone());
        KeyId::parse(&key(&admin, wanted).await).unwrap()
    };
    let [old, new, _] = [
        make("old", json!({ "expires_at": "2099-01-01" })).await,
        make("new", json!({ "expires_at": "2100-01-01" })).await,
        make("idle", json!({})).await,
    ];
    let at = |text: &str| text.parse::<jiff::Timestamp>().unwrap().as_second();
    let used = [
        (old.clone(), at("2098-01-01T00:00:00Z")),
        (new.clone(), at("2098-06-01T00:00:00Z")),
    ];
    admin.store.record_uses(&used).await.unwrap();
    let now = admin.ledger.now_ms().await.unwrap();
    for (seq, id, dollars) in [(1, &old, "1.5"), (2, &new, "2")] {
        let cost = NanoUsd::parse_usd(dollars).unwrap();
        let row = Row {
            key_id: id.clone(),
            ..row("a", 1, &format!("r{seq}"), now, cost)
        };
        let change = AccountChange::Settle(Box::new(Settlement::of(row, 0)));
        let node = NodeId::generate(&mut rand::rng());
        admin
            .ledger
            .apply(&node, "a", &[Step { seq: 1, change }], 0)
            .await
            .unwrap();
    }
    admin
}

#[tokio::test]
async fn keys_are_found_by_use_expiry_and_spending() {
    let admin = used().await;
    let found = async |query: &str| {
        let page = admin.get(&format!("/v1/keys?{query}")).await;
        let mut names: Vec<String> = page["keys"]
            .as_array()
            .unwrap()
            .iter()
            .map(|key| text(key, "name"))
            .collect();
        names.sort();
        names
    };
    for (query, names) in [
        ("used_since=2098-03-01", &["new"][..]),
        ("used_since=2098-01-01", &["new", "old"]),
        ("unused_since=2098-03-01", &["idle", "old"]),
        ("unused_since=2000-01-01", &[]),
        ("expires_before=2099-06-01", &["old"]),
        ("expires_before=2100-01-01T00:00:01Z", &["new", "old"]),
        ("spent_usd=1.5", &["new", "old"]),
        ("spent_usd=1.6&account=a", &["new"]),
        ("spent_usd=2&used_since=2098-03-01&limit=1", &["new"]),
        ("spent_usd=0", &["idle", "new", "old"]),
    ] {
        assert_eq!(found(query).await, names, "{query}");
    }
    for (query, told) in [
        ("used_since=soon", "--used-since: give a time"),
        ("spent_usd=much", "--spent-usd"),
    ] {
        let said = admin.refused(Method::GET, &format!("/v1/keys?{query}"), None).await;
        assert!(said.contains(told), "{said}");
    }
    let first = admin.get("/v1/keys?spent_usd=1&limit=1").await;
    let (found_first, next) = (text(&first["keys"][0], "name"), text(&first, "next"));
    let second = admin.get(&format!("/v1/keys?spent_usd=1&limit=1&after={next}")).await;
    assert_ne!(
        text(&second["keys"][0], "name"),
        found_first,
        "the next page goes on behind it"
    );
}
