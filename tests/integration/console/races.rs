//! Changes of one key that meet: an operator's is never undone, and no old text outlives a rotation.

use std::sync::Barrier;
use std::thread;

use serde_json::{Value as Json, json};

use super::{address as console_address, audited, builder, shown_key, signed_in};
use crate::harness::redis::RedisServer;
use crate::harness::tab::{Form, Tab, form};
use crate::harness::tools::{rounds, skip};
use crate::harness::{Weir, WeirBuilder};

/// How many requests an operator makes before the change, at most: rounds that differ in it meet at different moments.
const READS_MAX: usize = 12;

fn node() -> WeirBuilder {
    // Sign-ins and pages are limited by address.
    builder("http://127.0.0.1:9").set("stability.trusted_proxies", vec!["127.0.0.1"])
}

/// Runs a race at one node with the embedded store.
fn on_one_node(race: impl Fn(&Weir, &Weir, usize)) {
    let weir = node().start();
    race(&weir, &weir, rounds(20, 600));
}

/// Runs a race at two nodes of one Redis; false without a Redis.
fn on_two_nodes(race: impl Fn(&Weir, &Weir, usize)) -> bool {
    let Some(redis) = RedisServer::start() else {
        return false;
    };
    let (one, other) = (node().redis(&redis).start(), node().redis(&redis).start());
    race(&one, &other, rounds(20, 200));
    true
}

/// A call of the admin API that has to succeed.
#[track_caller]
fn admin(weir: &Weir, method: &str, path: &str, body: &Json) -> Json {
    let (status, answer) = weir.admin(method, path, &body.to_string());
    assert!((200..300).contains(&status), "{method} {path}: {status} {answer}");
    answer
}

/// An operator's call, after a number of others.
fn later(weir: &Weir, round: usize, (method, path, body): (&str, &str, &Json)) -> Json {
    for _ in 0..round % READS_MAX {
        weir.admin("GET", "/v1/models", "");
    }
    admin(weir, method, path, body)
}

/// Another browser at the portal.
fn owner(weir: &Weir, key: &str, round: usize) -> Tab {
    let mut tab = Tab::new(weir.gateway);
    tab.speaks_for = Some(address(round));
    let answer = tab.post("/portal/sign-in", &[("key", key)]);
    assert_eq!(answer.status, 303, "{}", answer.text());
    tab
}

fn address(round: usize) -> String {
    format!("198.18.{}.{}", round / 250, round % 250)
}

/// The operator sets a limit to 30, the owner lowers it from 60 to 50: 30 holds, whichever comes first.
fn lowering(one: &Weir, other: &Weir, rounds: usize) {
    let key = one.key_with(&["--rpm", "60"]);
    let path = format!("/v1/keys/{}", key.id);
    let mut tab = owner(other, &key.text, rounds);
    let (mut undone, mut lowered) = (0, 0);
    for round in 0..rounds {
        tab.speaks_for = Some(address(round));
        admin(one, "PATCH", &path, &json!({ "rpm": 60 }));
        let lower = form(&tab.page("/portal"), "/portal/lower");
        let start = Barrier::new(2);
        let status = thread::scope(|scope| {
            let sent = scope.spawn(|| {
                start.wait();
                tab.send_form(&lower, &[("was.rpm", "60"), ("rpm", "50")]).status
            });
            start.wait();
            later(one, round, ("PATCH", &path, &json!({ "rpm": 30 })));
            sent.join().unwrap()
        });
        assert!([303, 400].contains(&status), "{status}");
        lowered += usize::from(status == 303);
        undone += usize::from(admin(one, "GET", &path, &json!({}))["rpm"] != 30);
    }
    assert_eq!(undone, 0, "undone in {undone} of {rounds} rounds, lowered in {lowered}");
}

/// The operator rotates a key whose text has leaked, and so does who has that text: the operator's text is the one that works.
fn rotating(one: &Weir, other: &Weir, rounds: usize) {
    one.fund();
    let (mut lost, mut rotated) = (0, 0);
    for round in 0..rounds {
        let made = admin(
            one,
            "POST",
            "/v1/keys",
            &json!({ "name": "leaked", "account": "tests" }),
        );
        let path = format!("/v1/keys/{}", made["id"].as_str().unwrap());
        let mut thief = owner(other, made["key"].as_str().unwrap(), round);
        let rotate = form(&thief.page("/portal"), "/portal/rotate");
        let start = Barrier::new(2);
        let (answer, ours) = thread::scope(|scope| {
            let sent = scope.spawn(|| {
                start.wait();
                thief.send_form(&rotate, &[("overlap_seconds", "0")])
            });
            start.wait();
            let at_once = json!({ "overlap_seconds": 0 });
            let ours = later(one, round, ("POST", &format!("{path}/rotate"), &at_once));
            (sent.join().unwrap(), ours)
        });
        assert!([200, 401, 403].contains(&answer.status), "{}", answer.text());
        if answer.status == 200 {
            assert_ne!(shown_key(&answer.text()), ours["key"].as_str().unwrap());
            rotated += 1;
        }
        lost += usize::from(admin(one, "GET", &path, &json!({}))["hint"] != ours["hint"]);
    }
    assert_eq!(
        lost, 0,
        "lost in {lost} of {rounds} rounds, the other rotated in {rotated}"
    );
}

/// A form that makes a key, and one that rotates it, are sent twice at the same time, by way of two nodes: both answers show the one
/// text that the key has.
fn repeating(one: &Weir, other: &Weir, rounds: usize) {
    one.fund();
    let tab = signed_in(one, "operator");
    let twice = |form: &Form, entered: &[(&str, &str)]| -> Vec<String> {
        let start = Barrier::new(2);
        thread::scope(|scope| {
            let send = |weir: &Weir| {
                let mut tab = tab.at(console_address(weir));
                let start = &start;
                scope.spawn(move || {
                    start.wait();
                    let answer = tab.send_form(form, entered);
                    if answer.status == 200 {
                        shown_key(&answer.text())
                    } else {
                        String::new()
                    }
                })
            };
            let sent = [send(one), send(other)];
            sent.map(|sent| sent.join().unwrap()).into()
        })
    };
    let mut lost = 0;
    for round in 0..rounds {
        let name = format!("twice-{round}");
        let new = form(&tab.page("/keys/new"), "/keys");
        let texts = twice(&new, &[("name", &name), ("account", "tests")]);
        let found = admin(one, "GET", &format!("/v1/keys?search={name}&account=tests"), &json!({}));
        let found: Vec<&Json> = found["keys"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|key| key["name"] == *name)
            .collect();
        assert_eq!(found.len(), 1, "one key is made: {found:?}");
        let id = found[0]["id"].as_str().unwrap();
        lost += usize::from(texts[0] != texts[1] || texts[0].is_empty());
        let rotate = form(&tab.page(&format!("/keys/{id}")), &format!("/keys/{id}/rotate"));
        let texts = twice(&rotate, &[("overlap_seconds", "0")]);
        lost += usize::from(texts[0] != texts[1] || texts[0].is_empty());
        admin(one, "DELETE", &format!("/v1/keys/{id}"), &json!({}));
    }
    assert_eq!(lost, 0, "texts were lost in {rounds} rounds");
}

#[test]
fn a_form_that_is_sent_twice_shows_its_key_twice() {
    on_one_node(repeating);
}

#[test]
fn a_form_that_is_sent_to_two_nodes_shows_its_key_at_both() {
    if !on_two_nodes(repeating) {
        skip!("redis-server is not there");
    }
}

#[test]
fn an_owners_lowering_never_undoes_an_operators_change() {
    on_one_node(lowering);
}

#[test]
fn an_owners_lowering_never_undoes_a_change_at_another_node() {
    if !on_two_nodes(lowering) {
        skip!("redis-server is not there");
    }
}

#[test]
fn an_operators_rotation_holds_against_who_has_the_old_text() {
    on_one_node(rotating);
}

#[test]
fn an_operators_rotation_holds_against_the_old_text_at_another_node() {
    if !on_two_nodes(rotating) {
        skip!("redis-server is not there");
    }
}

#[test]
fn an_operator_on_an_old_page_is_told_what_has_changed_since() {
    let weir = node().start();
    let key = weir.key_with(&["--rpm", "60"]);
    let (mut one, mut other) = (signed_in(&weir, "operator"), signed_in(&weir, "operator"));
    let (page, action) = (format!("/keys/{}", key.id), format!("/keys/{}/update", key.id));
    let old = form(&other.page(&page), &action);
    let same = [
        ("was.name", "a test's key"),
        ("name", "a test's key"),
        ("was.rpm", "60"),
    ];
    let first = form(&one.page(&page), &action);
    assert_eq!(
        one.send_form(&first, &[&same[..], &[("rpm", "10")]].concat()).status,
        303
    );
    let before = audited(&weir).len();
    let late = other.send_form(&old, &[&same[..], &[("rpm", "20")]].concat());
    assert_eq!(late.status, 409, "{}", late.text());
    let rpm = || weir.cli_json(&["key", "show", &key.id])["rpm"].clone();
    assert_eq!(
        (rpm(), audited(&weir).len()),
        (json!(10), before),
        "nothing was changed"
    );
    // What was entered is still there, beside what holds now; sent again from there it is a decision.
    let again = late.text();
    assert!(again.contains("value=\"20\"") && again.contains("now: 10"), "{again}");
    let decided = form(&again, &action);
    let entered = [
        ("was.name", "a test's key"),
        ("name", "a test's key"),
        ("was.rpm", "10"),
        ("rpm", "20"),
    ];
    assert_eq!(other.send_form(&decided, &entered).status, 303);
    assert_eq!(rpm(), json!(20));
}
