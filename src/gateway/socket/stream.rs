//! The frames of a socket on its connection. Reads and writes go on at the same time, so a client that sends while it does not read
//! blocks nothing but itself. Pings are answered here.

use std::{
    collections::VecDeque,
    future::poll_fn,
    io::{self, ErrorKind},
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes, BytesMut};
use pingora::protocols::Shutdown;
use tokio::io::AsyncWrite;

use crate::{
    domain::wire::websocket::{
        ControlOpcode, FrameDecoder, FrameEvent, FrameFault, FrameLimits, FrameRole, write_close, write_control,
    },
    front::connection::ClientConnection,
};

/// The maximum number of frames of a message.
const FRAGMENTS_MAX: u32 = 4096;

/// The number of waiting writes from which nothing more is read, so that a client that does not read cannot make them pile up.
const QUEUE_MAX: usize = 64;

/// An event on the connection.
#[derive(Debug)]
pub(crate) enum StreamEvent {
    /// A part of a message, a pong or a close frame.
    Frame(FrameEvent),
    /// The client has violated the protocol.
    Fault(FrameFault),
    /// The client has closed the connection.
    Ended,
    /// The client reads too slowly.
    Slow,
}

/// The connection of a socket.
pub(crate) struct SocketStream {
    connection: Box<ClientConnection>,
    inbound: BytesMut,
    decoder: FrameDecoder,
    /// The frames that are not written yet. A part of the first one may have been written.
    outbound: VecDeque<Bytes>,
    /// Whether a part of the first waiting write has been written, so that nothing can be put before the rest.
    has_begun_write: bool,
    /// The answer to the last ping that is not answered yet.
    pong: Option<Bytes>,
    needs_flush: bool,
    /// Whether the client has sent anything since the last call of [`SocketStream::take_received`].
    has_received: bool,
}

impl SocketStream {
    /// Turns a connection into a socket. A message of more than `message_bytes_max` bytes is a violation of the protocol.
    pub(crate) fn new(mut connection: Box<ClientConnection>, message_bytes_max: u64) -> Self {
        let limits = FrameLimits {
            message_bytes_max,
            fragments_max: FRAGMENTS_MAX,
        };
        Self {
            inbound: connection.begin_socket(),
            connection,
            decoder: FrameDecoder::new(FrameRole::Server, limits),
            outbound: VecDeque::new(),
            has_begun_write: false,
            pong: None,
            needs_flush: false,
            has_received: false,
        }
    }

    /// Adds complete frames, or the head of the handshake's answer, to the waiting writes.
    pub(crate) fn queue(&mut self, frames: Bytes) {
        if !frames.is_empty() {
            self.outbound.push_back(frames);
        }
    }

    /// Adds a ping to the waiting writes.
    pub(crate) fn queue_ping(&mut self) {
        let mut frame = BytesMut::new();
        write_control(&mut frame, ControlOpcode::Ping, b"", None);
        self.queue(frame.freeze());
    }

    /// Adds a close frame to the waiting writes. Nothing may follow it.
    pub(crate) fn queue_close(&mut self, code: u16, reason: &str) {
        let mut frame = BytesMut::new();
        write_close(&mut frame, code, reason, None);
        self.queue(frame.freeze());
    }

    /// Whether nothing waits to be written, so that an answer can go on.
    pub(crate) fn has_room(&self) -> bool {
        self.outbound.is_empty()
    }

    /// Returns whether the client has sent anything since the last call.
    pub(crate) fn take_received(&mut self) -> bool {
        std::mem::take(&mut self.has_received)
    }

    /// Writes what waits, and returns the next event.
    pub(crate) fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<StreamEvent> {
        loop {
            if let Poll::Ready(Err(error)) = self.poll_write(cx) {
                return Poll::Ready(match error.kind() {
                    ErrorKind::TimedOut => StreamEvent::Slow,
                    _ => StreamEvent::Ended,
                });
            }
            if self.outbound.len() >= QUEUE_MAX {
                return Poll::Pending;
            }
            match self.decoder.next_event(&mut self.inbound) {
                Ok(Some(FrameEvent::Ping(payload))) => {
                    let mut frame = BytesMut::new();
                    write_control(&mut frame, ControlOpcode::Pong, &payload, None);
                    self.pong = Some(frame.freeze());
                    continue;
                }
                Ok(Some(event)) => return Poll::Ready(StreamEvent::Frame(event)),
                Err(fault) => return Poll::Ready(StreamEvent::Fault(fault)),
                Ok(None) => {}
            }
            if self.inbound.is_empty() {
                // An idle socket keeps no memory for what has been read.
                self.inbound = BytesMut::new();
            }
            match ready!(self.connection.poll_socket(cx, &mut self.inbound)) {
                Ok(0) | Err(_) => return Poll::Ready(StreamEvent::Ended),
                Ok(_) => self.has_received = true,
            }
        }
    }

    /// Writes what waits. Ready once all of it has been passed to the system.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            if !self.has_begun_write
                && let Some(pong) = self.pong.take()
            {
                self.outbound.push_front(pong);
            }
            let Some(front) = self.outbound.front_mut() else { break };
            match ready!(Pin::new(&mut self.connection).poll_write(cx, front))? {
                0 => return Poll::Ready(Err(ErrorKind::WriteZero.into())),
                count => {
                    front.advance(count.min(front.len()));
                    self.has_begun_write = !front.is_empty();
                    self.needs_flush = true;
                }
            }
            if !self.has_begun_write {
                self.outbound.pop_front();
            }
        }
        if self.needs_flush {
            ready!(Pin::new(&mut self.connection).poll_flush(cx))?;
            self.needs_flush = false;
        }
        Poll::Ready(Ok(()))
    }

    /// Writes what waits, as fast as the client reads it.
    ///
    /// # Errors
    /// The connection is broken, or the client reads too slowly.
    pub(crate) async fn flush(&mut self) -> io::Result<()> {
        poll_fn(|cx| self.poll_write(cx)).await
    }

    /// Closes the connection for writes, and discards what the client still sends until it closes, too: unread bytes would reset
    /// the connection, and the client might lose the close frame. The caller limits the time.
    pub(crate) async fn close(&mut self) {
        self.connection.shutdown().await;
        while poll_fn(|cx| self.poll_discard(cx)).await {}
    }

    /// Discards bytes from the client. Returns false at the end of the connection.
    fn poll_discard(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        self.inbound.clear();
        let read = ready!(self.connection.poll_socket(cx, &mut self.inbound));
        Poll::Ready(matches!(read, Ok(1..)))
    }
}
