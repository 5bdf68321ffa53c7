//! Codex over WebSocket: it keeps its conversation on one socket, and goes on by itself whatever ends that.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value as Json, json};
use tempfile::TempDir;

use super::limits::{screen, stops_at_once, stops_when_cut, waits_for_what_passes};
use super::{Agent, CODEX, LIMIT, Websockets, finishes_a_turn, gives_up_with_a_wrong_key};
use crate::harness::answer::Answer;
use crate::harness::node::{Finished, node, node_modules};
use crate::harness::port::free_port;
use crate::harness::provider::Recorded;
use crate::harness::rules::RuleFolder;
use crate::harness::socket_provider::{Act, SocketProvider, Way};
use crate::harness::tools::{note, rounds, skip};
use crate::harness::wait::wait_within;
use crate::harness::weir::Key;
use crate::harness::{RecordingProvider, Steps, Weir, WeirBuilder, wait_for, wait_until};

/// Codex, told that the gateway serves sockets.
pub(super) const CODEX_OVER_SOCKETS: Agent = Agent {
    files: |base_url, key| {
        let mut files = (CODEX.files)(base_url, key);
        files
            .iter_mut()
            .for_each(|(_, settings)| settings.push_str("supports_websockets = true\n"));
        files
    },
    ..CODEX
};

/// What the last request of a turn is answered.
const LAST_WORD: &str = "the turn is over";
/// The number of requests that Codex sends by POST or on a socket with a key that is refused: a handshake at its start and six more,
/// then six POSTs.
const REFUSED_REQUESTS_MAX: usize = 13;

fn is_installed() -> bool {
    node().is_some() && node_modules("tests/agents").is_some()
}

/// Whether this run has the long forms, too: those in which Codex tries again for several seconds.
fn is_long() -> bool {
    rounds(0, 1) == 1
}

/// A turn of Codex with a tool that is called so many times.
#[derive(Clone, Copy)]
struct Script {
    calls: usize,
    /// The call, from 1, whose command waits until it is let go on.
    waits: Option<usize>,
    /// The request, from 1, in whose answer the provider waits for a step.
    held: Option<usize>,
}

/// The files with which a command and its test wait for each other.
const AT: &str = "the-command-has-come";
const GO_ON: &str = "the-command-may-go-on";

impl Script {
    /// A provider that plays it: Codex sends the results of all calls so far with each request, so these number the requests.
    fn provider(self, steps: &Steps) -> RecordingProvider {
        let steps = steps.clone();
        RecordingProvider::start(move |request, answer| {
            let number = results(request) + 1;
            let events = events(number, &self.item(number));
            stream(&events, answer, self.held == Some(number), &steps);
        })
    }

    /// The same provider, with a WebSocket.
    fn socket_provider(self) -> SocketProvider {
        SocketProvider::start(&Steps::default(), move |asked| {
            let number = number_of(&asked.body);
            events(number, &self.item(number)).map(Act::Event).to_vec()
        })
    }

    /// What the provider answers to the request with this number.
    fn item(self, number: usize) -> Json {
        let command = match self.waits == Some(number) {
            true => format!("touch {AT}; until [ -e {GO_ON} ]; do sleep 0.05; done; echo heron"),
            false => "echo heron".to_owned(),
        };
        match number <= self.calls {
            true => call(number, &command),
            false => message(number),
        }
    }
}

/// The number of results of calls in a request.
fn results(request: &Recorded) -> usize {
    results_in(&serde_json::from_slice(&request.body).unwrap_or_default())
}

/// The number of a request, counted from 1: it has the results of all calls so far, or continues the response before it by its id.
fn number_of(body: &Json) -> usize {
    let parent = body["previous_response_id"].as_str();
    let before = parent.map(|id| id.strip_prefix("resp_").unwrap().parse().unwrap());
    before.unwrap_or_else(|| results_in(body)) + 1
}

fn results_in(body: &Json) -> usize {
    let items = body["input"].as_array().map(Vec::as_slice).unwrap_or_default();
    let is_result = |item: &&Json| item["type"] == "custom_tool_call_output";
    items.iter().filter(is_result).count()
}

fn call(number: usize, command: &str) -> Json {
    let command = json!({ "cmd": command });
    let program = format!("const result = await tools.exec_command({command}); text(result.output);");
    json!({"type": "custom_tool_call", "id": format!("ctc_{number}"), "call_id": format!("call_{number}"),
        "name": "exec", "input": program, "status": "completed"})
}

fn message(number: usize) -> Json {
    json!({"type": "message", "id": format!("msg_{number}"), "role": "assistant", "status": "completed",
        "content": [{"type": "output_text", "text": LAST_WORD, "annotations": []}]})
}

/// The events of a response with one item.
fn events(number: usize, item: &Json) -> [Json; 4] {
    let id = format!("resp_{number}");
    let started = json!({"id": id, "object": "response", "created_at": 1, "status": "in_progress", "model": "gpt",
        "output": [], "usage": null});
    let mut ended = started.clone();
    ended["status"] = "completed".into();
    ended["output"] = json!([item]);
    ended["usage"] = json!({"input_tokens": 100, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 10,
        "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 110});
    [
        json!({"type": "response.created", "sequence_number": 0, "response": started}),
        json!({"type": "response.output_item.added", "sequence_number": 1, "output_index": 0, "item": item}),
        json!({"type": "response.output_item.done", "sequence_number": 2, "output_index": 0, "item": item}),
        json!({"type": "response.completed", "sequence_number": 3, "response": ended}),
    ]
}

/// Sends the events of a response. Held, it waits for a step behind the first one.
fn stream(events: &[Json], answer: &mut Answer<'_>, is_held: bool, steps: &Steps) {
    answer.sse();
    for (at, event) in events.iter().enumerate() {
        if at == 1 && is_held && !steps.wait(1) {
            return answer.cut();
        }
        let name = event["type"].as_str().unwrap();
        answer.chunk(format!("event: {name}\ndata: {event}\n\n"));
    }
    answer.end();
}

/// A turn whose tool runs in `work`.
#[track_caller]
fn turn(weir: &Weir, key: &Key, work: &Path) -> Finished {
    let finished = CODEX_OVER_SOCKETS.ask(weir, &key.text, work, "Do as you are told.");
    finished.expect("Codex is installed")
}

/// The same, with something that is done when its command waits.
#[track_caller]
fn turn_with(weir: &mut Weir, key: &Key, event: impl FnOnce(&mut Weir)) -> Finished {
    let work = TempDir::new().unwrap();
    // The gateway's address stays the same, whatever happens to its process.
    let asked = CODEX_OVER_SOCKETS.begin(weir, &key.text, "Do as you are told.");
    std::thread::scope(|scope| {
        let running = scope.spawn(|| asked.expect("Codex is installed").run(work.path()));
        wait_until("the command to be run", || {
            work.path().join(AT).exists() || running.is_finished()
        });
        event(weir);
        std::fs::write(work.path().join(GO_ON), "").unwrap();
        running.join().unwrap()
    })
}

#[track_caller]
fn assert_over(finished: &Finished) {
    let screen = screen(finished);
    assert!(finished.status.success(), "{} {screen}", finished.status);
    assert!(finished.out.contains(LAST_WORD), "{screen}");
}

/// The lines of the access log about handshakes that opened a socket.
fn handshakes(weir: &Weir) -> usize {
    let lines = weir.access_lines();
    let opened = |line: &&Json| line["operation"] == "socket" && line["status"] == 101;
    lines.iter().filter(opened).count()
}

/// The lines of the access log about requests that a provider answered.
fn served(weir: &Weir) -> Vec<Json> {
    let mut lines = weir.access_lines();
    lines.retain(|line| line["provider"].is_string());
    lines
}

fn weir_at(provider: &RecordingProvider) -> WeirBuilder {
    WeirBuilder::new().all_providers(&provider.base_url())
}

#[test]
fn codex_finishes_a_turn_with_a_tool_on_a_socket() {
    finishes_a_turn(&CODEX_OVER_SOCKETS, Websockets::Served);
}

#[test]
fn codex_sends_only_what_is_new_over_ten_requests_with_tools() {
    if !is_installed() {
        skip!("Node or tests/agents/node_modules is not there: tests/run makes them");
    }
    const REQUESTS: usize = 10;
    let script = Script {
        calls: REQUESTS - 1,
        waits: None,
        held: None,
    };
    let provider = script.provider(&Steps::default());
    let weir = weir_at(&provider).start();
    let key = weir.key();
    let work = TempDir::new().unwrap();
    let finished = turn(&weir, &key, work.path());
    assert_over(&finished);
    // Each reached the provider with everything.
    let requests = provider.requests();
    let numbers: Vec<usize> = requests.iter().map(results).collect();
    assert_eq!(numbers, (0..REQUESTS).collect::<Vec<usize>>());
    for request in &requests {
        let body: Json = serde_json::from_slice(&request.body).unwrap();
        for name in ["previous_response_id", "generate", "type", "stream_id"] {
            assert_eq!(body.get(name), None, "{name}");
        }
        assert_eq!(body["stream"], true);
        assert_eq!(request.header_values("openai-beta"), Vec::<&str>::new());
    }
    // On one socket, continued from the warm-up on.
    wait_until("the line of the last request", || served(&weir).len() == REQUESTS);
    assert_eq!(handshakes(&weir), 1);
    for line in served(&weir) {
        assert_eq!(
            (&line["transport"], &line["outcome"]),
            (&"websocket".into(), &"ok".into()),
            "{line}"
        );
    }
    let found = format!("weir_socket_continuations_total{{state=\"found\"}} {REQUESTS}\n");
    assert!(weir.metrics().contains(&found), "{}", weir.metrics());
    assert!(
        weir.metrics()
            .contains("weir_socket_continuations_total{state=\"gone\"} 0\n"),
        "{}",
        weir.metrics()
    );
    note(&format!(
        "agents: {REQUESTS} requests of Codex on a socket, {:?}",
        finished.took
    ));
}

#[test]
fn codex_reaches_the_websocket_of_the_provider_over_four_requests_with_tools() {
    if !is_installed() {
        skip!("Node or tests/agents/node_modules is not there: tests/run makes them");
    }
    const REQUESTS: usize = 4;
    let script = Script {
        calls: REQUESTS - 1,
        waits: None,
        held: None,
    };
    let provider = script.socket_provider();
    let weir = RuleFolder::over_websocket().into_weir_at(&provider.base_url()).start();
    let key = weir.key();
    let work = TempDir::new().unwrap();
    let finished = turn(&weir, &key, work.path());
    assert_over(&finished);
    let asked = provider.asked();
    assert_eq!(provider.ways(), [Way::Line(0); REQUESTS]);
    for (before, asked) in asked.iter().enumerate() {
        // Behind the first one only what is new is sent.
        assert_eq!(number_of(&asked.body), before + 1);
        assert_eq!(results_in(&asked.body), before.min(1));
        for name in ["stream", "stream_id", "generate", "background"] {
            assert_eq!(asked.body.get(name), None, "{name}");
        }
    }
    assert_eq!(provider.handshakes()[0].header("openai-beta"), None);
    wait_until("the line of the last request", || served(&weir).len() == REQUESTS);
    assert!(served(&weir).iter().all(|line| line["outcome"] == "ok"));
    assert_eq!(handshakes(&weir), 1);
    note(&format!(
        "agents: {REQUESTS} requests of Codex on a socket, and on one to the provider, {:?}",
        finished.took
    ));
}

/// How Codex goes on after its socket has ended, or its conversation has been dropped, between two requests of a turn.
#[track_caller]
fn goes_on(build: impl FnOnce(WeirBuilder) -> WeirBuilder, event: impl FnOnce(&mut Weir)) -> Weir {
    let script = Script {
        calls: 3,
        waits: Some(2),
        held: None,
    };
    let provider = script.provider(&Steps::default());
    let mut weir = build(weir_at(&provider)).start();
    let key = weir.key();
    let finished = turn_with(&mut weir, &key, event);
    assert_over(&finished);
    assert!(!finished.err.contains("Falling back"), "{}", screen(&finished));
    let mut numbers: Vec<usize> = provider.requests().iter().map(results).collect();
    numbers.dedup();
    assert_eq!(numbers, [0, 1, 2, 3], "nothing is lost");
    weir
}

#[test]
fn codex_goes_on_after_an_upgrade_between_two_requests() {
    if !is_installed() {
        skip!("Node or tests/agents/node_modules is not there: tests/run makes them");
    }
    let mut weir = goes_on(
        |builder| builder,
        |weir| {
            weir.upgrade();
        },
    );
    weir.wait_for_predecessors();
    assert_eq!(handshakes(&weir), 2);
    weir.books(4);
}

#[test]
fn codex_goes_on_after_its_socket_has_reached_its_age() {
    if !is_installed() {
        skip!("Node or tests/agents/node_modules is not there: tests/run makes them");
    }
    let weir = goes_on(
        |builder| builder.set("sockets.lifetime_seconds", 3),
        |weir| {
            let ended = "weir_sockets_total{end=\"lifetime\"} 1\n";
            wait_until(ended, || weir.metrics().contains(ended));
        },
    );
    assert!(handshakes(&weir) >= 2);
    weir.books(4);
}

#[test]
fn codex_goes_on_without_memory_for_its_conversation() {
    if !is_installed() {
        skip!("Node or tests/agents/node_modules is not there: tests/run makes them");
    }
    let weir = goes_on(|builder| builder.set("sockets.state_bytes_max", 0), |_| ());
    assert!(
        !weir
            .metrics()
            .contains("weir_socket_continuations_total{state=\"gone\"} 0\n")
    );
    weir.books(4);
}

#[test]
fn codex_goes_on_after_the_process_has_died_in_the_middle_of_an_answer() {
    if !is_installed() {
        skip!("Node or tests/agents/node_modules is not there: tests/run makes them");
    }
    let steps = Steps::default();
    let script = Script {
        calls: 2,
        waits: None,
        held: Some(2),
    };
    let provider = script.provider(&steps);
    let address = format!("127.0.0.1:{}", free_port());
    let mut weir = weir_at(&provider).set("gateway.listen", address).start();
    let key = weir.key();
    let work = TempDir::new().unwrap();
    let asked = CODEX_OVER_SOCKETS.begin(&weir, &key.text, "Do as you are told.");
    let finished = std::thread::scope(|scope| {
        let running = scope.spawn(|| asked.expect("Codex is installed").run(work.path()));
        wait_until("the second request", || provider.count() == 2 || running.is_finished());
        weir.kill_and_restart();
        steps.permit();
        running.join().unwrap()
    });
    assert_over(&finished);
    let books = weir.books(4);
    let crashed = books.rows.iter().filter(|row| row["outcome"] == "crash").count();
    assert_eq!(crashed, 1, "{:?}", books.rows);
}

#[test]
fn codex_stops_on_a_socket_when_money_is_spent_and_shows_why() {
    // What it sends before it knows the prompt may be refused, too: nobody sees that.
    stops_at_once(&CODEX_OVER_SOCKETS, 2, "try again at ");
}

#[test]
fn codex_stops_on_a_socket_when_an_answer_is_cut() {
    stops_when_cut(
        &CODEX_OVER_SOCKETS,
        2,
        "Quota exceeded. Check your plan and billing details.",
    );
}

#[test]
fn codex_waits_on_a_socket_for_what_passes() {
    if !is_long() {
        return;
    }
    waits_for_what_passes(&CODEX_OVER_SOCKETS);
}

#[test]
fn codex_gives_up_on_a_socket_with_a_wrong_key() {
    if !is_long() {
        return;
    }
    gives_up_with_a_wrong_key(&CODEX_OVER_SOCKETS, REFUSED_REQUESTS_MAX);
}

#[test]
fn codex_gives_up_when_its_key_is_revoked_between_two_requests_and_shows_why() {
    if !is_long() {
        return;
    }
    if !is_installed() {
        skip!("Node or tests/agents/node_modules is not there: tests/run makes them");
    }
    let script = Script {
        calls: 3,
        waits: Some(2),
        held: None,
    };
    let provider = script.provider(&Steps::default());
    let mut weir = weir_at(&provider).start();
    let key = weir.key();
    let finished = turn_with(&mut weir, &key, |weir| {
        weir.cli_json(&["key", "revoke", &key.id]);
    });
    let screen = screen(&finished);
    assert!(!finished.status.success() && !finished.timed_out(), "{screen}");
    assert!(screen.contains("401 Unauthorized"), "{screen}");
    assert_eq!(provider.count(), 2, "nothing more was forwarded");
    let refused = wait_for("the lines of the refusals", || {
        let lines = weir.access_lines();
        let refused = lines.iter().filter(|line| line["status"] == 401).count();
        (refused > 0).then_some(refused)
    });
    assert!(refused <= REFUSED_REQUESTS_MAX + 1, "{refused}");
    assert!(
        wait_within(Duration::from_secs(5), || (weir.figure("weir_sockets_open") == 0)
            .then_some(()))
        .is_some()
    );
    assert!(finished.took < LIMIT, "{:?}", finished.took);
}
