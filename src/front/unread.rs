//! Tracks which bytes of a client's connection belong to the current request, and limits the time in which they must arrive.

use std::{
    io::{self, ErrorKind},
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::{io::ReadBuf, time::Sleep};

use crate::{
    domain::{
        faults::{BodyTime, BodyTimeLimit},
        wire::{
            http1::{ChunkFault, ChunkedContent, ChunkedTrailers, head::RequestFraming},
            http2::{Http2HeadTracker, UnfinishedHead},
        },
    },
    edges::clock,
};

/// The empty line that ends a chunked body, after its last chunk.
const BODY_END: &[u8] = b"\r\n";

/// The bytes that may be read from a client's connection now.
#[derive(Debug)]
pub(super) enum ReadAllowance {
    /// All bytes, because the connection uses HTTP/2. The value tracks the heads in the connection's frames.
    Everything(Http2HeadTracker),
    /// The given number of further bytes of the request's body.
    Length(u64),
    /// The content of a chunked body.
    Chunked(ChunkedContent),
    /// The rest of a chunked body whose content has been read: the part of `BODY_END` that the reader has not received yet
    /// (`end`), and the trailers, which are discarded.
    Trailers {
        end: &'static [u8],
        fields: ChunkedTrailers,
    },
    /// No bytes, because the request has been read.
    Nothing,
}

impl From<RequestFraming> for ReadAllowance {
    fn from(framing: RequestFraming) -> Self {
        match framing {
            RequestFraming::Empty => Self::Nothing,
            RequestFraming::Length(length) => Self::Length(length),
            RequestFraming::Chunked => Self::Chunked(ChunkedContent::default()),
        }
    }
}

impl ReadAllowance {
    /// Consumes bytes that have arrived. Returns the number of bytes that belong to the request and may be read. The remaining
    /// bytes come after the request.
    pub(super) fn consume(&mut self, bytes: &[u8]) -> Result<usize, ChunkFault> {
        match self {
            Self::Everything(frames) => {
                frames.push(bytes);
                Ok(bytes.len())
            }
            Self::Nothing | Self::Trailers { .. } => Ok(0),
            Self::Length(left) => {
                let here = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                *left -= here as u64;
                if *left == 0 {
                    *self = Self::Nothing;
                }
                Ok(here)
            }
            Self::Chunked(body) => {
                let Some(content) = body.push(bytes)? else {
                    return Ok(bytes.len());
                };
                if bytes.get(content..).is_some_and(|behind| behind.starts_with(BODY_END)) {
                    *self = Self::Nothing;
                    return Ok(content + BODY_END.len());
                }
                *self = Self::Trailers {
                    end: BODY_END,
                    fields: ChunkedTrailers::default(),
                };
                Ok(content)
            }
        }
    }

    /// Takes at most `room` bytes of the empty line that the reader expects at the end of a chunked body. The reader gets this
    /// line before the body's trailers arrive. Returns no bytes if the reader expects no such line.
    pub(super) fn take_end(&mut self, room: usize) -> &'static [u8] {
        let Self::Trailers { end, .. } = self else {
            return b"";
        };
        let (now, later) = end.split_at_checked(room).unwrap_or((end, b""));
        *end = later;
        now
    }

    /// Consumes the trailers of a body whose end has been read. Returns the number of bytes that belong to the trailers.
    pub(super) fn consume_trailers(&mut self, bytes: &[u8]) -> Result<usize, ChunkFault> {
        let Self::Trailers { end: [], fields } = self else {
            return Ok(0);
        };
        let Some(count) = fields.push(bytes)? else {
            return Ok(bytes.len());
        };
        *self = Self::Nothing;
        Ok(count)
    }

    /// Whether the body has been read to its end, so that only trailers can follow.
    pub(super) fn is_body_read(&self) -> bool {
        matches!(self, Self::Nothing | Self::Trailers { end: [], .. })
    }

    /// Whether more bytes of the request are expected.
    pub(super) fn has_more(&self) -> bool {
        !matches!(self, Self::Nothing | Self::Everything(_))
    }

    /// The size of the unfinished head over HTTP/2; `None` over HTTP/1.1.
    pub(super) fn unfinished_head(&self) -> Option<UnfinishedHead> {
        match self {
            Self::Everything(frames) => Some(frames.unfinished_head()),
            _ => None,
        }
    }
}

/// Limits the time in which the rest of a request must arrive. Trailers count as a part of the body.
#[derive(Debug)]
pub(super) struct BodyTimer {
    limit: BodyTimeLimit,
    /// The running limit; `None` until a read of the request has to wait.
    waiting: Option<Box<BodyWait>>,
}

#[derive(Debug)]
struct BodyWait {
    time: BodyTime,
    late: Pin<Box<Sleep>>,
}

impl BodyTimer {
    pub(super) fn new(limit: BodyTimeLimit) -> Self {
        Self { limit, waiting: None }
    }

    pub(super) fn restart(&mut self) {
        self.waiting = None;
    }

    /// Records that `bytes` bytes have arrived.
    pub(super) fn on_bytes(&mut self, bytes: usize) {
        if let Some(waiting) = &mut self.waiting {
            waiting.time.on_moved(bytes, clock::instant);
        }
    }

    /// Called when nothing has arrived. Returns an error once the wait has taken too long.
    pub(super) fn poll_late(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let now = clock::instant();
        let waiting = self.waiting.get_or_insert_with(|| {
            Box::new(BodyWait {
                time: BodyTime::new(self.limit, now),
                late: Box::pin(tokio::time::sleep_until(now.into())),
            })
        });
        let due = waiting.time.begin_wait(now).into();
        if waiting.late.deadline() != due {
            waiting.late.as_mut().reset(due);
        }
        ready!(waiting.late.as_mut().poll(cx));
        Poll::Ready(Err(ErrorKind::TimedOut.into()))
    }
}

/// Puts the empty line that ends a chunked body into `buffer`, as far as it fits.
pub(super) fn put_end(unread: &mut ReadAllowance, buffer: &mut ReadBuf<'_>) {
    let end = unread.take_end(buffer.remaining());
    buffer.put_slice(end);
}
