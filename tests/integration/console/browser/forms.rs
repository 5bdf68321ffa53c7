//! What both doors show before and after a form: links, keys that were just made, refusals, results, decisions.

use super::{DESK, fill, has_status, looks_well, sign_in, sign_out};
use crate::harness::Weir;
use crate::harness::browser::Browser;
use crate::harness::request::Wire;
use crate::harness::tools::skip;

/// Holds that the page has this status and says why.
#[track_caller]
fn is_refused(browser: &mut Browser, status: u16) {
    has_status(browser, status);
    let alerts = browser.evaluate("document.querySelectorAll('[role=alert]').length");
    assert!(alerts.as_u64().unwrap() >= 1, "the page says why");
}

#[test]
fn links_made_keys_refusals_and_results_look_well() {
    let Some(mut browser) = Browser::start() else {
        skip!("Chromium is not there: tests/run installs it");
    };
    let weir = super::super::with_console();
    weir.fund();
    let console = format!("http://{}", super::super::address(&weir));
    browser.look(DESK.0, DESK.1, "light");
    let link = format!("{console}/open?code={}", super::super::code(&weir, "operator"));
    browser.open(&link);
    looks_well(&mut browser, "a link");
    fill(&mut browser, "/open", &[]);
    assert_eq!(browser.text("document.querySelector('h1').innerText"), "Overview");

    browser.open(&format!("{console}/keys/new"));
    fill(
        &mut browser,
        "/keys",
        &[("name", "laptop"), ("account", "tests"), ("quota_usd", "much")],
    );
    is_refused(&mut browser, 400);
    assert_eq!(browser.text("document.querySelector('[name=name]').value"), "laptop");
    looks_well(&mut browser, "a form that is refused");
    fill(&mut browser, "/keys", &[("quota_usd", "5")]);
    looks_well(&mut browser, "a key that was made");
    let first = browser.text("document.querySelector('code.key').innerText");

    browser.leave_by("[...document.querySelectorAll('main a')].find(a => a.innerText.includes('page')).click()");
    let action = browser
        .text("[...document.forms].map(form => form.getAttribute('action')).find(one => one.endsWith('/rotate'))");
    fill(&mut browser, &action, &[]);
    looks_well(&mut browser, "a key that was rotated");
    let second = browser.text("document.querySelector('code.key').innerText");
    assert_ne!(first, second);

    let body = String::from_utf8(Wire::Messages.request("k", "hi").body).unwrap();
    browser.open(&format!("{console}/rules"));
    fill(&mut browser, "/rules", &[("provider", "anthropic"), ("request", &body)]);
    looks_well(&mut browser, "what rules do");
    assert!(
        browser
            .text("document.querySelector('main').innerText")
            .contains("messages for model")
    );
    super::view(&mut browser, "console-rules");
    browser.open(&format!("{console}/rules"));
    fill(
        &mut browser,
        "/rules",
        &[("provider", "anthropic"), ("request", "no json")],
    );
    is_refused(&mut browser, 400);
    looks_well(&mut browser, "a request that is none");

    browser.open(&link);
    fill(&mut browser, "/open", &[]);
    is_refused(&mut browser, 403);
    looks_well(&mut browser, "a link that was used");
}

#[test]
fn the_pages_on_which_an_owner_decides_look_well() {
    let Some(mut browser) = Browser::start() else {
        skip!("Chromium is not there: tests/run installs it");
    };
    let weir = super::super::builder("http://127.0.0.1:9")
        .set("sign_in.enabled", true)
        .start();
    let key = weir.key();
    browser.look(DESK.0, DESK.1, "light");
    let portal = format!("http://{}/portal", weir.gateway);
    sign_in(&mut browser, &portal, &key.text);
    approves_an_agent(&mut browser, &weir);
    browser.open(&portal);
    looks_well(&mut browser, "a portal with an agent");
    fill(&mut browser, "/portal/rotate", &[]);
    looks_well(&mut browser, "an owner's new key");
    browser.open(&portal);
    fill(&mut browser, "/portal/lower", &[("quota_usd", "much")]);
    is_refused(&mut browser, 400);
    looks_well(&mut browser, "limits that are refused");
    sign_out(&mut browser);
    fill(&mut browser, "/portal/sign-in", &[("key", "weir-nonsense")]);
    is_refused(&mut browser, 403);
    looks_well(&mut browser, "a key that opens nothing");
}

/// Approves the code of an agent; the page says what is approved.
#[track_caller]
fn approves_an_agent(browser: &mut Browser, weir: &Weir) {
    let begun = crate::sign_in::begin(weir);
    let code = begun["user_code"].as_str().unwrap();
    browser.open(&format!("http://{}/portal/device?user_code={code}", weir.gateway));
    assert_eq!(browser.text("document.querySelector('p.compare').innerText"), code);
    looks_well(browser, "a decision");
    fill(browser, "/portal/device", &[]);
    assert_eq!(browser.text("document.querySelector('h1').innerText"), "Approved");
    looks_well(browser, "a decision that was made");
    assert_eq!(crate::sign_in::redeem(weir, &begun).0, 200);
    let none = format!("http://{}/portal/device?user_code=BBBB-BBBB", weir.gateway);
    browser.open(&none);
    is_refused(browser, 404);
    looks_well(browser, "a code that nobody waits with");
}
