//! What of a client's connection belongs to the request that is read from it, and how long it may take to come.

use std::{
    io::{self, ErrorKind},
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::{io::ReadBuf, time::Sleep};

use crate::{
    domain::{
        faults::pace::{BodyTime, BodyTimeLimit},
        wire::{
            http1::{
                chunked::{ChunkFault, Chunked, Trailers},
                head::Framing,
            },
            http2::{Frames, Unfinished},
        },
    },
    edges::clock,
};

/// The empty line behind the last chunk.
const BODY_END: &[u8] = b"\r\n";

/// What may be read by whoever has the connection now.
#[derive(Debug)]
pub(super) enum Unread {
    /// Everything: it speaks HTTP/2, in these frames.
    Everything(Frames),
    /// So many bytes of the request's body.
    Length(u64),
    /// The content of a chunked body.
    Chunked(Chunked),
    /// What ends a chunked body whose content has come, as far as it was not read yet. The body is whole then, so its trailers,
    /// which nobody gets, keep it from nobody.
    Trailers { end: &'static [u8], fields: Trailers },
    /// Nothing: the request has been read.
    Nothing,
}

impl From<Framing> for Unread {
    fn from(framing: Framing) -> Self {
        match framing {
            Framing::Empty => Self::Nothing,
            Framing::Length(length) => Self::Length(length),
            Framing::Chunked => Self::Chunked(Chunked::default()),
        }
    }
}

impl Unread {
    /// How many of the bytes belong to what may be read; the rest comes behind it.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Result<usize, ChunkFault> {
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
                    fields: Trailers::default(),
                };
                Ok(content)
            }
        }
    }

    /// What is to be read without anything having to come: the end of a body that has trailers. No more than `room` bytes.
    pub(super) fn end(&mut self, room: usize) -> &'static [u8] {
        let Self::Trailers { end, .. } = self else {
            return b"";
        };
        let (now, later) = end.split_at_checked(room).unwrap_or((end, b""));
        *end = later;
        now
    }

    /// Follows the trailers of a body whose end has been read: how many of the bytes belong to them.
    pub(super) fn follow(&mut self, bytes: &[u8]) -> Result<usize, ChunkFault> {
        let Self::Trailers { end: [], fields } = self else {
            return Ok(0);
        };
        let Some(count) = fields.push(bytes)? else {
            return Ok(bytes.len());
        };
        *self = Self::Nothing;
        Ok(count)
    }

    /// Whether the body has been read to its end, so that only trailers may be to come.
    pub(super) fn is_whole(&self) -> bool {
        matches!(self, Self::Nothing | Self::Trailers { end: [], .. })
    }

    /// Whether something of the request is to come.
    pub(super) fn is_expected(&self) -> bool {
        !matches!(self, Self::Nothing | Self::Everything(_))
    }

    /// What has come of a head over HTTP/2 before its end; `None` over HTTP/1.1.
    pub(super) fn unfinished_head(&self) -> Option<Unfinished> {
        match self {
            Self::Everything(frames) => Some(frames.unfinished()),
            _ => None,
        }
    }
}

/// How long the rest of a request may take to come. Trailers are a part of its body.
#[derive(Debug)]
pub(super) struct Expected {
    limit: BodyTimeLimit,
    /// Set while a request is waited for.
    waiting: Option<Box<Waiting>>,
}

#[derive(Debug)]
struct Waiting {
    time: BodyTime,
    late: Pin<Box<Sleep>>,
}

impl Expected {
    /// Nothing is waited for.
    pub(super) fn new(limit: BodyTimeLimit) -> Self {
        Self { limit, waiting: None }
    }

    /// Another request begins.
    pub(super) fn restart(&mut self) {
        self.waiting = None;
    }

    /// So many bytes have come.
    pub(super) fn come(&mut self, bytes: usize) {
        if let Some(waiting) = &mut self.waiting {
            waiting.time.moved(bytes, clock::instant);
        }
    }

    /// Nothing has come yet: an error once that has been too long.
    pub(super) fn poll_late(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let now = clock::instant();
        let waiting = self.waiting.get_or_insert_with(|| {
            Box::new(Waiting {
                time: BodyTime::new(self.limit, now),
                late: Box::pin(tokio::time::sleep_until(now.into())),
            })
        });
        let due = waiting.time.wait(now).into();
        if waiting.late.deadline() != due {
            waiting.late.as_mut().reset(due);
        }
        ready!(waiting.late.as_mut().poll(cx));
        Poll::Ready(Err(ErrorKind::TimedOut.into()))
    }
}

/// Puts as much of the end of a body into `buffer` as fits.
pub(super) fn put_end(unread: &mut Unread, buffer: &mut ReadBuf<'_>) {
    let end = unread.end(buffer.remaining());
    buffer.put_slice(end);
}
