//! Agents sign in by the OAuth device flow: every answer and every refusal over real sockets, and the real Claude Code.

mod approval;
mod claude_code;
mod login;
mod tokens;

use serde_json::Value as Json;

use crate::harness::client::Response;
use crate::harness::request::{Request, Wire};
use crate::harness::tab::{Tab, encoded};
use crate::harness::weir::Key;
use crate::harness::{RecordingProvider, Weir, WeirBuilder};

const DEVICE_GRANT: &str = "urn:ietf:params:oauth:grant-type:device_code";
const ANSWER: &str = r#"{"id":"msg_1","type":"message","role":"assistant","content":[{"type":"text","text":"hi"}],"usage":{"input_tokens":10,"output_tokens":5},"modelVersion":"any"}"#;

/// A gateway at which agents can sign in.
fn builder(provider: &str) -> WeirBuilder {
    WeirBuilder::new().all_providers(provider).set("sign_in.enabled", true)
}

/// The same with a provider that answers.
fn served() -> (RecordingProvider, Weir) {
    let provider = RecordingProvider::answering(ANSWER);
    let weir = builder(&provider.base_url()).start();
    (provider, weir)
}

/// The tokens of an agent.
#[derive(Clone, Debug)]
struct Tokens {
    access: String,
    refresh: String,
}

/// A form that a program sends.
fn form(target: &str, fields: &[(&str, &str)]) -> Request {
    Request::post(target)
        .header("content-type", "application/x-www-form-urlencoded")
        .body(encoded(fields).as_bytes())
}

/// Sends it, and reads status and JSON.
#[track_caller]
fn send(weir: &Weir, target: &str, fields: &[(&str, &str)]) -> (u16, Json) {
    let answer = weir.exchange(&form(target, fields));
    assert_eq!(answer.header("cache-control"), Some("no-store"), "{}", answer.text());
    (answer.status, json(&answer))
}

#[track_caller]
fn json(answer: &Response) -> Json {
    assert_eq!(
        answer.header("content-type"),
        Some("application/json"),
        "{}",
        answer.text()
    );
    serde_json::from_slice(&answer.body).unwrap()
}

/// Begins to sign in.
#[track_caller]
pub(crate) fn begin(weir: &Weir) -> Json {
    let (status, begun) = send(weir, "/oauth/device_authorization", &[("surface", "claude_code")]);
    assert_eq!(status, 200, "{begun}");
    begun
}

/// Asks for the tokens of a code.
#[track_caller]
pub(crate) fn redeem(weir: &Weir, begun: &Json) -> (u16, Json) {
    let code = begun["device_code"].as_str().unwrap();
    send(
        weir,
        "/oauth/token",
        &[("grant_type", DEVICE_GRANT), ("device_code", code)],
    )
}

#[track_caller]
fn refresh(weir: &Weir, token: &str) -> (u16, Json) {
    send(
        weir,
        "/oauth/token",
        &[("grant_type", "refresh_token"), ("refresh_token", token)],
    )
}

/// A tab that has signed in to the portal with a key.
#[track_caller]
fn owner(weir: &Weir, key: &Key) -> Tab {
    let mut tab = Tab::new(weir.gateway);
    assert_eq!(tab.post("/portal/sign-in", &[("key", &key.text)]).status, 303);
    tab
}

/// Decides on a code as the owner of a key.
#[track_caller]
fn decide(tab: &mut Tab, begun: &Json, decision: &str) -> Response {
    let code = begun["user_code"].as_str().unwrap();
    let page = tab.page(&format!("/portal/device?user_code={code}"));
    let entered = [("user_code", code), ("decision", decision)];
    tab.fill(&page, "/portal/device", &entered)
}

#[track_caller]
fn tokens(answer: &(u16, Json)) -> Tokens {
    let (status, told) = answer;
    assert_eq!((*status, &told["token_type"]), (200, &"Bearer".into()), "{told}");
    let text = |name: &str| told[name].as_str().unwrap().to_owned();
    Tokens {
        access: text("access_token"),
        refresh: text("refresh_token"),
    }
}

/// Signs an agent in with a key.
#[track_caller]
fn sign_in(weir: &Weir, key: &Key) -> Tokens {
    let begun = begin(weir);
    assert_eq!(decide(&mut owner(weir, key), &begun, "approve").status, 200);
    tokens(&redeem(weir, &begun))
}

/// A Messages request with a bearer.
fn ask(weir: &Weir, bearer: &str) -> Response {
    let mut request = Wire::Messages.request("none", "hi");
    request.headers.retain(|(name, _)| name != "x-api-key");
    weir.exchange(&request.header("authorization", &format!("Bearer {bearer}")))
}

fn get(weir: &Weir, target: &str, bearer: &str) -> Response {
    weir.exchange(&Request::new("GET", target).header("authorization", &format!("Bearer {bearer}")))
}
