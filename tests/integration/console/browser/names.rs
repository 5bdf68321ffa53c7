//! Names that people could give, in all pages: markup, the longest there may be, and some that are read from right to left.

use serde_json::json;

use super::{DESK, PHONE, come_in, looks_well, sign_in, sign_out};
use crate::harness::browser::Browser;
use crate::harness::request::Wire;
use crate::harness::tools::skip;
use crate::harness::{RecordingProvider, Weir, wait_until};

/// The longest names: of an account, of a key, of a model, and the two parts of a tag.
const ACCOUNT_CHARS: usize = 64;
const KEY_CHARS: usize = 128;
const MODEL_CHARS: usize = 128;
const TAG_CHARS: (usize, usize) = (32, 64);

/// Three keys of an account with the longest name: the first by markup, the second the longest, the third from right to left.
fn odd_keys(weir: &Weir, account: &str) -> Vec<(String, String)> {
    weir.cli_json(&["account", "create", "--id", account, "--balance-usd", "1000"]);
    let names = [
        "<img src=x onerror=alert(1)>\"'&".to_owned(),
        "n".repeat(KEY_CHARS),
        "\u{202e}\u{5e9}\u{5dc}\u{5d5}\u{5dd} abc".to_owned(),
    ];
    let made = names.map(|name| weir.cli_json(&["key", "create", "--account", account, "--name", &name]));
    let text = |key: &serde_json::Value, field: &str| key[field].as_str().unwrap().to_owned();
    made.iter().map(|key| (text(key, "id"), text(key, "key"))).collect()
}

/// One letter more than the longest is refused.
#[track_caller]
fn nothing_is_longer(weir: &Weir, account: &str) {
    for words in [
        [
            "account",
            "create",
            "--id",
            &"a".repeat(ACCOUNT_CHARS + 1),
            "--balance-usd",
            "1",
        ],
        [
            "key",
            "create",
            "--account",
            account,
            "--name",
            &"n".repeat(KEY_CHARS + 1),
        ],
    ] {
        assert!(!weir.cli(&words, &[]).status.success(), "{words:?}");
    }
}

#[test]
fn odd_names_fit_the_pages_and_stay_text() {
    let Some(mut browser) = Browser::start() else {
        skip!("Chromium is not there: tests/run installs it");
    };
    let provider = RecordingProvider::answering(super::ANSWER);
    let (account, model) = ("a".repeat(ACCOUNT_CHARS), "m".repeat(MODEL_CHARS));
    let mut longest = toml::Table::new();
    longest.insert("name".to_owned(), model.clone().into());
    longest.insert("providers".to_owned(), vec!["anthropic"].into());
    longest.insert("price".to_owned(), Wire::Messages.model().into());
    let weir = super::super::builder(&provider.base_url())
        .set_top("model", vec![toml::Value::from(longest)])
        .start();
    let keys = odd_keys(&weir, &account);
    nothing_is_longer(&weir, &account);
    let tag = format!("{}={}", "t".repeat(TAG_CHARS.0), "v".repeat(TAG_CHARS.1));
    for (_, text) in &keys {
        let request = Wire::Messages
            .request_for(&model, text, "hi")
            .header("x-weir-tag", &tag);
        assert_eq!(weir.exchange(&request).status, 200);
    }
    wait_until("the rows", || {
        let rows = weir.cli_json(&["log", "query", "--account", &account]);
        rows.as_array().is_some_and(|rows| rows.len() == keys.len())
    });
    come_in(&mut browser, &weir, "owner");
    let address = super::super::address(&weir);
    let of_keys = keys.iter().map(|(id, _)| format!("/keys/{id}"));
    let pages = [
        "/".to_owned(),
        "/accounts".to_owned(),
        format!("/accounts/{account}"),
        "/keys".to_owned(),
        format!("/keys/new?account={account}"),
        format!("/models?search={model}"),
        format!("/models/{model}"),
        "/usage".to_owned(),
        format!("/usage?account={account}&by=key"),
        format!("/usage?account={account}&by=model"),
        format!("/usage?account={account}&by=tag"),
        format!("/log?account={account}&model={model}"),
        "/audit".to_owned(),
    ];
    for path in pages.into_iter().chain(of_keys) {
        browser.open(&format!("http://{address}{path}"));
        looks_well(&mut browser, &path);
        browser.evaluate("document.querySelectorAll('details').forEach(e => { e.open = true })");
        looks_well(&mut browser, &format!("{path}, opened"));
    }
    stays_as_it_is(&mut browser);
    let portal = format!("http://{}/portal", weir.gateway);
    for (id, text) in &keys {
        sign_in(&mut browser, &portal, text);
        assert!(browser.text("document.body.textContent").contains(id), "{id}");
        looks_well(&mut browser, &format!("the portal of {id}"));
        browser.evaluate("document.querySelectorAll('details').forEach(e => { e.open = true })");
        looks_well(&mut browser, &format!("the portal of {id}, opened"));
        if id == &keys[2].0 {
            stays_as_it_is(&mut browser);
        }
        sign_out(&mut browser);
    }
}

/// The page of the key whose name is read from right to left.
#[track_caller]
fn stays_as_it_is(browser: &mut Browser) {
    for ((width, height), theme) in [(PHONE, "dark"), (DESK, "light")] {
        browser.look(width, height, theme);
        let turned = browser.evaluate("getComputedStyle(document.querySelector('h1')).direction");
        assert_eq!(turned, json!("ltr"), "a name turns nothing around it");
    }
}
