//! One client's attack over one connection: its steps, and what comes of it.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use serde::Deserialize;

use super::frames::{Frame, Kind, PREFACE, types};
use super::pieces::{Piece, bytes};
use crate::harness::client::find;
use crate::harness::wait::DEADLINE;

/// How long an answer may keep a byte that is trickled from being sent.
const BETWEEN_BYTES: Duration = Duration::from_millis(3);
/// How much of what the server sends is kept.
const KEPT_BYTES: usize = 1 << 20;

/// What a client does.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Step {
    /// Sends bytes.
    Send(Vec<Piece>),
    /// Sends the preface of HTTP/2 and the client's first SETTINGS.
    Http2,
    /// Sends frames of HTTP/2.
    Frames(Vec<Frame>),
    /// Sends the same frames again and again, each time on the client's next stream.
    Streams { times: u32, frames: Vec<Frame> },
    /// Waits until the server has sent this.
    Await(String),
    /// Sends this again and again, a little later each time, until the connection has ended.
    Trickle(String),
    /// Says that it sends no more.
    HalfClose,
    /// Reads nothing more, until the server resets the connection.
    NeverRead,
}

/// What came of it.
#[derive(Debug)]
pub(super) struct Ended {
    /// The status of the last answer over HTTP/1.1.
    pub(super) status: Option<u16>,
    /// The types of the server's frames, if HTTP/2 was spoken.
    pub(super) frames: Vec<u8>,
}

impl Ended {
    /// Whether the server has sent such a frame.
    pub(super) fn has(&self, kind: Kind) -> bool {
        self.frames.contains(&(kind as u8))
    }
}

/// A connection under attack.
pub(super) struct Attack {
    socket: TcpStream,
    came: Vec<u8>,
    is_http2: bool,
    has_ended: bool,
    reads: bool,
}

impl Attack {
    /// Over this connection.
    pub(super) fn over(socket: TcpStream) -> Attack {
        socket.set_read_timeout(Some(BETWEEN_BYTES)).unwrap();
        socket.set_write_timeout(Some(BETWEEN_BYTES)).unwrap();
        socket.set_nodelay(true).unwrap();
        Attack {
            socket,
            came: Vec::new(),
            is_http2: false,
            has_ended: false,
            reads: true,
        }
    }

    /// Does every step. A server that ends the connection before them all is no failure.
    pub(super) fn run(&mut self, steps: &[Step], words: &[(&str, &str)]) {
        for step in steps {
            match step {
                Step::Send(pieces) => self.send(&bytes(pieces, words)),
                Step::Http2 => {
                    self.is_http2 = true;
                    self.send(PREFACE);
                }
                Step::Frames(frames) => frames.iter().for_each(|frame| self.send(&frame.bytes(0, words))),
                Step::Streams { times, frames } => {
                    let streams = (0..*times).flat_map(|number| frames.iter().map(move |frame| (2 * number, frame)));
                    self.send(
                        &streams
                            .flat_map(|(ahead, frame)| frame.bytes(ahead, words))
                            .collect::<Vec<u8>>(),
                    );
                }
                Step::Await(text) => self.until(&format!("{text:?} to come"), |attack| {
                    find(&attack.came, text.as_bytes()).is_some()
                }),
                Step::Trickle(text) => self.until("a trickle to be ended", |attack| {
                    attack.send(text.as_bytes());
                    false
                }),
                Step::HalfClose => drop(self.socket.shutdown(Shutdown::Write)),
                Step::NeverRead => self.reads = false,
            }
        }
    }

    /// Waits until the server has ended the connection.
    pub(super) fn end(mut self) -> Ended {
        if self.reads {
            self.until("the end of the connection", |_| false);
        }
        // A head begins a line; what an answer says of HTTP/1.1 does not.
        let heads = memchr::memmem::find_iter(&self.came, b"HTTP/1.1 ");
        let head = heads.filter(|at| *at == 0 || self.came[at - 1] == b'\n').last();
        let status: Option<u16> =
            head.and_then(|at| std::str::from_utf8(self.came.get(at + 9..at + 12)?).ok()?.parse().ok());
        Ended {
            status: status.filter(|_| !self.is_http2),
            frames: if self.is_http2 { types(&self.came) } else { Vec::new() },
        }
    }

    /// Waits until the server has sent such a frame.
    pub(super) fn wait_for_frame(&mut self, kind: Kind) {
        self.until(&format!("a {kind:?}"), |attack| {
            types(&attack.came).contains(&(kind as u8))
        });
        assert!(!self.has_ended, "the connection has ended");
    }

    /// Reads and looks, until `condition` holds or the connection has ended.
    fn until(&mut self, what: &str, mut condition: impl FnMut(&mut Attack) -> bool) {
        let began = Instant::now();
        while !condition(self) && !self.has_ended {
            self.read();
            assert!(began.elapsed() < DEADLINE, "waited {DEADLINE:?} in vain for {what}");
        }
    }

    /// Sends all of it, and reads meanwhile: who only writes may wait for a server that waits as well.
    fn send(&mut self, mut bytes: &[u8]) {
        let began = Instant::now();
        while !bytes.is_empty() && !self.has_ended {
            match self.socket.write(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) if is_late(&error) => self.read(),
                Err(_) => {
                    // What the server has said before is still to be read.
                    while !self.has_ended {
                        self.read();
                    }
                }
            }
            // A server that reads no more keeps the rest from being sent: that is a way to answer a flood.
            if began.elapsed() > DEADLINE {
                return;
            }
        }
    }

    fn read(&mut self) {
        if !self.reads {
            // Whether it has ended is seen by writing.
            return;
        }
        let mut space = [0_u8; 16 * 1024];
        match self.socket.read(&mut space) {
            Ok(0) => self.has_ended = true,
            Ok(count) if self.came.len() < KEPT_BYTES => self.came.extend_from_slice(&space[..count]),
            Ok(_) => {}
            Err(error) if is_late(&error) => {}
            Err(_) => self.has_ended = true,
        }
    }
}

fn is_late(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
    )
}
