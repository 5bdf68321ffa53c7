//! What the portal may do to a key, and how keys are found.

use http::Method;
use serde_json::{Value, json};

use super::{Fixture, text};

async fn key(admin: &Fixture, body: Value) -> String {
    text(&admin.create(body).await, "id")
}

#[tokio::test]
async fn a_limit_is_lowered_and_never_raised() {
    let admin = Fixture::new().await;
    let made = json!({ "name": "k", "account": "a", "quota_usd": "5", "rpm": 60, "expires_at": "2100-01-01" });
    let path = format!("/v1/keys/{}/lower", key(&admin, made).await);
    for (raised, field) in [
        (json!({ "quota_usd": "5.01" }), "quota_usd"),
        (json!({ "quota_usd": null }), "quota_usd"),
        (json!({ "rpm": 61 }), "rpm"),
        (json!({ "rpm": null, "quota_usd": "1" }), "rpm"),
        (json!({ "expires_at": "2100-01-02" }), "expires_at"),
        (json!({ "expires_at": null }), "expires_at"),
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
