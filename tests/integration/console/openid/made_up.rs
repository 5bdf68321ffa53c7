//! With a provider that says what it must not, and browsers that are not the ones that began.

use serde_json::json;

use super::{begun, parameter, with_provider};
use crate::console::{address, signed_in};
use crate::harness::Weir;
use crate::harness::certificates::{Authority, Flaw};
use crate::harness::client::Response;
use crate::harness::openid::{Code, MadeUpProvider};
use crate::harness::tab::{Tab, encoded};

/// What becomes of an owner's code.
type Change = fn(Code) -> Code;

/// Signs in with what `change` makes of an owner's code.
#[track_caller]
fn sign_in(weir: &Weir, provider: &MadeUpProvider, change: impl FnOnce(Code) -> Code) -> (Tab, Response) {
    let (mut tab, to) = begun(weir);
    let code = change(Code::new(&provider.issuer(), &parameter(&to, "nonce"))).text();
    let answer = tab.post(
        "/openid/return",
        &[("state", &parameter(&to, "state")), ("code", &code)],
    );
    (tab, answer)
}

#[test]
fn a_token_that_is_not_for_this_sign_in_opens_nothing() {
    let provider = MadeUpProvider::start();
    let weir = with_provider(&provider.issuer()).start();
    let (tab, answer) = sign_in(&weir, &provider, |code| code);
    assert_eq!(answer.status, 303, "{}", answer.text());
    assert!(tab.page("/").contains("Ada"));
    let faults: [(Change, &str); 7] = [
        (|code| code.with("nonce", json!("another")), "another sign-in"),
        (|code| code.with("aud", json!("another")), "another client"),
        (|code| code.with("iss", json!("http://127.0.0.1:9")), "another issuer"),
        (|code| code.with("exp", json!(1)), "has expired"),
        (|code| code.with("iat", json!(1)), "not issued recently"),
        (|code| Code { seed: 2, ..code }, "any of the provider"),
        (
            |code| Code {
                header: json!({"alg": "none"}),
                ..code
            },
            "algorithm is not supported",
        ),
    ];
    for (change, said) in faults {
        let (tab, answer) = sign_in(&weir, &provider, change);
        let text = answer.text();
        assert_eq!(answer.status, 502, "{text}");
        assert!(text.contains(said), "{said}: {text}");
        assert_eq!(tab.get("/").status, 401);
    }
}

#[test]
fn a_provider_over_https_is_believed_by_its_certificate_alone() {
    let authority = Authority::new();
    let trusting = |provider: &MadeUpProvider| {
        assert!(provider.issuer().starts_with("https://localhost:"));
        let builder = with_provider(&provider.issuer());
        builder
            .set("upstream.ca_file", authority.ca_file().to_str().unwrap())
            .start()
    };
    let provider = MadeUpProvider::start_with(Some(authority.server(Flaw::None)));
    let weir = trusting(&provider);
    let (tab, answer) = sign_in(&weir, &provider, |code| code);
    assert_eq!(answer.status, 303, "{}", answer.text());
    assert!(tab.page("/").contains("Ada"));
    for flaw in [Flaw::SelfSigned, Flaw::WrongName, Flaw::Expired] {
        let provider = MadeUpProvider::start_with(Some(authority.server(flaw)));
        let weir = trusting(&provider);
        let refused = Tab::new(address(&weir)).post("/openid", &[]);
        assert_eq!(refused.status, 502, "{}", refused.text());
        assert_eq!(
            provider.asked("/.well-known/openid-configuration"),
            0,
            "nothing was asked"
        );
    }
}

#[test]
fn a_change_of_keys_is_noticed_and_keys_are_not_asked_for_each_time() {
    let provider = MadeUpProvider::start();
    let weir = with_provider(&provider.issuer()).start();
    for _ in 0..3 {
        assert_eq!(sign_in(&weir, &provider, |code| code).1.status, 303);
    }
    let asked = |path| provider.asked(path);
    assert_eq!((asked("/keys"), asked("/.well-known/openid-configuration")), (1, 1));
    provider.change_key(2);
    assert_eq!(sign_in(&weir, &provider, |code| Code { seed: 2, ..code }).1.status, 303);
    assert_eq!(
        sign_in(&weir, &provider, |code| code).1.status,
        502,
        "signed by the key of before"
    );
}

#[test]
fn only_the_browser_that_has_begun_finishes_and_only_once() {
    let provider = MadeUpProvider::start();
    let weir = with_provider(&provider.issuer()).start();
    let (tab, to) = begun(&weir);
    let code = Code::new(&provider.issuer(), &parameter(&to, "nonce")).text();
    let state = parameter(&to, "state");
    let fields = [("state", state.as_str()), ("code", code.as_str())];
    let (mut stranger, other_to) = begun(&weir);
    assert_eq!(
        stranger.clone().post("/openid/return", &fields).status,
        403,
        "another one's state"
    );
    let mut nobody = Tab::new(address(&weir));
    assert_eq!(nobody.post("/openid/return", &fields).status, 403, "no cookie");
    let wrong = [
        ("state", state.as_str()),
        ("code", code.as_str()),
        ("iss", "http://127.0.0.1:9"),
    ];
    let body = encoded(&fields);
    let request = || tab.request("POST", "/openid/return").body(body.as_bytes());
    for forged in [
        request(),
        request().header("origin", "http://evil.example"),
        request()
            .header("origin", "http://weir.test")
            .header("sec-fetch-site", "cross-site"),
    ] {
        assert_eq!(tab.send(&forged).status, 403);
    }
    let looked = tab.get(&format!("/openid/return?{body}"));
    assert_eq!(
        (looked.status, looked.header("set-cookie")),
        (200, None),
        "a GET signs nobody in"
    );
    assert_eq!(provider.asked("/token"), 0);
    assert_eq!(
        tab.clone().post("/openid/return", &fields).status,
        303,
        "it is as good as before"
    );
    assert_eq!(tab.clone().post("/openid/return", &fields).status, 403, "once");

    let state = parameter(&other_to, "state");
    let mixed_up = [("state", state.as_str()), wrong[1], wrong[2]];
    let refused = stranger.post("/openid/return", &mixed_up);
    assert!(
        refused.status == 403 && refused.text().contains("not from the provider"),
        "{}",
        refused.text()
    );
    // A sign-in is begun by the page's own form.
    let forged = tab
        .request("POST", "/openid")
        .header("origin", "http://evil.example")
        .body(b"");
    assert_eq!(tab.send(&forged).status, 403);
    assert_eq!(tab.get("/openid").header("refresh"), None);
}

#[test]
fn a_provider_that_cannot_be_asked_keeps_nobody_else_out() {
    let issuer = MadeUpProvider::start().issuer();
    let weir = with_provider(&issuer).start();
    let mut tab = Tab::new(address(&weir));
    let asked = tab.get("/");
    assert!(
        asked.status == 401 && asked.text().contains("Sign in with 127.0.0.1:"),
        "{}",
        asked.text()
    );
    let failed = tab.post("/openid", &[]);
    let told = failed.text();
    assert_eq!((failed.status, failed.header("refresh")), (502, None), "{told}");
    assert!(
        told.contains("cannot be used now") && told.contains("weir console open"),
        "{told}"
    );
    assert!(signed_in(&weir, "owner").page("/").contains("Role: owner"));
}

#[test]
fn what_the_provider_says_goes_on_no_page_and_in_no_log() {
    let provider = MadeUpProvider::start();
    let weir = with_provider(&provider.issuer()).start();
    let (mut tab, to) = begun(&weir);
    let code = Code::new(&provider.issuer(), "used").text();
    let (mut other, other_to) = begun(&weir);
    other.post(
        "/openid/return",
        &[("state", &parameter(&other_to, "state")), ("code", &code)],
    );
    let refused = tab.post(
        "/openid/return",
        &[("state", &parameter(&to, "state")), ("code", &code)],
    );
    let told = refused.text();
    assert_eq!(refused.status, 403, "{told}");
    let (mut tab, to) = begun(&weir);
    let denied = tab.post(
        "/openid/return",
        &[("state", &parameter(&to, "state")), ("error", "canary<b>")],
    );
    assert_eq!(denied.status, 403);
    for said in [told, denied.text(), weir.logs()] {
        assert!(!said.contains("canary") && !said.contains(&code), "{said}");
    }
}
