//! With the provider from npm.

use std::path::Path;

use super::{CONSOLE, begun, parameter, with_provider};
use crate::console::{audited, signed_in};
use crate::harness::browser::Browser;
use crate::harness::client::Response;
use crate::harness::openid::RealProvider;
use crate::harness::port::free_port;
use crate::harness::tab::{Tab, form};
use crate::harness::tools::skip;
use crate::harness::{Weir, WeirBuilder, wait_until};

fn provider() -> Option<RealProvider> {
    RealProvider::start(&format!("{CONSOLE}/openid/return"))
}

fn console(provider: &RealProvider, secrets: &Path) -> WeirBuilder {
    let secret = secrets.join("secret");
    std::fs::write(&secret, RealProvider::secret()).unwrap();
    with_provider(&provider.issuer())
        .set("console.openid.client_secret", format!("file:{}", secret.display()))
        .set(
            "console.openid.scopes",
            vec!["openid".to_owned(), "profile".to_owned(), "groups".to_owned()],
        )
}

/// Sends what the provider has sent the browser back with, as the page there does.
#[track_caller]
fn finish(tab: &mut Tab, query: &str) -> Response {
    let names = ["code", "state", "iss", "error"].into_iter();
    let given = names.filter(|name| query.contains(&format!("{name}=")));
    let fields: Vec<(&str, String)> = given.map(|name| (name, parameter(query, name))).collect();
    let page = tab.page(&format!("/openid/return?{query}"));
    for (name, value) in &fields {
        assert!(page.contains(&format!("name=\"{name}\" value=\"{value}\"")), "{page}");
    }
    let fields: Vec<(&str, &str)> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
    tab.post("/openid/return", &fields)
}

/// Signs in as `account`.
#[track_caller]
fn sign_in(weir: &Weir, provider: &RealProvider, account: &str) -> (Tab, Response) {
    let (mut tab, to) = begun(weir);
    let query = provider.sign_in(&to, account);
    let answer = finish(&mut tab, &query);
    (tab, answer)
}

#[test]
fn groups_decide_what_a_person_may_and_the_record_says_who() {
    let Some(provider) = provider() else {
        skip!("Node or tests/openid/node_modules is not there: tests/run makes them");
    };
    let secrets = tempfile::tempdir().unwrap();
    let weir = console(&provider, secrets.path()).start();
    let (mut ada, answer) = sign_in(&weir, &provider, "ada");
    assert_eq!(
        (answer.status, answer.header("location")),
        (303, Some("/")),
        "{}",
        answer.text()
    );
    let page = ada.page("/accounts");
    assert!(page.contains("Name of ada") && page.contains("Role: owner"), "{page}");
    let made = ada.fill(&page, "/accounts", &[("id", "acme"), ("balance_usd", "5")]);
    assert_eq!(made.status, 303, "{}", made.text());
    let record = audited(&weir);
    let by = |line: &serde_json::Value| {
        (
            line["peer_subject"].clone(),
            line["peer_name"].clone(),
            line["via"].clone(),
        )
    };
    let ada_did = ("ada".into(), "Name of ada".into(), "console".into());
    assert_eq!(
        (&record[0]["operation"], by(&record[0])),
        (&"console.sign_in".into(), ada_did.clone())
    );
    assert_eq!(
        (&record[1]["operation"], by(&record[1])),
        (&"account.create".into(), ada_did)
    );
    assert!(ada.page("/audit").contains("Name of ada (ada), console"));

    let (mut bob, answer) = sign_in(&weir, &provider, "bob");
    assert_eq!(answer.status, 303, "{}", answer.text());
    let page = bob.page("/accounts");
    assert!(page.contains("Role: viewer"), "{page}");
    let refused = bob.fill(&page, "/accounts", &[("id", "other")]);
    assert_eq!(refused.status, 403, "{}", refused.text());

    let (eve, answer) = sign_in(&weir, &provider, "eve");
    let told = answer.text();
    assert_eq!(answer.status, 403, "{told}");
    assert!(
        told.contains("weir-owners") && told.contains("weir-viewers") && told.contains("Name of eve"),
        "{told}"
    );
    assert_eq!(eve.get("/").status, 401);
    let (_, answer) = sign_in(&weir, &provider, "nobody");
    let told = answer.text();
    assert!(answer.status == 403 && told.contains("has refused"), "{told}");
}

#[test]
fn what_was_used_once_opens_nothing_again() {
    let Some(provider) = provider() else {
        skip!("Node or tests/openid/node_modules is not there: tests/run makes them");
    };
    let secrets = tempfile::tempdir().unwrap();
    let weir = console(&provider, secrets.path()).start();
    let (mut tab, to) = begun(&weir);
    let query = provider.sign_in(&to, "ada");
    let before = tab.clone();
    assert_eq!(finish(&mut tab, &query).status, 303);
    let again = finish(&mut before.clone(), &query);
    assert_eq!(
        (again.status, again.text().contains("Start again")),
        (403, true),
        "{}",
        again.text()
    );
    // Its code in a sign-in that is under way.
    let (mut other, to) = begun(&weir);
    let mixed = format!(
        "state={}&iss={}&code={}",
        parameter(&to, "state"),
        parameter(&query, "iss"),
        parameter(&query, "code")
    );
    let refused = finish(&mut other, &mixed);
    assert_eq!(refused.status, 403, "{}", refused.text());
    assert!(
        refused.text().contains("no longer accepts this sign-in"),
        "{}",
        refused.text()
    );
    // One that was never used, in another browser: the provider holds it to the verifier of the first one.
    let (_, to) = begun(&weir);
    let stolen = provider.sign_in(&to, "ada");
    let (mut thief, to) = begun(&weir);
    let mixed = format!(
        "state={}&iss={}&code={}",
        parameter(&to, "state"),
        parameter(&stolen, "iss"),
        parameter(&stolen, "code")
    );
    assert_eq!(finish(&mut thief, &mixed).status, 403);

    let (stolen, page) = (tab.clone(), tab.page("/"));
    let out = tab.fill(&page, "/sign-out", &[]);
    assert_eq!(out.status, 200, "{}", out.text());
    assert!(
        out.text()
            .contains("/session/end?client_id=weir&amp;post_logout_redirect_uri="),
        "{}",
        out.text()
    );
    assert_eq!((stolen.get("/").status, tab.get("/").status), (401, 401));
    assert_eq!(stolen.clone().send_form(&form(&page, "/sign-out"), &[]).status, 401);
}

#[test]
fn a_provider_may_change_its_keys_and_may_be_away() {
    let Some(mut provider) = provider() else {
        skip!("Node or tests/openid/node_modules is not there: tests/run makes them");
    };
    let secrets = tempfile::tempdir().unwrap();
    let weir = console(&provider, secrets.path()).start();
    assert_eq!(sign_in(&weir, &provider, "ada").1.status, 303);
    provider.start_anew();
    let (tab, answer) = sign_in(&weir, &provider, "ada");
    assert_eq!(answer.status, 303, "{}", answer.text());
    provider.end();
    assert_eq!(tab.get("/").status, 200, "who is signed in stays so");
    assert_eq!(
        signed_in(&weir, "viewer").get("/").status,
        200,
        "a link opens the console"
    );
}

#[test]
fn a_person_signs_in_in_a_browser_although_the_provider_is_another_site() {
    let Some(mut browser) = Browser::start() else {
        skip!("Chromium is not there: tests/run installs it");
    };
    let url = format!("http://127.0.0.1:{}", free_port());
    let Some(provider) = RealProvider::start(&format!("{url}/openid/return")) else {
        skip!("Node or tests/openid/node_modules is not there: tests/run makes them");
    };
    let secrets = tempfile::tempdir().unwrap();
    let listen = url.strip_prefix("http://").unwrap();
    let builder = console(&provider, secrets.path()).set("console.url", url.as_str());
    let _weir = builder.set("console.listen", listen).start();
    browser.open(&url);
    browser.evaluate("document.querySelector('form button').click()");
    wait_until("the provider asks who it is", || {
        browser.evaluate("document.title") == "Who are you?"
    });
    browser.leave_by("document.querySelector('a').click()");
    assert_eq!(
        browser.text("document.URL").split('?').next(),
        Some(&*format!("{url}/openid/return"))
    );
    browser.leave_by("document.querySelector('form button').click()");
    assert_eq!(browser.text("document.querySelector('h1').innerText"), "Overview");
    let who = browser.text("document.querySelector('.who').innerText");
    assert!(who.contains("Name of ada") && who.contains("Role: owner"), "{who}");
    browser.leave_by("document.querySelector('.who button').click()");
    assert_eq!(browser.text("document.querySelector('h1').innerText"), "Signed out");
    let policy = browser.complaints();
    assert!(
        !policy
            .iter()
            .any(|complaint| complaint.contains("Content Security Policy")),
        "{policy:?}"
    );
}
