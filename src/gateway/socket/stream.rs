//! Reads and writes the frames of a socket on its connection. It reads and writes concurrently, so a client that sends without
//! reading blocks only itself. This module answers the client's pings.

use std::{
    collections::VecDeque,
    future::poll_fn,
    io::{self, ErrorKind},
    pin::{Pin, pin},
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

/// The number of waiting writes at which reading stops. Without this limit, a client that sends without reading could cause any
/// number of waiting writes.
const QUEUE_MAX: usize = 64;

/// The frame of a ping without data.
const EMPTY_PING: &[u8] = &[0x89, 0];

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

/// The writes that wait for the client, in order. A pong is inserted before the writes that have not begun.
#[derive(Debug)]
struct WaitingWrites {
    writes: VecDeque<Bytes>,
    /// The number of writes at the front of `writes` that a new pong must not overtake: the answer to the handshake, a write that
    /// has begun, and earlier pongs.
    fixed: usize,
    /// The pong for the most recent ping, until it is inserted into `writes`. A later pong replaces it.
    pong: Option<Bytes>,
}

impl WaitingWrites {
    /// Creates the writes of a socket whose first bytes are `answer`, the answer to the handshake.
    fn new(answer: Bytes) -> Self {
        Self {
            writes: VecDeque::from([answer]),
            fixed: 1,
            pong: None,
        }
    }

    fn push(&mut self, frames: Bytes) {
        if !frames.is_empty() {
            self.writes.push_back(frames);
        }
    }

    /// Begins the first write. Returns its remaining bytes; `None` if nothing waits.
    fn begin(&mut self) -> Option<&[u8]> {
        // At most one pong waits directly after the write that has begun, even if the client does not read.
        if self.fixed <= 1
            && let Some(pong) = self.pong.take()
        {
            self.writes.insert(self.fixed, pong);
            self.fixed += 1;
        }
        let first = self.writes.front()?;
        self.fixed = self.fixed.max(1);
        Some(first)
    }

    /// Records that `count` bytes of the first write have been written.
    fn advance(&mut self, count: usize) {
        let Some(first) = self.writes.front_mut() else { return };
        first.advance(count.min(first.len()));
        if first.is_empty() {
            self.writes.pop_front();
            self.fixed = self.fixed.saturating_sub(1);
        }
    }
}

/// The connection of a socket.
pub(crate) struct SocketStream {
    connection: Box<ClientConnection>,
    inbound: BytesMut,
    decoder: FrameDecoder,
    outbound: WaitingWrites,
    /// The event that arrived while the socket did other work; `None` if no event has arrived.
    held: Option<StreamEvent>,
    needs_flush: bool,
    /// Whether the client has sent anything since the last call of [`SocketStream::take_received`].
    has_received: bool,
}

impl SocketStream {
    /// Turns a connection into a socket. The first bytes to be written are `answer`, the answer to the handshake. A message of
    /// more than `message_bytes_max` bytes is a violation of the protocol.
    pub(crate) fn new(mut connection: Box<ClientConnection>, answer: Bytes, message_bytes_max: u64) -> Self {
        let limits = FrameLimits {
            message_bytes_max,
            fragments_max: FRAGMENTS_MAX,
        };
        Self {
            inbound: connection.begin_socket(),
            connection,
            decoder: FrameDecoder::new(FrameRole::Server, limits),
            outbound: WaitingWrites::new(answer),
            held: None,
            needs_flush: false,
            has_received: false,
        }
    }

    /// Adds complete frames to the waiting writes.
    pub(crate) fn queue(&mut self, frames: Bytes) {
        self.outbound.push(frames);
    }

    /// Adds a ping to the waiting writes.
    pub(crate) fn queue_ping(&mut self) {
        self.queue(Bytes::from_static(EMPTY_PING));
    }

    /// Adds a close frame to the waiting writes. Nothing may be added after it.
    pub(crate) fn queue_close(&mut self, code: u16, reason: &str) {
        let mut frame = BytesMut::new();
        write_close(&mut frame, code, reason, None);
        self.queue(frame.freeze());
    }

    /// Whether no write waits, so that an answer can continue.
    pub(crate) fn has_room(&self) -> bool {
        self.outbound.writes.is_empty()
    }

    /// Returns whether the client has sent anything since the last call.
    pub(crate) fn take_received(&mut self) -> bool {
        std::mem::take(&mut self.has_received)
    }

    /// Runs `work` to its end. Meanwhile, writes the waiting bytes and reads up to the next event, so that the client's pings are
    /// answered.
    pub(crate) async fn serve_while<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        poll_fn(|cx| {
            if let Poll::Ready(done) = work.as_mut().poll(cx) {
                return Poll::Ready(done);
            }
            if self.held.is_some() {
                // If the connection has failed, the next call reports that after the held event.
                let _ = self.poll_write(cx);
            } else if let Poll::Ready(event) = self.poll_event(cx) {
                self.held = Some(event);
            }
            Poll::Pending
        })
        .await
    }

    /// Writes the waiting bytes as far as possible, and returns the next event.
    pub(crate) fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<StreamEvent> {
        if let Some(event) = self.held.take() {
            return Poll::Ready(event);
        }
        loop {
            if let Poll::Ready(Err(error)) = self.poll_write(cx) {
                return Poll::Ready(match error.kind() {
                    ErrorKind::TimedOut => StreamEvent::Slow,
                    _ => StreamEvent::Ended,
                });
            }
            if self.outbound.writes.len() >= QUEUE_MAX {
                return Poll::Pending;
            }
            match self.decoder.next_event(&mut self.inbound) {
                Ok(Some(FrameEvent::Ping(payload))) => {
                    let mut frame = BytesMut::new();
                    write_control(&mut frame, ControlOpcode::Pong, &payload, None);
                    self.outbound.pong = Some(frame.freeze());
                    continue;
                }
                Ok(Some(event)) => return Poll::Ready(StreamEvent::Frame(event)),
                Err(fault) => return Poll::Ready(StreamEvent::Fault(fault)),
                Ok(None) => {}
            }
            if self.inbound.is_empty() {
                // An idle socket uses no memory for received bytes.
                self.inbound = BytesMut::new();
            }
            match ready!(self.connection.poll_socket(cx, &mut self.inbound)) {
                Ok(0) | Err(_) => return Poll::Ready(StreamEvent::Ended),
                Ok(_) => self.has_received = true,
            }
        }
    }

    /// Writes the waiting bytes. Returns `Ready` after all of them have been passed to the operating system.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(first) = self.outbound.begin() {
            match ready!(Pin::new(&mut self.connection).poll_write(cx, first))? {
                0 => return Poll::Ready(Err(ErrorKind::WriteZero.into())),
                count => {
                    self.outbound.advance(count);
                    self.needs_flush = true;
                }
            }
        }
        if self.needs_flush {
            ready!(Pin::new(&mut self.connection).poll_flush(cx))?;
            self.needs_flush = false;
        }
        Poll::Ready(Ok(()))
    }

    /// Writes the waiting bytes, as fast as the client reads them.
    ///
    /// # Errors
    /// The connection is broken, or the client reads too slowly.
    pub(crate) async fn flush(&mut self) -> io::Result<()> {
        poll_fn(|cx| self.poll_write(cx)).await
    }

    /// Closes the connection for writes. Then discards the bytes from the client until the client closes the connection. If bytes
    /// were left unread, the connection would be reset, and the client might lose the close frame. The caller must limit the time
    /// that this method takes.
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

    use super::*;
    use crate::{
        config::limits::HeadsConfig,
        domain::{
            faults::{BodyTimeLimit, MinimumSpeed},
            wire::websocket::write_text_header,
        },
        front::{ClientTimes, head_budget::HeadBudget},
        telemetry::metrics::Metrics,
    };

    const PATIENT: MinimumSpeed = MinimumSpeed {
        wait_max: Duration::from_secs(600),
        bytes_per_second_min: 0,
    };

    /// Returns a client's end and a socket, whose first write is `<101>`.
    fn pair() -> (DuplexStream, SocketStream) {
        let (client, server) = duplex(1 << 16);
        let heads = HeadBudget::new(HeadsConfig {
            bytes_max: 1 << 20,
            address_bytes_max: 1 << 20,
            head_bytes_max: 1 << 18,
        });
        let times = ClientTimes {
            body: BodyTimeLimit {
                pace: PATIENT,
                total: Duration::from_secs(600),
            },
            answer: PATIENT,
        };
        let metrics = Metrics::new(&[], &[]).expect("metrics");
        let permit = (None, heads.lease(None));
        let connection = ClientConnection::new(Box::new(server), permit, times, metrics.listener("gateway"));
        let answer = Bytes::from_static(b"<101>");
        (client, SocketStream::new(Box::new(connection), answer, 1 << 20))
    }

    #[tokio::test]
    async fn pings_are_answered_while_the_socket_does_other_work_and_no_event_is_lost() {
        let (mut client, mut stream) = pair();
        let mut frames = BytesMut::new();
        write_control(&mut frames, ControlOpcode::Ping, b"1", Some([0; 4]));
        write_text_header(&mut frames, 1, Some([0; 4]));
        frames.extend_from_slice(b"a");
        client.write_all(&frames).await.expect("room");
        let mut received = [0; 8];
        stream
            .serve_while(client.read_exact(&mut received))
            .await
            .expect("8 bytes");
        assert_eq!(&received, b"<101>\x8a\x011");
        for _ in 0..2 {
            stream.serve_while(tokio::task::yield_now()).await;
        }
        let mut events = Vec::new();
        for _ in 0..3 {
            events.push(poll_fn(|cx| stream.poll_event(cx)).await);
        }
        assert!(
            matches!(
                &events[..],
                [
                    StreamEvent::Frame(FrameEvent::MessageStart { length: Some(1), .. }),
                    StreamEvent::Frame(FrameEvent::Payload(_)),
                    StreamEvent::Frame(FrameEvent::MessageEnd),
                ]
            ),
            "{events:?}"
        );
    }

    /// Writes all waiting bytes, at most `bytes_max` bytes at a time.
    fn written(writes: &mut WaitingWrites, bytes_max: usize) -> String {
        let mut out = Vec::new();
        while let Some(first) = writes.begin() {
            let count = first.len().min(bytes_max);
            out.extend_from_slice(&first[..count]);
            writes.advance(count);
        }
        String::from_utf8(out).expect("UTF-8")
    }

    #[test]
    fn a_pong_comes_behind_the_answer_to_the_handshake_and_before_other_frames() {
        let mut writes = WaitingWrites::new(Bytes::from_static(b"<101>"));
        writes.push(Bytes::from_static(b"<a>"));
        writes.pong = Some(Bytes::from_static(b"<pong>"));
        assert_eq!(written(&mut writes, 2), "<101><pong><a>");
        assert!(writes.writes.is_empty() && writes.fixed == 0);
    }

    #[test]
    fn pongs_keep_their_order_and_overtake_no_write_that_has_begun() {
        let mut writes = WaitingWrites::new(Bytes::new());
        assert_eq!(written(&mut writes, 9), "");
        for frame in ["<a>", "<b>"] {
            writes.push(Bytes::from_static(frame.as_bytes()));
        }
        // The first write has begun, but the connection has accepted no bytes of it.
        assert_eq!(writes.begin(), Some(&b"<a>"[..]));
        for pong in ["<1>", "<2>", "<3>"] {
            writes.pong = Some(Bytes::from_static(pong.as_bytes()));
            assert_eq!(writes.begin(), Some(&b"<a>"[..]));
        }
        // The third pong replaces the second one, as RFC 6455 section 5.5.3 allows.
        assert_eq!(written(&mut writes, 1), "<a><1><3><b>");
    }
}
