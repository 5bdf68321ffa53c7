//! The forms of the console: what makes one good, and that it works once.

use super::{audited, shown_key, signed_in, with_console};
use crate::harness::tab::{Tab, encoded, form};

#[test]
fn a_form_without_its_token_or_from_elsewhere_changes_nothing() {
    let weir = with_console();
    let key = weir.key();
    let mut tab = signed_in(&weir, "owner");
    let other = signed_in(&weir, "owner");
    let path = format!("/keys/{}", key.id);
    let action = format!("{path}/revoke");
    let page = tab.page(&path);
    let good = form(&page, &action);
    let before = audited(&weir).len();
    let carried = [("operation", &*good.operation), ("token", &*good.token)];
    for without in [
        &[][..],
        &carried[..1],
        &carried[1..],
        &[("operation", "op_other"), carried[1]],
        &[carried[0], ("token", "0")],
    ] {
        assert_eq!(tab.post(&action, without).status, 403, "{without:?}");
    }
    // The token of another form of the page, and of another session's.
    let rotate = form(&page, &format!("{path}/rotate"));
    let foreign = form(&other.page(&path), &action);
    for wrong in [&rotate, &foreign] {
        let fields = [("operation", &*wrong.operation), ("token", &*wrong.token)];
        assert_eq!(tab.post(&action, &fields).status, 403);
    }
    let body = encoded(&carried);
    let request = || tab.request("POST", &action).body(body.as_bytes());
    for forged in [
        request(),
        request().header("origin", "http://evil.example"),
        request().header("origin", "null"),
        request().header("sec-fetch-site", "cross-site"),
        request().header("sec-fetch-site", "none"),
        request()
            .header("origin", "http://evil.example")
            .header("sec-fetch-site", "same-origin"),
    ] {
        assert_eq!(tab.send(&forged).status, 403);
    }
    assert_eq!(audited(&weir).len(), before, "nothing was even tried");
    assert_eq!(tab.send_form(&good, &[]).status, 303);
    assert_eq!(weir.cli_json(&["key", "show", &key.id])["state"], "revoked");
}

#[test]
fn no_address_changes_anything_by_being_read() {
    let weir = with_console();
    let key = weir.key();
    let tab = signed_in(&weir, "owner");
    let before = audited(&weir).len();
    let verbs = [
        format!("/keys/{}/update", key.id),
        format!("/keys/{}/rotate", key.id),
        format!("/keys/{}/revoke", key.id),
        format!("/keys/{}/delete", key.id),
        "/accounts/tests/credit?usd=5".to_owned(),
        "/accounts/tests/adjust".to_owned(),
        "/accounts/tests/limits".to_owned(),
        "/accounts/tests/suspend".to_owned(),
        "/accounts/tests/resume".to_owned(),
        "/providers/openai/disable".to_owned(),
        "/providers/openai/enable".to_owned(),
    ];
    for target in verbs {
        let answer = tab.get(&target);
        assert_eq!((answer.status, answer.header("allow")), (405, Some("POST")), "{target}");
    }
    assert_eq!(tab.get("/sign-out").status, 404);
    assert_eq!(tab.get("/").status, 200, "still signed in");
    assert_eq!(audited(&weir).len(), before);
    assert_eq!(weir.cli_json(&["key", "show", &key.id])["state"], "active");
}

#[test]
fn a_form_that_is_sent_twice_changes_once() {
    let weir = with_console();
    weir.fund();
    let mut tab = signed_in(&weir, "owner");
    let new = form(&tab.page("/keys/new"), "/keys");
    let entered = [("name", "twice"), ("account", "tests")];
    let (first, second) = (tab.send_form(&new, &entered), tab.send_form(&new, &entered));
    let key = shown_key(&first.text());
    assert_eq!(
        key,
        shown_key(&second.text()),
        "who clicks twice sees the key that was made"
    );
    let keys = weir.cli_json(&["key", "list"]);
    assert_eq!(keys.to_string().matches("\"twice\"").count(), 1, "{keys}");

    let balance = || weir.cli_json(&["account", "show", "--id", "tests"])["balance_usd"].clone();
    let credit = form(&tab.page("/accounts/tests"), "/accounts/tests/credit");
    for _ in 0..3 {
        assert_eq!(tab.send_form(&credit, &[("usd", "2.5")]).status, 303);
    }
    assert_eq!(balance(), "1002.50");
    let line = audited(&weir)
        .into_iter()
        .filter(|line| line["operation"] == "account.credit");
    let lines: Vec<_> = line.collect();
    assert_eq!(lines.len(), 1);
    assert_eq!(lines[0]["via"], "console");
    assert!(lines[0]["peer_uid"].is_u64(), "{}", lines[0]);
}

#[test]
fn a_form_that_is_refused_comes_back_with_what_was_entered() {
    let weir = with_console();
    weir.fund();
    let mut tab = signed_in(&weir, "owner");
    let page = tab.page("/keys/new");
    let entered = [("name", "kept \"name\""), ("account", "tests"), ("quota_usd", "much")];
    let refused = tab.fill(&page, "/keys", &entered);
    assert_eq!(refused.status, 400);
    let text = refused.text();
    assert!(text.contains("role=\"alert\"") && text.contains("quota_usd"), "{text}");
    assert!(text.contains("value=\"kept &quot;name&quot;\""), "{text}");
    let again = tab.fill(
        &text,
        "/keys",
        &[("name", "kept"), ("account", "tests"), ("quota_usd", "5")],
    );
    shown_key(&again.text());
    let unknown = tab.fill(&tab.page("/keys/new"), "/keys", &[("name", "x"), ("account", "nobody")]);
    assert_eq!(unknown.status, 404);
    assert!(unknown.text().contains("account `nobody` does not exist"));
}

#[track_caller]
fn is_refused(tab: &mut Tab, page: &str, action: &str) {
    let page = tab.page(page);
    let entered = [("usd", "1"), ("name", "x"), ("account", "tests"), ("id", "x")];
    let refused = tab.fill(&page, action, &entered);
    assert_eq!(refused.status, 403, "{action}");
    assert!(
        refused.text().contains("This change needs the role"),
        "{}",
        refused.text()
    );
    let (_, form) = page.split_once(&format!("action=\"{action}\"")).unwrap();
    let (form, _) = form.split_once("</form>").unwrap();
    let why = "<fieldset disabled><p class=\"lead\">This form needs the role ";
    assert!(
        form.contains(why),
        "{action}: what is not allowed is not offered: {form}"
    );
}

#[test]
fn a_session_does_no_more_than_its_role_may() {
    let weir = with_console();
    let key = weir.key();
    let path = format!("/keys/{}", key.id);
    let before = audited(&weir).len();
    let mut viewer = signed_in(&weir, "viewer");
    let mut operator = signed_in(&weir, "operator");
    let revoke = format!("{path}/revoke");
    for (page, action) in [
        ("/keys/new", "/keys"),
        (&*path, &*revoke),
        ("/providers", "/providers/openai/disable"),
        ("/accounts", "/accounts"),
    ] {
        is_refused(&mut viewer, page, action);
    }
    for (page, action) in [
        ("/accounts", "/accounts"),
        ("/accounts/tests", "/accounts/tests/credit"),
        ("/accounts/tests", "/accounts/tests/suspend"),
    ] {
        is_refused(&mut operator, page, action);
    }
    let opened = audited(&weir).len() - before;
    assert_eq!(opened, 2, "the two sessions, and nothing else");
    let page = operator.page("/providers");
    assert!(!page.contains("<fieldset"), "what is allowed is offered");
    assert_eq!(operator.fill(&page, "/providers/openai/disable", &[]).status, 303);
    let page = viewer.page("/rules");
    assert!(!page.contains("<fieldset"), "what is allowed is offered");
    let explained = viewer.fill(
        &page,
        "/rules",
        &[
            ("provider", "anthropic"),
            (
                "request",
                "{\"model\":\"claude-haiku-4-5\",\"max_tokens\":1,\"messages\":[]}",
            ),
        ],
    );
    assert_eq!(
        explained.status,
        200,
        "looking is what a viewer may: {}",
        explained.text()
    );
}
