//! The host behind weir, in a thread of this process: it answers each request with events of the Responses protocol that are
//! rendered once.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
};

use crate::node::model_of;

/// Connections that may wait to be accepted: weir opens one for each of many turns at once.
const BACKLOG: i32 = 4096;
/// The most header fields of a request.
const FIELDS_MAX: usize = 64;
/// The text of a delta: about three tokens.
const DELTA: &str = "over a weir ";
/// The events of an answer in addition to its deltas: four before and four behind them.
const OTHER_EVENTS: usize = 8;
/// The head of every answer.
const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";

/// How the host answers.
#[derive(Clone, Copy)]
pub(crate) struct HostScript {
    /// The id of every response.
    pub(crate) id: &'static str,
    /// The deltas of an answer.
    pub(crate) deltas: usize,
    /// The pause between two deltas.
    pub(crate) gap: Duration,
    /// Whether an answer waits for [`Host::release`] behind its last delta.
    pub(crate) is_held: bool,
}

impl HostScript {
    /// Answers of so many deltas without a pause.
    pub(crate) fn of(deltas: usize) -> Self {
        Self {
            id: "resp_turn",
            deltas,
            gap: Duration::ZERO,
            is_held: false,
        }
    }
}

/// A running host. Its thread runs as long as the process.
pub(crate) struct Host {
    /// Where it listens.
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
    released: watch::Sender<bool>,
}

struct Shared {
    answer: Mutex<Arc<RenderedAnswer>>,
    /// The length of the body that came last.
    body_bytes: AtomicUsize,
    released: watch::Receiver<bool>,
}

/// An answer in HTTP's chunks.
struct RenderedAnswer {
    script: HostScript,
    /// The head, and all events up to the first delta.
    begin: Vec<u8>,
    /// The further deltas.
    deltas: Vec<Vec<u8>>,
    /// The events behind them, and the end of the body.
    end: Vec<u8>,
}

impl Host {
    /// Starts a host.
    pub(crate) fn start() -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        rustix::net::listen(&listener, BACKLOG).expect("a longer backlog");
        listener.set_nonblocking(true).expect("a listener of the runtime");
        let address = listener.local_addr().expect("the port of a listener");
        let (released, receiver) = watch::channel(false);
        let shared = Arc::new(Shared {
            answer: Mutex::new(Arc::new(RenderedAnswer::new(HostScript::of(1)))),
            body_bytes: AtomicUsize::new(0),
            released: receiver,
        });
        let serving = Arc::clone(&shared);
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(accept(listener, serving));
        });
        Self {
            address,
            shared,
            released,
        }
    }

    /// Answers in another way from now on. No answer may be waiting.
    pub(crate) fn perform(&self, script: HostScript) {
        self.released.send_replace(false);
        *self.shared.answer.lock() = Arc::new(RenderedAnswer::new(script));
    }

    /// Ends all answers that wait behind their last delta.
    pub(crate) fn release(&self) {
        self.released.send_replace(true);
    }

    /// The events of an answer.
    pub(crate) fn events(&self) -> usize {
        self.shared.answer.lock().script.deltas + OTHER_EVENTS
    }

    /// The length of the body that came last.
    pub(crate) fn body_bytes(&self) -> usize {
        self.shared.body_bytes.load(Ordering::Relaxed)
    }
}

impl RenderedAnswer {
    fn new(script: HostScript) -> Self {
        let (opening, deltas, closing) = events(script);
        let (first, deltas) = deltas.split_first().expect("a delta");
        let begin: Vec<u8> = opening.iter().chain([first]).flat_map(|event| chunk(event)).collect();
        let end: Vec<u8> = closing.iter().flat_map(|event| chunk(event)).collect();
        Self {
            script,
            begin: [HEAD.as_bytes(), &begin].concat(),
            deltas: deltas.iter().map(|event| chunk(event)).collect(),
            end: [&end[..], b"0\r\n\r\n"].concat(),
        }
    }
}

fn chunk(event: &str) -> Vec<u8> {
    format!("{:x}\r\n{event}\r\n", event.len()).into_bytes()
}

/// The events before the deltas, the deltas, and the events behind them.
fn events(script: HostScript) -> (Vec<String>, Vec<String>, Vec<String>) {
    let mut number = 0;
    let mut event = |kind: &str, members: Value| {
        let mut event = json!({ "type": kind, "sequence_number": number });
        for (name, value) in members.as_object().into_iter().flatten() {
            event[name] = value.clone();
        }
        number += 1;
        format!("event: {kind}\ndata: {event}\n\n")
    };
    let text = DELTA.repeat(script.deltas);
    let response = |status: &str, output: Value, usage: Value| {
        json!({ "response": {
            "id": script.id, "object": "response", "created_at": 1_790_000_000, "status": status,
            "model": model_of("responses"), "output": output, "usage": usage,
        } })
    };
    let item = |status: &str, content: Value| json!({ "id": "msg_1", "type": "message", "status": status, "role": "assistant", "content": content });
    let part = |text: &str| json!({ "type": "output_text", "annotations": [], "logprobs": [], "text": text });
    let at_part = |name: &str, value: Value| {
        let mut members = json!({ "item_id": "msg_1", "output_index": 0, "content_index": 0 });
        members[name] = value;
        members
    };
    let done = item("completed", json!([part(&text)]));
    let usage = json!({
        "input_tokens": 100, "input_tokens_details": { "cached_tokens": 0 },
        "output_tokens": 50, "output_tokens_details": { "reasoning_tokens": 0 }, "total_tokens": 150,
    });
    let begun = || response("in_progress", json!([]), Value::Null);
    let added = json!({ "output_index": 0, "item": item("in_progress", json!([])) });
    let opening = vec![
        event("response.created", begun()),
        event("response.in_progress", begun()),
        event("response.output_item.added", added),
        event("response.content_part.added", at_part("part", part(""))),
    ];
    let mut deltas = Vec::with_capacity(script.deltas);
    for _ in 0..script.deltas {
        deltas.push(event("response.output_text.delta", at_part("delta", DELTA.into())));
    }
    let closing = vec![
        event("response.output_text.done", at_part("text", text.as_str().into())),
        event("response.content_part.done", at_part("part", part(&text))),
        event("response.output_item.done", json!({ "output_index": 0, "item": done })),
        event("response.completed", response("completed", json!([done]), usage)),
    ];
    (opening, deltas, closing)
}

async fn accept(listener: std::net::TcpListener, shared: Arc<Shared>) {
    let listener = TcpListener::from_std(listener).expect("a listener of the runtime");
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            continue;
        };
        let shared = Arc::clone(&shared);
        // weir may leave at any time, which ends the connection with an error.
        tokio::spawn(async move { serve(stream, &shared).await.is_ok() });
    }
}

async fn serve(mut stream: TcpStream, shared: &Shared) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = Vec::new();
    while let Some(bytes) = read_request(&mut stream, &mut buffer).await? {
        shared.body_bytes.store(bytes, Ordering::Relaxed);
        let answer = Arc::clone(&shared.answer.lock());
        stream.write_all(&answer.begin).await?;
        for delta in &answer.deltas {
            if !answer.script.gap.is_zero() {
                tokio::time::sleep(answer.script.gap).await;
            }
            stream.write_all(delta).await?;
        }
        if answer.script.is_held {
            let mut released = shared.released.clone();
            if released.wait_for(|is_released| *is_released).await.is_err() {
                return Ok(());
            }
        }
        stream.write_all(&answer.end).await?;
    }
    Ok(())
}

/// Reads a request to its end. Returns the length of its body; `None` if weir has closed the connection before a request.
async fn read_request(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> io::Result<Option<usize>> {
    let mut lengths = None;
    loop {
        if lengths.is_none() {
            lengths = head(buffer)?;
        }
        if let Some((head, body)) = lengths.filter(|(head, body)| buffer.len() >= head + body) {
            buffer.drain(..head + body);
            return Ok(Some(body));
        }
        buffer.reserve(16 * 1024);
        if stream.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    }
}

/// The lengths of the head and of the body of the request at the beginning; `None` until its head is complete.
fn head(buffer: &[u8]) -> io::Result<Option<(usize, usize)>> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut request = httparse::Request::new(&mut fields);
    let head = match request.parse(buffer).map_err(io::Error::other)? {
        httparse::Status::Complete(length) => length,
        httparse::Status::Partial => return Ok(None),
    };
    let mut fields = request.headers.iter();
    let length = fields.find(|field| field.name.eq_ignore_ascii_case("content-length"));
    let body = length.and_then(|field| std::str::from_utf8(field.value).ok()?.parse::<usize>().ok());
    let body = body.ok_or_else(|| io::Error::other("a request without a length"))?;
    let path = request.path.unwrap_or_default();
    match path.ends_with("/responses") {
        true => Ok(Some((head, body))),
        false => Err(io::Error::other(format!("the path {path}"))),
    }
}
