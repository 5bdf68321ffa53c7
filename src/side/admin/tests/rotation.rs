//! A key gets a new text over the admin API.

use http::Method;
use serde_json::{Value, json};

use super::{Fixture, text};
use crate::domain::keys::{OVERLAP_MAX_SECONDS, secret::ServiceKey};

#[tokio::test]
async fn the_old_text_works_on_as_long_as_is_said_and_a_day_unless_it_is() {
    let admin = Fixture::new().await;
    let created = admin.create(json!({ "name": "laptop", "account": "a" })).await;
    let path = format!("/v1/keys/{}", text(&created, "id"));
    let is_found = async |made: &Value| {
        let key = ServiceKey::parse(&admin.prefix, &text(made, "key")).unwrap();
        admin.store.find(&key.digest()).await.unwrap().record.is_some()
    };
    let at = |verb: &str| format!("{path}/{verb}");
    let lasts = |made: &Value| {
        let until: jiff::Timestamp = text(&made["former"], "until").parse().unwrap();
        until.as_second() - crate::edges::clock::unix_seconds()
    };
    let rotated = admin.client.call(Method::POST, &at("rotate"), None).await.unwrap();
    assert!((86_000..=86_400).contains(&lasts(&rotated)), "{rotated}");
    assert_eq!(rotated["former"]["hint"], created["hint"]);
    assert!(is_found(&created).await && is_found(&rotated).await);
    let ended = admin.client.call(Method::POST, &at("end-overlap"), None).await.unwrap();
    assert!(ended["former"].is_null() && !is_found(&created).await && is_found(&rotated).await);

    let longest = json!({ "overlap_seconds": OVERLAP_MAX_SECONDS });
    let again = admin.client.call(Method::POST, &at("rotate"), Some(&longest)).await;
    let again = again.unwrap();
    assert!(lasts(&again) > 29 * 86_400, "{again}");
    for (wrong, said) in [
        (
            json!({ "overlap_seconds": OVERLAP_MAX_SECONDS + 1 }),
            "give a whole number of seconds up to 2592000 (30 days)",
        ),
        (
            json!({ "overlap_seconds": "1h" }),
            "give a whole number of seconds up to",
        ),
        (json!({ "overlap": 1 }), "the fields are id, overlap_seconds"),
    ] {
        let refused = admin.refused(Method::POST, &at("rotate"), Some(wrong)).await;
        assert!(refused.contains(said), "{refused}");
    }
    assert!(
        is_found(&rotated).await && is_found(&again).await,
        "nothing was changed"
    );
}

#[tokio::test]
async fn who_asks_again_with_the_same_seed_is_told_the_same_text() {
    let admin = Fixture::new().await;
    let seed = |digit: &str| digit.repeat(43);
    let body = json!({ "name": "n", "account": "a", "operation_id": "op_1", "seed": seed("1") });
    let first = admin.create(body.clone()).await;
    let lines = admin.audit();
    assert_eq!(admin.create(body.clone()).await["key"], first["key"]);
    assert_eq!(admin.audit(), lines, "it is made already");
    assert!(!lines.to_string().contains(&seed("1")), "a seed is in no record");
    for other in [
        json!({ "name": "n", "account": "a", "operation_id": "op_1", "seed": seed("2") }),
        json!({ "name": "n", "account": "a", "operation_id": "op_1" }),
    ] {
        let refused = admin.refused(Method::POST, "/v1/keys", Some(other)).await;
        assert!(refused.contains(first["id"].as_str().unwrap()), "{refused}");
    }
    let alone = json!({ "name": "n", "account": "a", "seed": seed("1") });
    let refused = admin.refused(Method::POST, "/v1/keys", Some(alone)).await;
    assert!(refused.contains("operation_id"), "{refused}");

    let at = format!("/v1/keys/{}/rotate", first["id"].as_str().unwrap());
    let rotate = |digit: &str| json!({ "overlap_seconds": 0, "seed": seed(digit) });
    let rotated = admin.post(&at, rotate("3")).await;
    assert_ne!(rotated["key"], first["key"]);
    let again = admin.post(&at, rotate("3")).await;
    assert_eq!(
        (&again["key"], &again["version"]),
        (&rotated["key"], &rotated["version"])
    );
    assert_ne!(admin.post(&at, rotate("4")).await["key"], rotated["key"]);
    assert!(!admin.audit().to_string().contains(&seed("3")));
}
