//! People come to the portal by the provider, without a key: each has one, and agents are signed in with it.

use std::sync::atomic::{AtomicU8, Ordering};

use super::parameter;
use crate::harness::client::Response;
use crate::harness::openid::RealProvider;
use crate::harness::redis::RedisServer;
use crate::harness::request::Wire;
use crate::harness::tab::Tab;
use crate::harness::tools::skip;
use crate::harness::{RecordingProvider, Weir, WeirBuilder, wait_until};

/// What browsers call the gateway here.
const GATEWAY: &str = "http://weir.test";

fn provider() -> Option<RealProvider> {
    RealProvider::start(&format!("{GATEWAY}/portal/openid/return"))
}

/// A gateway whose portal knows the provider. Its members of these groups get a key.
fn served(provider: &RealProvider, models: &RecordingProvider, redis: Option<&RedisServer>) -> Weir {
    let mut roles = toml::Table::new();
    roles.insert("weir-owners".to_owned(), "owner".into());
    let builder = WeirBuilder::new()
        .all_providers(&models.base_url())
        .set("console.listen", "127.0.0.1:0")
        .set("console.openid.issuer", provider.issuer())
        .set("console.openid.client_id", "weir")
        .set("console.openid.client_secret", "env:WEIR_TEST_CLIENT")
        .variable("WEIR_TEST_CLIENT", RealProvider::secret())
        .set(
            "console.openid.scopes",
            vec!["openid".to_owned(), "profile".to_owned(), "groups".to_owned()],
        )
        .set("console.openid.roles", roles)
        .set("stability.trusted_proxies", vec!["127.0.0.1".to_owned()])
        .set("sign_in.enabled", true)
        .set("sign_in.template.account", "tests")
        .set("sign_in.template.quota_usd", "7")
        .set("sign_in.template.reset", "monthly")
        .set("sign_in.template.concurrency", 3)
        .set(
            "sign_in.template.groups",
            vec!["weir-owners".to_owned(), "weir-viewers".to_owned()],
        );
    match redis {
        Some(redis) => builder.redis(redis).start(),
        None => builder.start(),
    }
}

/// A tab that has been at the provider as `account`, and what it came back with.
#[track_caller]
fn back(weir: &Weir, provider: &RealProvider, account: &str, entered: &[(&str, &str)]) -> (Tab, String) {
    static BROWSERS: AtomicU8 = AtomicU8::new(0);
    let mut tab = Tab::new(weir.gateway);
    // Attempts are limited by address.
    tab.speaks_for = Some(format!("192.0.2.{}", BROWSERS.fetch_add(1, Ordering::Relaxed)));
    let answer = tab.post("/portal/openid", entered);
    assert_eq!(answer.status, 200, "{}", answer.text());
    let to = answer.header("refresh").unwrap().strip_prefix("0; url=").unwrap();
    let query = provider.sign_in(to, account);
    (tab, query)
}

/// Sends what the provider has sent the browser back with, as the page there does.
fn finish(tab: &mut Tab, query: &str) -> Response {
    let names = ["code", "state", "iss", "error"].into_iter();
    let given = names.filter(|name| query.contains(&format!("{name}=")));
    let fields: Vec<(&str, String)> = given.map(|name| (name, parameter(query, name))).collect();
    assert_eq!(tab.get(&format!("/portal/openid/return?{query}")).status, 200);
    let fields: Vec<(&str, &str)> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
    tab.post("/portal/openid/return", &fields)
}

fn keys(weir: &Weir) -> Vec<serde_json::Value> {
    let output = weir.cli(&["key", "list"], &["--json"]);
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_person_gets_one_key_and_approves_agents_with_it() {
    let Some(provider) = provider() else {
        skip!("Node or tests/openid/node_modules is not there: tests/run makes them");
    };
    let models = RecordingProvider::least();
    let weir = served(&provider, &models, None);
    weir.fund();
    assert!(
        Tab::new(weir.gateway)
            .get("/portal")
            .text()
            .contains("Sign in with localhost")
    );
    let begun = crate::sign_in::begin(&weir);
    let code = begun["user_code"].as_str().unwrap();
    let (mut ada, query) = back(&weir, &provider, "ada", &[("user_code", code)]);
    let copy = ada.clone();
    let answer = finish(&mut ada, &query);
    assert_eq!(answer.status, 303, "{}", answer.text());
    assert_eq!(
        answer.header("location"),
        Some(&*format!("/portal/device?user_code={code}"))
    );
    assert_eq!(finish(&mut copy.clone(), &query).status, 403, "once");
    let made = keys(&weir);
    let [key] = &made[..] else { panic!("one key: {made:?}") };
    assert_eq!(
        (&key["name"], &key["quota_usd"], &key["reset"], &key["concurrency"]),
        (&"Name of ada".into(), &"7.00".into(), &"monthly".into(), &3.into())
    );
    let page = ada.page(&format!("/portal/device?user_code={code}"));
    let decided = ada.fill(&page, "/portal/device", &[("user_code", code), ("decision", "approve")]);
    assert_eq!(decided.status, 200, "{}", decided.text());
    let (status, tokens) = crate::sign_in::redeem(&weir, &begun);
    assert_eq!(status, 200, "{tokens}");
    let token = tokens["access_token"].as_str().unwrap();
    assert_eq!(weir.exchange(&Wire::Messages.request(token, "hi")).status, 200);
    let record = std::fs::read_to_string(weir.folder().join("audit.jsonl")).unwrap();
    let line = record.lines().find(|line| line.contains("key.create")).unwrap();
    assert!(
        line.contains("\"peer_subject\":\"ada\"") && line.contains("Name of ada"),
        "{line}"
    );

    // Their key is revoked: nobody makes them another one.
    weir.cli_json(&["key", "revoke", key["id"].as_str().unwrap()]);
    wait_until("the agent to be refused", || {
        weir.exchange(&Wire::Messages.request(token, "hi")).status == 401
    });
    let (mut late, query) = back(&weir, &provider, "ada", &[]);
    let refused = finish(&mut late, &query);
    assert!(
        refused.status == 403 && refused.text().contains("was revoked"),
        "{}",
        refused.text()
    );
    assert_eq!(keys(&weir).len(), 1);
}

#[test]
fn a_person_has_the_same_key_each_time_and_who_is_in_no_group_has_none() {
    let Some(provider) = provider() else {
        skip!("Node or tests/openid/node_modules is not there: tests/run makes them");
    };
    let models = RecordingProvider::least();
    let weir = served(&provider, &models, None);
    weir.fund();
    for _ in 0..2 {
        let (mut ada, query) = back(&weir, &provider, "ada", &[]);
        let answer = finish(&mut ada, &query);
        assert_eq!((answer.status, answer.header("location")), (303, Some("/portal")));
        assert_eq!(keys(&weir).len(), 1);
    }
    let (mut bob, query) = back(&weir, &provider, "bob", &[]);
    assert_eq!(finish(&mut bob, &query).status, 303);
    assert_eq!(keys(&weir).len(), 2);
    let (mut eve, query) = back(&weir, &provider, "eve", &[]);
    let refused = finish(&mut eve, &query);
    assert!(
        refused.status == 403
            && refused.text().contains("none of the groups")
            && refused.text().contains("weir-viewers"),
        "{}",
        refused.text()
    );
    assert_eq!(keys(&weir).len(), 2);

    // A key that was deleted is made anew, and works.
    let second = keys(&weir)
        .into_iter()
        .find(|one| one["name"] == "Name of bob")
        .unwrap();
    weir.cli_json(&["key", "delete", second["id"].as_str().unwrap()]);
    let (mut bob, query) = back(&weir, &provider, "bob", &[]);
    assert_eq!(finish(&mut bob, &query).status, 303);
    let page = bob.page("/portal");
    assert!(page.contains(second["id"].as_str().unwrap()), "{page}");
    let rotated = crate::console::shown_key(&bob.fill(&page, "/portal/rotate", &[]).text());
    assert_eq!(weir.exchange(&Wire::Messages.request(&rotated, "hi")).status, 200);
}

#[test]
fn two_who_sign_in_at_the_same_time_at_two_nodes_have_one_key() {
    let Some(redis) = RedisServer::start() else {
        skip!("redis-server is not there: tests/run installs it");
    };
    let Some(provider) = provider() else {
        skip!("Node or tests/openid/node_modules is not there: tests/run makes them");
    };
    let models = RecordingProvider::least();
    let [one, other] = [(); 2].map(|()| served(&provider, &models, Some(&redis)));
    one.fund();
    let browsers: Vec<(Tab, String)> = [&one, &other, &one, &other]
        .into_iter()
        .map(|weir| back(weir, &provider, "bob", &[]))
        .collect();
    let answers: Vec<u16> = std::thread::scope(|scope| {
        let sent: Vec<_> = browsers
            .into_iter()
            .map(|(mut tab, query)| scope.spawn(move || finish(&mut tab, &query).status))
            .collect();
        sent.into_iter().map(|sent| sent.join().unwrap()).collect()
    });
    assert_eq!(answers, [303; 4]);
    assert_eq!(keys(&one).len(), 1);
}
