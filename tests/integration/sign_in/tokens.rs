//! The endpoints for programs, and what their tokens are good for.

use super::*;
use crate::harness::redis::RedisServer;
use crate::harness::{wait_for, wait_until};

#[test]
fn the_discovery_document_names_what_is_there() {
    let (_provider, weir) = served();
    let request = Request::new("GET", "/.well-known/oauth-authorization-server");
    let found = json(&weir.exchange(&request));
    let base = found["issuer"].as_str().unwrap();
    for (member, path) in [
        ("device_authorization_endpoint", "/oauth/device_authorization"),
        ("token_endpoint", "/oauth/token"),
        ("revocation_endpoint", "/oauth/revoke"),
    ] {
        assert_eq!(found[member], format!("{base}{path}"), "{found}");
    }
    assert_eq!(
        found["grant_types_supported"],
        serde_json::json!([DEVICE_GRANT, "refresh_token"])
    );
    let begun = begin(&weir);
    assert_eq!((&begun["expires_in"], &begun["interval"]), (&600.into(), &5.into()));
    assert_eq!(begun["user_code"].as_str().unwrap().len(), 9, "{begun}");
}

#[test]
fn a_token_stands_for_its_key_in_each_protocol_and_is_no_key_itself() {
    let (provider, weir) = served();
    let key = weir.key();
    let begun = begin(&weir);
    assert_eq!(redeem(&weir, &begun).1["error"], "authorization_pending");
    let (status, told) = redeem(&weir, &begun);
    assert_eq!((status, &told["error"]), (400, &"slow_down".into()), "{told}");
    let tokens = sign_in(&weir, &key);
    for wire in crate::harness::request::ALL_WIRES {
        let answer = weir.exchange(&wire.request(&tokens.access, "hi"));
        assert_eq!(answer.status, 200, "{wire:?}: {}", answer.text());
        let forwarded = format!("{:?}", provider.last());
        assert!(!forwarded.contains(&tokens.access), "{forwarded}");
    }
    let line = wait_for("the line of the request", || {
        weir.access_lines()
            .into_iter()
            .find(|line| line["operation"] == "messages")
    });
    assert_eq!(line["key_id"], key.id.as_str());
    let usage: Json = serde_json::from_slice(&get(&weir, "/web/v1/me", &tokens.access).body).unwrap();
    assert_eq!(usage["data"]["id"], key.id.as_str(), "{usage}");
    // Whoever has it does what agents do, and nothing that the key's owner does.
    let mut tab = Tab::new(weir.gateway);
    assert_eq!(tab.post("/portal/sign-in", &[("key", &tokens.access)]).status, 403);
    let stored = stored(&weir);
    for secret in [&tokens.access, &tokens.refresh] {
        let end = secret.rsplit('-').next().unwrap();
        assert!(!stored.contains(end), "only digests are on disk");
    }
}

/// All that lies in the folder of a gateway, as text.
fn stored(weir: &Weir) -> String {
    let (mut folders, mut all) = (vec![weir.folder().to_owned()], String::new());
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.is_file() {
                all += &String::from_utf8_lossy(&std::fs::read(path).unwrap());
            }
        }
    }
    all
}

#[test]
fn refused_requests_are_answered_as_the_standards_say() {
    let (_provider, weir) = served();
    let key = weir.key();
    let used = sign_in(&weir, &key);
    let refused = |fields: &[(&str, &str)], expected: &str| {
        let (status, told) = send(&weir, "/oauth/token", fields);
        assert_eq!((status, &told["error"]), (400, &expected.into()), "{fields:?}: {told}");
        assert!(told["error_description"].is_string(), "{told}");
    };
    let never = format!("BCDFGHJK-{}", "x".repeat(43));
    refused(&[], "invalid_request");
    refused(&[("grant_type", "")], "invalid_request");
    refused(
        &[("grant_type", "password"), ("username", "x")],
        "unsupported_grant_type",
    );
    refused(&[("grant_type", DEVICE_GRANT)], "invalid_request");
    refused(&[("grant_type", DEVICE_GRANT), ("device_code", "x")], "invalid_grant");
    refused(
        &[("grant_type", DEVICE_GRANT), ("device_code", &never)],
        "invalid_grant",
    );
    refused(&[("grant_type", "refresh_token")], "invalid_request");
    refused(
        &[("grant_type", "refresh_token"), ("refresh_token", "x")],
        "invalid_grant",
    );
    refused(
        &[("grant_type", "refresh_token"), ("refresh_token", &used.access)],
        "invalid_grant",
    );
    refused(
        &[
            ("grant_type", DEVICE_GRANT),
            ("grant_type", DEVICE_GRANT),
            ("device_code", &never),
        ],
        "invalid_request",
    );
    let many: Vec<String> = (0..33).map(|number| format!("p{number}")).collect();
    refused(
        &many.iter().map(|name| (name.as_str(), "1")).collect::<Vec<_>>(),
        "invalid_request",
    );
    let (status, told) = send(&weir, "/oauth/revoke", &[]);
    assert_eq!((status, &told["error"]), (400, &"invalid_request".into()), "{told}");
    let typed = Request::post("/oauth/token").json(r#"{"grant_type":"refresh_token"}"#);
    let typed = weir.exchange(&typed);
    assert_eq!((typed.status, &json(&typed)["error"]), (400, &"invalid_request".into()));
    for (method, target, allow) in [
        ("GET", "/oauth/token", "POST"),
        ("GET", "/oauth/revoke", "POST"),
        ("GET", "/oauth/device_authorization", "POST"),
        ("POST", "/.well-known/oauth-authorization-server", "GET, HEAD"),
    ] {
        let answer = weir.exchange(&Request::new(method, target));
        assert_eq!((answer.status, answer.header("allow")), (405, Some(allow)), "{target}");
    }
    let large = vec![("grant_type", DEVICE_GRANT), ("x", "y")];
    let large = form("/oauth/token", &large).body(&vec![b'x'; 8 * 1024 + 1]);
    assert_eq!(weir.exchange(&large).status, 413);
}

#[test]
fn beginnings_are_limited_by_address_and_in_number() {
    let provider = RecordingProvider::answering(ANSWER);
    let weir = builder(&provider.base_url()).set("sign_in.codes_max", 2).start();
    begin(&weir);
    begin(&weir);
    let target = "/oauth/device_authorization";
    for _ in 2..10 {
        let (status, told) = send(&weir, target, &[("surface", "claude_code")]);
        assert_eq!((status, &told["error"]), (429, &"slow_down".into()), "{told}");
        assert!(
            told["error_description"].as_str().unwrap().contains("too many agents"),
            "{told}"
        );
    }
    let limited = weir.exchange(&form(target, &[("surface", "claude_code")]));
    assert!(limited.status == 429 && limited.header("retry-after").is_some());
    assert!(limited.text().contains("from this address"), "{}", limited.text());
}

#[test]
fn a_refresh_replaces_both_tokens_and_a_sign_out_ends_them() {
    let (_provider, weir) = served();
    let key = weir.key();
    let first = sign_in(&weir, &key);
    let second = tokens(&refresh(&weir, &first.refresh));
    assert!(second.access != first.access && second.refresh != first.refresh);
    let repeated = tokens(&refresh(&weir, &first.refresh));
    assert_eq!(repeated.refresh, second.refresh, "an answer may have been lost");
    assert_eq!(
        (ask(&weir, &first.access).status, ask(&weir, &second.access).status),
        (200, 200)
    );
    let other = sign_in(&weir, &key);
    assert_eq!(send(&weir, "/oauth/revoke", &[("token", &second.access)]).0, 200);
    for ended in [&first, &second, &repeated] {
        let answer = refused(&weir, &ended.access);
        assert_eq!((answer.status, answer.header("x-should-retry")), (401, Some("false")));
        assert_eq!(refresh(&weir, &ended.refresh), refresh(&weir, "x"));
    }
    let hinted = [("token", second.refresh.as_str()), ("token_type_hint", "refresh_token")];
    assert_eq!(
        send(&weir, "/oauth/revoke", &hinted).0,
        200,
        "what has ended may be ended again"
    );
    assert_eq!(ask(&weir, &other.access).status, 200, "the other agent goes on");
    assert_eq!(send(&weir, "/oauth/revoke", &[("token", &other.refresh)]).0, 200);
    refused(&weir, &other.access);
}

/// The refusal of a token that has ended, once the node has heard of that.
#[track_caller]
fn refused(weir: &Weir, token: &str) -> Response {
    wait_for("the token to be refused", || {
        Some(ask(weir, token)).filter(|answer| answer.status == 401)
    })
}

#[test]
fn a_key_that_is_revoked_or_rotated_takes_its_tokens_with_it() {
    let (_provider, weir) = served();
    for how in ["revoke", "rotate", "delete"] {
        let key = weir.key();
        let tokens = sign_in(&weir, &key);
        let waiting = begin(&weir);
        assert_eq!(decide(&mut owner(&weir, &key), &waiting, "approve").status, 200);
        assert_eq!(ask(&weir, &tokens.access).status, 200);
        match how {
            "rotate" => weir.cli_json(&["key", how, &key.id, "--overlap", "0"]),
            _ => weir.cli_json(&["key", how, &key.id]),
        };
        refused(&weir, &tokens.access);
        assert_eq!(refresh(&weir, &tokens.refresh).1["error"], "invalid_grant", "{how}");
        assert_eq!(redeem(&weir, &waiting).1["error"], "access_denied", "{how}");
    }
}

#[test]
fn a_token_has_its_keys_limits_and_tells_what_is_spent() {
    let (_provider, weir) = served();
    let key = weir.key_with(&["--quota-usd", "0.00001", "--reset", "monthly"]);
    let tokens = sign_in(&weir, &key);
    let report = || json(&get(&weir, "/api/oauth/usage", &tokens.access));
    assert_eq!(
        (&report()["extra_usage"]["utilization"], &report()["limits"][0]["group"]),
        (&0.into(), &"monthly".into())
    );
    wait_until("the quota to be spent", || ask(&weir, &tokens.access).status == 429);
    let refused = ask(&weir, &tokens.access);
    assert_eq!(refused.header("x-should-retry"), Some("false"));
    let spent = wait_for("all of it to be settled", || {
        let told = report();
        (told["extra_usage"]["utilization"].as_u64() >= Some(100)).then_some(told)
    });
    assert_eq!(spent["limits"][0]["severity"], "critical", "{spent}");
    let stranger = get(&weir, "/api/oauth/usage", "nonsense");
    assert_eq!(
        (stranger.status, stranger.header("x-should-retry")),
        (401, Some("false"))
    );
    let posted = weir.exchange(&form("/api/oauth/usage", &[]));
    assert_eq!((posted.status, posted.header("allow")), (405, Some("GET, HEAD")));
}

#[test]
fn the_operators_settings_are_given_to_who_is_signed_in() {
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("settings.json");
    std::fs::write(&file, r#"{"env": {"B": "2", "A": "1"}}"#).unwrap();
    let weir = builder("http://127.0.0.1:9")
        .set("sign_in.managed_settings", file.to_str().unwrap())
        .start();
    let tokens = sign_in(&weir, &weir.key());
    let first = get(&weir, "/managed/settings", &tokens.access);
    let told = json(&first);
    assert_eq!(told["settings"], serde_json::json!({"env": {"A": "1", "B": "2"}}));
    let etag = first.header("etag").unwrap();
    let again = Request::new("GET", "/managed/settings")
        .header("authorization", &format!("Bearer {}", tokens.access))
        .header("if-none-match", etag);
    let again = weir.exchange(&again);
    assert!(again.status == 304 && again.body.is_empty(), "{}", again.text());
    assert_eq!(get(&weir, "/managed/settings", "nonsense").status, 401);
    let (_provider, without) = served();
    let tokens = sign_in(&without, &without.key());
    let none = get(&without, "/managed/settings", &tokens.access);
    assert_eq!(
        (none.status, &json(&none)["error"]["type"]),
        (404, &"not_found_error".into())
    );
}

#[test]
fn nodes_share_what_they_know_of_agents() {
    let Some(redis) = RedisServer::start() else {
        crate::harness::tools::skip!("redis-server is not there");
    };
    let provider = RecordingProvider::answering(ANSWER);
    let node = || builder(&provider.base_url()).redis(&redis).start();
    let (one, two) = (node(), node());
    let key = one.key();
    let begun = begin(&one);
    assert_eq!(decide(&mut owner(&two, &key), &begun, "approve").status, 200);
    let first = tokens(&redeem(&two, &begun));
    assert_eq!(
        (ask(&one, &first.access).status, ask(&two, &first.access).status),
        (200, 200)
    );
    let second = tokens(&refresh(&one, &first.refresh));
    assert_eq!(ask(&two, &second.access).status, 200);
    assert_eq!(send(&one, "/oauth/revoke", &[("token", &second.access)]).0, 200);
    refused(&two, &second.access);
    refused(&two, &first.access);
}
