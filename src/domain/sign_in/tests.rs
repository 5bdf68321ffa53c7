//! Tests of the sign-in of agents.

mod sign_ins;

use super::*;

#[test]
fn an_endpoint_has_tls_or_is_on_this_machine() {
    let endpoint = SecureUrl::parse("https://login.example/a/b?c=d").unwrap();
    assert_eq!(
        (endpoint.host.as_str(), endpoint.port, endpoint.https),
        ("login.example", 443, true)
    );
    assert_eq!(
        (endpoint.path.as_str(), endpoint.origin().as_str()),
        ("/a/b?c=d", "https://login.example")
    );
    assert_eq!(endpoint.with_query("?e=f"), "https://login.example/a/b?c=d&e=f");
    let here = SecureUrl::parse("http://[::1]:9000/x").unwrap();
    assert_eq!(
        (here.host.as_str(), here.port, here.authority.as_str()),
        ("::1", 9000, "[::1]:9000")
    );
    assert_eq!(here.with_query("?e=f"), "http://[::1]:9000/x?e=f");
    assert_eq!(here.origin(), "http://[::1]:9000");
    for wrong in [
        "",
        "/x",
        "http://login.example/",
        "http://127.0.0.1.example/",
        "ftp://127.0.0.1/",
        "https://a@login.example/",
        "javascript:alert(1)",
    ] {
        assert_eq!(SecureUrl::parse(wrong), None, "{wrong}");
    }
}

fn settings(text: &str) -> ManagedSettings {
    ManagedSettings::new(&serde_json::from_str(text).unwrap())
}

#[test]
fn the_checksum_is_that_of_the_sorted_text() {
    let some = settings(r#"{"b": {"d": [1, {"z": 1, "a": 2}], "c": "x"}, "a": true}"#);
    assert_eq!(some, settings(r#"{"a":true,"b":{"c":"x","d":[1,{"a":2,"z":1}]}}"#));
    let told: Value = serde_json::from_str(&some.body).unwrap();
    assert_eq!(told["settings"]["b"]["c"], "x");
    assert_eq!(some.etag, format!("\"{}\"", told["checksum"].as_str().unwrap()));
    let uuid = told["uuid"].as_str().unwrap();
    assert_eq!((uuid.len(), uuid.as_bytes()[14]), (36, b'8'), "{uuid}");
    // What Claude Code sends while it has none: the checksum of `{}`.
    let empty = "\"sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a\"";
    assert_eq!(settings("{}").etag, empty);
    assert!(settings("{}").is_known(empty) && !some.is_known(empty));
    assert!(some.is_known(&format!("{empty}, {}", some.etag)));
}
