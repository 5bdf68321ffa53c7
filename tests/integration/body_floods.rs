//! Clients that send bodies for the sake of the work they make: bodies that are announced and do not come, and small ones
//! that become large. Requests of other keys are served throughout.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::harness::at_end::SetAtEnd;
use crate::harness::h2c::Requests;
use crate::harness::packed::packed;
use crate::harness::process::processor_time;
use crate::harness::request::{Upload, Wire};
use crate::harness::tools::{note, rounds};
use crate::harness::wait::{DEADLINE, wait_within};
use crate::harness::websocket::{self, WebSocket};
use crate::harness::{RecordingProvider, Request, Weir, WeirBuilder, wait_until};

/// What a body may have, and what the attackers announce.
const LARGEST: usize = 32 << 20;
const ATTACKERS: usize = 64;
/// Longer than a body may wait for its turn.
const PATIENCE: Duration = Duration::from_secs(90);
/// How nice the threads are that read bodies (`edges/low_priority.rs`).
const NICE: &str = "10";
/// The most memory of the process, in bytes: what it has in other tests, and no body that has not come.
const MEMORY_MAX: usize = 256 << 20;

/// A request that announces the largest body.
fn announcing(key: &str) -> Request {
    Wire::Messages.request(key, "hi").body(&vec![b' '; LARGEST])
}

/// Asks with `key` until `is_over`, and wants to be served each time.
#[track_caller]
fn served_until(weir: &Weir, key: &str, mut is_over: impl FnMut() -> bool) -> usize {
    let started = Instant::now();
    let mut served = 0;
    while !is_over() {
        let answer = weir.exchange(&Wire::Messages.request(key, "hi"));
        assert_eq!(answer.status, 200, "after {served} others: {}", answer.text());
        served += 1;
        assert!(started.elapsed() < 2 * DEADLINE, "the attackers are still there");
    }
    served
}

#[test]
fn bodies_that_are_announced_and_do_not_come_stop_nobody_and_end_within_their_limit() {
    let provider = RecordingProvider::recorded();
    let mut weir = WeirBuilder::new()
        .all_providers(&provider.base_url())
        .set("gateway.body_budget_bytes", LARGEST as i64)
        .set("gateway.body_read_seconds", 2)
        .set("gateway.bytes_per_second_min", 100_000)
        .start();
    let (key, other) = (weir.key().text, weir.key().text);
    let head = announcing(&key).head_bytes(Upload::Length);
    let mut silent: Vec<TcpStream> = (0..ATTACKERS)
        .map(|_| {
            let mut attacker = TcpStream::connect(weir.gateway).unwrap();
            attacker.write_all(&head).unwrap();
            attacker
        })
        .collect();
    std::thread::scope(|scope| {
        let streams = scope.spawn(|| {
            let requests = Requests::connect(weir.gateway);
            requests.announce(&announcing(&key), ATTACKERS, Duration::from_millis(500))
        });
        let served = served_until(&weir, &other, || {
            // Half of them send a byte now and then.
            for attacker in silent.iter_mut().skip(ATTACKERS / 2) {
                let _ = attacker.write(b" ");
            }
            streams.is_finished()
        });
        assert!(served > 3, "{served}");
        assert_eq!(streams.join().unwrap(), [Some(408); ATTACKERS]);
    });
    for attacker in &mut silent {
        attacker.set_read_timeout(Some(DEADLINE)).unwrap();
        let mut answer = Vec::new();
        // A reset behind the answer is an end, too: the client was still sending.
        let _ = attacker.read_to_end(&mut answer);
        assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 408"));
    }
    let late = "weir_refusals_total{protocol=\"messages\",reason=\"body_timeout\"} 128\n";
    wait_until("the end of every attacker", || weir.metrics().contains(late));
    assert!(weir.metrics().contains("weir_body_bytes_buffered 0\n"));
    assert_eq!(weir.exchange(&Wire::Messages.request(&key, "hi")).status, 200);
    let memory = weir.process().peak_memory();
    assert!(memory < MEMORY_MAX, "{memory} bytes");
}

#[test]
fn a_body_that_comes_steadily_and_takes_too_long_is_408_over_each_version() {
    let weir = WeirBuilder::new()
        .all_providers("http://127.0.0.1:9")
        .set("gateway.body_seconds", 1)
        .set("gateway.bytes_per_second_min", 0)
        .start();
    let key = weir.key().text;
    let mut client = TcpStream::connect(weir.gateway).unwrap();
    client.write_all(&announcing(&key).head_bytes(Upload::Length)).unwrap();
    client.set_read_timeout(Some(Duration::from_millis(3))).unwrap();
    let began = Instant::now();
    let mut answer = [0; 12];
    while client.read_exact(&mut answer).is_err() {
        assert!(began.elapsed() < DEADLINE, "it is still waited for");
        let _ = client.write(b" ");
    }
    assert_eq!(&answer, b"HTTP/1.1 408");
    assert!(began.elapsed() >= Duration::from_millis(900), "{:?}", began.elapsed());
    let requests = Requests::connect(weir.gateway);
    assert_eq!(
        requests.announce(&announcing(&key), 1, Duration::from_millis(3)),
        [Some(408)]
    );
}

/// Some 35 KB that become as large as a body may be, for a model that there is not.
fn bomb(key: &str) -> Request {
    let plain = Wire::Messages.request_for("no-such-model", key, &"a".repeat(LARGEST - 1000));
    let body = packed("gzip", &plain.body);
    assert!(body.len() < 200_000, "{}", body.len());
    plain.header("content-encoding", "gzip").body(&body)
}

/// How long each of so many requests takes, the longest last.
fn times(weir: &Weir, key: &str, count: usize) -> Vec<Duration> {
    let request = Wire::Messages.request(key, "hi");
    let mut client = weir.connect();
    let mut times: Vec<Duration> = (0..count)
        .map(|_| {
            let sent = Instant::now();
            let answer = client.exchange(&request);
            assert_eq!(answer.status, 200, "{}", answer.text());
            sent.elapsed()
        })
        .collect();
    times.sort_unstable();
    times
}

fn percentile(times: &[Duration], percent: usize) -> Duration {
    times[(times.len() * percent / 100).min(times.len() - 1)]
}

/// A process for each processor that only spins, as nice as the threads that read bodies: how long the kernel leaves one of those on
/// a processor when a request comes is a matter of the machine.
struct Spinning(Vec<Child>);

impl Spinning {
    fn begin() -> Self {
        let processors = std::thread::available_parallelism().unwrap().get();
        let spin = |_| {
            let mut command = Command::new("nice");
            command
                .args(["-n", NICE, "sh", "-c", "while :; do :; done"])
                .spawn()
                .unwrap()
        };
        Self((0..processors).map(spin).collect())
    }
}

impl Drop for Spinning {
    fn drop(&mut self) {
        for process in &mut self.0 {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }
}

/// How much longer a percentile of the other key's times may be beside the attack than beside the spinning.
#[derive(Clone, Copy)]
struct Slowdown {
    percent: usize,
    times_max: f64,
    /// What the time beside the spinning counts at least.
    least: Duration,
}

impl Slowdown {
    const fn of_p99(times_max: f64) -> Self {
        Self {
            percent: 99,
            times_max,
            least: Duration::ZERO,
        }
    }

    /// The p99 beside the spinning is between 0.5 and 1.5 ms, by chance.
    const fn of_p99_from_a_millisecond(times_max: f64) -> Self {
        Self {
            least: Duration::from_millis(1),
            ..Self::of_p99(times_max)
        }
    }

    /// For work that is not interrupted: when the other key's request comes, the kernel leaves a thread of low priority on its
    /// processor for the rest of its slice of some 3 ms, and that is the p99.
    const fn of_p90(times_max: f64) -> Self {
        Self {
            percent: 90,
            times_max,
            least: Duration::ZERO,
        }
    }
}

/// Sends each of the attack's bodies over and over on a connection of its own, while the other key is measured, and in turns
/// beside processes that only spin, so that all else that the machine does is in both. The attackers' requests are read, or wait too
/// long for their turn. In the long form the other key's requests are slowed down by no more than `most`.
fn measured_beside(what: &str, weir: &Weir, other: &str, attack: &[Attack], most: Slowdown) {
    let (turns, count) = (rounds(1, 12), rounds(50, 1_500));
    let (mut quiet, mut attacked) = (Vec::new(), Vec::new());
    times(weir, other, 50);
    let read = AtomicUsize::new(0);
    for turn in 0..turns {
        {
            let _spinning = Spinning::begin();
            quiet.extend(times(weir, other, count));
        }
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let _stop = SetAtEnd([&stop]);
            for body in attack {
                scope.spawn(|| send_over_and_over(weir, body, &stop, &read));
            }
            // They are read at low priority: a machine that is busy with other things takes its time.
            let was_read = wait_within(PATIENCE, || (read.load(Ordering::SeqCst) > turn).then_some(()));
            assert_eq!(was_read, Some(()), "a body of the attack is read");
            attacked.extend(times(weir, other, count));
        });
    }
    quiet.sort_unstable();
    attacked.sort_unstable();
    for percent in [50, 90, 99] {
        note(&format!(
            "{what}: p{percent} {:?}, beside spinning {:?}",
            percentile(&attacked, percent),
            percentile(&quiet, percent)
        ));
    }
    if rounds(0, 1) == 1 {
        let Slowdown {
            percent,
            times_max,
            least,
        } = most;
        let (with, without) = (percentile(&attacked, percent), percentile(&quiet, percent));
        assert!(
            with <= without.max(least).mul_f64(times_max),
            "p{percent} {with:?} beside the attack, {without:?} beside processes that only spin"
        );
    }
}

fn send_over_and_over(weir: &Weir, body: &Attack, stop: &AtomicBool, read: &AtomicUsize) {
    // An attacker sends from another machine. Here, sending must not take the processor from weir or from the other key's client.
    rustix::process::nice(19).unwrap();
    while !stop.load(Ordering::SeqCst) {
        let status = body.send(weir);
        assert!(matches!(status, 200 | 404 | 429), "{status}");
        read.fetch_add(usize::from(status != 429), Ordering::SeqCst);
    }
}

/// A body of an attack, ready to be sent.
enum Attack {
    Request(Vec<u8>),
    /// A message on a socket of this key.
    Message(String, Vec<u8>),
}

/// A body: how it begins, what is repeated, and how it ends.
type Shape<'t> = (&'t str, &'t str, &'t str);

/// Of all JSON what takes longest to read, for a model that there is not.
const TOKENS: Shape = (r#"{"model":"no-such-model","messages":["#, "1,", "1]}");

impl Attack {
    /// This request with a body of some `bytes`.
    fn request(request: Request, shape: Shape, bytes: usize) -> Attack {
        Attack::Request(request.body(repeated(shape, bytes).as_bytes()).bytes(Upload::Length))
    }

    /// A request for a model that there is not.
    fn tokens(key: &str, bytes: usize) -> Attack {
        Attack::request(Wire::Messages.request(key, "hi"), TOKENS, bytes)
    }

    /// A message of some `bytes`.
    fn message(key: &str, shape: Shape, bytes: usize) -> Attack {
        let frame = websocket::frame(websocket::TEXT, repeated(shape, bytes).as_bytes());
        Attack::Message(key.to_owned(), frame)
    }

    /// Sends it on a connection of its own, and returns the status of the answer.
    fn send(&self, weir: &Weir) -> u16 {
        let mut client = weir.connect().patient(PATIENCE);
        match self {
            Attack::Request(bytes) => {
                client.write(bytes);
                client.response_to("POST").status
            }
            Attack::Message(key, frame) => {
                let mut socket = WebSocket::try_open(client, &websocket::handshake(key)).unwrap();
                socket.write(frame);
                let event = socket.event();
                let status = event["status"].as_u64().unwrap_or_else(|| panic!("{event}"));
                u16::try_from(status).unwrap()
            }
        }
    }
}

fn repeated((head, unit, tail): Shape, bytes: usize) -> String {
    [head, &unit.repeat(bytes / unit.len()), tail].concat()
}

/// In the long form what the other key notices is measured. The short form shows that both go on: nobody waits for the attacker,
/// who is not starved either.
#[test]
fn compressed_bodies_of_one_key_do_not_slow_down_another() {
    let provider = RecordingProvider::recorded();
    let weir = WeirBuilder::new().all_providers(&provider.base_url()).start();
    let (key, other) = (weir.key().text, weir.key().text);
    let attack: Vec<Attack> = (0..16)
        .map(|_| Attack::Request(bomb(&key).bytes(Upload::Length)))
        .collect();
    measured_beside(
        "compressed bodies of another key",
        &weir,
        &other,
        &attack,
        Slowdown::of_p99(1.2),
    );
}

/// Floods weir with requests of four keys whose bodies have this shape: some that may be scanned at once, and some that may not.
fn four_keys_beside_another(what: &str, shape: Shape, most: Slowdown) {
    let provider = RecordingProvider::recorded();
    let weir = WeirBuilder::new().all_providers(&provider.base_url()).start();
    let other = weir.key().text;
    let of_key = |key: &str| {
        [500_000, rounds(1_000_000, 8_000_000)]
            .map(|bytes| Attack::request(Wire::Messages.request(key, "hi"), shape, bytes))
    };
    let attack: Vec<Attack> = (0..4).flat_map(|_| of_key(&weir.key().text)).collect();
    measured_beside(what, &weir, &other, &attack, most);
}

#[test]
fn bodies_of_many_tokens_of_four_keys_do_not_slow_down_another() {
    four_keys_beside_another("bodies of many tokens of four keys", TOKENS, Slowdown::of_p99(1.5));
}

/// The scan cannot be suspended inside a string, and its escapes take as long to read as tokens.
#[test]
fn bodies_of_many_escapes_of_four_keys_do_not_slow_down_another() {
    const ESCAPES: Shape = (r#"{"model":"no-such-model","messages":[""#, "\\n", "\"]}");
    four_keys_beside_another("bodies of many escapes of four keys", ESCAPES, Slowdown::of_p90(1.5));
}

#[test]
fn messages_on_sockets_of_four_keys_do_not_slow_down_another() {
    const NUMBERS: Shape = (
        r#"{"type":"response.create","model":"no-such-model","input":["#,
        "1,",
        "1]}",
    );
    const ESCAPES: Shape = (
        r#"{"type":"response.create","model":"no-such-model","input":""#,
        "\\n",
        "\"}",
    );
    let provider = RecordingProvider::recorded();
    let weir = WeirBuilder::new().all_providers(&provider.base_url()).start();
    let other = weir.key().text;
    let of_key = |key: &str| [NUMBERS, ESCAPES].map(|shape| Attack::message(key, shape, 500_000));
    let attack: Vec<Attack> = (0..4).flat_map(|_| of_key(&weir.key().text)).collect();
    measured_beside(
        "messages on sockets of four keys",
        &weir,
        &other,
        &attack,
        Slowdown::of_p99_from_a_millisecond(1.5),
    );
}

/// To translate a body takes several times as long as to scan it.
#[test]
fn bodies_of_four_keys_that_are_translated_do_not_slow_down_another() {
    const ITEMS: Shape = (
        r#"{"model":"any","input":["#,
        r#"{"role":"user","content":"a"},"#,
        r#"{"role":"user","content":"a"}]}"#,
    );
    let provider = RecordingProvider::recorded();
    let model = "name = \"any\"\nproviders = [\"anthropic\"]\nupstream_name = \"claude-sonnet-5\"\ntranslate = \"strict\"\n\
        output_tokens = 64000\nfree = true\n";
    let weir = WeirBuilder::new()
        .all_providers(&provider.base_url())
        .set_top("model", vec![toml::from_str::<toml::Value>(model).unwrap()])
        .start();
    let other = weir.key().text;
    let of_key = |key: &str| Attack::request(Wire::Responses.request(key, "hi"), ITEMS, 500_000);
    let attack: Vec<Attack> = (0..8).map(|_| of_key(&weir.key().text)).collect();
    measured_beside(
        "translated bodies of eight keys",
        &weir,
        &other,
        &attack,
        Slowdown::of_p90(2.0),
    );
}

#[test]
fn one_key_keeps_no_more_than_half_of_a_processor_busy_with_bodies() {
    let provider = RecordingProvider::recorded();
    let mut weir = WeirBuilder::new()
        .all_providers(&provider.base_url())
        // A larger share is not to be had.
        .set("gateway.threads", 4)
        .set("gateway.body_work_key_percent", 100)
        .start();
    let (key, other, process) = (weir.key().text, weir.key().text, weir.process().id());
    let attack = [60_000, 400_000, 500_000, 500_000, 2_000_000].map(|bytes| Attack::tokens(&key, bytes));
    let (stop, read) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let _stop = SetAtEnd([&stop]);
        for body in &attack {
            scope.spawn(|| send_over_and_over(&weir, body, &stop, &read));
        }
        let was_read = wait_within(PATIENCE, || (read.load(Ordering::SeqCst) > 2).then_some(()));
        assert_eq!(was_read, Some(()), "bodies of the attack are read");
    });
    // Once more, now that the key owes all that it may.
    let stop = AtomicBool::new(false);
    let (busy, elapsed) = std::thread::scope(|scope| {
        let _stop = SetAtEnd([&stop]);
        for body in &attack {
            scope.spawn(|| send_over_and_over(&weir, body, &stop, &read));
        }
        let (before, began) = (processor_time(process), Instant::now());
        let length = Duration::from_secs(rounds(4, 20) as u64);
        served_until(&weir, &other, || {
            // Seldom, so that the other key's requests cost little.
            let next = Instant::now() + Duration::from_millis(250);
            wait_until("the next request to be due", || Instant::now() >= next);
            began.elapsed() >= length
        });
        (processor_time(process) - before, began.elapsed())
    });
    // What else a request takes is not accounted: to receive it, and the other key's. The last body is charged when it is read.
    let most = elapsed.mul_f64(0.6) + Duration::from_millis(800);
    note(&format!("bodies of one key: {busy:?} of a processor in {elapsed:?}"));
    assert!(busy <= most, "{busy:?} of a processor in {elapsed:?}");
}
