//! Responses over WebSocket: serves a client's connection after its handshake. Each `response.create` becomes an exchange of its
//! own ([`turn`]), which most of the gateway handles like a POST. The loop here reads and writes frames, orders the
//! requests by lanes, and ends the socket.

mod answer;
mod lanes;
mod messages;
mod requests;
mod stream;
mod timers;
mod turn;

use std::{
    future::poll_fn,
    pin::pin,
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use bytes::Bytes;
use pingora::{protocols::GetSocketDigest, server::ShutdownWatch};
use pingora_proxy::HttpProxy;
use rand::RngExt;
use smol_str::SmolStr;

use crate::{
    domain::wire::{
        responses_socket::server_frame::SocketError,
        websocket::{FrameEvent, MessageKind},
    },
    edges::clock,
    front::connection::ClientConnection,
    gateway::{
        handshake::SocketHandshake,
        lines::LineHost,
        parts::Gateway,
        reply::REQUEST_ID,
        socket::{
            lanes::{LaneEvent, SocketLanes},
            messages::{CompleteMessage, MessageReader},
            stream::{SocketStream, StreamEvent},
            timers::{SocketTimers, TimerEvent},
            turn::TurnHost,
        },
    },
    telemetry::metrics::{GaugeGuard, SocketEnd},
};

/// A message that is larger than this multiple of the maximum body size ends the socket. A smaller message above the maximum is
/// refused in a frame.
const OVERSIZE_FACTOR: u64 = 2;

/// The maximum time for which weir waits for the client's close frame.
const CLOSE_WAIT: Duration = Duration::from_secs(1);

/// The time over which this node spreads the ends of its sockets when it shuts down. A stopping process waits about a second for
/// connections to close.
const DRAIN_SPREAD: Duration = Duration::from_millis(500);

/// The end of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SocketClose {
    /// The code of the close frame (RFC 6455 section 7.4.1); `None` if the connection is closed without one.
    code: Option<u16>,
    reason: &'static str,
    end: SocketEnd,
}

impl SocketClose {
    const fn new(code: u16, reason: &'static str, end: SocketEnd) -> Self {
        Self {
            code: Some(code),
            reason,
            end,
        }
    }

    /// Creates the end of a socket that is closed without a close frame.
    const fn without_frame(end: SocketEnd) -> Self {
        Self {
            code: None,
            reason: "",
            end,
        }
    }

    const DRAIN: Self = Self::new(1012, "the service is being restarted", SocketEnd::Drain);
    const OLD: Self = Self::new(
        1001,
        "the socket has reached its maximum age: open a new one",
        SocketEnd::Lifetime,
    );
    const KEY: Self = Self::new(1008, "the API key is no longer valid", SocketEnd::Key);
    const IDLE: Self = Self::new(1001, "the socket was idle for too long", SocketEnd::Idle);
    const LATE: Self = Self::new(1001, "a message did not arrive in time", SocketEnd::Late);
    const SWITCHED_OFF: Self = Self::new(1012, "the service no longer supports WebSockets", SocketEnd::Drain);
    const BINARY: Self = Self::new(1003, "messages must be text", SocketEnd::Protocol);
}

/// The end of a socket, delayed until the running requests have ended. Meanwhile, no further request is started.
#[derive(Clone, Copy, Debug)]
struct PendingClose {
    close: SocketClose,
    /// The earliest time at which the socket ends.
    from: Instant,
}

/// The next event on a socket.
enum SocketStep {
    Stream(StreamEvent),
    /// The last frame of an answer is being sent to the client.
    TurnTold,
    /// A request has ended. The boolean says whether the client has the last frame of the answer. The string is the name of the
    /// request's lane; `None` for the default lane.
    TurnEnded(bool, Option<SmolStr>),
    /// A request was refused because the key is not valid.
    KeyRefused,
    /// The process shuts down.
    Drain,
    /// A timer is due.
    Tick,
}

/// A socket. The field `host` comes last, so it is dropped last. Its drop removes the socket's conversations. By then, all
/// requests have been notified that the client is gone.
struct Socket {
    lanes: SocketLanes,
    stream: SocketStream,
    messages: MessageReader,
    timers: SocketTimers,
    pending: Option<PendingClose>,
    /// The number of requests so far.
    turns: u32,
    turns_max: u32,
    #[expect(dead_code, reason = "held until the socket ends")]
    open: GaugeGuard,
    host: TurnHost,
}

/// The resources that all sockets of a worker share.
#[derive(Clone, Copy)]
pub(crate) struct SocketHost<'h> {
    pub proxy: &'h Arc<HttpProxy<Gateway>>,
    pub gateway: &'h Gateway,
    pub lines: &'h Arc<LineHost>,
}

/// Serves the connection as a socket until the socket ends.
pub(crate) async fn serve(
    host: SocketHost<'_>,
    connection: Box<ClientConnection>,
    handshake: Box<SocketHandshake>,
    shutdown: &ShutdownWatch,
) {
    let mut socket = Socket::open(host, connection, *handshake, shutdown);
    let close = socket.run().await;
    socket.close(close).await;
}

impl Socket {
    fn open(
        host: SocketHost<'_>,
        connection: Box<ClientConnection>,
        handshake: SocketHandshake,
        shutdown: &ShutdownWatch,
    ) -> Self {
        let gateway = host.gateway;
        let config = Arc::clone(&gateway.live.get().config);
        let (limits, peer) = (&gateway.limits, connection.get_socket_digest());
        let message_bytes_max = (config.gateway.bodies.bytes_max as u64).saturating_mul(OVERSIZE_FACTOR);
        let messages = MessageReader::new(limits.bodies.clone(), handshake.digest, handshake.address);
        Self {
            lanes: SocketLanes::new(config.sockets.running_max),
            stream: SocketStream::new(connection, switching_protocols(&handshake), message_bytes_max),
            messages,
            timers: SocketTimers::new(
                &config.sockets,
                (clock::instant(), clock::unix_millis()),
                rand::rng().random(),
            ),
            pending: None,
            turns: 0,
            turns_max: config.connections.requests_max,
            open: gateway.metrics().sockets.open.guard(),
            host: TurnHost::new(host, handshake, peer, shutdown.clone()),
        }
    }

    /// Serves the socket until it has to be closed.
    async fn run(&mut self) -> SocketClose {
        let mut closing = self.host.gateway.drain.closing();
        let mut drain = pin!(async move {
            // This cannot fail, because the sender lives as long as the gateway.
            let _ = closing.wait_for(|closing| *closing).await;
        });
        let mut is_draining = false;
        let mut timer = pin!(tokio::time::sleep_until(self.due().into()));
        loop {
            if let Some(close) = self.close_now() {
                return close;
            }
            let due = self.due().into();
            if timer.deadline() != due {
                timer.as_mut().reset(due);
            }
            let step = tokio::select! {
                biased;
                () = &mut drain, if !is_draining => SocketStep::Drain,
                // Checked before the frames, because a client can keep sending frames.
                () = timer.as_mut() => SocketStep::Tick,
                step = poll_fn(|cx| self.poll_step(cx)) => step,
            };
            is_draining |= matches!(step, SocketStep::Drain);
            if let Some(close) = self.on_step(step).await {
                return close;
            }
        }
    }

    async fn on_step(&mut self, step: SocketStep) -> Option<SocketClose> {
        match step {
            SocketStep::Stream(event) => match self.on_stream_event(event) {
                // Boxed, like the handling of a timer: otherwise the future of every idle socket would reserve memory for it.
                Ok(Some(message)) => Box::pin(self.on_message(message)).await,
                Ok(None) => {}
                Err(close) => return Some(close),
            },
            SocketStep::Tick => return Box::pin(self.on_tick()).await,
            SocketStep::TurnTold => self.on_turn_told(),
            SocketStep::TurnEnded(is_told, stream_id) => self.on_turn_ended(is_told, stream_id.as_deref()),
            SocketStep::KeyRefused => self.end_after_turns(SocketClose::KEY, Duration::ZERO),
            SocketStep::Drain => self.end_after_turns(SocketClose::DRAIN, drain_spread()),
        }
        None
    }

    /// Closes the socket after the client has read everything that was sent to it.
    async fn close(&mut self, close: SocketClose) {
        // Notifies the running requests at once that the client is gone.
        self.lanes = SocketLanes::new(0);
        self.host.gateway.metrics().sockets.record_end(close.end, self.turns);
        let Some(code) = close.code else { return };
        self.stream.queue_close(code, close.reason);
        if self.stream.flush().await.is_ok() {
            // A client that does not close in time is disconnected.
            let _ = tokio::time::timeout(CLOSE_WAIT, self.stream.close()).await;
        }
    }

    /// Whether no request runs or waits on the socket, and no message is arriving.
    fn is_idle(&self) -> bool {
        self.lanes.is_idle() && !self.messages.is_open()
    }

    /// Returns the time at which the next timer is due.
    fn due(&mut self) -> Instant {
        let due = self.timers.due(self.is_idle());
        let pending = self
            .pending
            .filter(|_| self.lanes.is_idle())
            .map(|pending| pending.from);
        [self.messages.due(), pending]
            .into_iter()
            .flatten()
            .fold(due, Instant::min)
    }

    /// If the socket is to end now, returns how it ends. Otherwise, returns `None`. The socket ends when the time of its planned
    /// end has come and no request runs or waits.
    fn close_now(&self) -> Option<SocketClose> {
        let pending = self.pending.filter(|_| self.lanes.is_idle())?;
        (pending.from <= clock::instant()).then_some(pending.close)
    }

    /// Returns the next step. Answers come before the client's frames, because a client can keep sending frames. An answer waits
    /// while the client has not read the previous bytes.
    fn poll_step(&mut self, cx: &mut Context<'_>) -> Poll<SocketStep> {
        loop {
            let had_room = self.stream.has_room();
            let mut is_queued = false;
            if had_room {
                match self.lanes.poll_event(cx) {
                    Poll::Pending => {}
                    Poll::Ready(LaneEvent::Piece(piece)) => {
                        self.stream.queue(piece.frames);
                        is_queued = true;
                        if piece.is_key_refused {
                            return Poll::Ready(SocketStep::KeyRefused);
                        }
                        if piece.end.is_some() {
                            return Poll::Ready(SocketStep::TurnTold);
                        }
                    }
                    Poll::Ready(LaneEvent::Ended { stream_id, is_told }) => {
                        return Poll::Ready(SocketStep::TurnEnded(is_told, stream_id));
                    }
                }
            }
            if let Poll::Ready(event) = self.stream.poll_event(cx) {
                return Poll::Ready(SocketStep::Stream(event));
            }
            if !self.stream.has_room() || had_room && !is_queued {
                return Poll::Pending;
            }
        }
    }

    /// Handles an event of the stream. Returns the message that it completes, if any.
    ///
    /// # Errors
    /// The event ends the socket.
    fn on_stream_event(&mut self, event: StreamEvent) -> Result<Option<CompleteMessage>, SocketClose> {
        let frame = match event {
            StreamEvent::Frame(frame) => frame,
            StreamEvent::Fault(fault) => {
                return Err(SocketClose::new(fault.code, fault.reason, SocketEnd::Protocol));
            }
            StreamEvent::Ended => return Err(SocketClose::without_frame(SocketEnd::Client)),
            StreamEvent::Slow => return Err(SocketClose::without_frame(SocketEnd::Slow)),
        };
        self.timers.on_received();
        match frame {
            FrameEvent::MessageStart {
                kind: MessageKind::Binary,
                ..
            } => return Err(SocketClose::BINARY),
            FrameEvent::MessageStart {
                kind: MessageKind::Text,
                length,
            } => {
                let live = self.host.gateway.live.get();
                self.messages.begin(length, &live.config.gateway.bodies);
            }
            FrameEvent::Payload(piece) => self.messages.push(&piece),
            FrameEvent::MessageEnd => {
                self.timers.on_use(clock::instant());
                return Ok(self.messages.finish());
            }
            // The stream answers pings itself.
            FrameEvent::Ping(_) | FrameEvent::Pong(_) => {}
            FrameEvent::Close(code) => {
                let code = code.map_or(1000, |(code, _)| code);
                return Err(SocketClose::new(code, "", SocketEnd::Client));
            }
        }
        Ok(None)
    }

    /// Handles a timer that is due.
    async fn on_tick(&mut self) -> Option<SocketClose> {
        let now = clock::instant();
        if self.messages.due().is_some_and(|due| due <= now) {
            let message = "The message did not arrive in time. Send it again on a new socket.";
            self.refuse(None, "body_timeout", &SocketError::new(408, "body_timeout", message));
            return Some(SocketClose::LATE);
        }
        if self.stream.take_received() {
            self.timers.on_received();
        }
        let is_idle = self.is_idle();
        match self.timers.take_event(now, is_idle)? {
            TimerEvent::Idle => Some(SocketClose::IDLE),
            // A client that reads a long answer slowly has not received the ping yet. Another limit applies to the speed of
            // reading.
            TimerEvent::Silent if !self.stream.has_room() => None,
            TimerEvent::Silent => Some(SocketClose::without_frame(SocketEnd::Idle)),
            TimerEvent::Old => {
                self.end_after_turns(SocketClose::OLD, Duration::ZERO);
                None
            }
            TimerEvent::Ping => {
                self.end_if_switched_off();
                if !self.stream.serve_while(is_key_valid(&self.host, now)).await {
                    self.end_after_turns(SocketClose::KEY, Duration::ZERO);
                } else if self.stream.has_room() {
                    self.stream.queue_ping();
                    self.timers.on_ping();
                }
                None
            }
        }
    }

    /// Ends the socket if the operator has switched sockets off since it was opened.
    fn end_if_switched_off(&mut self) {
        if !self.host.gateway.live.get().config.sockets.enabled {
            self.end_after_turns(SocketClose::SWITCHED_OFF, drain_spread());
        }
    }
}

/// Returns a random delay for the end of this socket, so that not all of a node's sockets end at the same time.
fn drain_spread() -> Duration {
    DRAIN_SPREAD.mul_f64(rand::rng().random())
}

/// Whether the key with which the socket was opened is still valid. Returns true if the store fails.
async fn is_key_valid(host: &TurnHost, now: Instant) -> bool {
    let (gateway, digest) = (&host.gateway, &host.handshake.digest);
    match gateway.keys.find_known(digest, now).await {
        Ok(Some(key)) => key.check(digest, gateway.billing.time().now_seconds(now)).is_ok(),
        Ok(None) => false,
        Err(_) => true,
    }
}

/// Returns the bytes of the answer that accepts the handshake.
fn switching_protocols(handshake: &SocketHandshake) -> Bytes {
    let SocketHandshake { accept, request_id, .. } = handshake;
    let head = format!(
        "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\nsec-websocket-accept: {accept}\r\n\
         x-request-id: {request_id}\r\n{REQUEST_ID}: {request_id}\r\n\r\n"
    );
    Bytes::from(head)
}
