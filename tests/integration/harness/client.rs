//! A byte-exact HTTP/1.1 client over one TCP connection, plain or with TLS: it writes what it is told and reads piece by piece.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use rustls::{ClientConnection, StreamOwned};

use super::request::{Request, Upload};
use super::wait::DEADLINE;

/// A connection.
pub(crate) struct Client {
    stream: Box<dyn Stream>,
    /// The same connection, for what concerns the socket.
    socket: TcpStream,
    buffer: Vec<u8>,
}

/// What bytes go through.
trait Stream: Read + Write + Send {}

impl<S: Read + Write + Send> Stream for S {}

/// How the end of a body is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    Nothing,
    Length(usize),
    Chunked,
    UntilClose,
}

/// The head of an answer, and how far its body has been read.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) status: u16,
    /// What stands behind the status.
    pub(crate) reason: String,
    pub(crate) headers: Vec<(String, String)>,
    /// Its exact bytes, with the blank line.
    pub(crate) text: String,
    framing: Framing,
}

/// One piece of a body.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// Bytes: one HTTP chunk, or what one read gave.
    Data(Vec<u8>),
    /// The body is complete.
    End,
    /// The connection ended inside the body.
    Cut,
}

/// A whole answer.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// False when the connection ended inside the body.
    pub(crate) complete: bool,
}

impl Client {
    /// Connects.
    pub(crate) fn connect(address: SocketAddr) -> Client {
        let socket = TcpStream::connect(address).unwrap_or_else(|error| panic!("cannot connect to {address}: {error}"));
        Client::over(socket)
    }

    /// Over a connection that is there.
    pub(crate) fn over(socket: TcpStream) -> Client {
        socket.set_read_timeout(Some(DEADLINE)).unwrap();
        socket.set_write_timeout(Some(DEADLINE)).unwrap();
        socket.set_nodelay(true).unwrap();
        Client {
            stream: Box::new(socket.try_clone().unwrap()),
            socket,
            buffer: Vec::new(),
        }
    }

    /// Goes on with TLS, as `tls` has begun it or not.
    pub(crate) fn with_tls(self, tls: ClientConnection) -> Client {
        let stream = Box::new(StreamOwned::new(tls, self.socket.try_clone().unwrap()));
        Client { stream, ..self }
    }

    /// Sends a request and reads the whole answer.
    #[track_caller]
    pub(crate) fn exchange(&mut self, request: &Request) -> Response {
        self.write(&request.bytes(Upload::Length));
        self.response_to(&request.method)
    }

    /// Sends the head with `Expect: 100-continue`, waits to be asked for the body, sends it, and reads the answer.
    #[track_caller]
    pub(crate) fn exchange_expecting(&mut self, request: &Request, upload: Upload) -> Response {
        let request = request.clone().header("expect", "100-continue");
        self.write(&request.head_bytes(upload));
        assert_eq!(self.head_to("POST").status, 100);
        self.write(&request.body_bytes(upload));
        self.response_to("POST")
    }

    /// Writes bytes; a peer that no longer listens is seen when reading.
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes);
    }

    /// Says that nothing more will be written; reads on.
    pub(crate) fn half_close(&mut self) {
        let _ = self.socket.shutdown(std::net::Shutdown::Write);
    }

    /// Leaves with a reset (RST) instead of an end (FIN).
    pub(crate) fn reset(self) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()
            .unwrap();
        let _inside = runtime.enter();
        self.socket.set_nonblocking(true).unwrap();
        let stream = tokio::net::TcpStream::from_std(self.socket).unwrap();
        stream.set_zero_linger().unwrap();
    }

    /// Reads the next head (also an interim 1xx one) of an answer to `method`.
    #[track_caller]
    pub(crate) fn head_to(&mut self, method: &str) -> Head {
        self.try_head_to(method)
            .unwrap_or_else(|| panic!("the connection ended before a whole head: {:?}", self.text()))
    }

    /// Like [`Client::head_to`]; None when the connection ends first.
    pub(crate) fn try_head_to(&mut self, method: &str) -> Option<Head> {
        let end = loop {
            if let Some(at) = find(&self.buffer, b"\r\n\r\n") {
                break at + 4;
            }
            if !self.fill() {
                return None;
            }
        };
        let bytes: Vec<u8> = self.buffer.drain(..end).collect();
        Some(Head::parse(method, &String::from_utf8(bytes).unwrap()))
    }

    /// Reads the whole answer to a request with this method; interim answers are passed over.
    #[track_caller]
    pub(crate) fn response_to(&mut self, method: &str) -> Response {
        let mut head = self.head_to(method);
        while head.status < 200 {
            head = self.head_to(method);
        }
        self.rest(head)
    }

    /// Reads the rest of an answer.
    pub(crate) fn rest(&mut self, mut head: Head) -> Response {
        let mut body = Vec::new();
        let complete = loop {
            match self.piece(&mut head) {
                Piece::Data(data) => body.extend_from_slice(&data),
                Piece::End => break true,
                Piece::Cut => break false,
            }
        };
        Response {
            status: head.status,
            headers: head.headers,
            body,
            complete,
        }
    }

    /// Reads the next piece of the body: with chunked framing exactly one chunk.
    pub(crate) fn piece(&mut self, head: &mut Head) -> Piece {
        match head.framing {
            Framing::Nothing | Framing::Length(0) => Piece::End,
            Framing::Length(left) => {
                if self.buffer.is_empty() && !self.fill() {
                    return Piece::Cut;
                }
                let take = left.min(self.buffer.len());
                head.framing = Framing::Length(left - take);
                Piece::Data(self.buffer.drain(..take).collect())
            }
            Framing::UntilClose => {
                if self.buffer.is_empty() && !self.fill() {
                    return Piece::End;
                }
                Piece::Data(std::mem::take(&mut self.buffer))
            }
            Framing::Chunked => self.chunk(head),
        }
    }

    fn chunk(&mut self, head: &mut Head) -> Piece {
        let line_end = loop {
            if let Some(at) = find(&self.buffer, b"\r\n") {
                break at;
            }
            if !self.fill() {
                return Piece::Cut;
            }
        };
        let size = usize::from_str_radix(std::str::from_utf8(&self.buffer[..line_end]).unwrap().trim(), 16).unwrap();
        let whole = line_end + 2 + size + 2;
        while self.buffer.len() < whole {
            if !self.fill() {
                return Piece::Cut;
            }
        }
        let bytes: Vec<u8> = self.buffer.drain(..whole).collect();
        if size == 0 {
            head.framing = Framing::Nothing;
            return Piece::End;
        }
        Piece::Data(bytes[line_end + 2..line_end + 2 + size].to_vec())
    }

    /// Reads exactly `count` bytes; `None` when the connection ends first.
    pub(crate) fn take(&mut self, count: usize) -> Option<Vec<u8>> {
        while self.buffer.len() < count {
            if !self.fill() {
                return None;
            }
        }
        Some(self.buffer.drain(..count).collect())
    }

    /// True when the peer closes within `limit` without sending anything more.
    pub(crate) fn closed_within(&mut self, limit: Duration) -> bool {
        self.socket.set_read_timeout(Some(limit)).unwrap();
        let mut space = [0_u8; 1024];
        let closed = match self.stream.read(&mut space) {
            Ok(0) => true,
            Ok(_) => false,
            Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
        };
        self.socket.set_read_timeout(Some(DEADLINE)).unwrap();
        closed
    }

    /// Waits so long for each piece from now on.
    pub(crate) fn patient(self, limit: Duration) -> Client {
        self.socket.set_read_timeout(Some(limit)).unwrap();
        self
    }

    /// Reads once. False at the end of the connection; a silent peer fails the test.
    fn fill(&mut self) -> bool {
        let mut space = vec![0_u8; 64 * 1024];
        match self.stream.read(&mut space) {
            Ok(0) => false,
            Ok(count) => {
                self.buffer.extend_from_slice(&space[..count]);
                true
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                panic!("nothing came in time; so far: {:?}", self.text())
            }
            Err(_) => false,
        }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.buffer).chars().take(400).collect()
    }
}

impl Head {
    fn parse(method: &str, text: &str) -> Head {
        let mut lines = text.trim_end().split("\r\n");
        let mut first = lines.next().unwrap().splitn(3, ' ').skip(1);
        let status: u16 = first.next().unwrap().parse().unwrap();
        let reason = first.next().unwrap_or_default().to_owned();
        let headers: Vec<(String, String)> = lines
            .map(|line| line.split_once(':').unwrap_or_else(|| panic!("no header: {line:?}")))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect();
        let find = |name: &str| {
            headers
                .iter()
                .find(|(found, _)| found == name)
                .map(|(_, value)| value.as_str())
        };
        let framing = if method == "HEAD" || status < 200 || status == 204 || status == 304 {
            Framing::Nothing
        } else if find("transfer-encoding").is_some_and(|value| value.eq_ignore_ascii_case("chunked")) {
            Framing::Chunked
        } else if let Some(length) = find("content-length") {
            Framing::Length(length.parse().unwrap())
        } else {
            Framing::UntilClose
        };
        Head {
            status,
            reason,
            headers,
            text: text.to_owned(),
            framing,
        }
    }

    /// The value of a header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(found, _)| found == name)
            .map(|(_, value)| value.as_str())
    }
}

impl Response {
    /// The value of a header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(found, _)| found == name)
            .map(|(_, value)| value.as_str())
    }

    /// Whether it says that it is the connection's last.
    pub(crate) fn closes(&self) -> bool {
        self.header("connection") == Some("close")
    }

    /// The body as text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    #[track_caller]
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("not JSON ({error}), status {}: {}", self.status, self.text()))
    }
}

/// The position of `needle` in `haystack`.
pub(crate) fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    memchr::memmem::find(haystack, needle)
}
