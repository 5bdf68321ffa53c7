//! The host behind weir, in a thread of this process: it answers each request in the protocol of its path with events that are
//! rendered once, so that no road to it is slower than another.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
};
use weir::parts::translation::UpstreamProtocol;

use crate::events::{Events, events};

/// The protocols of the host, in the order of its counters.
const PROTOCOLS: [UpstreamProtocol; 4] = [
    UpstreamProtocol::Messages,
    UpstreamProtocol::Responses,
    UpstreamProtocol::Gemini,
    UpstreamProtocol::Chat,
];

/// The head of every answer.
const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";

/// The most header fields of a request.
const FIELDS_MAX: usize = 64;

/// How the host answers.
#[derive(Clone, Copy)]
pub(crate) struct HostScript {
    /// The deltas of an answer.
    pub(crate) deltas: usize,
    /// The bytes of text in a delta.
    pub(crate) delta_bytes: usize,
    /// The pause between two deltas.
    pub(crate) gap: Duration,
    /// Whether an answer waits for [`Host::release`] behind its last delta.
    pub(crate) is_held: bool,
}

/// A running host. Its thread runs as long as the process.
pub(crate) struct Host {
    /// Where it listens.
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
    released: watch::Sender<bool>,
}

struct Shared {
    script: Mutex<Arc<Answers>>,
    /// Requests so far, by protocol.
    requests: [AtomicUsize; PROTOCOLS.len()],
    /// Answers that wait behind their last delta.
    waiting: AtomicUsize,
    released: watch::Receiver<bool>,
}

/// The answers of a script, as they go over the wire.
struct Answers {
    script: HostScript,
    rendered: [RenderedAnswer; PROTOCOLS.len()],
}

/// An answer in HTTP's chunks.
struct RenderedAnswer {
    /// The head, and all events up to the first delta.
    begin: Vec<u8>,
    /// The further deltas.
    deltas: Vec<Vec<u8>>,
    /// The events behind them, and the end of the body.
    end: Vec<u8>,
}

impl Host {
    /// Starts a host.
    pub(crate) fn start(script: HostScript) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        listener.set_nonblocking(true).expect("a listener of the runtime");
        let address = listener.local_addr().expect("the port of a listener");
        let (released, receiver) = watch::channel(false);
        let shared = Arc::new(Shared {
            script: Mutex::new(Arc::new(Answers::render(script))),
            requests: Default::default(),
            waiting: AtomicUsize::new(0),
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

    /// Answers in another way from now on.
    pub(crate) fn perform(&self, script: HostScript) {
        self.released.send_replace(false);
        *self.shared.script.lock() = Arc::new(Answers::render(script));
    }

    /// Ends all answers that wait behind their last delta.
    pub(crate) fn release(&self) {
        self.released.send_replace(true);
    }

    /// How many answers wait behind their last delta.
    pub(crate) fn waiting(&self) -> usize {
        self.shared.waiting.load(Ordering::Relaxed)
    }

    /// How many requests have come in a protocol.
    pub(crate) fn requests(&self, protocol: UpstreamProtocol) -> usize {
        self.shared.requests[place(protocol)].load(Ordering::Relaxed)
    }
}

fn place(protocol: UpstreamProtocol) -> usize {
    let place = PROTOCOLS.iter().position(|other| *other == protocol);
    place.expect("a protocol of the host")
}

impl Answers {
    fn render(script: HostScript) -> Self {
        Self {
            script,
            rendered: PROTOCOLS.map(|protocol| {
                let Events {
                    opening,
                    deltas,
                    closing,
                } = events(protocol, script.deltas, script.delta_bytes);
                let (first, deltas) = deltas.split_first().expect("a delta");
                let begin = opening.iter().chain([first]).map(|event| chunk(event));
                let end = closing.iter().map(|event| chunk(event));
                RenderedAnswer {
                    begin: [HEAD.as_bytes(), &begin.collect::<Vec<_>>().concat()].concat(),
                    deltas: deltas.iter().map(|event| chunk(event)).collect(),
                    end: [&end.collect::<Vec<_>>().concat()[..], b"0\r\n\r\n"].concat(),
                }
            }),
        }
    }
}

fn chunk(event: &str) -> Vec<u8> {
    format!("{:x}\r\n{event}\r\n", event.len()).into_bytes()
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

async fn serve(mut stream: TcpStream, shared: &Shared) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = Vec::with_capacity(16 * 1024);
    while let Some(protocol) = read_request(&mut stream, &mut buffer).await? {
        shared.requests[place(protocol)].fetch_add(1, Ordering::Relaxed);
        let answers = Arc::clone(&shared.script.lock());
        let (script, answer) = (answers.script, &answers.rendered[place(protocol)]);
        stream.write_all(&answer.begin).await?;
        for delta in &answer.deltas {
            if !script.gap.is_zero() {
                tokio::time::sleep(script.gap).await;
            }
            stream.write_all(delta).await?;
        }
        if script.is_held {
            shared.waiting.fetch_add(1, Ordering::Relaxed);
            let mut released = shared.released.clone();
            let is_released = released.wait_for(|is_released| *is_released).await.is_ok();
            shared.waiting.fetch_sub(1, Ordering::Relaxed);
            if !is_released {
                return Ok(());
            }
        }
        stream.write_all(&answer.end).await?;
    }
    Ok(())
}

/// Reads a request to its end; the protocol that its path belongs to, or nothing if weir has closed the connection before one.
async fn read_request(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> std::io::Result<Option<UpstreamProtocol>> {
    loop {
        if let Some((length, protocol)) = complete(buffer)? {
            buffer.drain(..length);
            return Ok(Some(protocol));
        }
        if stream.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    }
}

/// The length and the protocol of the request at the beginning, if it is there to its end.
fn complete(buffer: &[u8]) -> std::io::Result<Option<(usize, UpstreamProtocol)>> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut request = httparse::Request::new(&mut fields);
    let head = match request.parse(buffer).map_err(std::io::Error::other)? {
        httparse::Status::Complete(length) => length,
        httparse::Status::Partial => return Ok(None),
    };
    let fields = request.headers.iter();
    let length = fields
        .filter(|field| field.name.eq_ignore_ascii_case("content-length"))
        .find_map(|field| std::str::from_utf8(field.value).ok()?.parse::<usize>().ok());
    let length = length.ok_or_else(|| std::io::Error::other("a request without a length"))?;
    let path = request.path.unwrap_or_default();
    let protocol = match path.split('?').next().unwrap_or_default() {
        path if path.ends_with("/chat/completions") => UpstreamProtocol::Chat,
        path if path.ends_with("/messages") => UpstreamProtocol::Messages,
        path if path.ends_with("/responses") => UpstreamProtocol::Responses,
        path if path.ends_with(":streamGenerateContent") => UpstreamProtocol::Gemini,
        path => return Err(std::io::Error::other(format!("the path {path}"))),
    };
    Ok((buffer.len() >= head + length).then_some((head + length, protocol)))
}
