//! The pages among many keys and rows: how large they are, and how long they take.

use std::time::{Duration, Instant};

use super::{builder, signed_in};
use crate::harness::request::Wire;
use crate::harness::tab::Tab;
use crate::harness::tools::{note, rounds};
use crate::harness::{RecordingProvider, wait_until};

const KEYS: usize = 10_000;
const ANSWER: &str = r#"{"id":"msg_1","type":"message","role":"assistant","content":[{"type":"text","text":"hi"}],"usage":{"input_tokens":4321,"output_tokens":7}}"#;
const BYTES_MAX: usize = 100 * 1024;
/// The aim is 200 ms. Optimized as it is shipped weir is within it with 1,000,000 rows, at the first look too
/// (docs/benchmarks.md). What is tested here is not optimized.
const TIME_MAX: Duration = Duration::from_millis(2_000);

/// A key's name, every third of them odd: markup, as long as may be, from right to left.
fn name(number: usize) -> String {
    match number % 9 {
        0 => format!("<b onclick=\"x\">'&{number}</b>"),
        3 => format!("{number}{}", "n".repeat(120)),
        6 => format!("\u{202e}\u{5e9}\u{5dc}\u{5d5}\u{5dd} {number}"),
        _ => format!("copy {number}"),
    }
}

/// Reads a page, in the long form three times: a page is as quick as it can be. Its bytes hold always, its time there.
fn measure(tab: &Tab, target: &str, is_long: bool) -> String {
    let mut times = Vec::new();
    let mut page = String::new();
    for _ in 0..if is_long { 3 } else { 1 } {
        let began = Instant::now();
        page = tab.page(target);
        times.push(began.elapsed());
    }
    let time = times.iter().min().unwrap();
    note(&format!("{target}: {} bytes, {times:?}", page.len()));
    assert!(page.len() < BYTES_MAX, "{target} has {} bytes", page.len());
    assert!(!is_long || *time < TIME_MAX, "{target} takes {time:?}");
    assert!(!page.contains("<b onclick"), "{target} has a name's markup");
    page
}

#[test]
fn pages_stay_small_and_quick_among_many_keys_and_rows() {
    let provider = RecordingProvider::answering(ANSWER);
    let mut weir = builder(&provider.base_url()).start();
    let key = weir.key();
    assert_eq!(weir.exchange(&Wire::Messages.request(&key.text, "hi")).status, 200);
    wait_until("the row", || weir.cli_json(&["log", "query"])["request_id"].is_string());
    let rows = rounds(10_500, 1_000_000);
    let is_long = rows > 10_500;
    weir.multiply((KEYS, name), (rows, |number| 1 + number / 50_000));
    let tab = signed_in(&weir, "viewer");
    let own = format!("/keys/{}", key.id);
    for target in [
        "/",
        "/accounts",
        "/accounts/tests",
        "/keys",
        "/keys/new",
        &*own,
        "/models",
        "/providers",
        "/rules",
        "/audit",
        "/usage",
        "/usage?account=tests&by=model",
    ] {
        measure(&tab, target, is_long);
    }
    let found = measure(&tab, "/keys?search=copy%209998", is_long);
    assert!(
        found.contains("copy 9998") && found.matches("href=\"/keys/key_").count() == 1,
        "{found}"
    );
    let by_key = measure(&tab, "/usage?account=tests&by=key", is_long);
    assert!(by_key.contains("more, which All has"), "{by_key}");
    let log = measure(&tab, "/log?hours=72", is_long);
    assert!(log.contains("Further rows"), "{log}");
    let export = tab.get("/log/export/jsonl?hours=72");
    let kept = export.header("content-disposition").unwrap();
    assert!(kept.contains("weir-log-part.jsonl"), "{kept}");
    let text = export.text();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 10_001, "as many as an export has, and where to go on");
    let last: serde_json::Value = serde_json::from_str(lines[10_000]).unwrap();
    let next = format!("/log?hours=72&cursor={}", last["next"].as_str().unwrap());
    assert!(measure(&tab, &next, is_long).contains("4,321"));
    let mut owner = Tab::new(weir.gateway);
    assert_eq!(owner.post("/portal/sign-in", &[("key", &key.text)]).status, 303);
    measure(&owner, "/portal", is_long);
}
