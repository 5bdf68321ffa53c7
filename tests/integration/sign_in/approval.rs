//! The page of the portal on which a person decides.

use super::*;

fn audited(weir: &Weir) -> Vec<Json> {
    let text = std::fs::read_to_string(weir.folder().join("audit.jsonl")).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn whoever_comes_to_approve_signs_in_first_and_then_sees_the_code() {
    let (_provider, weir) = served();
    let key = weir.key();
    let begun = begin(&weir);
    let code = begun["user_code"].as_str().unwrap();
    let complete = begun["verification_uri_complete"].as_str().unwrap();
    let target = complete.split_once("//").unwrap().1;
    let target = &target[target.find('/').unwrap()..];
    assert_eq!(target, format!("/portal/device?user_code={code}"));
    let mut tab = Tab::new(weir.gateway);
    let stranger = tab.get(target);
    assert!(
        stranger.status == 401
            && stranger
                .text()
                .contains(&format!("name=\"user_code\" value=\"{code}\"")),
        "{}",
        stranger.text()
    );
    let wrong = tab.post("/portal/sign-in", &[("key", "nonsense"), ("user_code", code)]);
    assert!(wrong.status == 403 && wrong.text().contains(code), "{}", wrong.text());
    let signed_in = tab.post("/portal/sign-in", &[("key", &key.text), ("user_code", code)]);
    assert_eq!((signed_in.status, signed_in.header("location")), (303, Some(target)));
    let page = tab.page(target);
    assert!(
        page.contains(code) && page.contains("Approve only if you started this yourself"),
        "{page}"
    );
    assert_eq!(
        redeem(&weir, &begun).1["error"],
        "authorization_pending",
        "no GET approves"
    );
    // An address that is no code leads nowhere else.
    let elsewhere = [("key", key.text.as_str()), ("user_code", "https://evil.example")];
    let signed_in = Tab::new(weir.gateway).post("/portal/sign-in", &elsewhere);
    assert_eq!(signed_in.header("location"), Some("/portal"));
}

#[test]
fn an_approval_is_a_form_of_its_own_session_and_is_audited() {
    let (_provider, weir) = served();
    let (mine, other) = (weir.key(), weir.key());
    let begun = begin(&weir);
    let code = begun["user_code"].as_str().unwrap();
    let (mut tab, mut others) = (owner(&weir, &mine), owner(&weir, &other));
    let entered = [("user_code", code), ("decision", "approve")];
    let page = tab.page(&format!("/portal/device?user_code={code}"));
    assert_eq!(tab.post("/portal/device", &entered).status, 403, "a form has a token");
    let form = crate::harness::tab::form(&page, "/portal/device");
    assert_eq!(others.send_form(&form, &entered).status, 403, "of its session");
    let forged = encoded(
        &[
            &[("operation", &*form.operation), ("token", &*form.token)][..],
            &entered,
        ]
        .concat(),
    );
    let forged = tab
        .request("POST", "/portal/device")
        .header("origin", "http://evil.example")
        .body(forged.as_bytes());
    assert_eq!(tab.send(&forged).status, 403, "of this site");
    assert_eq!(redeem(&weir, &begun).1["error"], "authorization_pending");
    let twice = [
        tab.send_form(&form, &entered).status,
        tab.send_form(&form, &entered).status,
    ];
    assert_eq!(twice, [200, 200], "once, however often it is sent");
    let lines: Vec<Json> = audited(&weir)
        .into_iter()
        .filter(|line| line["operation"] == "key.sign_in")
        .collect();
    assert_eq!(lines.len(), 1, "{lines:?}");
    let line = lines[0].to_string();
    assert!(line.contains(&mine.id) && line.contains("\"via\":\"portal\""), "{line}");
    let late = others.get(&format!("/portal/device?user_code={code}"));
    assert!(
        late.status == 404 && late.text().contains("No agent is waiting"),
        "{}",
        late.text()
    );
}

#[test]
fn a_refusal_is_told_to_the_agent() {
    let (_provider, weir) = served();
    let key = weir.key();
    let begun = begin(&weir);
    let mut tab = owner(&weir, &key);
    assert_eq!(decide(&mut tab, &begun, "refuse").status, 200);
    let (status, told) = redeem(&weir, &begun);
    assert_eq!((status, &told["error"]), (400, &"access_denied".into()), "{told}");
    let page = tab.page("/portal");
    assert!(page.contains("Agents signed in: 0"), "{page}");
}

#[test]
fn codes_that_are_guessed_are_limited() {
    let (_provider, weir) = served();
    let key = weir.key();
    let tab = owner(&weir, &key);
    assert_eq!(tab.get("/portal/device").status, 200);
    for guess in 0..20 {
        let typed = ["BCDF-GHJK", "nonsense"][guess % 2];
        let answer = tab.get(&format!("/portal/device?user_code={typed}"));
        assert_eq!(answer.status, 404, "{}", answer.text());
    }
    let limited = tab.get("/portal/device?user_code=BCDF-GHJK");
    assert!(
        limited.status == 429 && limited.text().contains("try again in"),
        "{}",
        limited.text()
    );
}

#[test]
fn an_owner_signs_all_agents_out_also_when_nothing_is_left() {
    let (_provider, weir) = served();
    let key = weir.key_with(&["--quota-usd", "5"]);
    let (one, two) = (sign_in(&weir, &key), sign_in(&weir, &key));
    assert_eq!(
        (ask(&weir, &one.access).status, ask(&weir, &two.access).status),
        (200, 200)
    );
    weir.cli_json(&["key", "update", &key.id, "--quota-usd", "0"]);
    let mut tab = owner(&weir, &key);
    let page = tab.page("/portal");
    assert!(page.contains("Agents signed in: 2"), "{page}");
    assert_eq!(tab.fill(&page, "/portal/agents", &[]).status, 303);
    assert!(tab.page("/portal").contains("Agents signed in: 0"));
    crate::harness::wait_until("the tokens to be unknown", || {
        ask(&weir, &one.access).status == 401 && ask(&weir, &two.access).status == 401
    });
    assert_eq!(refresh(&weir, &one.refresh).1["error"], "invalid_grant");
}

#[test]
fn an_operator_sees_who_is_signed_in_and_signs_them_out() {
    let (_provider, weir) = served();
    let key = weir.key();
    let (one, _two) = (sign_in(&weir, &key), sign_in(&weir, &key));
    let told = weir.cli_json(&["sign-in", "list", &key.id]);
    let listed = told["sign_ins"].as_array().unwrap();
    assert_eq!((listed.len(), &told["signed_in"]), (2, &2.into()), "{told}");
    let time = |field: &str| listed[0][field].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    let days = (time("ends_at").as_second() - time("used_at").as_second()) / 86_400;
    assert_eq!(days, 30, "{told}");
    weir.cli_json(&["sign-in", "end", &key.id]);
    crate::harness::wait_until("the tokens to be unknown", || ask(&weir, &one.access).status == 401);
    assert_eq!(
        weir.cli_json(&["sign-in", "list", &key.id])["sign_ins"],
        serde_json::json!([])
    );
    let strange = weir.cli(&["sign-in", "list", "key_0000000000000000"], &[]);
    assert!(String::from_utf8_lossy(&strange.stderr).contains("no key has this id"));
}

#[test]
fn without_the_section_there_is_none_of_it() {
    let weir = Weir::start("http://127.0.0.1:9");
    let key = weir.key();
    for target in ["/oauth/device_authorization", "/oauth/token", "/oauth/revoke"] {
        assert_eq!(
            weir.exchange(&form(target, &[("surface", "claude_code")])).status,
            404,
            "{target}"
        );
    }
    for target in [
        "/.well-known/oauth-authorization-server",
        "/managed/settings",
        "/api/oauth/usage",
        "/portal/device",
    ] {
        assert_eq!(get(&weir, target, &key.text).status, 404, "{target}");
    }
    assert!(!owner(&weir, &key).page("/portal").contains("Agents signed in"));
}
