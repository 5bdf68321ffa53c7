//! The client: one connection, one request after the other, every body compared as it arrives.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::decoder::Decoder;

/// A response that takes longer than this is a bad one.
const EXCHANGE_MAX: Duration = Duration::from_secs(60);

/// What one read takes from the connection at most, in bytes.
const READ_BYTES: usize = 64 * 1024;

/// What the body must be.
#[derive(Clone, Copy)]
pub(crate) enum Expect<'a> {
    /// Not known yet: it is collected to its end.
    Anything,
    /// Not known yet: it is collected up to and with the first generated delta.
    FirstDelta,
    /// Exactly this.
    Whole(&'a [u8]),
    /// This, and then it goes on; the rest is not read.
    Prefix(&'a [u8]),
}

/// What came back.
pub(crate) struct Answer {
    /// From the first byte sent to the first byte of the body received.
    pub(crate) first_byte: Duration,
    /// Chunks received.
    pub(crate) chunks: u64,
    /// The body when it was to be collected; empty otherwise.
    pub(crate) body: Vec<u8>,
}

/// A connection that is opened when needed and kept.
pub(crate) struct Connection {
    address: SocketAddr,
    stream: Option<TcpStream>,
    buffer: Vec<u8>,
    /// Times that the server had closed the kept connection, so that another one had to be opened.
    pub(crate) reopened: usize,
}

/// What became of an attempt.
enum Attempt {
    Answered(Answer),
    /// The server had closed the kept connection before it could see the request.
    Stale,
}

impl Connection {
    /// Not open yet.
    pub(crate) fn new(address: SocketAddr) -> Self {
        Self {
            address,
            stream: None,
            buffer: vec![0; READ_BYTES],
            reopened: 0,
        }
    }

    /// Sends the request and reads the response. Anything but status 200 with the expected body is an error.
    pub(crate) async fn ask(&mut self, request: &[u8], expect: Expect<'_>) -> Result<Answer, String> {
        let exchange = async {
            match self.attempt(request, expect).await? {
                Attempt::Answered(answer) => Ok(answer),
                Attempt::Stale => {
                    self.reopened += 1;
                    match self.attempt(request, expect).await? {
                        Attempt::Answered(answer) => Ok(answer),
                        Attempt::Stale => Err("the connection was closed without an answer".to_owned()),
                    }
                }
            }
        };
        match tokio::time::timeout(EXCHANGE_MAX, exchange).await {
            Ok(result) => result,
            Err(_) => Err(format!("no end within {EXCHANGE_MAX:?}")),
        }
    }

    async fn attempt(&mut self, request: &[u8], expect: Expect<'_>) -> Result<Attempt, String> {
        let kept = self.stream.take();
        let was_kept = kept.is_some();
        let mut stream = match kept {
            Some(stream) => stream,
            None => {
                let opened = TcpStream::connect(self.address)
                    .await
                    .map_err(|error| format!("connecting: {error}"))?;
                opened
                    .set_nodelay(true)
                    .map_err(|error| format!("connecting: {error}"))?;
                opened
            }
        };
        let mut decoder = Decoder::new();
        let mut sink = Sink {
            expect,
            at: 0,
            body: Vec::new(),
        };
        let mut first_byte = None;
        let mut untouched = true;
        let sent = Instant::now();
        if let Err(error) = stream.write_all(request).await {
            return if was_kept {
                Ok(Attempt::Stale)
            } else {
                Err(format!("sending: {error}"))
            };
        }
        while !decoder.is_done() && !sink.has_enough() {
            let read = match stream.read(&mut self.buffer).await {
                Ok(0) | Err(_) if untouched && was_kept => return Ok(Attempt::Stale),
                Ok(0) => return Err(format!("cut after {} bytes of the body", sink.at)),
                Ok(read) => read,
                Err(error) => return Err(format!("{error} after {} bytes of the body", sink.at)),
            };
            untouched = false;
            let pushed = decoder.push(&self.buffer[..read], &mut |piece| {
                first_byte.get_or_insert_with(|| sent.elapsed());
                sink.take(piece)
            });
            if decoder.status != 200 && decoder.status != 0 {
                let start = String::from_utf8_lossy(&self.buffer[..read]).into_owned();
                return Err(format!("status {}: {start}", decoder.status));
            }
            pushed?;
        }
        sink.check_end()?;
        if !decoder.closes {
            self.stream = Some(stream);
        }
        let first_byte = first_byte.ok_or("the body is empty")?;
        Ok(Attempt::Answered(Answer {
            first_byte,
            chunks: decoder.chunks,
            body: sink.body,
        }))
    }
}

/// Where the body goes.
struct Sink<'a> {
    expect: Expect<'a>,
    at: usize,
    body: Vec<u8>,
}

impl Sink<'_> {
    fn take(&mut self, piece: &[u8]) -> Result<(), String> {
        match self.expect {
            Expect::Anything | Expect::FirstDelta => self.body.extend_from_slice(piece),
            Expect::Whole(expected) | Expect::Prefix(expected) => {
                let here = expected.get(self.at..).unwrap_or_default();
                if !here.starts_with(piece) {
                    let same = here
                        .iter()
                        .zip(piece)
                        .take_while(|(expected, got)| expected == got)
                        .count();
                    return Err(format!(
                        "differs from what the provider sends at byte {}",
                        self.at + same
                    ));
                }
            }
        }
        self.at += piece.len();
        Ok(())
    }

    fn has_enough(&self) -> bool {
        match self.expect {
            Expect::Anything | Expect::Whole(_) => false,
            Expect::Prefix(expected) => self.at == expected.len(),
            Expect::FirstDelta => {
                let text = String::from_utf8_lossy(&self.body);
                text.split_once("event: content_block_delta")
                    .is_some_and(|(_, rest)| rest.ends_with("\n\n"))
            }
        }
    }

    fn check_end(&self) -> Result<(), String> {
        match self.expect {
            Expect::Whole(expected) if self.at != expected.len() => {
                Err(format!("ended after {} of {} bytes", self.at, expected.len()))
            }
            _ => Ok(()),
        }
    }
}
