//! What coding agents make of weir's limits. What stays until somebody acts or a period ends stops them after one request,
//! with weir's words on the screen; what passes by itself they wait for.

use serde_json::{Value as Json, json};
use tempfile::TempDir;

use super::{Agent, CLAUDE_CODE, CODEX, GEMINI_CLI, LIMIT};
use crate::harness::node::{Finished, node, node_modules};
use crate::harness::request::{Upload, Wire};
use crate::harness::sample::SampleProvider;
use crate::harness::tools::skip;
use crate::harness::wait::wait_within;
use crate::harness::weir::Key;
use crate::harness::{Weir, wait_for, wait_until};

/// Claude Code signed in to a gateway, as its `/login` leaves it. It reads refusals in another way than with a key.
const CLAUDE_CODE_SIGNED_IN: Agent = Agent {
    files: |base_url, key| {
        let signed_in = json!({
            "gatewayTrust": {"127.0.0.1": "http-loopback"},
            "enterpriseGateway": {
                "url": base_url,
                "jwt": key,
                "expiresAt": 4_102_444_800_000_u64,
                "tokenEndpoint": format!("{base_url}/oauth/token"),
                "vouchedAtLogin": false,
            },
        });
        vec![("claude/.credentials.json", signed_in.to_string())]
    },
    environment: |home, base_url, key| {
        let mut variables = (CLAUDE_CODE.environment)(home, base_url, key);
        variables.retain(|(name, _)| !matches!(*name, "ANTHROPIC_BASE_URL" | "ANTHROPIC_API_KEY"));
        variables
    },
    ..CLAUDE_CODE
};

/// A limit that no waiting helps against.
struct Spent {
    /// What the access log calls it.
    reason: &'static str,
    /// What stands on the screen.
    words: &'static str,
    /// A key for which it holds.
    key: fn(&Weir) -> Key,
}

const SPENT: [Spent; 3] = [
    Spent {
        reason: "quota_exhausted",
        words: "This API key has used up its quota of 0.00001 USD for the day. Have it raised or removed, or ",
        key: |weir| spent(weir, weir.key_with(&["--quota-usd", "0.00001", "--reset", "daily"])),
    },
    Spent {
        reason: "balance_exhausted",
        words: "The account of this API key has no balance left. Have credit added to it",
        key: |weir| spent(weir, key_of(weir, "poor")),
    },
    Spent {
        reason: "account_suspended",
        words: "The account of this API key is suspended. Ask the operator of this service",
        key: |weir| {
            let key = key_of(weir, "suspended");
            weir.cli_json(&["account", "suspend", "--id", "suspended"]);
            key
        },
    },
];

/// A key of a new account that has hardly any money.
fn key_of(weir: &Weir, account: &str) -> Key {
    weir.cli_json(&["account", "create", "--id", account, "--balance-usd", "0.00001"]);
    let made = weir.cli_json(&["key", "create", "--account", account, "--name", "an agent's key"]);
    let text = |name: &str| made[name].as_str().unwrap().to_owned();
    Key {
        id: text("id"),
        text: text("key"),
    }
}

/// The key, when what it may spend has been spent, and the access log has the lines of all that.
fn spent(weir: &Weir, key: Key) -> Key {
    wait_until("the money to be spent", || {
        let answer = weir.exchange(&Wire::Messages.request(&key.text, "hi"));
        if answer.status != 429 {
            return false;
        }
        weir.access_line(answer.header("request-id").unwrap());
        answer.header("x-should-retry") == Some("false")
    });
    key
}

fn is_installed() -> bool {
    node().is_some() && node_modules("tests/agents").is_some()
}

/// How many refusals the access log has for this reason.
fn refusals(weir: &Weir, reason: &str) -> usize {
    let log = std::fs::read_to_string(weir.folder().join("access.jsonl")).unwrap_or_default();
    // Asked often, of a log that grows: not parsed.
    log.matches(&format!(r#""refusal":"{reason}""#)).count()
}

pub(super) fn screen(finished: &Finished) -> String {
    format!("({:?})\n{}\n{}", finished.took, finished.out, finished.err)
}

/// With what is spent `agent` makes at most `requests_max` requests and tells its user why it stops; `comes_back` stands behind
/// weir's words about a quota that is reset.
#[track_caller]
pub(super) fn stops_at_once(agent: &Agent, requests_max: usize, comes_back: &str) {
    if !is_installed() {
        skip!("Node or tests/agents/node_modules is not there: tests/run makes them");
    }
    let sample = SampleProvider::start();
    let weir = Weir::start(&sample.base_url());
    for (limit, comes_back) in SPENT.iter().zip([comes_back, "", ""]) {
        let key = (limit.key)(&weir);
        let (bills, before) = (sample.bills().len(), refusals(&weir, limit.reason));
        let work = TempDir::new().unwrap();
        let finished = agent.ask(&weir, &key.text, work.path(), "Say something.").unwrap();
        let screen = screen(&finished);
        assert!(!finished.status.success() && !finished.timed_out(), "{screen}");
        wait_until("the line of the refusal", || refusals(&weir, limit.reason) > before);
        let refused = refusals(&weir, limit.reason) - before;
        assert!(refused <= requests_max, "{refused} {} {screen}", limit.reason);
        assert_eq!(sample.bills().len(), bills, "nothing is forwarded");
        let words = format!("{}{comes_back}", limit.words);
        assert!(screen.contains(&words), "{words}\n{screen}");
    }
}

/// `agent` asks with `key` until `is_refused` says that it was refused; then it is helped by `help`, tries again as it was told
/// and gets its answer. False when it got that at once.
#[track_caller]
fn waits_and_goes_on(
    agent: &Agent,
    weir: &Weir,
    key: &Key,
    mut is_refused: impl FnMut() -> bool,
    help: impl FnOnce(),
) -> bool {
    let (finished, was_refused) = std::thread::scope(|scope| {
        let turn = scope.spawn(|| {
            let work = TempDir::new().unwrap();
            agent.ask(weir, &key.text, work.path(), "Say something.").unwrap()
        });
        let was_refused = wait_within(LIMIT, || match turn.is_finished() {
            true => Some(is_refused()),
            false => is_refused().then_some(true),
        });
        help();
        (turn.join().unwrap(), was_refused == Some(true))
    });
    let screen = screen(&finished);
    assert!(finished.status.success(), "{} {screen}", finished.status);
    let served = |line: &Json| line["model"] == agent.model && line["outcome"] == "ok" && line["key_id"] == *key.id;
    wait_until("the line of the answer", || weir.access_lines().iter().any(served));
    was_refused
}

/// Whoever is too fast, or finds the money held by a request that runs, gets through a little later.
#[track_caller]
pub(super) fn waits_for_what_passes(agent: &Agent) {
    if !is_installed() {
        skip!("Node or tests/agents/node_modules is not there: tests/run makes them");
    }
    let sample = SampleProvider::start();
    let weir = Weir::start(&sample.base_url());

    let small = weir.key_with(&["--quota-usd", "0.0001"]);
    let mut running = weir.connect();
    let request = Wire::Messages.streaming(&small.text, "[[sample: deltas=3 stall_after=1]]");
    running.write(&request.bytes(Upload::Length));
    let _head = running.head_to("POST");
    let is_refused = || refusals(&weir, "funds_held") > 0;
    let raise = || {
        weir.cli_json(&["key", "update", &small.id, "--quota-usd", "100"]);
    };
    assert!(waits_and_goes_on(agent, &weir, &small, is_refused, raise));

    // The limit is kept used up until the agent has run into it, too; now and then it gets the one request that comes free
    // every three seconds.
    let was_refused = (0..5).any(|_| {
        let fast = weir.key_with(&["--rpm", "20"]);
        let (mut own, before) = (0, refusals(&weir, "requests_limited"));
        let is_refused = || {
            own += usize::from(weir.exchange(&Wire::Messages.request(&fast.text, "hi")).status == 429);
            refusals(&weir, "requests_limited") > before + own
        };
        waits_and_goes_on(agent, &weir, &fast, is_refused, || ())
    });
    assert!(was_refused);
}

/// An answer that is cut because nothing is left ends the agent's turn within `requests_max` requests, with `words`.
#[track_caller]
pub(super) fn stops_when_cut(agent: &Agent, requests_max: usize, words: &str) {
    if !is_installed() {
        skip!("Node or tests/agents/node_modules is not there: tests/run makes them");
    }
    let sample = SampleProvider::start();
    let weir = Weir::start(&sample.base_url());
    let key = weir.key_with(&["--quota-usd", "0.001", "--on-exhausted", "cut"]);
    let work = TempDir::new().unwrap();
    let prompt = "Tell me. [[sample: deltas=2000 delta_bytes=40 gap_ms=5]]";
    let finished = agent.ask(&weir, &key.text, work.path(), prompt).unwrap();
    let screen = screen(&finished);
    assert!(!finished.timed_out(), "{screen}");
    let lines = wait_for("the line of the answer that was cut", || {
        let lines = weir.access_lines();
        lines
            .iter()
            .any(|line| line["outcome"] == "limit_reached")
            .then_some(lines)
    });
    // A socket's handshake is no request, nor is the warm-up that weir answers by itself. A refusal is one.
    let is_warm_up = |line: &Json| line["transport"] == "websocket" && line["attempts"] == 0 && line["outcome"] == "ok";
    let is_request = |line: &&Json| line["key_id"] == *key.id && !is_warm_up(line);
    let asked = lines.iter().filter(is_request).count();
    assert!(asked <= requests_max, "{asked} requests {lines:?} {screen}");
    assert!(screen.contains(words), "{screen}");
}

#[test]
fn claude_code_stops_at_once_when_money_is_spent_and_shows_why() {
    stops_at_once(&CLAUDE_CODE, 1, "wait until it resets at 20");
}

#[test]
fn claude_code_signed_in_stops_at_once_when_money_is_spent_and_shows_why() {
    stops_at_once(&CLAUDE_CODE_SIGNED_IN, 1, "wait until it resets at 20");
}

#[test]
fn codex_stops_at_once_when_money_is_spent_and_shows_why() {
    // Its own words about the time: in the user's time zone.
    stops_at_once(&CODEX, 1, "try again at ");
}

#[test]
fn gemini_cli_stops_at_once_when_money_is_spent_and_shows_why() {
    stops_at_once(&GEMINI_CLI, 1, "wait until it resets at 20");
}

#[test]
fn claude_code_waits_for_what_passes() {
    waits_for_what_passes(&CLAUDE_CODE);
}

#[test]
fn codex_waits_for_what_passes() {
    waits_for_what_passes(&CODEX);
}

#[test]
fn gemini_cli_waits_for_what_passes() {
    waits_for_what_passes(&GEMINI_CLI);
}

#[test]
fn claude_code_shows_why_an_answer_was_cut() {
    // It asks once more without a stream, and is refused.
    stops_when_cut(&CLAUDE_CODE, 2, "This API key has used up its quota");
}

#[test]
fn codex_stops_when_an_answer_is_cut() {
    // In the middle of a stream its own words win.
    stops_when_cut(&CODEX, 1, "Quota exceeded. Check your plan and billing details.");
}

#[test]
fn gemini_cli_shows_why_an_answer_was_cut() {
    stops_when_cut(&GEMINI_CLI, 2, "This API key has used up its quota");
}
