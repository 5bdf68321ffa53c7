//! The client: one connection, one request after the other, every body compared as it arrives.

use std::{
    net::SocketAddr,
    ops::Range,
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
#[derive(Clone)]
pub(crate) enum Expect<'a> {
    /// Not known yet: it is collected to its end.
    Anything,
    /// Exactly this.
    Whole(&'a [u8]),
    /// Exactly this but for these places, at which anything may be.
    But(&'a [u8], Range<usize>),
}

/// What came back.
pub(crate) struct Answer {
    /// From the first byte sent to the first byte of the body received.
    pub(crate) first_byte: Duration,
    /// Chunks received.
    pub(crate) chunks: u64,
    /// The body when it was to be collected; empty otherwise.
    pub(crate) body: Vec<u8>,
    /// The name that the server gave the request; empty where it gave none.
    pub(crate) request_id: String,
}

/// What has come of a body with one read.
pub(crate) struct Progress {
    /// When it was read.
    pub(crate) at: Instant,
    /// How much of the body there is now.
    pub(crate) bytes: usize,
    /// And in how many chunks.
    pub(crate) chunks: u64,
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
        self.watch(request, expect, &mut |_| {}).await
    }

    /// The same, and tells after each read that brings some of the body.
    pub(crate) async fn watch(
        &mut self,
        request: &[u8],
        expect: Expect<'_>,
        seen: &mut (impl FnMut(Progress) + Send),
    ) -> Result<Answer, String> {
        let exchange = async {
            match self.attempt(request, expect.clone(), seen).await? {
                Attempt::Answered(answer) => Ok(answer),
                Attempt::Stale => {
                    self.reopened += 1;
                    match self.attempt(request, expect, seen).await? {
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

    async fn attempt(
        &mut self,
        request: &[u8],
        expect: Expect<'_>,
        seen: &mut (impl FnMut(Progress) + Send),
    ) -> Result<Attempt, String> {
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
        while !decoder.is_done() {
            let read = match stream.read(&mut self.buffer).await {
                Ok(0) | Err(_) if untouched && was_kept => return Ok(Attempt::Stale),
                Ok(0) => return Err(format!("cut after {} bytes of the body", sink.at)),
                Ok(read) => read,
                Err(error) => return Err(format!("{error} after {} bytes of the body", sink.at)),
            };
            untouched = false;
            let before = sink.at;
            let pushed = decoder.push(&self.buffer[..read], &mut |piece| {
                first_byte.get_or_insert_with(|| sent.elapsed());
                sink.take(piece)
            });
            if decoder.status != 200 && decoder.status != 0 {
                let start = String::from_utf8_lossy(&self.buffer[..read]).into_owned();
                return Err(format!("status {}: {start}", decoder.status));
            }
            pushed?;
            if sink.at > before {
                seen(Progress {
                    at: Instant::now(),
                    bytes: sink.at,
                    chunks: decoder.chunks,
                });
            }
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
            request_id: decoder.request_id,
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
        match &self.expect {
            Expect::Anything => self.body.extend_from_slice(piece),
            Expect::Whole(expected) => same(expected, self.at, piece, &(0..0))?,
            Expect::But(expected, free) => same(expected, self.at, piece, free)?,
        }
        self.at += piece.len();
        Ok(())
    }

    fn check_end(&self) -> Result<(), String> {
        match self.expect {
            Expect::Whole(expected) | Expect::But(expected, _) if self.at != expected.len() => {
                Err(format!("ended after {} of {} bytes", self.at, expected.len()))
            }
            _ => Ok(()),
        }
    }
}

/// Whether a piece is what is expected at its place, but for places that are free.
fn same(expected: &[u8], at: usize, piece: &[u8], free: &Range<usize>) -> Result<(), String> {
    if expected.get(at..).unwrap_or_default().starts_with(piece) {
        return Ok(());
    }
    let mut places = (at..).zip(piece);
    match places.find(|(place, got)| expected.get(*place) != Some(*got) && !free.contains(place)) {
        Some((place, _)) => Err(format!("differs from what the provider sends at byte {place}")),
        None => Ok(()),
    }
}
