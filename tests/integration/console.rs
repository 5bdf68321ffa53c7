//! The operators' console over its own listener: who comes in, what is refused, and what each page shows and changes.

mod alerts;
mod browser;
mod exports;
mod forms;
mod many;
mod openid;
mod pages;
mod portal;
mod proxies;
mod races;
mod sessions;
mod sign_in;
mod snippets;
mod tls;
mod viewers;

use std::net::SocketAddr;

use serde_json::Value as Json;

use crate::harness::tab::Tab;
use crate::harness::{Weir, WeirBuilder};

/// A gateway with the console.
fn with_console() -> Weir {
    builder("http://127.0.0.1:9").start()
}

fn builder(provider: &str) -> WeirBuilder {
    WeirBuilder::new()
        .all_providers(provider)
        .set("console.listen", "127.0.0.1:0")
}

/// Where the console listens.
fn address(weir: &Weir) -> SocketAddr {
    let ready = std::fs::read_to_string(weir.folder().join("ready.json")).unwrap();
    let ready: Json = serde_json::from_str(&ready).unwrap();
    ready["console"].as_str().unwrap().parse().unwrap()
}

/// The code of a fresh link.
fn code(weir: &Weir, role: &str) -> String {
    let link = weir.cli_json(&["console", "open", "--role", role]);
    assert_eq!(link["good_for_seconds"], 60);
    let url = link["url"].as_str().unwrap();
    let (_, code) = url.split_once("/open?code=").unwrap_or_else(|| panic!("{url}"));
    code.to_owned()
}

/// A tab with a session.
fn signed_in(weir: &Weir, role: &str) -> Tab {
    let mut tab = Tab::new(address(weir));
    let answer = tab.post("/open", &[("code", &code(weir, role))]);
    assert_eq!(answer.status, 303, "{}", answer.text());
    tab
}

/// The changes in the audit record.
fn audited(weir: &Weir) -> Vec<Json> {
    let text = std::fs::read_to_string(weir.folder().join("audit.jsonl")).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The text of a key on the page that shows it once.
#[track_caller]
fn shown_key(page: &str) -> String {
    let (_, rest) = page
        .split_once("<code class=\"key\">")
        .unwrap_or_else(|| panic!("no key in {page}"));
    rest.split('<').next().unwrap().to_owned()
}
