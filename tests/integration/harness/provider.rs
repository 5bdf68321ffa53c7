//! A provider in this process that records the exact bytes it gets and answers by a scripted closure.

use std::io::ErrorKind;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::answer::{Answer, Wire};
use super::client::find;
use super::recordings::{events, unary};
use super::request::wire_of;
use super::wait::{DEADLINE, wait_for};

/// A request as it reached the provider.
#[derive(Clone, Debug)]
pub(crate) struct Recorded {
    pub(crate) method: String,
    pub(crate) target: String,
    /// The head's exact bytes, with the blank line.
    pub(crate) head: Vec<u8>,
    pub(crate) headers: Vec<(String, String)>,
    /// The body's exact bytes, without the transfer coding.
    pub(crate) body: Vec<u8>,
}

impl Recorded {
    /// All values of a header.
    pub(crate) fn header_values(&self, name: &str) -> Vec<&str> {
        self.headers
            .iter()
            .filter(|(found, _)| found == name)
            .map(|(_, value)| value.as_str())
            .collect()
    }

    /// The first value of a header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.header_values(name).first().copied()
    }
}

/// What happens to a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Welcome {
    /// It is served.
    Serve,
    /// It is closed at once: with TLS the handshake fails, which is a refused connection in weir's eyes.
    Close,
    /// It serves this many requests, then dies when the next one arrives: a stale kept-alive connection.
    ServeThenDie(usize),
}

type Script = dyn Fn(&Recorded, &mut Answer<'_>) + Send + Sync;
type Door = dyn Fn(usize) -> Welcome + Send + Sync;

struct Shared {
    script: Box<Script>,
    door: Box<Door>,
    tls: Option<Arc<ServerConfig>>,
    requests: Mutex<Vec<Recorded>>,
    connections: AtomicUsize,
    handshakes: AtomicUsize,
    stale: AtomicUsize,
    plain_bytes: Mutex<Vec<u8>>,
    stopping: AtomicBool,
}

/// The running provider.
pub(crate) struct RecordingProvider {
    address: SocketAddr,
    shared: Arc<Shared>,
}

impl RecordingProvider {
    /// Answers every request with `script`.
    pub(crate) fn start(script: impl Fn(&Recorded, &mut Answer<'_>) + Send + Sync + 'static) -> RecordingProvider {
        RecordingProvider::start_with(None, |_| Welcome::Serve, script)
    }

    /// Answers every request with the least that is an answer.
    pub(crate) fn least() -> RecordingProvider {
        RecordingProvider::start(|_, answer| answer.least())
    }

    /// Answers every request with this JSON body and status 200.
    pub(crate) fn answering(body: &'static str) -> RecordingProvider {
        RecordingProvider::start(move |_, answer| answer.json(body))
    }

    /// Answers with the recordings: a whole stream to a streaming request, a whole object to another.
    pub(crate) fn recorded() -> RecordingProvider {
        RecordingProvider::start(|request, answer| {
            let wire = wire_of(&request.target);
            if request.target.contains(":stream") || request.body.starts_with(br#"{"stream":true"#) {
                answer.sse();
                events(wire).iter().for_each(|event| answer.chunk(event));
                answer.end();
            } else {
                answer.json(unary(wire));
            }
        })
    }

    /// With TLS (or not), a word at the door for each connection, and a script.
    pub(crate) fn start_with(
        tls: Option<Arc<ServerConfig>>,
        door: impl Fn(usize) -> Welcome + Send + Sync + 'static,
        script: impl Fn(&Recorded, &mut Answer<'_>) + Send + Sync + 'static,
    ) -> RecordingProvider {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            script: Box::new(script),
            door: Box::new(door),
            tls,
            requests: Mutex::default(),
            connections: AtomicUsize::new(0),
            handshakes: AtomicUsize::new(0),
            stale: AtomicUsize::new(0),
            plain_bytes: Mutex::default(),
            stopping: AtomicBool::new(false),
        });
        let accepting = Arc::clone(&shared);
        std::thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                if accepting.stopping.load(Ordering::SeqCst) {
                    return;
                }
                let number = accepting.connections.fetch_add(1, Ordering::SeqCst);
                let serving = Arc::clone(&accepting);
                std::thread::spawn(move || serving.serve(number, socket));
            }
        });
        RecordingProvider { address, shared }
    }

    /// The base URL for a provider override.
    pub(crate) fn base_url(&self) -> String {
        match self.shared.tls {
            Some(_) => format!("https://localhost:{}", self.address.port()),
            None => format!("http://{}", self.address),
        }
    }

    /// The address it listens on.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Every request that came so far, whole.
    pub(crate) fn requests(&self) -> Vec<Recorded> {
        self.shared.requests.lock().unwrap().clone()
    }

    /// How many whole requests came so far.
    pub(crate) fn count(&self) -> usize {
        self.shared.requests.lock().unwrap().len()
    }

    /// The last request; waits for a first one.
    #[track_caller]
    pub(crate) fn last(&self) -> Recorded {
        wait_for("a request at the provider", || {
            self.shared.requests.lock().unwrap().last().cloned()
        })
    }

    /// Connections accepted so far.
    pub(crate) fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// Requests that met a connection of [`Welcome::ServeThenDie`] and were not answered.
    pub(crate) fn stale(&self) -> usize {
        self.shared.stale.load(Ordering::SeqCst)
    }

    /// Sends once, or if `stale` until a request has met a stale connection: often the gateway has noticed its end before, the
    /// more often the busier the machine is.
    #[track_caller]
    pub(crate) fn until_stale(&self, stale: bool, send: impl Fn()) {
        let before = self.stale();
        let met = (0..200).any(|_| {
            send();
            !stale || self.stale() > before
        });
        assert!(met, "no request met a stale connection");
    }

    /// TLS handshakes that succeeded.
    pub(crate) fn handshakes(&self) -> usize {
        self.shared.handshakes.load(Ordering::SeqCst)
    }

    /// Every byte that was readable to the provider (after TLS), on all connections.
    pub(crate) fn plain_bytes(&self) -> Vec<u8> {
        self.shared.plain_bytes.lock().unwrap().clone()
    }
}

impl Drop for RecordingProvider {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect_timeout(&self.address, Duration::from_secs(1));
    }
}

impl Shared {
    fn serve(&self, number: usize, socket: TcpStream) {
        let welcome = (self.door)(number);
        if welcome == Welcome::Close {
            let _ = socket.shutdown(Shutdown::Both);
            return;
        }
        let _ = socket.set_read_timeout(Some(DEADLINE));
        let _ = socket.set_write_timeout(Some(DEADLINE));
        let _ = socket.set_nodelay(true);
        let control = socket.try_clone().unwrap();
        match &self.tls {
            None => {
                let mut wire = socket;
                self.converse(welcome, &mut wire, &control);
            }
            Some(config) => {
                let connection = ServerConnection::new(Arc::clone(config)).unwrap();
                let mut wire = StreamOwned::new(connection, socket);
                while wire.conn.is_handshaking() {
                    if wire.conn.complete_io(&mut wire.sock).is_err() {
                        return;
                    }
                }
                self.handshakes.fetch_add(1, Ordering::SeqCst);
                self.converse(welcome, &mut wire, &control);
            }
        }
    }

    fn converse(&self, welcome: Welcome, wire: &mut dyn Wire, control: &TcpStream) {
        let mut buffer = Vec::new();
        for answered in 0_usize.. {
            if welcome == Welcome::ServeThenDie(answered) {
                // Dropped with unread bytes in it, the socket answers with a reset and no byte of an answer.
                if control.peek(&mut [0_u8; 1]).is_ok_and(|read| read > 0) {
                    self.stale.fetch_add(1, Ordering::SeqCst);
                }
                return;
            }
            let Some(request) = self.read_request(wire, &mut buffer) else {
                return;
            };
            self.requests.lock().unwrap().push(request.clone());
            let mut answer = Answer::new(wire, control);
            (self.script)(&request, &mut answer);
            if !answer.is_open() {
                let _ = control.shutdown(Shutdown::Both);
                return;
            }
        }
    }

    fn read_request(&self, wire: &mut dyn Wire, buffer: &mut Vec<u8>) -> Option<Recorded> {
        let end = loop {
            if let Some(at) = find(buffer, b"\r\n\r\n") {
                break at + 4;
            }
            self.fill(wire, buffer)?;
        };
        let head: Vec<u8> = buffer.drain(..end).collect();
        let text = String::from_utf8_lossy(&head).into_owned();
        let mut lines = text.trim_end().split("\r\n");
        let mut first = lines.next()?.split(' ');
        let (method, target) = (first.next()?.to_owned(), first.next()?.to_owned());
        let headers: Vec<(String, String)> = lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect();
        let value = |name: &str| {
            headers
                .iter()
                .find(|(found, _)| found == name)
                .map(|(_, value)| value.clone())
        };
        let body = if value("transfer-encoding").is_some() {
            self.read_chunked(wire, buffer)?
        } else {
            let length: usize = value("content-length").map_or(0, |text| text.parse().unwrap());
            while buffer.len() < length {
                self.fill(wire, buffer)?;
            }
            buffer.drain(..length).collect()
        };
        Some(Recorded {
            method,
            target,
            head,
            headers,
            body,
        })
    }

    fn read_chunked(&self, wire: &mut dyn Wire, buffer: &mut Vec<u8>) -> Option<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let line_end = loop {
                if let Some(at) = find(buffer, b"\r\n") {
                    break at;
                }
                self.fill(wire, buffer)?;
            };
            let size = usize::from_str_radix(std::str::from_utf8(&buffer[..line_end]).ok()?.trim(), 16).ok()?;
            let whole = line_end + 2 + size + 2;
            while buffer.len() < whole {
                self.fill(wire, buffer)?;
            }
            body.extend_from_slice(&buffer[line_end + 2..line_end + 2 + size]);
            buffer.drain(..whole);
            if size == 0 {
                return Some(body);
            }
        }
    }

    fn fill(&self, wire: &mut dyn Wire, buffer: &mut Vec<u8>) -> Option<()> {
        let mut space = vec![0_u8; 256 * 1024];
        loop {
            match wire.read(&mut space) {
                Ok(0) => return None,
                Ok(count) => {
                    buffer.extend_from_slice(&space[..count]);
                    self.plain_bytes.lock().unwrap().extend_from_slice(&space[..count]);
                    return Some(());
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return None,
            }
        }
    }
}
