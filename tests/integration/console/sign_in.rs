//! How sessions of the console begin and end.

use super::{address, audited, code, signed_in, with_console};
use crate::harness::tab::{Tab, encoded, form};
use crate::harness::{Weir, wait_for};

#[test]
fn a_link_opens_one_session_and_looking_at_it_opens_none() {
    let weir = with_console();
    let mut tab = Tab::new(address(&weir));
    assert_eq!(tab.get("/").status, 401, "nobody is signed in");
    let code = code(&weir, "owner");
    for _ in 0..2 {
        let looked = tab.get(&format!("/open?code={code}"));
        assert_eq!((looked.status, looked.header("set-cookie")), (200, None));
    }
    let opened = tab.post("/open", &[("code", &code)]);
    assert_eq!((opened.status, opened.header("location")), (303, Some("/")));
    let cookie = opened.header("set-cookie").unwrap();
    assert!(cookie.starts_with("weir-console="), "{cookie}");
    assert!(cookie.ends_with("; Path=/; HttpOnly; SameSite=Strict"), "{cookie}");
    assert!(tab.page("/").contains("Role: owner"));

    let mut second = Tab::new(address(&weir));
    let used = second.post("/open", &[("code", &code)]);
    assert_eq!((used.status, used.header("set-cookie")), (403, None));
    assert_eq!(second.get("/").status, 401);
    let made_up = second.post("/open", &[("code", "made-up")]);
    assert_eq!(made_up.status, 403);
    let opened = audited(&weir);
    assert_eq!(opened[0]["operation"], "console.open");
    assert!(opened[0]["peer_uid"].is_u64());
    assert!(!opened[0].to_string().contains(&code), "the record opens nothing");
}

#[test]
fn a_link_is_opened_by_its_own_page_only() {
    let weir = with_console();
    let code = code(&weir, "owner");
    let tab = Tab::new(address(&weir));
    let body = encoded(&[("code", &code)]);
    let request = || tab.request("POST", "/open").body(body.as_bytes());
    for forged in [
        request(),
        request().header("origin", "http://evil.example"),
        request().header("origin", "null"),
        request()
            .header("origin", "http://weir.test")
            .header("sec-fetch-site", "cross-site"),
    ] {
        assert_eq!(tab.send(&forged).status, 403);
    }
    let genuine = request().header("sec-fetch-site", "same-origin");
    assert_eq!(tab.send(&genuine).status, 303, "the link is as good as before");
}

#[test]
fn a_stolen_cookie_is_good_for_nothing_after_the_sign_out() {
    let weir = with_console();
    let mut tab = signed_in(&weir, "owner");
    let stolen = tab.clone();
    let page = tab.page("/");
    assert_eq!(stolen.get("/").status, 200);
    let out = tab.fill(&page, "/sign-out", &[]);
    assert_eq!((out.status, out.header("location")), (303, Some("/open")));
    assert!(out.header("set-cookie").unwrap().contains("Max-Age=0"));
    assert_eq!(stolen.get("/").status, 401);
    let form = form(&page, "/sign-out");
    assert_eq!(stolen.clone().send_form(&form, &[]).status, 401);
}

#[test]
fn the_cookie_is_the_hosts_own_behind_a_proxy_with_tls() {
    let weir = super::builder("http://127.0.0.1:9")
        .set("stability.trusted_proxies", vec!["127.0.0.1".to_owned()])
        .start();
    let tab = Tab::new(address(&weir));
    let request = tab
        .request("POST", "/open")
        .header("origin", "https://weir.test")
        .header("x-forwarded-proto", "https")
        .body(encoded(&[("code", &code(&weir, "owner"))]).as_bytes());
    let opened = tab.send(&request);
    let cookie = opened.header("set-cookie").unwrap();
    assert!(cookie.starts_with("__Host-weir-console="), "{cookie}");
    assert!(
        cookie.ends_with("; Path=/; HttpOnly; SameSite=Strict; Secure"),
        "{cookie}"
    );
    // Neither is taken for the other: whoever is in between may have set the one without the prefix.
    let (_, value) = cookie.split(';').next().unwrap().split_once('=').unwrap();
    let read = |name: &str, way: &str| {
        let request = tab.request("GET", "/").header("cookie", &format!("{name}={value}"));
        tab.send(&request.header("x-forwarded-proto", way)).status
    };
    assert_eq!(read("__Host-weir-console", "https"), 200);
    assert_eq!(read("weir-console", "https"), 401);
    assert_eq!(read("__Host-weir-console", "http"), 401);
}

#[test]
fn every_answer_keeps_pages_from_being_kept_framed_or_added_to() {
    let weir = with_console();
    let tab = signed_in(&weir, "viewer");
    for (target, status) in [("/", 200), ("/keys", 200), ("/nothing", 404), ("/open?code=x", 200)] {
        let answer = tab.get(target);
        assert_eq!(answer.status, status, "{target}");
        let csp = answer.header("content-security-policy").unwrap();
        for part in [
            "default-src 'none'",
            "form-action 'self'",
            "frame-ancestors 'none'",
            "base-uri 'none'",
        ] {
            assert!(csp.contains(part), "{csp}");
        }
        assert!(!csp.contains("unsafe") && !csp.contains("script-src"), "{csp}");
        assert_eq!(answer.header("cache-control"), Some("no-store"));
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(answer.header("x-frame-options"), Some("DENY"));
        let text = answer.text();
        assert!(
            !text.contains("<script") && !text.contains("style=") && !text.contains("http-equiv"),
            "{text}"
        );
    }
    let style = tab.get("/style.css");
    assert_eq!(style.header("content-type"), Some("text/css; charset=utf-8"));
    let head = tab.send(&tab.request("HEAD", "/"));
    assert!(head.status == 200 && head.body.is_empty());
}

#[test]
fn requests_that_are_too_large_or_of_another_kind_are_refused() {
    let weir = with_console();
    let tab = signed_in(&weir, "owner");
    let large = vec![b'x'; 256 * 1024 + 1];
    let request = tab
        .request("POST", "/keys")
        .header("origin", "http://weir.test")
        .body(&large);
    assert_eq!(tab.send(&request).status, 413);
    let put = tab.send(&tab.request("PUT", "/keys"));
    assert_eq!((put.status, put.header("allow")), (405, Some("GET, POST")));
}

#[test]
fn there_is_no_console_unless_it_is_configured() {
    let weir = Weir::start("http://127.0.0.1:9");
    let said = weir.cli(&["console", "open"], &[]);
    let error = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(!said.status.success() && error.contains("[console]"), "{error}");
}

#[test]
fn attempts_are_limited_per_address() {
    let weir = with_console();
    let mut tab = Tab::new(address(&weir));
    // One comes back each six seconds.
    let refused = wait_for("the limit", || {
        let answer = tab.post("/open", &[("code", "made-up")]);
        (answer.status == 429).then_some(answer)
    });
    assert!(refused.text().contains("try again in"), "{}", refused.text());
}
