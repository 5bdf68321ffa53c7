//! The pages among many keys and rows: how large they are, and how long they take.

use std::time::{Duration, Instant};

use super::{builder, code, signed_in};
use crate::harness::request::Wire;
use crate::harness::tab::Tab;
use crate::harness::tools::{is_weir_optimized, note, rounds};
use crate::harness::{RecordingProvider, Weir, wait_until};

const KEYS: usize = 10_000;
const ANSWER: &str = r#"{"id":"msg_1","type":"message","role":"assistant","content":[{"type":"text","text":"hi"}],"usage":{"input_tokens":4321,"output_tokens":7}}"#;
const BYTES_MAX: usize = 100 * 1024;
/// The aim, of weir as it is shipped (docs/benchmarks.md).
const TIME_MAX: Duration = Duration::from_millis(200);
/// What is tested otherwise is not optimized.
const TIME_MAX_UNOPTIMIZED: Duration = Duration::from_millis(2_000);

/// Looks further until there are rows, or no more to look through.
fn look_on(at: (&Weir, &Tab), mut page: String, time_max: Option<Duration>) -> String {
    while let Some(further) = link(&page, "Search further") {
        assert!(page.contains("None among the rows searched so far: "), "{page}");
        page = measure(at, &further, time_max);
    }
    page
}

/// Where the link of this text leads.
pub(super) fn link(page: &str, text: &str) -> Option<String> {
    let (before, _) = page.split_once(&format!("\">{text}</a>"))?;
    let (_, target) = before.rsplit_once("href=\"")?;
    Some(target.replace("&amp;", "&"))
}

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
fn measure((weir, tab): (&Weir, &Tab), target: &str, time_max: Option<Duration>) -> String {
    let mut times = Vec::new();
    let mut page = String::new();
    for look in 0..if time_max.is_some() { 3 } else { 1 } {
        if look > 0 {
            // What was read is shared for a moment, unless something is changed, be it a link that is made.
            code(weir, "viewer");
        }
        let began = Instant::now();
        page = tab.page(target);
        times.push(began.elapsed());
    }
    let time = times.iter().min().unwrap();
    note(&format!("{target}: {} bytes, {times:?}", page.len()));
    assert!(page.len() < BYTES_MAX, "{target} has {} bytes", page.len());
    assert!(time_max.is_none_or(|most| *time < most), "{target} takes {time:?}");
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
    let most = if is_weir_optimized() {
        TIME_MAX
    } else {
        TIME_MAX_UNOPTIMIZED
    };
    let time_max = (rows > 10_500).then_some(most);
    weir.multiply((KEYS, name), (rows, |number| 1 + number / 50_000));
    let tab = signed_in(&weir, "viewer");
    let at = (&weir, &tab);
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
        "/keys?spent_usd=1",
        "/keys?unused_since=2100-01-01",
        "/keys?spent_usd=0",
    ] {
        measure(at, target, time_max);
    }
    let found = measure(at, "/keys?search=copy%209998", time_max);
    assert!(
        found.contains("copy 9998") && found.matches("href=\"/keys/key_").count() == 1,
        "{found}"
    );
    let by_key = measure(at, "/usage?account=tests&by=key", time_max);
    assert!(by_key.contains("more, which are included in All"), "{by_key}");
    look_at_the_log(at, &key.id, time_max);
    let mut owner = Tab::new(weir.gateway);
    assert_eq!(owner.post("/portal/sign-in", &[("key", &key.text)]).status, 303);
    measure((&weir, &owner), "/portal", time_max);
}

/// The log's pages, in both orders, with filters that few rows pass, and as a file.
fn look_at_the_log(at: (&Weir, &Tab), key: &str, time_max: Option<Duration>) {
    let newest = measure(at, "/log?hours=72", time_max);
    assert!(newest.contains("Older rows"), "{newest}");
    let older = measure(at, &link(&newest, "Older rows").unwrap(), time_max);
    assert!(older.contains("4,321"), "{older}");
    for order in ["", "&order=oldest"] {
        let none = measure(at, &format!("/log?hours=500&status=5xx{order}"), time_max);
        let none = look_on(at, none, time_max);
        assert!(none.contains("No rows"), "{none}");
        let some = measure(at, &format!("/log?hours=500&status=200&key={}{order}", key), time_max);
        assert!(look_on(at, some, time_max).contains("4,321"), "{order}");
    }
    let log = measure(at, "/log?hours=72&order=oldest", time_max);
    let log = look_on(at, log, time_max);
    assert!(log.contains("Further rows"), "{log}");
    let export = at.1.get("/log/export/jsonl?hours=72");
    let kept = export.header("content-disposition").unwrap();
    assert!(kept.contains("weir-log-part.jsonl"), "{kept}");
    let text = export.text();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 10_001, "as many as an export has, and where to go on");
    let last: serde_json::Value = serde_json::from_str(lines[10_000]).unwrap();
    let next = format!("/log?hours=72&order=oldest&cursor={}", last["next"].as_str().unwrap());
    let next = measure(at, &next, time_max);
    assert!(look_on(at, next, time_max).contains("4,321"));
}
