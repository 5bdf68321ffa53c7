//! The cookies of both doors over weir's own TLS, without a proxy in front of it.

use std::sync::Arc;

use crate::harness::certificates::{Authority, Kind, Offer};
use crate::harness::client::Response;
use crate::harness::tab::{HOST, Tab, encoded, form};
use crate::harness::{Request, h2c};

const HSTS: &str = "strict-transport-security";
/// What docs/console.md says.
const A_YEAR: &str = "max-age=31536000";

/// Holds that an answer sets this cookie with the prefix that binds it to its host, and nothing less. Returns its text.
#[track_caller]
fn set(answer: &Response, name: &str) -> String {
    assert_eq!(answer.status, 303, "{}", answer.text());
    let cookie = answer.header("set-cookie").unwrap();
    let (pair, attributes) = cookie.split_once(';').unwrap();
    assert_eq!(attributes, " Path=/; HttpOnly; SameSite=Strict; Secure");
    let (named, value) = pair.split_once('=').unwrap();
    assert_eq!(named, format!("__Host-{name}"));
    assert_eq!(value.len(), 43, "256 bits in letters and digits");
    value.to_owned()
}

/// Holds that the cookie is taken under its whole name alone, that forms of an unencrypted page of the same host are refused,
/// and that the sign-out takes away the cookie that was set.
#[track_caller]
fn is_bound_to_tls(tab: &mut Tab, name: &str, value: &str, page: &str, out: &str) {
    for (cookie, status) in [
        (format!("__Host-{name}={value}"), 200),
        (format!("{name}={value}"), 401),
    ] {
        let request = Request::get(page).header("cookie", &cookie);
        assert_eq!(tab.send(&request).status, status, "{cookie}");
    }
    let sent = form(&tab.page(page), out);
    let carried = encoded(&[("operation", &sent.operation), ("token", &sent.token)]);
    let foreign = tab.request("POST", out).header("origin", &format!("http://{HOST}"));
    let refused = tab.send(&foreign.body(carried.as_bytes()));
    assert_eq!(refused.status, 403, "{}", refused.text());
    let ended = tab.send_form(&sent, &[]);
    assert_eq!(
        ended.header("set-cookie"),
        Some(&*format!(
            "__Host-{name}=; Path=/; HttpOnly; SameSite=Strict; Secure; Max-Age=0"
        ))
    );
    tab.cookie = Some(format!("__Host-{name}={value}"));
    assert_eq!(tab.get(page).status, 401, "the session has ended");
}

#[test]
fn the_portals_cookie_is_bound_to_the_host_over_the_gateways_own_tls() {
    let authority = Authority::new();
    let certificate = authority.files("gateway", &[HOST], Kind::Ecdsa).setting();
    let weir = super::builder("http://127.0.0.1:9")
        .set("gateway.tls.certificate", vec![certificate])
        .start();
    let key = weir.key();
    let mut tab = Tab::with_tls(weir.gateway, authority.client(Offer::default()));
    let opened = tab.post("/portal/sign-in", &[("key", &key.text)]);
    assert_eq!(opened.header(HSTS), Some(A_YEAR));
    let value = set(&opened, "weir-portal");
    for target in ["/portal", "/portal/style.css", "/portal/nothing"] {
        assert_eq!(tab.get(target).header(HSTS), Some(A_YEAR), "{target}");
    }
    let unasked = tab.send(&Request::get("/v1/models"));
    assert_eq!(
        (unasked.status, unasked.header(HSTS)),
        (401, None),
        "programs get what they got"
    );
    let page = tab.page("/portal");
    assert!(
        page.contains(&format!("https://{HOST}/v1")),
        "the snippets lead to where it was asked: {page}"
    );
    is_bound_to_tls(&mut tab, "weir-portal", &value, "/portal", "/portal/sign-out");
    // The same over HTTP/2.
    let tls = authority.client(Offer {
        protocols: vec!["h2"],
        ..Offer::default()
    });
    let request = Request::new("POST", "/portal/sign-in")
        .header("origin", &format!("https://{HOST}"))
        .header("content-type", "application/x-www-form-urlencoded")
        .body(encoded(&[("key", &key.text)]).as_bytes());
    let opened = h2c::exchange_tls(Arc::clone(&tls), HOST, weir.gateway, &request);
    let value = set(&opened, "weir-portal");
    let request = Request::get("/portal").header("cookie", &format!("__Host-weir-portal={value}"));
    assert_eq!(h2c::exchange_tls(tls, HOST, weir.gateway, &request).status, 200);
}

#[test]
fn the_consoles_cookie_is_bound_to_the_host_over_its_own_tls() {
    let authority = Authority::new();
    let certificate = authority.files("console", &[HOST], Kind::Ecdsa).setting();
    let weir = super::builder("http://127.0.0.1:9")
        .set("console.tls.certificate", vec![certificate])
        .start();
    let link = weir.cli_json(&["console", "open"]);
    let link = link["url"].as_str().unwrap();
    let (base, code) = link.split_once("/open?code=").unwrap();
    assert_eq!(base, format!("https://{}", super::address(&weir)));
    let mut tab = Tab::with_tls(super::address(&weir), authority.client(Offer::default()));
    let opened = tab.post("/open", &[("code", code)]);
    assert_eq!(opened.header(HSTS), Some(A_YEAR));
    let value = set(&opened, "weir-console");
    for target in ["/", "/style.css", "/nothing", "/log/export/csv"] {
        assert_eq!(tab.get(target).header(HSTS), Some(A_YEAR), "{target}");
    }
    assert!(tab.page("/keys/new").contains("Create the key"));
    is_bound_to_tls(&mut tab, "weir-console", &value, "/", "/sign-out");
}

#[test]
fn without_tls_browsers_are_not_told_to_come_with_it() {
    let weir = super::with_console();
    assert_eq!(super::signed_in(&weir, "viewer").get("/").header(HSTS), None);
    assert_eq!(Tab::new(weir.gateway).get("/portal").header(HSTS), None);
}
