//! The task of a WebSocket to a provider. It carries one request after the other, and closes the WebSocket when the client's
//! socket has ended, after a time without a request, or when the provider violates the protocol.

use std::{future::poll_fn, net::TcpStream as SocketHandle, sync::Arc, time::Duration};

use tokio::sync::mpsc;

use crate::{
    edges::clock,
    gateway::lines::{
        refusals::{LinePlace, LineRefusals},
        stream::LineStream,
        turn::{CarriedTurn, LineClose, LineState, LineTurn},
    },
    telemetry::metrics::{GaugeGuard, LineEnd, Metrics},
};

/// The maximum time for which weir sends its close frame and waits for the provider to close, too.
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

/// The end of the wait for the next request.
enum LineStep {
    Turn(Option<LineTurn>),
    Close(Option<LineClose>),
    /// A timer is due.
    Tick,
}

/// A WebSocket to a provider, as its task has it.
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
        // A request that is on its way is dropped, and goes by POST.
        self.turns.close();
        while self.turns.try_recv().is_ok() {}
        self.metrics.sockets.record_line_end(close.end);
        if close.end == LineEnd::Unexpected {
            tracing::error!(
                provider = %self.provider,
                "the provider began a response that no request asked for: the WebSocket to it was closed, and the response is not \
                 billed. Ask the provider about it"
            );
        }
        // A close frame cannot follow a part of a frame.
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
                        // The WebSocket is reserved, so a request is on its way.
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
