//! Providers and their models, sessions, and the audit record.

use http::Method;
use serde_json::{Value, json};

use super::Fixture;

#[tokio::test]
async fn models_are_listed() {
    let admin = Fixture::new().await;
    let answer = admin.client.call(Method::GET, "/v1/models", None).await.unwrap();
    assert_eq!(answer["models"][0]["name"], "m-1");
    assert_eq!(answer["models"][0]["prices"]["p"]["version"], "free");
}

#[tokio::test]
async fn providers_are_switched_and_the_record_says_so() {
    let admin = Fixture::new().await;
    let call = async |verb: &str| {
        let path = format!("/v1/providers/p/{verb}");
        admin.client.call(Method::POST, &path, None).await.unwrap()["changed"].clone()
    };
    assert_eq!(
        (call("disable").await, call("disable").await),
        (json!(true), json!(false))
    );
    let listed = admin.client.call(Method::GET, "/v1/providers", None).await.unwrap();
    assert_eq!(listed["providers"][0]["enabled"], false);
    assert_eq!(call("enable").await, json!(true));
    let audit = std::fs::read_to_string(admin.folder.path().join("audit.jsonl")).unwrap();
    assert_eq!(audit.matches("provider.disable").count(), 2, "{audit}");
    let unknown = admin.refused(Method::POST, "/v1/providers/q/disable", None).await;
    assert!(unknown.contains("the providers are p"), "{unknown}");
    let off = admin.refused(Method::POST, "/v1/providers/off/enable", None).await;
    assert!(off.contains("its secret env:X is absent"), "{off}");
}

#[tokio::test]
async fn a_link_into_the_console_is_asked_for_with_a_role_that_there_is() {
    let admin = Fixture::new().await;
    let wrong = admin
        .refused(Method::POST, "/v1/console/links", Some(json!({ "role": "root" })))
        .await;
    assert!(wrong.contains("role: ") && wrong.contains("`viewer`"), "{wrong}");
    let off = admin.refused(Method::POST, "/v1/console/links", None).await;
    assert!(off.contains("the console is off"), "{off}");
    assert_eq!(admin.audit(), "", "a refused link leaves no record");
}

#[tokio::test]
async fn the_audit_record_is_read_as_it_was_written() {
    let admin = Fixture::new().await;
    admin.post("/v1/accounts/a/suspend", json!({})).await;
    let path = admin.folder.path().join("audit.jsonl");
    let written = admin.audit();
    std::fs::write(&path, format!("{written}half a line\n")).unwrap();
    let page = admin.get("/v1/audit").await;
    assert_eq!(page["changes"][0], "half a line");
    assert_eq!(page["changes"][1].to_string(), written.trim_end(), "field for field");
    assert_eq!(page["changes"][1]["operation"], "account.suspend");
    assert_eq!((&page["changes"][2], &page["next"]), (&Value::Null, &Value::Null));
}

#[tokio::test]
async fn questions_without_fields_take_none() {
    let admin = Fixture::new().await;
    let refused = admin.refused(Method::GET, "/v1/models?x=1", None).await;
    assert_eq!(refused, "field `x` is unknown: no fields are expected");
}
