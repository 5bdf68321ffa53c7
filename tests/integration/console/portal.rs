//! The owners' portal on the gateway's port.

use super::shown_key;
use crate::harness::request::Wire;
use crate::harness::tab::Tab;
use crate::harness::weir::Key;
use crate::harness::{RecordingProvider, Weir, WeirBuilder, wait_for, wait_until};

const ANSWER: &str = r#"{"id":"msg_1","type":"message","role":"assistant","content":[{"type":"text","text":"hi"}],"usage":{"input_tokens":4321,"output_tokens":7}}"#;

/// A tab that has signed in with a key.
fn signed_in(weir: &Weir, key: &str) -> Tab {
    let mut tab = Tab::new(weir.gateway);
    let answer = tab.post("/portal/sign-in", &[("key", key)]);
    assert_eq!(
        (answer.status, answer.header("location")),
        (303, Some("/portal")),
        "{}",
        answer.text()
    );
    tab
}

#[test]
fn an_owner_sees_their_own_key_and_nobody_elses() {
    let provider = RecordingProvider::answering(ANSWER);
    let weir = Weir::start(&provider.base_url());
    let mine = weir.key_with(&["--quota-usd", "5", "--models", Wire::Messages.model()]);
    let other = weir.key();
    let use_of = |key: &str| weir.exchange(&Wire::Messages.request(key, "hi")).status;
    assert_eq!((use_of(&mine.text), use_of(&other.text)), (200, 200));
    let tab = signed_in(&weir, &mine.text);
    wait_until("the row", || tab.page("/portal").contains("class=\"bars\""));
    let page = tab.page("/portal");
    assert!(
        page.contains(&mine.id) && page.contains("$5") && page.contains(Wire::Messages.model()),
        "{page}"
    );
    assert_eq!(
        page.matches("4,321").count(),
        4,
        "its one row, in the table and explained, and the sum of its model and of all"
    );
    let told = weir.cli_json(&["usage", "--key", &mine.id]);
    let cost = format!("${}", told["cost_usd"].as_str().unwrap());
    for text in [
        "Spent today",
        "Spent this week",
        "Spent this month",
        "Spent so far",
        "Remaining",
        "class=\"bars\"",
        &cost,
    ] {
        assert!(page.contains(text), "{text}: {page}");
    }
    assert!(!page.contains(&other.id), "{page}");
    assert!(!page.contains(&mine.text), "the key itself is on no page");
    assert!(
        !tab.cookie.clone().unwrap().contains(&mine.text),
        "the session is no key"
    );
    assert!(
        page.contains("http://weir.test"),
        "the examples lead to where the browser is"
    );
    for target in ["/portal/keys", &format!("/portal/{}", other.id), "/portal/x/y"] {
        assert_eq!(tab.get(target).status, 404);
    }
    for target in ["/portal/sign-in", "/portal/sign-out", "/portal/lower", "/portal/rotate"] {
        assert_eq!(tab.get(target).status, 405, "{target} is done by a form");
    }
    let line = wait_for("the portal's line in the access log", || {
        weir.access_lines()
            .into_iter()
            .find(|line| line["operation"] == "portal")
    });
    assert!(!line.to_string().contains(&mine.text), "{line}");
    let csp = tab.get("/portal").header("content-security-policy").unwrap().to_owned();
    assert!(csp.contains("frame-ancestors 'none'"), "{csp}");
}

/// Ends a key's text at once.
fn end(weir: &Weir, how: &str, key: &Key) {
    match how {
        "rotate" => weir.cli_json(&["key", how, &key.id, "--overlap", "0"]),
        _ => weir.cli_json(&["key", how, &key.id]),
    };
}

#[test]
fn a_session_is_good_for_nothing_without_its_key() {
    let weir = Weir::start("http://127.0.0.1:9");
    for (how, said) in [("revoke", "was revoked"), ("rotate", "rotated"), ("delete", "deleted")] {
        let key = weir.key();
        let tab = signed_in(&weir, &key.text);
        assert_eq!(tab.get("/portal").status, 200);
        end(&weir, how, &key);
        let ended = tab.get("/portal");
        assert!(
            ended.status == 401 && ended.text().contains(said),
            "{how}: {}",
            ended.text()
        );
        assert_eq!(tab.get("/portal").status, 401);
        let mut again = Tab::new(weir.gateway);
        assert_eq!(
            again.post("/portal/sign-in", &[("key", &key.text)]).status,
            403,
            "{how}"
        );
    }
}

#[test]
fn an_owner_lowers_limits_and_never_raises_one() {
    let weir = Weir::start("http://127.0.0.1:9");
    let key = weir.key_with(&["--quota-usd", "5", "--rpm", "60"]);
    let mut tab = signed_in(&weir, &key.text);
    let was = [("was.quota_usd", "5"), ("was.rpm", "60")];
    let mut send = |entered: &[(&str, &str)]| {
        let page = tab.page("/portal");
        tab.fill(&page, "/portal/lower", &[&was[..], entered].concat())
    };
    for (raised, field) in [
        ([("quota_usd", "6"), ("rpm", "60")], "quota_usd"),
        ([("quota_usd", ""), ("rpm", "60")], "quota_usd"),
        ([("quota_usd", "5"), ("rpm", "61")], "rpm"),
        ([("quota_usd", "5"), ("rpm", "")], "rpm"),
    ] {
        let refused = send(&raised);
        assert!(
            refused.status == 400 && refused.text().contains(&format!("{field}: the owner")),
            "{raised:?}: {}",
            refused.text()
        );
    }
    assert_eq!(
        send(&[("quota_usd", "2"), ("rpm", "30"), ("concurrency", "3")]).status,
        303
    );
    let shown = weir.cli_json(&["key", "show", &key.id]);
    assert_eq!(
        (&shown["quota_usd"], &shown["rpm"], &shown["concurrency"]),
        (&"2.00".into(), &30.into(), &3.into())
    );
    let record = std::fs::read_to_string(weir.folder().join("audit.jsonl")).unwrap();
    let line = record.lines().last().unwrap();
    assert!(
        line.contains("\"key.lower\"") && line.contains("\"via\":\"portal\"") && line.contains(&key.id),
        "{line}"
    );
}

#[test]
fn an_owner_rotates_the_key_and_stays_signed_in() {
    let weir = Weir::start("http://127.0.0.1:9");
    let key = weir.key();
    let mut tab = signed_in(&weir, &key.text);
    let stranger = signed_in(&weir, &key.text);
    let page = tab.page("/portal");
    let without = tab.post("/portal/rotate", &[]);
    assert_eq!(without.status, 403, "a form has a token");
    let form = crate::harness::tab::form(&page, "/portal/rotate");
    let at_once = [("overlap_seconds", "0")];
    let rotated = shown_key(&tab.send_form(&form, &at_once).text());
    assert_eq!(
        rotated,
        shown_key(&tab.send_form(&form, &at_once).text()),
        "once, however often it is sent"
    );
    assert_ne!(rotated, key.text);
    assert_eq!(tab.get("/portal").status, 200);
    assert_eq!(
        stranger.get("/portal").status,
        401,
        "whoever had the text of before is out"
    );
    let page = tab.page("/portal");
    assert_eq!(tab.fill(&page, "/portal/sign-out", &[]).status, 303);
    assert_eq!(tab.get("/portal").status, 401);
    signed_in(&weir, &rotated);
}

#[test]
fn whoever_has_the_old_text_looks_and_changes_nothing() {
    let weir = Weir::start("http://127.0.0.1:9");
    let key = weir.key();
    let mut tab = signed_in(&weir, &key.text);
    let mut stranger = signed_in(&weir, &key.text);
    let page = tab.page("/portal");
    let made = tab.fill(&page, "/portal/rotate", &[("overlap_seconds", "3600")]).text();
    assert!(made.contains("The old secret, which ends in"), "{made}");
    let rotated = shown_key(&made);
    signed_in(&weir, &key.text);
    let seen = stranger.page("/portal");
    assert!(seen.contains("works until"), "{seen}");
    for (action, entered) in [
        ("/portal/rotate", &[][..]),
        ("/portal/end-overlap", &[]),
        ("/portal/lower", &[("rpm", "1"), ("was.rpm", "")]),
    ] {
        let refused = stranger.fill(&seen, action, entered);
        assert!(
            refused.status == 403 && refused.text().contains("sign in with the new one"),
            "{action}: {}",
            refused.text()
        );
    }
    let page = tab.page("/portal");
    assert_eq!(tab.fill(&page, "/portal/end-overlap", &[]).status, 303);
    assert_eq!(stranger.get("/portal").status, 401);
    let page = tab.page("/portal");
    assert!(!page.contains("/portal/end-overlap"), "{page}");
    let refused = tab.fill(&page, "/portal/rotate", &[("overlap_seconds", "2592001")]);
    assert!(
        refused.status == 400
            && refused
                .text()
                .contains("overlap_seconds: give a whole number of seconds up to")
    );
    signed_in(&weir, &rotated);
}

#[test]
fn a_key_with_nothing_left_is_looked_at_and_not_changed() {
    let weir = Weir::start("http://127.0.0.1:9");
    let key = weir.key_with(&["--quota-usd", "5"]);
    let mut tab = signed_in(&weir, &key.text);
    let before = tab.page("/portal");
    weir.cli_json(&["key", "update", &key.id, "--quota-usd", "0"]);
    for (action, entered) in [
        ("/portal/rotate", &[][..]),
        ("/portal/lower", &[("rpm", "1"), ("was.rpm", "")]),
    ] {
        let late = tab.fill(&before, action, entered);
        assert!(
            late.status == 403 && late.text().contains("only an operator"),
            "{action}: {}",
            late.text()
        );
    }
    assert!(weir.cli_json(&["key", "show", &key.id])["rpm"].is_null());
    let expired = signed_in(&weir, &weir.expired_key());
    for tab in [tab, expired] {
        let page = tab.page("/portal");
        assert!(
            page.contains("or the key has expired") && !page.contains("/portal/rotate"),
            "{page}"
        );
    }
}

#[test]
fn attempts_to_sign_in_are_limited_by_address() {
    let weir = Weir::start("http://127.0.0.1:9");
    let key = weir.key();
    let mut tab = Tab::new(weir.gateway);
    let mut typing_error = key.text.clone();
    typing_error.replace_range(10..11, if &typing_error[10..11] == "x" { "y" } else { "x" });
    let wrong = ["", "not a key", typing_error.as_str()];
    let mut said = Vec::new();
    for attempt in 0..10 {
        let refused = tab.post("/portal/sign-in", &[("key", wrong[attempt % 3])]);
        assert_eq!((refused.status, refused.header("set-cookie")), (403, None));
        said.push(refused.text());
    }
    assert!(
        said.iter().all(|text| *text == said[0]),
        "the same words for whatever is wrong"
    );
    let limited = tab.post("/portal/sign-in", &[("key", &key.text)]);
    assert!(
        limited.status == 429 && limited.text().contains("try again in"),
        "{}",
        limited.text()
    );
    let forged = tab.send(
        &tab.request("POST", "/portal/sign-in")
            .header("origin", "http://evil.example"),
    );
    assert_eq!(forged.status, 403);
}

#[test]
fn style_sheets_are_no_pages_that_an_address_may_ask_for() {
    /// What docs/console.md says.
    const PAGES_A_MINUTE: usize = 60;
    let weir = Weir::start("http://127.0.0.1:9");
    let tab = Tab::new(weir.gateway);
    for _ in 0..2 * PAGES_A_MINUTE {
        assert_eq!(tab.get("/portal/style.css").status, 200);
    }
    assert_eq!(tab.get("/portal").status, 401, "no page was asked for before");
    let limited = wait_for("the limit of pages", || {
        let answer = tab.get("/portal");
        (answer.status == 429).then_some(answer)
    });
    assert!(limited.text().contains("try again in"), "{}", limited.text());
    assert_eq!(
        tab.get("/portal/style.css").status,
        200,
        "the page that says so has its style"
    );
}

#[test]
fn the_portal_can_be_switched_off() {
    let weir = WeirBuilder::new().set("console.portal", false).start();
    let key = weir.key();
    let mut tab = Tab::new(weir.gateway);
    let (page, sign_in) = (tab.get("/portal"), tab.post("/portal/sign-in", &[("key", &key.text)]));
    assert!(
        page.status == 404 && sign_in.status == 404,
        "{} {}",
        page.status,
        sign_in.status
    );
}
