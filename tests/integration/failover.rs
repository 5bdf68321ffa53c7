//! A provider that fails: the next one serves, from the first request on; what failed is remembered and passed over, asked
//! again by one request at a time, and the bill is that of the provider that served.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::harness::at_end::SetAtEnd;
use crate::harness::provider::Recorded;
use crate::harness::request::{Upload, Wire};
use crate::harness::rules::RuleFolder;
use crate::harness::tools::{note, rounds};
use crate::harness::wait::DEADLINE;
use crate::harness::{RecordingProvider, Request, Weir, WeirBuilder, wait_until};

const OK: &str = r#"{"id":"msg_1","type":"message","role":"assistant","content":[{"type":"text","text":"hi"}],"stop_reason":"end_turn","usage":{"input_tokens":100,"output_tokens":10}}"#;
/// Failures in a row after which a provider is passed over.
const EJECTED_AFTER: usize = 3;
/// How long it is passed over at first.
const EJECTED_FIRST: Duration = Duration::from_secs(5);
/// What a provider fails with that answers; its path names it.
const STATUSES: [&str; 4] = ["500", "503", "529", "429"];

/// A provider file with one credential. A silence at it is over after a second.
fn file(name: &str, base_url: &str) -> String {
    format!(
        r#"
name = "{name}"
[auth]
style = "bearer"
secret = "env:SECRET"
[timeouts]
first_byte_seconds = {patience}
first_byte_unary_seconds = {patience}
[endpoints]
messages = "{base_url}/{name}/v1/messages"
"#,
        patience = if name == "silent" { 1 } else { 120 },
    )
}

/// A model of that name which these providers serve, in this order.
fn model(name: &str, providers: &[&str]) -> toml::Value {
    let mut table = toml::Table::new();
    table.insert("name".to_owned(), name.into());
    table.insert("providers".to_owned(), providers.to_vec().into());
    table.insert("free".to_owned(), true.into());
    table.into()
}

/// Answers as its path says: with a status, never, by closing the connection, or well.
fn failing() -> RecordingProvider {
    RecordingProvider::start(|request, answer| {
        let kind = request.target.split('/').nth(1).unwrap();
        match kind {
            "silent" => {
                answer.wait_peer_left(DEADLINE);
            }
            "closes" => answer.cut(),
            "well" => answer.json(OK),
            status => answer.full(
                status.parse().unwrap(),
                &[("content-type", "application/json")],
                br#"{"type":"error","error":{"type":"e","message":"m"}}"#,
            ),
        }
    })
}

/// Where nobody listens.
fn dead_url() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

/// A gateway with all kinds of failing providers, a model `first-KIND` for each, which `well` serves too, and a model `well`.
fn gateway(provider: &RecordingProvider) -> (RuleFolder, WeirBuilder) {
    gateway_of(provider, &kinds())
}

/// The same of these kinds.
fn gateway_of(provider: &RecordingProvider, kinds: &[&str]) -> (RuleFolder, WeirBuilder) {
    let (url, dead) = (provider.base_url(), dead_url());
    let files: Vec<(&str, String)> = kinds
        .iter()
        .map(|kind| (*kind, file(kind, if *kind == "refuses" { &dead } else { &url })))
        .chain([("well", file("well", &url))])
        .collect();
    let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (*name, text.as_str())).collect();
    let rules = RuleFolder::new(&files);
    let models = kinds
        .iter()
        .map(|kind| model(&format!("first-{kind}"), &[*kind, "well"]));
    let models: Vec<toml::Value> = models.chain([model("well", &["well"])]).collect();
    let builder = rules
        .weir()
        .variable("SECRET", "secret-in-full")
        .set_top("model", models);
    (rules, builder)
}

fn kinds() -> Vec<&'static str> {
    STATUSES.into_iter().chain(["refuses", "silent", "closes"]).collect()
}

/// How long it is until the answer is there, and its status.
fn timed(weir: &Weir, request: &Request) -> (Duration, u16) {
    let sent = Instant::now();
    let status = weir.exchange(request).status;
    (sent.elapsed(), status)
}

/// The same with `Expect: 100-continue`.
fn timed_expecting(weir: &Weir, request: &Request) -> (Duration, u16) {
    let sent = Instant::now();
    let status = weir.connect().exchange_expecting(request, Upload::Length).status;
    (sent.elapsed(), status)
}

/// What a front before a provider answers when the server behind it does not work: Cloudflare's statuses among them.
const OF_A_FRONT: [&str; 9] = ["502", "503", "504", "520", "521", "522", "523", "524", "527"];

#[test]
fn the_statuses_of_a_front_without_a_working_server_are_the_providers_failures() {
    let provider = failing();
    let (_rules, builder) = gateway_of(&provider, &OF_A_FRONT);
    let weir = builder.start();
    let key = weir.key().text;
    for status in OF_A_FRONT {
        let model = format!("first-{status}");
        let request = ask(&key, &model);
        for _ in 0..=EJECTED_AFTER {
            let answer = weir.exchange(&request);
            assert_eq!((answer.status, answer.text().as_str()), (200, OK), "{status}");
        }
        wait_until("it to be passed over", || {
            let metrics = weir.metrics();
            metrics.contains(&format!("weir_provider_circuits_open{{provider=\"{status}\"}} 1"))
        });
    }
    // Statuses beside them are not asked again at another provider: nobody has said what they mean.
    let (_rules, builder) = gateway_of(&provider, &["525", "530"]);
    let weir = builder.start();
    let key = weir.key().text;
    for status in [525, 530] {
        assert_eq!(weir.exchange(&ask(&key, &format!("first-{status}"))).status, status);
    }
}

fn ask(key: &str, model: &str) -> Request {
    Wire::Messages.request_for(model, key, "hi")
}

/// Attempts at providers for a model, by the access log, which has so many lines of it.
fn attempts(weir: &Weir, model: &str, requests: usize) -> usize {
    let lines = || {
        let lines = weir.access_lines().into_iter();
        lines.filter(|line| line["model"] == model).collect::<Vec<_>>()
    };
    wait_until("a line for each request", || lines().len() >= requests);
    let attempts = lines()
        .iter()
        .map(|line| line["attempts"].as_u64().unwrap())
        .sum::<u64>();
    usize::try_from(attempts).unwrap()
}

#[test]
fn the_next_provider_serves_whatever_the_first_fails_with() {
    let provider = failing();
    let (_rules, builder) = gateway(&provider);
    let weir = builder.set("retry.after_timeout", true).start();
    let key = weir.key().text;
    let requests = rounds(100, 1000);
    let healthy: Vec<Duration> = (0..20).map(|_| timed(&weir, &ask(&key, "well")).0).collect();
    for kind in kinds() {
        let name = format!("first-{kind}");
        // Every other client sends its body only when it is asked for it.
        let one = |number: usize| match number % 2 {
            0 => timed(&weir, &ask(&key, &name)),
            _ => timed_expecting(&weir, &ask(&key, &name)),
        };
        let answers: Vec<(Duration, u16)> = (0..requests).map(one).collect();
        let served = answers.iter().filter(|(_, status)| *status == 200).count();
        assert!(served * 1000 >= requests * 995, "{kind}: {served} of {requests} served");
        let made = attempts(&weir, &name, requests);
        assert!(
            made * 100 <= requests * 112,
            "{kind}: {made} attempts for {requests} requests"
        );
        let soonest = answers[requests - 20..].iter().map(|(wait, _)| *wait).min().unwrap();
        let most = *healthy.iter().max().unwrap() + Duration::from_millis(20);
        assert!(soonest <= most, "{kind}: {soonest:?} at the end, {most:?} would do");
        note(&format!(
            "failover: {kind}: {served} of {requests} served, {made} attempts, the last after {:?}",
            answers[requests - 1].0
        ));
    }
}

#[test]
fn a_provider_that_answers_500_keeps_no_request_from_the_next_one() {
    let provider = failing();
    let (_rules, builder) = gateway(&provider);
    let weir = builder.start();
    let key = weir.key().text;
    for number in 0..50 {
        let (_, status) = timed(&weir, &ask(&key, "first-500"));
        assert_eq!(status, 200, "request {number}");
    }
}

#[test]
fn a_silent_or_closing_provider_fails_a_few_and_later_requests_avoid_it() {
    let provider = failing();
    let (_rules, builder) = gateway(&provider);
    let weir = builder.start();
    let key = weir.key().text;
    for (kind, refusal) in [("silent", 504), ("closes", 502)] {
        let began = Instant::now();
        let name = format!("first-{kind}");
        let answers: Vec<u16> = (0..30).map(|_| weir.exchange(&ask(&key, &name)).status).collect();
        // A probe every five seconds, less often each time, is a request too.
        let probes = began.elapsed().as_secs() / EJECTED_FIRST.as_secs();
        let failed = answers.iter().filter(|status| **status == refusal).count();
        let served = answers.iter().filter(|status| **status == 200).count();
        assert_eq!(failed + served, 30, "{kind}: {answers:?}");
        assert_eq!(
            answers[..EJECTED_AFTER],
            [refusal; EJECTED_AFTER],
            "{kind}: it is not asked elsewhere by itself"
        );
        assert!(
            failed <= EJECTED_AFTER + usize::try_from(probes).unwrap(),
            "{kind}: {answers:?}"
        );
    }
    wait_until("it is passed over again, should its time have ended", || {
        weir.exchange(&ask(&key, "first-closes"));
        let listed = weir.cli(&["provider", "list"], &[]);
        let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
        listed.contains("skipped for first-closes (tried again in ")
            && weir
                .metrics()
                .contains("weir_provider_circuits_open{provider=\"closes\"} 1")
    });
    let metrics = weir.metrics();
    let passed_over = metrics
        .lines()
        .find_map(|line| line.strip_prefix("weir_provider_skipped_requests_total{provider=\"closes\"} "));
    assert!(passed_over.unwrap().parse::<u64>().unwrap() >= 20, "{passed_over:?}");
}

#[test]
fn who_goes_on_after_a_silence_is_billed_once_at_the_price_of_who_served() {
    let provider = failing();
    let (_rules, builder) = gateway(&provider);
    let folder = tempfile::TempDir::new().unwrap();
    let prices = folder.path().join("prices.toml");
    let price = |provider: &str, output: &str| {
        format!(
            "[[price]]\nname = \"dear\"\nprovider = \"{provider}\"\ntiers = [{{ input = \"1\", output = \"{output}\" }}]\n"
        )
    };
    let list = format!("version = \"tests\"\n{}{}", price("closes", "1000"), price("well", "2"));
    std::fs::write(&prices, list).unwrap();
    let mut dear = model("dear", &["closes", "well"]);
    let table = dear.as_table_mut().unwrap();
    table.remove("free");
    let weir = builder
        .set_top("model", vec![dear])
        .set("retry.after_timeout", true)
        .set("prices.file", prices.to_str().unwrap())
        .start();
    let key = weir.key().text;
    let mut made = std::collections::BTreeMap::new();
    for number in 0..EJECTED_AFTER + 2 {
        let answer = weir.exchange(&ask(&key, "dear"));
        assert_eq!(answer.status, 200);
        let id = answer.header("x-weir-request-id").unwrap();
        let line = weir.access_line(id);
        assert_eq!(line["provider"], "well", "{line}");
        // Until who closes is passed over each request takes two attempts, and more over a connection that has gone stale.
        let least = if number < EJECTED_AFTER { 2 } else { 1 };
        assert!(line["attempts"].as_u64() >= Some(least), "{line}");
        made.insert(id.to_owned(), line["attempts"].clone());
    }
    let rows = || {
        let rows = weir.cli_json(&["log", "query"]);
        rows.as_array().cloned().unwrap_or_default()
    };
    wait_until("a row for each request", || rows().len() >= EJECTED_AFTER + 2);
    let rows = rows();
    assert_eq!(rows.len(), EJECTED_AFTER + 2);
    for row in rows {
        // 100 tokens in at 1 USD a million, 10 out at 2.
        assert_eq!(row["cost_nano_usd"], 120_000, "{row}");
        assert_eq!(row["attempts"], made[row["request_id"].as_str().unwrap()], "{row}");
        // Enough for whoever might serve it: more than 10 out at 1000 USD a million.
        assert!(
            row["hold_nano_usd"].as_i64().is_some_and(|held| held > 10_000_000),
            "{row}"
        );
    }
}

/// A provider that limits the credential `a` once. When it is asked with `a` again it waits for a word.
struct Limiting {
    provider: RecordingProvider,
    with_a: Arc<AtomicUsize>,
    free: Arc<AtomicBool>,
}

fn secret(request: &Recorded) -> &str {
    request
        .header("authorization")
        .unwrap_or_default()
        .trim_start_matches("Bearer ")
}

impl Limiting {
    fn start() -> Limiting {
        let (with_a, free) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let (count, word) = (Arc::clone(&with_a), Arc::clone(&free));
        let provider = RecordingProvider::start(move |request, answer| {
            if secret(request) != "secret-a-in-full" {
                return answer.json(OK);
            }
            if count.fetch_add(1, Ordering::SeqCst) == 0 {
                let headers = [("content-type", "application/json"), ("retry-after", "1")];
                return answer.full(429, &headers, br#"{"type":"error","error":{"type":"e","message":"m"}}"#);
            }
            wait_until("the probe may be answered", || word.load(Ordering::SeqCst));
            answer.json(OK);
        });
        Limiting { provider, with_a, free }
    }

    fn with_a(&self) -> usize {
        self.with_a.load(Ordering::SeqCst)
    }
}

#[test]
fn a_credential_whose_rest_is_over_is_tried_by_one_request_while_the_others_go_elsewhere() {
    let limiting = Limiting::start();
    let text = file("one", &limiting.provider.base_url()).replace("secret = \"env:SECRET\"", "")
        + r#"
[[credential]]
name = "a"
secret = "env:SECRET_A"
[[credential]]
name = "b"
secret = "env:SECRET_B"
[[model]]
name = "one-model"
free = true
"#;
    let rules = RuleFolder::new(&[("one", &text)]);
    let weir = rules
        .weir()
        .variable("SECRET_A", "secret-a-in-full")
        .variable("SECRET_B", "secret-b-in-full")
        .start();
    let key = weir.key().text;
    wait_until("the credential is limited", || {
        assert_eq!(weir.exchange(&ask(&key, "one-model")).status, 200);
        limiting.with_a() == 1
    });
    wait_until("its rest is over", || {
        weir.metrics()
            .contains("weir_provider_credentials_cooling_down{provider=\"one\"} 0")
    });
    held_by_one(&weir, &key, "one-model", &limiting.free, || limiting.with_a() - 1);
}

#[test]
fn a_place_that_is_readmitted_is_tried_by_one_request_while_the_others_go_elsewhere() {
    let well = RecordingProvider::answering(OK);
    let (asked, free) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let (count, word) = (Arc::clone(&asked), Arc::clone(&free));
    let ill = RecordingProvider::start(move |_, answer| {
        if count.fetch_add(1, Ordering::SeqCst) < EJECTED_AFTER {
            let headers = [("content-type", "application/json")];
            return answer.full(503, &headers, br#"{"type":"error","error":{"type":"e","message":"m"}}"#);
        }
        wait_until("the probe may be answered", || word.load(Ordering::SeqCst));
        answer.json(OK);
    });
    let places = format!(
        "[[origin]]\nurl = \"{}\"\n[[origin]]\nurl = \"{}\"\n[[model]]\nname = \"one-model\"\nfree = true\n",
        well.base_url(),
        ill.base_url()
    );
    let rules = RuleFolder::new(&[("one", &(file("one", "https://unused.example") + &places))]);
    let weir = rules.weir().variable("SECRET", "secret-in-full").start();
    let key = weir.key().text;
    wait_until("the place is ejected", || {
        weir.exchange(&ask(&key, "one-model"));
        weir.metrics()
            .contains("weir_provider_backends_ejected{provider=\"one\"} 1")
    });
    assert_eq!(asked.load(Ordering::SeqCst), EJECTED_AFTER);
    wait_until("its time is over", || {
        weir.metrics()
            .contains("weir_provider_backends_ejected{provider=\"one\"} 0")
    });
    held_by_one(&weir, &key, "one-model", &free, || {
        asked.load(Ordering::SeqCst) - EJECTED_AFTER
    });
}

/// Eight clients ask without pause until one of them probes, and is held. The others are served all the same, and only that
/// one has `probed` until it is set free.
fn held_by_one(weir: &Weir, key: &str, model: &str, free: &AtomicBool, probed: impl Fn() -> usize) {
    let (stop, served) = (AtomicBool::new(false), AtomicUsize::new(0));
    let statuses = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        // Also when this fails: the clients would never end.
        let _end = SetAtEnd([&stop, free]);
        for _ in 0..8 {
            scope.spawn(|| {
                while !stop.load(Ordering::SeqCst) {
                    let status = weir.exchange(&ask(key, model)).status;
                    statuses.lock().unwrap().push(status);
                    served.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        wait_until("a probe", || probed() > 0);
        let before = served.load(Ordering::SeqCst);
        wait_until("the others are served", || served.load(Ordering::SeqCst) >= before + 40);
        let meanwhile = probed();
        free.store(true, Ordering::SeqCst);
        wait_until("it is asked by more of them", || probed() > 8);
        assert_eq!(meanwhile, 1, "requests while the probe ran");
    });
    assert!(statuses.into_inner().unwrap().iter().all(|status| *status == 200));
}
