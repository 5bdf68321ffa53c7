//! The client's side of a socket (RFC 6455): the handshake, whole frames, and the answer to a turn.

use std::{
    net::SocketAddr,
    ops::Range,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use memchr::memmem;
use serde_json::Value;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
};

use crate::gateway::TlsClient;

/// The first byte of a whole text message.
pub(crate) const TEXT: u8 = 0x81;
const CLOSE: u8 = 0x88;
const PING: u8 = 0x89;
const PONG: u8 = 0x8a;
const MASKED: u8 = 0x80;
const MASK: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];

/// The room for one read, in bytes.
const READ_BYTES: usize = 16 * 1024;
/// The maximum time of a handshake and of a turn.
const ANSWER_MAX: Duration = Duration::from_secs(60);
/// The part of an event in which its type is, in bytes.
const TYPE_WITHIN: usize = 96;
const COMPLETED: &[u8] = b"\"type\":\"response.completed\"";
const ERROR: &[u8] = b"\"type\":\"error\"";
/// A message that needs no answer.
const NO_ACTION: &[u8] = b"{\"type\":\"response.processed\"}";

/// A connection, with TLS or without.
trait Line: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Line for T {}

/// An open socket.
pub(crate) struct Socket {
    line: Box<dyn Line>,
    buffer: Vec<u8>,
    /// Where in the buffer the next frame begins.
    start: usize,
}

/// A frame of the server, by its place in the buffer.
struct ServerFrame {
    first: u8,
    payload: Range<usize>,
}

/// The answer to a turn.
pub(crate) enum SocketAnswer {
    Complete {
        /// From the first byte sent to the first event received.
        first_event: Duration,
        events: usize,
        /// The length of all events together.
        bytes: usize,
    },
    /// An error with this status.
    Refused(u16),
}

/// The bytes of a masked frame.
pub(crate) fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![first];
    match (u8::try_from(payload.len()), u16::try_from(payload.len())) {
        (Ok(short), _) if short < 126 => bytes.push(MASKED | short),
        (_, Ok(medium)) => {
            bytes.push(MASKED | 126);
            bytes.extend_from_slice(&medium.to_be_bytes());
        }
        _ => {
            bytes.push(MASKED | 127);
            bytes.extend_from_slice(&(payload.len() as u64).to_be_bytes());
        }
    }
    bytes.extend_from_slice(&MASK);
    bytes.extend(payload.iter().zip(MASK.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    bytes
}

impl Socket {
    /// Opens a socket with this key.
    pub(crate) async fn open(address: SocketAddr, key: &str, tls: Option<&TlsClient>) -> Result<Self, String> {
        let opening = Self::handshake(address, key, tls);
        let opened = tokio::time::timeout(ANSWER_MAX, opening).await;
        opened.map_err(|_| "no answer to a handshake".to_owned())?
    }

    async fn handshake(address: SocketAddr, key: &str, tls: Option<&TlsClient>) -> Result<Self, String> {
        let failed = |error: std::io::Error| format!("a handshake: {error}");
        let stream = TcpStream::connect(address).await.map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        let line: Box<dyn Line> = match tls {
            None => Box::new(stream),
            Some(tls) => Box::new(tls.connect(stream).await.map_err(failed)?),
        };
        let mut socket = Self {
            line,
            buffer: Vec::new(),
            start: 0,
        };
        let head = format!(
            "GET /v1/responses HTTP/1.1\r\nhost: gateway.test\r\nauthorization: Bearer {key}\r\nuser-agent: weir-sockets\r\n\
             connection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
             sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        );
        socket.write(head.as_bytes()).await?;
        let end = loop {
            if let Some(end) = memmem::find(&socket.buffer, b"\r\n\r\n") {
                break end + 4;
            }
            socket.fill().await?;
        };
        if !socket.buffer.starts_with(b"HTTP/1.1 101 ") {
            let said = String::from_utf8_lossy(&socket.buffer).into_owned();
            return Err(format!("no socket: {said}"));
        }
        socket.start = end;
        Ok(socket)
    }

    /// Sends a `response.create` and reads all events of its answer. Calls `began` at the first.
    pub(crate) async fn ask(
        &mut self,
        frame: &[u8],
        began: &mut (impl FnMut() + Send),
    ) -> Result<SocketAnswer, String> {
        let answer = tokio::time::timeout(ANSWER_MAX, self.exchange(frame, began)).await;
        answer.map_err(|_| format!("no end of an answer within {ANSWER_MAX:?}"))?
    }

    async fn exchange(&mut self, frame: &[u8], began: &mut (impl FnMut() + Send)) -> Result<SocketAnswer, String> {
        let sent = Instant::now();
        self.write(frame).await?;
        let (mut first_event, mut events, mut bytes) = (None, 0, 0);
        loop {
            let payload = self.text().await?;
            let event = &self.buffer[payload];
            let begin = &event[..event.len().min(TYPE_WITHIN)];
            if memmem::find(begin, ERROR).is_some() {
                let error: Value = serde_json::from_slice(event).map_err(|_| "an error that is no JSON".to_owned())?;
                let status = error["status"].as_u64().and_then(|status| u16::try_from(status).ok());
                return status
                    .map(SocketAnswer::Refused)
                    .ok_or_else(|| format!("an error without a status: {error}"));
            }
            events += 1;
            bytes += event.len();
            let is_last = memmem::find(begin, COMPLETED).is_some();
            let first_event = *first_event.get_or_insert_with(|| sent.elapsed());
            if events == 1 {
                began();
            }
            if is_last {
                return Ok(SocketAnswer::Complete {
                    first_event,
                    events,
                    bytes,
                });
            }
        }
    }

    /// Sends a message that needs no action, so that the first message is not awaited any longer; returns when it has been read.
    pub(crate) async fn greet(&mut self) -> Result<(), String> {
        let greeting = [frame(TEXT, NO_ACTION), frame(PING, b"")].concat();
        self.write(&greeting).await?;
        let answered = tokio::time::timeout(ANSWER_MAX, async {
            while self.frame().await?.first != PONG {}
            Ok::<_, String>(())
        });
        answered.await.map_err(|_| "no pong".to_owned())?
    }

    /// Answers pings and counts them, until the server closes the socket, which is an error.
    pub(crate) async fn idle(mut self, pings: &AtomicU64) -> Result<(), String> {
        loop {
            let ServerFrame { first, payload } = self.frame().await?;
            if first != PING {
                return Err(format!(
                    "an idle socket got a frame {first:#x}: {}",
                    String::from_utf8_lossy(&self.buffer[payload])
                ));
            }
            let pong = frame(PONG, &self.buffer[payload]);
            self.write(&pong).await?;
            pings.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Reads up to the end of the next text message. Answers pings before it.
    async fn text(&mut self) -> Result<Range<usize>, String> {
        loop {
            let ServerFrame { first, payload } = self.frame().await?;
            match first {
                TEXT => return Ok(payload),
                PING => {
                    let pong = frame(PONG, &self.buffer[payload]);
                    self.write(&pong).await?;
                }
                PONG => {}
                CLOSE => {
                    let said = String::from_utf8_lossy(&self.buffer[payload]).into_owned();
                    return Err(format!("the socket was closed: {said:?}"));
                }
                other => return Err(format!("a frame that begins with {other:#x}")),
            }
        }
    }

    /// Reads up to the end of the next frame. Its place in the buffer is valid until the next read.
    async fn frame(&mut self) -> Result<ServerFrame, String> {
        loop {
            if let Some(frame) = self.complete()? {
                self.start = frame.payload.end;
                return Ok(frame);
            }
            self.fill().await?;
        }
    }

    /// The next frame, if all of it is in the buffer.
    fn complete(&self) -> Result<Option<ServerFrame>, String> {
        let bytes = &self.buffer[self.start..];
        let [first, second, ..] = bytes else { return Ok(None) };
        let (head, length) = match second {
            0..=125 => (2, Some(usize::from(*second))),
            126 => {
                let length = bytes.get(2..4).and_then(|length| <[u8; 2]>::try_from(length).ok());
                (4, length.map(|length| usize::from(u16::from_be_bytes(length))))
            }
            127 => {
                let length = bytes.get(2..10).and_then(|length| <[u8; 8]>::try_from(length).ok());
                (10, length.map(|length| u64::from_be_bytes(length) as usize))
            }
            _ => return Err("the server has masked a frame".to_owned()),
        };
        let Some(length) = length.filter(|length| bytes.len() - head >= *length) else {
            return Ok(None);
        };
        let payload = self.start + head..self.start + head + length;
        Ok(Some(ServerFrame { first: *first, payload }))
    }

    /// Reads once, behind what is left in the buffer.
    async fn fill(&mut self) -> Result<(), String> {
        self.buffer.drain(..self.start);
        self.start = 0;
        self.buffer.reserve(READ_BYTES);
        match self.line.read_buf(&mut self.buffer).await {
            Ok(0) => Err("the connection of a socket has ended".to_owned()),
            Ok(_) => Ok(()),
            Err(error) => Err(format!("reading from a socket: {error}")),
        }
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), String> {
        let failed = |error: std::io::Error| format!("writing to a socket: {error}");
        self.line.write_all(bytes).await.map_err(failed)?;
        self.line.flush().await.map_err(failed)
    }
}
