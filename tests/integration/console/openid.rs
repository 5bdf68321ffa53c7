//! Operators sign in by OpenID Connect: with a real provider, and with one that says what it must not.

mod made_up;
mod people;
mod real;

use std::sync::atomic::{AtomicU8, Ordering};

use percent_encoding::percent_decode_str;
use toml::Table;

use super::{address, builder};
use crate::harness::tab::Tab;
use crate::harness::{Weir, WeirBuilder};

/// Where browsers reach the console of these tests.
const CONSOLE: &str = "http://weir.test";

/// A console with a provider whose members of these groups may come in.
fn with_provider(issuer: &str) -> WeirBuilder {
    let mut roles = Table::new();
    roles.insert("weir-owners".to_owned(), "owner".into());
    roles.insert("weir-viewers".to_owned(), "viewer".into());
    builder("http://127.0.0.1:9")
        .set("console.url", CONSOLE)
        .set("stability.trusted_proxies", vec!["127.0.0.1".to_owned()])
        .set("console.openid.issuer", issuer)
        .set("console.openid.client_id", "weir")
        .set("console.openid.roles", roles)
}

/// A tab that has begun to sign in, and where it is sent.
#[track_caller]
fn begun(weir: &Weir) -> (Tab, String) {
    static BROWSERS: AtomicU8 = AtomicU8::new(0);
    let mut tab = Tab::new(address(weir));
    // Attempts are limited by address.
    tab.speaks_for = Some(format!("192.0.2.{}", BROWSERS.fetch_add(1, Ordering::Relaxed)));
    let answer = tab.post("/openid", &[]);
    assert_eq!(answer.status, 200, "{}", answer.text());
    let cookie = answer.header("set-cookie").unwrap();
    assert!(
        cookie.starts_with("weir-openid=") && cookie.ends_with("; HttpOnly; SameSite=Strict"),
        "{cookie}"
    );
    let to = answer.header("refresh").unwrap().strip_prefix("0; url=").unwrap();
    (tab, to.to_owned())
}

/// A parameter of a query or an address with one.
#[track_caller]
fn parameter(query: &str, name: &str) -> String {
    let pairs = query.rsplit('?').next().unwrap().split('&');
    let found = pairs
        .filter_map(|pair| pair.split_once('='))
        .find(|(known, _)| *known == name);
    let (_, value) = found.unwrap_or_else(|| panic!("no {name} in {query}"));
    percent_decode_str(&value.replace('+', " "))
        .decode_utf8()
        .unwrap()
        .into_owned()
}
