//! Mistakes that are well-formed: names that nobody has, limits that limit nothing.

use http::Method;
use serde_json::json;

use super::{Fixture, text};

#[tokio::test]
async fn a_key_is_for_models_there_are_by_their_public_names() {
    let admin = Fixture::new().await;
    let made = admin
        .create(json!({ "name": "n", "account": "a", "models": ["m-1", "alias"] }))
        .await;
    assert_eq!(made["models"], json!(["m-1", "m-1"]));
    let id = text(&made, "id");
    for (model, hint) in [("m-2", "did you mean `m-1`?"), ("zzz", "`weir models`")] {
        let body = json!({ "name": "n", "account": "a", "models": [model] });
        let told = admin.refused(Method::POST, "/v1/keys", Some(body)).await;
        assert!(told.contains(hint), "{told}");
        let path = format!("/v1/keys/{id}");
        let told = admin
            .refused(Method::PATCH, &path, Some(json!({ "models": [model] })))
            .await;
        assert!(told.contains(hint), "{told}");
    }
}

#[tokio::test]
async fn a_reset_needs_a_quota() {
    let admin = Fixture::new().await;
    let body = json!({ "name": "n", "account": "a", "reset": "daily" });
    let told = admin.refused(Method::POST, "/v1/keys", Some(body)).await;
    assert!(told.contains("--reset:"), "{told}");
    let made = admin.create(json!({ "name": "n", "account": "a" })).await;
    let path = format!("/v1/keys/{}", text(&made, "id"));
    let reset = json!({ "reset": "weekly" });
    assert!(
        admin
            .refused(Method::PATCH, &path, Some(reset.clone()))
            .await
            .contains("quota")
    );
    let both = json!({ "reset": "weekly", "quota_usd": "1" });
    admin.client.call(Method::PATCH, &path, Some(&both)).await.unwrap();
    admin.client.call(Method::PATCH, &path, Some(&reset)).await.unwrap();
}

#[tokio::test]
async fn a_date_ends_a_key_at_its_first_moment() {
    let admin = Fixture::new().await;
    let body = json!({ "name": "n", "account": "a", "expires_at": "2090-01-31" });
    assert_eq!(admin.create(body).await["expires_at"], "2090-01-31T00:00:00Z");
}

#[tokio::test]
async fn a_query_for_nobody_or_for_no_time_is_told_so() {
    let admin = Fixture::new().await;
    let told = admin.refused(Method::GET, "/v1/keys?account=nobody", None).await;
    assert!(told.contains("weir account create --id nobody"), "{told}");
    let told = admin
        .refused(Method::GET, "/v1/log?from=2026-02-01&until=2026-01-01", None)
        .await;
    assert!(told.contains("must be after `from`"), "{told}");
    assert_eq!(admin.get("/v1/log?model=m-1").await["unknown_model"], json!(null));
    let unknown = admin.get("/v1/log?model=m-2").await["unknown_model"].clone();
    assert!(unknown.as_str().unwrap().contains("did you mean `m-1`?"));
}

#[tokio::test]
async fn a_name_that_nobody_could_see_is_refused() {
    let admin = Fixture::new().await;
    let wanted = "name: give 1 to 128 characters, one of them visible";
    for name in [
        " ",
        "\u{a0}\u{3000}",
        "\u{200b}",
        "\u{feff}\u{2060}",
        "\u{202e} \u{202c}",
        "\u{3164}",
        "\u{e0020}",
    ] {
        let body = json!({ "name": name, "account": "a" });
        let message = admin.refused(Method::POST, "/v1/keys", Some(body)).await;
        assert!(message.contains(wanted), "{name:?}: {message}");
    }
    for name in ["-", "\u{202e}\u{5e9}\u{5dc} x", "\u{2764}\u{fe0f}", "a\u{200d}b"] {
        let made = admin.create(json!({ "name": name, "account": "a" })).await;
        assert_eq!(made["name"], name, "{name:?} is seen");
        let path = format!("/v1/keys/{}", made["id"].as_str().unwrap());
        let body = json!({ "name": "\u{200b}" });
        let message = admin.refused(Method::PATCH, &path, Some(body)).await;
        assert!(message.contains(wanted), "{message}");
    }
}

#[tokio::test]
async fn a_query_that_cannot_be_read_says_which_part_and_what_it_should_be() {
    let admin = Fixture::new().await;
    for (path, said) in [
        ("/v1/audit?before=soon", "before: `soon` is not a whole number"),
        ("/v1/audit?before=-1", "before: `-1` is not a whole number"),
        ("/v1/keys?limit=", "limit: `` is not a whole number"),
        ("/v1/log?hours=5000000000", "hours: `5000000000` is too large"),
        ("/v1/log?lines=yes", "lines: `yes` is neither true nor false"),
        ("/v1/keys?limit=1&limit=2", "limit: the field is given twice"),
        ("/v1/keys?serach=x", "`serach` is unknown: did you mean `search`?"),
        ("/v1/accounts?x=1", "`x` is unknown: the fields are after, limit"),
        ("/v1/log/verify?account=a", "day: the field is missing"),
        ("/v1/log/export/jsonl?hours=x", "hours: `x` is not a whole number"),
    ] {
        let message = admin.refused(Method::GET, path, None).await;
        assert!(message.contains(said), "{path}: {message}");
    }
    let path = "/v1/keys?limit=5&search=%C3%A9+x";
    assert_eq!(admin.get(path).await["keys"], json!([]), "{path}");
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused_in_the_form_of_the_api() {
    const LIMIT: usize = 64 * 1024;
    let admin = Fixture::new().await;
    let of_size = |bytes: usize| json!({ "id": "a".repeat(bytes - json!({ "id": "" }).to_string().len()) });
    let largest = admin.refused(Method::POST, "/v1/accounts", Some(of_size(LIMIT))).await;
    assert!(!largest.contains("65536 bytes"), "{largest}");
    let larger = admin
        .refused(Method::POST, "/v1/accounts", Some(of_size(LIMIT + 1)))
        .await;
    assert!(
        larger.contains("the body is larger than the maximum of 65536 bytes"),
        "{larger}"
    );
}
