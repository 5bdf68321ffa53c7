//! One request on a WebSocket to a provider: sends the frame that requests the response, and turns the provider's frames into the
//! answer for Pingora. The [`LineTask`] of a WebSocket carries its requests one after the other.

#[cfg(test)]
mod tests;

use std::{
    future::poll_fn,
    net::TcpStream as SocketHandle,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::{Buf, BytesMut};
use parking_lot::Mutex;
use tokio::{
    io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf},
    sync::{mpsc, oneshot},
};

use crate::{
    domain::wire::responses_socket::provider_frame::{
        AGE_REACHED, CreateFrame, LAST_CHUNK, PARENT_GONE, ProviderEvent, ProviderEventKind, STREAM_HEAD,
    },
    edges::clock,
    gateway::lines::{
        LinePlace, LineRefusals,
        stream::{LineEvent, LineStream},
    },
    telemetry::metrics::{GaugeGuard, LineEnd, Metrics},
};

/// When this many bytes of an answer wait for Pingora, weir stops reading from the provider. Until then, the provider's pings are
/// answered even if the client reads slowly.
const WAITING_BYTES_MAX: usize = 1024 * 1024;

/// The close code that rejects a message as too large.
const TOO_BIG: u16 = 1009;

/// The end of a WebSocket to a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LineClose {
    pub end: LineEnd,
    /// The code of weir's close frame (RFC 6455 section 7.4.1); `None` if the connection is closed without one.
    pub code: Option<u16>,
}

impl LineClose {
    /// Creates the end of a WebSocket that weir no longer needs.
    pub(super) const fn normal(end: LineEnd) -> Self {
        Self { end, code: Some(1000) }
    }

    /// Creates the end of a WebSocket that is closed without a close frame.
    pub(super) const fn without_frame(end: LineEnd) -> Self {
        Self { end, code: None }
    }

    /// The end of a WebSocket on which the provider has begun a response without a request.
    const UNEXPECTED: Self = Self {
        end: LineEnd::Unexpected,
        code: Some(1011),
    };

    /// Returns how the WebSocket ends after an event that arrives while no request runs; `None` if the event is ignored.
    pub(super) fn from_stray_event(event: &LineEvent) -> Option<Self> {
        Some(match event {
            LineEvent::Message(data) => match ProviderEvent::read(data).kind {
                ProviderEventKind::Created => Self::UNEXPECTED,
                ProviderEventKind::Error => Self::normal(LineEnd::Provider),
                ProviderEventKind::Completed | ProviderEventKind::Unfinished | ProviderEventKind::Progress => {
                    return None;
                }
            },
            LineEvent::Closed(_) => Self::normal(LineEnd::Provider),
            LineEvent::Fault(fault) => Self {
                end: LineEnd::Protocol,
                code: Some(fault.code),
            },
            LineEvent::Ended => Self::without_frame(LineEnd::Provider),
        })
    }
}

/// The state of a WebSocket, shared by its task and the client's socket.
#[derive(Debug, Default)]
pub(super) struct LineState {
    /// Whether the WebSocket carries a request or is reserved for one.
    is_busy: AtomicBool,
    /// The id of the last response, which the provider can continue on this WebSocket only; `None` if there is no response, or if
    /// the last one is incomplete.
    last_response: Mutex<Option<String>>,
}

impl LineState {
    /// Reserves the WebSocket for a request. Returns false if it is already busy.
    pub(super) fn acquire(&self) -> bool {
        !self.is_busy.swap(true, Ordering::AcqRel)
    }

    /// Whether the last response on the WebSocket has this id.
    pub(super) fn has_response(&self, id: &str) -> bool {
        self.last_response.lock().as_deref() == Some(id)
    }

    fn set_response(&self, id: Option<String>) {
        *self.last_response.lock() = id;
    }

    /// Makes the WebSocket free for the next request.
    pub(super) fn release(&self) {
        self.is_busy.store(false, Ordering::Release);
    }
}

/// The progress of a request on a WebSocket. The gateway reads it after the attempt has failed.
#[derive(Debug, Default)]
pub(crate) struct LineProgress {
    /// Whether the provider may have read the request.
    may_be_read: AtomicBool,
}

impl LineProgress {
    /// Whether the request can be sent again, because the provider cannot have read it completely, or has reported that it did
    /// not read it.
    pub(crate) fn is_unread(&self) -> bool {
        !self.may_be_read.load(Ordering::Acquire)
    }

    fn set_may_be_read(&self, may_be_read: bool) {
        self.may_be_read.store(may_be_read, Ordering::Release);
    }
}

/// A request for the task of a WebSocket.
#[derive(Debug)]
pub(super) struct LineTurn {
    pub frame: CreateFrame,
    /// The frame with the complete input, for a provider that no longer has the response that `frame` continues. `None` if
    /// `frame` itself has the complete input.
    pub complete_frame: Option<CreateFrame>,
    /// The length of the POST's body in bytes.
    pub body_bytes: usize,
    /// Notified when Pingora has written the request.
    pub written: oneshot::Receiver<()>,
    /// weir's side of the pipe to Pingora. The answer is written into it.
    pub answer: DuplexStream,
    pub progress: Arc<LineProgress>,
}

/// A request on a WebSocket. It exists until Pingora has read the answer.
pub(super) struct CarriedTurn {
    turn: LineTurn,
    /// Whether the frame is being sent or has been sent.
    is_begun: bool,
    /// The frame that is sent next, because the provider has refused the first one; `None` in all other cases.
    next_frame: Option<CreateFrame>,
    /// The part of the answer that Pingora has not read.
    out: BytesMut,
    /// Whether the answer's head has been written.
    has_head: bool,
    /// Whether the provider has begun the response.
    is_created: bool,
    /// Whether the answer has ended, so that nothing more is added to `out`.
    is_over: bool,
    /// The way in which the WebSocket ends after the end of the answer; `None` while the WebSocket stays open.
    close: Option<LineClose>,
    /// Whether the provider has refused the request because of its size.
    is_too_big: bool,
}

impl CarriedTurn {
    /// Creates a request that has not been sent yet.
    pub(super) fn new(turn: LineTurn) -> Self {
        Self {
            turn,
            is_begun: false,
            next_frame: None,
            out: BytesMut::new(),
            has_head: false,
            is_created: false,
            is_over: false,
            close: None,
            is_too_big: false,
        }
    }

    /// Returns the length in bytes that the request's body has in a POST; `None` unless the provider has refused the request
    /// because of its size.
    pub(super) fn refused_bytes(&self) -> Option<usize> {
        self.is_too_big.then_some(self.turn.body_bytes)
    }

    /// Carries the request: sends its frame and passes the answer on. Ready when the request has ended; an error means that the
    /// WebSocket ends, too.
    pub(super) fn poll(
        &mut self,
        stream: &mut LineStream,
        state: &LineState,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), LineClose>> {
        loop {
            match self.poll_answer(cx) {
                Poll::Ready(true) if self.is_over => return Poll::Ready(self.close.map_or(Ok(()), Err)),
                Poll::Ready(true) | Poll::Pending => {}
                Poll::Ready(false) => return Poll::Ready(self.on_abandoned(state)),
            }
            if self.poll_gone(cx) || !self.begin(stream, cx) {
                return Poll::Ready(self.on_abandoned(state));
            }
            if self.close.is_some() {
                return Poll::Pending;
            }
            if self.out.len() >= WAITING_BYTES_MAX {
                // Bytes that cannot be written now are written after Pingora has read more of the answer.
                let _ = stream.poll_write(cx);
                return Poll::Pending;
            }
            if let Some(mut frame) = self.next_frame.take() {
                stream.send(frame.take_parts());
            }
            let event = stream.poll_event(cx);
            if self.is_begun && !stream.is_sending() && !self.has_head {
                self.turn.progress.set_may_be_read(true);
            }
            self.on_event(&ready!(event), state);
        }
    }

    /// Writes the waiting bytes of the answer for Pingora. Ready with false if Pingora no longer reads.
    fn poll_answer(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        while !self.out.is_empty() {
            match ready!(Pin::new(&mut self.turn.answer).poll_write(cx, &self.out)) {
                Ok(count @ 1..) => self.out.advance(count),
                Ok(_) | Err(_) => return Poll::Ready(false),
            }
        }
        Poll::Ready(true)
    }

    /// Whether Pingora has dropped its end of the pipe. Pingora never writes into this pipe, so a read completes only after
    /// Pingora has dropped its end.
    fn poll_gone(&mut self, cx: &mut Context<'_>) -> bool {
        let mut space = [0; 1];
        let mut read = ReadBuf::new(&mut space);
        Pin::new(&mut self.turn.answer).poll_read(cx, &mut read).is_ready()
    }

    /// Begins to send the frame once Pingora has written the request. Returns false if Pingora gave up before that.
    fn begin(&mut self, stream: &mut LineStream, cx: &mut Context<'_>) -> bool {
        if self.is_begun || self.is_over {
            return true;
        }
        match Pin::new(&mut self.turn.written).poll(cx) {
            Poll::Pending => true,
            Poll::Ready(Err(_)) => false,
            Poll::Ready(Ok(())) => {
                self.is_begun = true;
                stream.send(self.turn.frame.take_parts());
                true
            }
        }
    }

    /// Handles an answer that Pingora no longer reads. A response cannot be cancelled, so the WebSocket is closed if a response
    /// runs on it.
    fn on_abandoned(&self, state: &LineState) -> Result<(), LineClose> {
        if let Some(close) = self.close {
            return Err(close);
        }
        if !self.is_begun {
            state.release();
        }
        match self.is_begun && !self.is_over {
            true => Err(LineClose::normal(LineEnd::Abandoned)),
            false => Ok(()),
        }
    }

    /// Ends the answer without completing it, and ends the WebSocket with it.
    fn break_off(&mut self, close: LineClose) {
        self.is_over = true;
        self.close = Some(close);
    }

    fn on_event(&mut self, event: &LineEvent, state: &LineState) {
        match event {
            LineEvent::Message(data) if self.is_begun && !self.is_over => {
                self.on_message(&ProviderEvent::read(data), state);
            }
            LineEvent::Message(_) | LineEvent::Closed(_) | LineEvent::Fault(_) | LineEvent::Ended => {
                let is_refused = matches!(event, LineEvent::Closed(Some(TOO_BIG)));
                if is_refused && self.is_begun && !self.has_head && !self.is_over {
                    // The provider has not read the message, so the request can be sent again by POST.
                    self.is_too_big = true;
                    self.turn.progress.set_may_be_read(false);
                }
                if let Some(close) = LineClose::from_stray_event(event) {
                    self.break_off(close);
                }
            }
        }
    }

    fn on_message(&mut self, event: &ProviderEvent<'_>, state: &LineState) {
        if event.kind == ProviderEventKind::Created && std::mem::replace(&mut self.is_created, true) {
            return self.break_off(LineClose::UNEXPECTED);
        }
        if !self.has_head && event.kind == ProviderEventKind::Error {
            return self.on_refused(event, state);
        }
        if !std::mem::replace(&mut self.has_head, true) {
            // The memory budget no longer counts this frame.
            self.turn.complete_frame = None;
            self.out.extend_from_slice(STREAM_HEAD);
        }
        event.write_chunk(&mut self.out);
        if event.is_last() {
            self.out.extend_from_slice(LAST_CHUNK);
            let is_complete = event.kind == ProviderEventKind::Completed;
            state.set_response(is_complete.then(|| event.response_id()).flatten());
            self.end_answer(state);
        }
    }

    /// Handles an error before the first event of an answer.
    fn on_refused(&mut self, event: &ProviderEvent<'_>, state: &LineState) {
        if event.error_code().as_deref() == Some(AGE_REACHED) {
            // The error concerns the WebSocket only, so the request can be sent another way.
            self.turn.progress.set_may_be_read(false);
            return self.break_off(LineClose::normal(LineEnd::Provider));
        }
        if event.error_code().as_deref() == Some(PARENT_GONE)
            && let Some(frame) = self.turn.complete_frame.take()
        {
            self.next_frame = Some(frame);
            return;
        }
        self.has_head = true;
        event.write_error_answer(&mut self.out);
        state.set_response(None);
        self.end_answer(state);
    }

    /// Ends the answer. Releases the WebSocket before Pingora gets the end of the answer, because the client can send its next
    /// request as soon as it receives that end.
    fn end_answer(&mut self, state: &LineState) {
        self.is_over = true;
        state.release();
    }
}

/// The maximum time for which weir sends its close frame and waits for the provider to close the connection.
const CLOSE_WAIT: Duration = Duration::from_secs(1);

/// The times of a WebSocket to a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LineTimes {
    /// The time limit of the handshake.
    pub open: Duration,
    /// The time without a request after which the WebSocket is closed.
    pub idle: Duration,
    /// The time between two pings while no request runs. A provider that sends nothing in this time is disconnected.
    pub ping: Duration,
}

/// The result of waiting for the next request.
enum LineStep {
    Turn(Option<LineTurn>),
    Close(Option<LineClose>),
    /// A timer is due.
    Tick,
}

/// The task of a WebSocket to a provider. It carries requests one after the other. It closes the WebSocket when the client's
/// socket has ended, when no request has arrived for too long, or when the provider violates the protocol.
pub(super) struct LineTask {
    pub stream: LineStream,
    pub turns: mpsc::Receiver<LineTurn>,
    pub state: Arc<LineState>,
    pub times: LineTimes,
    pub place: LinePlace,
    /// The provider's name.
    pub provider: String,
    pub refusals: Arc<LineRefusals>,
    pub metrics: Arc<Metrics>,
    /// The handle of the connection, for the time limits of requests.
    pub _handle: Arc<SocketHandle>,
    pub _open: GaugeGuard,
}

impl LineTask {
    /// Serves the WebSocket to its end.
    pub(super) async fn run(mut self) {
        let close = self.serve().await;
        // A request that has been queued is dropped, and is sent by POST instead.
        self.turns.close();
        while self.turns.try_recv().is_ok() {}
        self.metrics.sockets.record_line_end(close.end);
        if close.end == LineEnd::Unexpected {
            tracing::error!(
                provider = %self.provider,
                "the provider began a response for which there was no request; weir closed the WebSocket and does not bill the \
                 response. Report this to the provider"
            );
        }
        // A close frame must not follow an incomplete frame.
        if let Some(code) = close.code
            && !self.stream.is_sending()
        {
            self.stream.queue_close(code, "");
            // A provider that does not close in time is disconnected.
            let _ = tokio::time::timeout(CLOSE_WAIT, self.stream.close()).await;
        }
    }

    async fn serve(&mut self) -> LineClose {
        loop {
            let turn = match self.next_turn().await {
                Ok(turn) => turn,
                Err(close) => return close,
            };
            let mut running = CarriedTurn::new(turn);
            let Self { stream, state, .. } = self;
            let ended = poll_fn(|cx| running.poll(stream, state, cx)).await;
            if let Some(bytes) = running.refused_bytes() {
                self.refusals.add(&self.place, bytes, clock::instant());
            }
            if let Err(close) = ended {
                return close;
            }
        }
    }

    /// Waits for the next request, and answers the provider's pings.
    async fn next_turn(&mut self) -> Result<LineTurn, LineClose> {
        let Self {
            stream,
            turns,
            state,
            times,
            ..
        } = self;
        let mut now = clock::instant();
        let mut idle_until = now + times.idle;
        let mut ping_due = now + times.ping;
        let mut is_pinged = false;
        loop {
            let step = tokio::select! {
                biased;
                turn = turns.recv() => LineStep::Turn(turn),
                event = poll_fn(|cx| stream.poll_event(cx)) => LineStep::Close(LineClose::from_stray_event(&event)),
                () = tokio::time::sleep_until(ping_due.min(idle_until).into()) => LineStep::Tick,
            };
            now = clock::instant();
            match step {
                LineStep::Turn(turn) => return turn.ok_or(LineClose::normal(LineEnd::Socket)),
                LineStep::Close(Some(close)) => return Err(close),
                LineStep::Close(None) => {}
                LineStep::Tick => {
                    if idle_until <= now {
                        if state.acquire() {
                            return Err(LineClose::normal(LineEnd::Idle));
                        }
                        // The WebSocket is reserved, so a request will arrive soon.
                        idle_until = now + times.idle;
                    }
                    if ping_due <= now {
                        if !stream.take_received() && is_pinged {
                            return Err(LineClose::without_frame(LineEnd::Silent));
                        }
                        stream.queue_ping();
                        is_pinged = true;
                        ping_due = now + times.ping;
                    }
                }
            }
        }
    }
}
