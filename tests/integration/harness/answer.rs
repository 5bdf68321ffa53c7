//! How a scripted provider answers: head, chunks, a clean end or one of the unclean ones.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use super::wait::DEADLINE;

/// A connection's plain or TLS stream.
pub(crate) trait Wire: Read + Write + Send {}
impl<T: Read + Write + Send> Wire for T {}

/// The least that is an answer in one piece, in every protocol: the name of one that made it.
pub(crate) const LEAST: &str = r#"{"model":"any","modelVersion":"any"}"#;

/// The answer to one request, written step by step. Writing to a peer that has left is no error: tests look at the peer.
pub(crate) struct Answer<'a> {
    wire: &'a mut dyn Wire,
    socket: &'a TcpStream,
    open: bool,
}

impl<'a> Answer<'a> {
    pub(crate) fn new(wire: &'a mut dyn Wire, socket: &'a TcpStream) -> Answer<'a> {
        Answer {
            wire,
            socket,
            open: true,
        }
    }

    /// Whether the connection can serve another request.
    pub(crate) fn is_open(&self) -> bool {
        self.open
    }

    /// A whole answer with `content-length`.
    pub(crate) fn full(&mut self, status: u16, headers: &[(&str, &str)], body: &[u8]) {
        let length = body.len().to_string();
        let mut all = headers.to_vec();
        all.push(("content-length", &length));
        self.raw(&head_bytes(status, &all));
        self.raw(body);
    }

    /// A whole JSON answer with status 200.
    pub(crate) fn json(&mut self, body: &str) {
        self.full(200, &[("content-type", "application/json")], body.as_bytes());
    }

    /// The least that is an answer in one piece, in every protocol.
    pub(crate) fn least(&mut self) {
        self.json(LEAST);
    }

    /// The head of a chunked answer.
    pub(crate) fn head(&mut self, status: u16, headers: &[(&str, &str)]) {
        let mut all = headers.to_vec();
        all.push(("transfer-encoding", "chunked"));
        self.raw(&head_bytes(status, &all));
    }

    /// The head of an SSE stream.
    pub(crate) fn sse(&mut self) {
        self.head(
            200,
            &[
                ("content-type", "text/event-stream; charset=utf-8"),
                ("cache-control", "no-cache"),
            ],
        );
    }

    /// One chunk.
    pub(crate) fn chunk(&mut self, data: impl AsRef<[u8]>) {
        let data = data.as_ref();
        let mut wire = format!("{:x}\r\n", data.len()).into_bytes();
        wire.extend_from_slice(data);
        wire.extend_from_slice(b"\r\n");
        self.raw(&wire);
    }

    /// The clean end of a chunked answer.
    pub(crate) fn end(&mut self) {
        self.raw(b"0\r\n\r\n");
    }

    /// Ends the connection here, whatever is unfinished.
    pub(crate) fn cut(&mut self) {
        let _ = self.wire.flush();
        let _ = self.socket.shutdown(Shutdown::Both);
        self.open = false;
    }

    /// Says that nothing more will be written, and waits until the peer has closed the connection too.
    pub(crate) fn leave(&mut self) {
        let _ = self.wire.flush();
        let _ = self.socket.shutdown(Shutdown::Write);
        self.wait_peer_left(DEADLINE);
    }

    /// Exact bytes.
    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        if self.wire.write_all(bytes).and_then(|()| self.wire.flush()).is_err() {
            self.open = false;
        }
    }

    /// Gives up the connection to another protocol: its stream, and its socket.
    pub(crate) fn connection(&mut self) -> (&mut (dyn Wire + 'a), &TcpStream) {
        self.open = false;
        (&mut *self.wire, self.socket)
    }

    /// Waits until the peer closes its side, at most for `limit`; tells how long it took.
    pub(crate) fn wait_peer_left(&mut self, limit: Duration) -> Option<Duration> {
        let started = Instant::now();
        self.open = false;
        let _ = self.socket.set_read_timeout(Some(limit));
        let mut space = [0_u8; 1024];
        loop {
            match self.wire.read(&mut space) {
                Ok(0) => return Some(started.elapsed()),
                Ok(_) => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => return None,
                Err(_) => return Some(started.elapsed()),
            }
        }
    }
}

fn head_bytes(status: u16, headers: &[(&str, &str)]) -> Vec<u8> {
    let mut text = format!("HTTP/1.1 {status} Scripted\r\n");
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text.push_str("\r\n");
    text.into_bytes()
}
