//! Changes over the admin API that are made from a version of a key or an account.

use http::Method;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
};

use super::{Fixture, text};
use crate::{cli::admin_client::AdminClientError, domain::Version};

/// A whole answer, its head apart from its JSON.
async fn answer(admin: &Fixture, line: &str, condition: &str, body: &str) -> (String, Value) {
    let socket = admin.folder.path().join("admin.sock");
    let mut stream = UnixStream::connect(socket).await.unwrap();
    let length = body.len();
    let request = format!(
        "{line} HTTP/1.1\r\nhost: weir\r\nconnection: close\r\ncontent-type: application/json\r\n{condition}content-length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), serde_json::from_str(body).unwrap())
}

#[tokio::test]
async fn a_change_from_an_old_version_is_412_and_tells_the_present_one() {
    let admin = Fixture::new().await;
    let made = admin.create(json!({ "name": "laptop", "account": "a" })).await;
    let (id, old) = (text(&made, "id"), text(&made, "version"));
    let path = format!("/v1/keys/{id}");
    let (head, shown) = answer(&admin, &format!("GET {path}"), "", "").await;
    assert_eq!(text(&shown, "version"), old);
    assert!(head.contains(&format!("\r\netag: \"{old}\"\r\n")), "{head}");
    assert_eq!(admin.get("/v1/keys").await["keys"][0]["version"], old.as_str());

    let changed = admin
        .client
        .call(Method::PATCH, &path, Some(&json!({ "rpm": 60 })))
        .await
        .unwrap();
    let now = text(&changed, "version");
    assert_ne!(now, old);
    let lines = || admin.audit().lines().count();
    let before = lines();
    let condition = format!("if-match: \"{old}\"\r\n");
    for (line, body) in [
        (format!("PATCH {path}"), json!({ "tpm": 1000 })),
        (format!("POST {path}/lower"), json!({ "rpm": 10 })),
        (format!("POST {path}/rotate"), json!({})),
        (format!("POST {path}/revoke"), json!({})),
        (format!("DELETE {path}"), json!({})),
    ] {
        let (head, refused) = answer(&admin, &line, &condition, &body.to_string()).await;
        assert!(head.starts_with("HTTP/1.1 412 "), "{line}: {head}");
        let message = format!(
            "nothing was changed, because key {id} now has version {now} and not version {old}; `weir key show {id}` prints the current values"
        );
        let error = json!({ "error": { "code": "changed", "message": message, "version": now } });
        assert_eq!(refused, error, "{line}");
    }
    assert_eq!(lines(), before, "what is not made is not recorded");
    // No overlap is there to end, and the limit is so already: neither is a change.
    for (line, body) in [
        (format!("POST {path}/end-overlap"), json!({})),
        (format!("PATCH {path}"), json!({ "rpm": 60 })),
    ] {
        let (head, shown) = answer(&admin, &line, &condition, &body.to_string()).await;
        assert!(head.starts_with("HTTP/1.1 200 "), "{line}: {head}");
        assert_eq!(text(&shown, "version"), now);
    }
    for condition in ["if-match: *\r\n", &format!("if-match: \"{now}\"\r\n")] {
        let (head, _) = answer(&admin, &format!("PATCH {path}"), condition, r#"{"rpm":60}"#).await;
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    }
    let (head, refused) = answer(&admin, &format!("PATCH {path}"), "if-match: 17\r\n", r#"{"rpm":61}"#).await;
    assert!(head.starts_with("HTTP/1.1 400 "), "{head}");
    assert!(
        text(&refused["error"], "message").starts_with("If-Match must be one version"),
        "{refused}"
    );
}

#[tokio::test]
async fn the_command_line_makes_a_change_from_a_version() {
    let admin = Fixture::new().await;
    let made = admin.create(json!({ "name": "laptop", "account": "a" })).await;
    let path = format!("/v1/keys/{}", text(&made, "id"));
    let change = async |version: &str, limit: u64| {
        let version = Some(version.parse().unwrap());
        let body = json!({ "rpm": limit });
        admin.client.call_if(version, Method::PATCH, &path, Some(&body)).await
    };
    let old = text(&made, "version");
    let first = change(&old, 60).await.unwrap();
    match change(&old, 30).await {
        Err(AdminClientError::Refused(message)) => assert!(message.contains(&text(&first, "version")), "{message}"),
        other => panic!("expected a refusal, got {other:?}"),
    }
    assert_eq!(change(&text(&first, "version"), 30).await.unwrap()["rpm"], 30);
    let now = admin.get(&path).await;
    let gone = json!({ "id": now["id"], "deleted": true });
    for version in [text(&now, "version"), old] {
        let version = Some(version.parse().unwrap());
        let deleted = admin.client.call_if(version, Method::DELETE, &path, None).await;
        assert_eq!(deleted.unwrap(), gone, "a key that is deleted already is deleted");
    }
}

#[tokio::test]
async fn a_change_of_another_version_is_refused_before_it_is_recorded() {
    let admin = Fixture::new().await;
    let version = |account: &Value| account["version"].as_str().unwrap().parse::<Version>().unwrap();
    let first = version(&admin.get("/v1/accounts/a").await);
    let change = async |condition, limits: Value| {
        let client = &admin.client;
        client
            .call_if(condition, Method::PATCH, "/v1/accounts/a", Some(&limits))
            .await
    };
    let changed = change(Some(first), json!({ "rpm": 5 })).await.unwrap();
    let second = version(&changed);
    assert_ne!(second, first);
    let listed = admin.get("/v1/accounts").await;
    assert_eq!(version(&listed["accounts"][0]), second);
    let audit = admin.audit();
    let journal = admin.changes.journal().len();
    let refused = change(Some(first), json!({ "rpm": 6 })).await.unwrap_err().to_string();
    assert!(
        refused.contains(&format!("now has version {second} and not version {first}"))
            && refused.contains("nothing was changed"),
        "{refused}"
    );
    assert_eq!((admin.audit(), admin.changes.journal().len()), (audit, journal));
    // A credit makes no other version, and what is so already is no change.
    admin.post("/v1/accounts/a/credit", json!({ "usd": "5" })).await;
    assert_eq!(
        version(&change(Some(first), json!({ "rpm": 5 })).await.unwrap()),
        second
    );
    let third = change(Some(second), json!({ "tpm": 6 })).await.unwrap();
    assert_eq!((&third["rpm"], &third["tpm"]), (&json!(5), &json!(6)));
}
