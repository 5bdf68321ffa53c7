//! A gateway and a provider that plays its part as the case at hand says.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::Value as Json;

use super::varying::Varying;
use crate::harness::answer::Answer;
use crate::harness::client::{Client, Head, Piece, Response};
use crate::harness::h2c::{self, EndStream, Length};
use crate::harness::provider::Recorded;
use crate::harness::request::Upload;
use crate::harness::rules::RuleFolder;
use crate::harness::{RecordingProvider, Request, Weir, WeirBuilder, wait_for, wait_until};

/// What the provider does at the attempt of this number, counted from 0.
pub(super) type Script = Arc<dyn Fn(usize, &Recorded, &mut Answer<'_>) + Send + Sync>;
type Act = Box<dyn Fn(&mut Stage) -> String>;

/// One kind of request: the provider's part, and the client's, which returns what the client read.
pub(super) struct Case {
    pub(super) name: String,
    script: Script,
    act: Act,
}

impl Case {
    pub(super) fn new(
        name: impl Into<String>,
        script: impl Fn(usize, &Recorded, &mut Answer<'_>) + Send + Sync + 'static,
        act: impl Fn(&mut Stage) -> String + 'static,
    ) -> Case {
        Case {
            name: name.into(),
            script: Arc::new(script),
            act: Box::new(act),
        }
    }

    /// One that no provider hears of.
    pub(super) fn of_weir(name: impl Into<String>, act: impl Fn(&mut Stage) -> String + 'static) -> Case {
        Case::new(name, |_, _, answer| answer.least(), act)
    }
}

/// The gateway, the provider, and what both have seen before the case at hand.
pub(super) struct Stage {
    pub(super) weir: Weir,
    pub(super) provider: RecordingProvider,
    pub(super) key: String,
    script: Arc<Mutex<Script>>,
    attempts: Arc<AtomicUsize>,
    /// How many connections to the provider are open: each serves one request, so that none is met which is about to close.
    open: Arc<AtomicUsize>,
    _rules: Option<RuleFolder>,
}

impl Stage {
    /// Starts a provider, and the gateway that `build` makes for its address.
    pub(super) fn start(build: impl FnOnce(&str) -> (Option<RuleFolder>, WeirBuilder)) -> Stage {
        let script: Arc<Mutex<Script>> = Arc::new(Mutex::new(Arc::new(|_, _, answer: &mut Answer<'_>| answer.least())));
        let attempts = Arc::new(AtomicUsize::new(0));
        let open = Arc::new(AtomicUsize::new(0));
        let (now, count, connections) = (Arc::clone(&script), Arc::clone(&attempts), Arc::clone(&open));
        let provider = RecordingProvider::start(move |request, answer| {
            let script = Arc::clone(&now.lock().unwrap());
            connections.fetch_add(1, Ordering::SeqCst);
            script(count.fetch_add(1, Ordering::SeqCst), request, answer);
            answer.leave();
            connections.fetch_sub(1, Ordering::SeqCst);
        });
        let (rules, builder) = build(&provider.base_url());
        let weir = builder.start();
        let key = weir.key().text;
        Stage {
            weir,
            provider,
            key,
            script,
            attempts,
            open,
            _rules: rules,
        }
    }

    /// A gateway with every shipped provider at one address.
    pub(super) fn shipped(build: impl FnOnce(WeirBuilder) -> WeirBuilder) -> Stage {
        Stage::start(|url| (None, build(WeirBuilder::new().all_providers(url))))
    }

    /// Plays a case; what came of it.
    pub(super) fn play(&mut self, case: &Case) -> String {
        *self.script.lock().unwrap() = Arc::clone(&case.script);
        self.attempts.store(0, Ordering::SeqCst);
        self.rest();
        let before = Seen::of(self);
        let read = (case.act)(self);
        let seen = self.rest_after(&before);
        seen.since(&before, &read, &self.provider)
    }

    /// Plays a case after which the gateway has ended; what came of it. Another process reads the rows.
    pub(super) fn play_to_the_end(&mut self, case: &Case) -> String {
        *self.script.lock().unwrap() = Arc::clone(&case.script);
        let read = (case.act)(self);
        assert!(self.weir.process().wait_ended().success());
        self.weir.kill_and_restart();
        let mut seen = Seen::of(self);
        seen.counters.clear();
        seen.since(&Seen::default(), &read, &self.provider)
    }

    /// How many attempts the provider has seen since the case began.
    pub(super) fn attempts(&self) -> usize {
        self.attempts.load(Ordering::SeqCst)
    }

    /// Waits until nothing runs and nothing is owed.
    fn rest(&self) {
        wait_until("nothing to run", || {
            if self.open.load(Ordering::SeqCst) > 0 {
                return false;
            }
            let metrics = self.weir.metrics();
            let is_zero = |name: &str| metrics.contains(&format!("\n{name} 0\n"));
            [
                "weir_requests_in_flight",
                "weir_detached_answers",
                "weir_settlements_unacknowledged",
            ]
            .into_iter()
            .all(is_zero)
        });
    }

    /// What has been seen when each request that ended has its line.
    fn rest_after(&self, before: &Seen) -> Seen {
        wait_for("the requests' lines", || {
            self.rest();
            let seen = Seen::of(self);
            let ended = seen.ended() - before.ended();
            (ended > 0.0 && (seen.lines.len() - before.lines.len()) as f64 == ended).then_some(seen)
        })
    }

    /// Sends over a connection of its own; what the client read.
    pub(super) fn ask(&self, request: &Request) -> String {
        self.ask_as(request, Upload::Length)
    }

    pub(super) fn ask_as(&self, request: &Request, upload: Upload) -> String {
        let mut client = self.weir.connect();
        client.write(&request.bytes(upload));
        read(&mut client, &request.method)
    }

    /// The same over HTTP/2.
    pub(super) fn ask_h2(&self, request: &Request) -> String {
        let answer = h2c::exchange(self.weir.gateway, request, EndStream::OnLastFrame, Length::Said);
        told_h2(&answer)
    }
}

/// Reads an answer as text: its heads byte for byte, and its body without the framing.
pub(super) fn read(client: &mut Client, method: &str) -> String {
    let mut text = String::new();
    let head = loop {
        let Some(head) = client.try_head_to(method) else {
            return text + "(closed)\n";
        };
        text.push_str(&head.text);
        if head.status >= 200 {
            break head;
        }
    };
    text + &read_body(client, head)
}

/// Reads the rest of an answer as text.
pub(super) fn read_body(client: &mut Client, mut head: Head) -> String {
    let mut body = Vec::new();
    let end = loop {
        match client.piece(&mut head) {
            Piece::Data(data) => body.extend_from_slice(&data),
            Piece::End => break "(whole)",
            Piece::Cut => break "(cut)",
        }
    };
    format!("{}\n{end}\n", String::from_utf8_lossy(&body))
}

fn told_h2(answer: &Response) -> String {
    let headers: String = answer
        .headers
        .iter()
        .map(|(name, value)| format!("{name}: {value}\n"))
        .collect();
    let end = if answer.complete { "(whole)" } else { "(cut)" };
    format!("{}\n{headers}\n{}\n{end}\n", answer.status, answer.text())
}

/// What a gateway and its provider have seen.
#[derive(Default)]
struct Seen {
    lines: Vec<Json>,
    rows: Vec<Json>,
    counters: BTreeMap<String, f64>,
    requests: usize,
}

impl Seen {
    fn of(stage: &Stage) -> Seen {
        let mut lines = stage.weir.access_lines();
        // A line is written when its request has ended, and begins with the time at which it came.
        lines.sort_by(|one, other| one["time"].as_str().cmp(&other["time"].as_str()));
        Seen {
            lines,
            rows: stage.weir.rows(),
            counters: counters(&stage.weir.metrics()),
            requests: stage.provider.count(),
        }
    }

    fn ended(&self) -> f64 {
        let of_requests = |(name, _): &(&String, &f64)| name.starts_with("weir_requests_total");
        self.counters.iter().filter(of_requests).map(|(_, count)| count).sum()
    }

    /// The transcript of what came since `before`.
    fn since(&self, before: &Seen, read: &str, provider: &RecordingProvider) -> String {
        let lines = &self.lines[before.lines.len()..];
        let known: Vec<&Json> = before.rows.iter().map(|row| &row["request_id"]).collect();
        let rows: Vec<&Json> = self
            .rows
            .iter()
            .filter(|row| !known.contains(&&row["request_id"]))
            .collect();
        let varying = Varying::of(lines, provider.address());
        let mut text = format!("# the client read\n{}", read.replace("\r\n", "\n"));
        text.push_str("\n# the provider was asked\n");
        for request in &provider.requests()[before.requests..self.requests] {
            text.push_str(&format!("{} {}\n", request.method, request.target));
        }
        text.push_str("\n# access log\n");
        lines.iter().for_each(|line| text.push_str(&varying.json(line)));
        text.push_str("\n# rows\n");
        rows.iter().for_each(|row| text.push_str(&varying.json(row)));
        text.push_str("\n# counters\n");
        for (name, now) in &self.counters {
            let rise = now - before.counters.get(name).copied().unwrap_or(0.0);
            if rise != 0.0 {
                text.push_str(&format!("{name} +{rise}\n"));
            }
        }
        varying.text(&text)
    }
}

/// Counters that rise by themselves, or by how long something took.
const UNSTEADY: [&str; 3] = ["process_", "weir_store_", "weir_key_cache_total"];

/// The counters of a Prometheus text, and how many values its histograms have.
fn counters(metrics: &str) -> BTreeMap<String, f64> {
    let kind_of: BTreeMap<&str, &str> = metrics
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '))
        .collect();
    let sample = |line: &str| {
        let (name, value) = line.rsplit_once(' ')?;
        let family = name.split('{').next()?;
        let counts = kind_of.get(family) == Some(&"counter")
            || family
                .strip_suffix("_count")
                .is_some_and(|family| kind_of.get(family) == Some(&"histogram"));
        let is_steady = UNSTEADY.iter().all(|start| !family.starts_with(start));
        (counts && is_steady).then(|| Some((name.to_owned(), value.parse().ok()?)))?
    };
    metrics
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(sample)
        .collect()
}
