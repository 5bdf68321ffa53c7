//! What gateways do and do not do, as it is seen from outside: by what their client gets, and by what a relay between them and the
//! provider hears that they ask.

use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    process::Command,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    decoder::Decoder,
    fleet::{EMBEDDED, Launch, Proxy, Script, bare_proxy, sample_provider},
    gateways::{self, FEW_KEYS, FEW_USD, Installed},
    node::{Weir, created_key},
    phases::{DELTA_BYTES, Report},
    process::Process,
    request::MODEL,
    row::Subject,
};

/// Deltas of an answer, which is one token each; no answer may have more.
const DELTAS: usize = 8;
const GAP: Duration = Duration::from_millis(50);

/// What the provider bills for every prompt.
const INPUT_TOKENS: usize = 100;

/// Answers that a key with little money is asked for, and how many at a time.
const ASKED: usize = 40;
const AT_ONCE: usize = 8;

/// How long books may take to be settled.
const SETTLE: Duration = Duration::from_secs(2);

/// A name that no protocol has, of a field and within a header's value.
const UNKNOWN: &str = "bench_unknown";

const READ_BYTES: usize = 64 * 1024;

/// How long nothing may come.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// What is looked for.
type Look = for<'a> fn(&Seen<'a>) -> Result<String, String>;

const LOOKS: [(&str, Look); 12] = [
    ("an answer is the provider's, byte for byte", |seen| seen.same(false)),
    ("a stream is the provider's, byte for byte", |seen| seen.same(true)),
    ("parts in which a stream of 8 deltas, 50 ms apart, comes", |seen| {
        seen.parts()
    }),
    ("a request's body is the client's, byte for byte", |seen| {
        seen.passed(|asked, body| contains(asked, body.as_bytes()))
    }),
    ("a field that no protocol has reaches the provider", |seen| {
        seen.passed(|asked, _| contains(asked, format!("\"{UNKNOWN}\"").as_bytes()))
    }),
    ("an unknown name in `anthropic-beta` reaches it", |seen| {
        seen.passed(|asked, _| contains(asked, format!("{UNKNOWN}-2026").as_bytes()))
    }),
    (
        "answers to 40 requests, 8 at a time, of a key with money for 10",
        |seen| seen.budget(false),
    ),
    ("streams, in the same way", |seen| seen.budget(true)),
    ("a key with nothing left", |seen| {
        seen.refusal(&seen.few_key(true), MODEL)
    }),
    ("a key that nobody has", |seen| seen.refusal("sk-nobody", MODEL)),
    ("a model that nobody has", |seen| {
        seen.refusal(&seen.proxy.key, "nothing")
    }),
    ("the provider answers 529", |seen| seen.provider_error()),
];

/// What is looked at: a proxy, the provider behind it, and the relay between them.
struct Seen<'a> {
    proxy: &'a Proxy,
    /// Money for a few answers, and for a few streams.
    few: [String; 2],
    provider: SocketAddr,
    relay: &'a Relay,
}

/// An answer.
struct Answer {
    status: u16,
    body: Vec<u8>,
    /// When something of the body came.
    reads: Vec<Instant>,
}

/// Hands on what comes, and keeps what is asked.
struct Relay {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<u8>>>,
}

/// Looks at the bare proxy, weir and the gateways, behind a provider of their own.
pub(crate) fn observe(installed: &Installed, report: &mut Report) -> Result<(), String> {
    let folder = TempDir::with_prefix("weir-observed-").expect("a temporary folder");
    let script = Script {
        deltas: DELTAS,
        delta_bytes: DELTA_BYTES,
        gap: GAP,
    };
    let mut sample = Process::start("sample-provider", &mut sample_provider(script), folder.path());
    let provider = sample.announced_address();
    let relay = Relay::start(provider);
    let launch: Launch = |program, _| Command::new(program);
    let mut proxies = vec![
        bare_proxy(relay.address, &folder.path().join("bare"), launch),
        Weir::of(Subject::Embedded, EMBEDDED).start(relay.address, folder.path(), launch),
    ];
    proxies.extend(gateways::start(installed, relay.address, folder.path()));
    report.observed = LOOKS.map(|(looked_for, _)| (looked_for, Vec::new())).to_vec();
    for proxy in &proxies {
        let few = FEW_KEYS.map(|key| match proxy.subject {
            Subject::Embedded => created_key(&proxy.home.join("admin.sock"), &["--quota-usd", FEW_USD]),
            Subject::Litellm => key.to_owned(),
            _ => proxy.key.clone(),
        });
        let seen = Seen {
            proxy,
            few,
            provider,
            relay: &relay,
        };
        for ((looked_for, look), (_, row)) in LOOKS.iter().zip(&mut report.observed) {
            let is = look(&seen).map_err(|bad| format!("{looked_for}, {}: {bad}", proxy.subject.name()))?;
            row.push((proxy.subject, is));
        }
    }
    Ok(())
}

impl Seen<'_> {
    fn ask(&self, key: &str, model: &str, prompt: &str, stream: bool) -> Result<Answer, String> {
        exchange(
            self.proxy.address,
            &request(key, &self.proxy.headers, &body(model, prompt, stream)),
        )
    }

    fn direct(&self, prompt: &str, stream: bool) -> Result<Answer, String> {
        exchange(self.provider, &request("any-key", "", &body(MODEL, prompt, stream)))
    }

    fn few_key(&self, stream: bool) -> String {
        self.few[usize::from(stream)].clone()
    }

    fn same(&self, stream: bool) -> Result<String, String> {
        let through = self.ask(&self.proxy.key, MODEL, &prompt(), stream)?;
        Ok(yes(through.body == self.direct(&prompt(), stream)?.body))
    }

    /// What comes without half a pause between is one part.
    fn parts(&self) -> Result<String, String> {
        let answer = self.ask(&self.proxy.key, MODEL, &prompt(), true)?;
        let pauses = answer.reads.windows(2).filter(|two| two[1] - two[0] > GAP / 2).count();
        Ok((1 + pauses).to_string())
    }

    /// Of what the provider was asked for this, and the client's body.
    fn passed(&self, is_there: impl Fn(&[u8], &str) -> bool) -> Result<String, String> {
        self.relay.asked.lock().clear();
        self.ask(&self.proxy.key, MODEL, &prompt(), false)?;
        Ok(yes(is_there(&self.relay.asked.lock(), &body(MODEL, &prompt(), false))))
    }

    fn budget(&self, stream: bool) -> Result<String, String> {
        let key = self.few_key(stream);
        let one = || -> Result<usize, String> {
            let asked = (0..ASKED / AT_ONCE).map(|_| self.ask(&key, MODEL, &prompt(), stream));
            asked
                .map(|answer| answer.map(|answer| usize::from(answer.status == 200)))
                .sum()
        };
        let answered: Result<usize, String> = thread::scope(|scope| {
            let all: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(one)).collect();
            all.into_iter().map(|one| one.join().expect("a thread ends")).sum()
        });
        thread::sleep(SETTLE);
        answered.map(|answered| answered.to_string())
    }

    fn refusal(&self, key: &str, model: &str) -> Result<String, String> {
        self.ask(key, model, &prompt(), false).map(|answer| shown(&answer))
    }

    /// What becomes of it, and how often the provider was asked.
    fn provider_error(&self) -> Result<String, String> {
        let prompt = format!("{} [[sample: status=529]]", prompt());
        self.relay.asked.lock().clear();
        let through = self.ask(&self.proxy.key, MODEL, &prompt, false)?;
        let asked = self
            .relay
            .asked
            .lock()
            .windows(6)
            .filter(|six| six == b"POST /")
            .count();
        let direct = self.direct(&prompt, false)?;
        let error = |answer: &Answer| {
            serde_json::from_slice::<Value>(&answer.body)
                .ok()
                .map(|body| body["error"].clone())
        };
        let is = if through.status == direct.status && error(&through) == error(&direct) {
            "passed as it is".to_owned()
        } else {
            shown(&through)
        };
        Ok(format!("{is}; asked {asked} times"))
    }
}

fn yes(is: bool) -> String {
    (if is { "yes" } else { "no" }).to_owned()
}

/// The status and, of an error, its type, and whether it has the protocol's shape.
fn shown(answer: &Answer) -> String {
    if answer.status == 200 {
        return "200: answered".to_owned();
    }
    let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    let kind = body["error"]["type"].as_str();
    let has_shape = body["type"] == "error" && kind.is_some() && body["error"]["message"].is_string();
    let shape = if has_shape {
        "the protocol's shape"
    } else {
        "another shape"
    };
    format!("{} `{}`, {shape}", answer.status, kind.unwrap_or("without a type"))
}

/// As many tokens as the provider bills: who holds money by an estimate of them holds enough.
fn prompt() -> String {
    "weir ".repeat(INPUT_TOKENS)
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

fn body(model: &str, prompt: &str, stream: bool) -> String {
    let messages = json!([{ "role": "user", "content": prompt }]);
    let unknown = json!({ "kept": true });
    json!({ "model": model, "max_tokens": DELTAS, "stream": stream, "messages": messages, UNKNOWN: unknown })
        .to_string()
}

fn request(key: &str, headers: &str, body: &str) -> Vec<u8> {
    format!(
        "POST /v1/messages HTTP/1.1\r\nhost: gateway.test\r\nx-api-key: {key}\r\nanthropic-version: 2023-06-01\r\n\
         anthropic-beta: {UNKNOWN}-2026\r\n{headers}content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// Asks on a connection of its own.
fn exchange(address: SocketAddr, request: &[u8]) -> Result<Answer, String> {
    let failed = |error: std::io::Error| error.to_string();
    let mut stream = TcpStream::connect(address).map_err(failed)?;
    stream.set_read_timeout(Some(SILENCE_MAX)).map_err(failed)?;
    stream.write_all(request).map_err(failed)?;
    let (mut decoder, mut buffer) = (Decoder::new(), vec![0; READ_BYTES]);
    let (mut body, mut reads) = (Vec::new(), Vec::new());
    while !decoder.is_done() {
        let read = stream.read(&mut buffer).map_err(failed)?;
        if read == 0 {
            return Err(format!("cut after {} bytes of the body", body.len()));
        }
        let before = body.len();
        decoder.push(&buffer[..read], &mut |piece| {
            body.extend_from_slice(piece);
            Ok(())
        })?;
        if body.len() > before {
            reads.push(Instant::now());
        }
    }
    Ok(Answer {
        status: decoder.status,
        body,
        reads,
    })
}

impl Relay {
    /// Takes connections until the process ends.
    fn start(provider: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("a free port");
        let asked = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&asked);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(provider) else {
                    continue;
                };
                let heard = Arc::clone(&heard);
                hand_on(&client, &server, move |piece| heard.lock().extend_from_slice(piece));
                hand_on(&server, &client, |_| {});
            }
        });
        Self { address, asked }
    }
}

/// Hands on what comes from one to another, on a thread of its own.
fn hand_on(from: &TcpStream, to: &TcpStream, hear: impl Fn(&[u8]) + Send + 'static) {
    let (Ok(mut from), Ok(mut to)) = (from.try_clone(), to.try_clone()) else {
        return;
    };
    // What is sent in pieces is to leave in pieces.
    let _ = to.set_nodelay(true);
    thread::spawn(move || {
        let mut buffer = vec![0; READ_BYTES];
        while let Ok(read @ 1..) = from.read(&mut buffer) {
            hear(&buffer[..read]);
            if to.write_all(&buffer[..read]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Write);
    });
}
