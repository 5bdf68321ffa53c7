//! A socket that can be closed with RST instead of FIN, and response bodies that follow the steps of a scripted response.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    time::Sleep,
};

use crate::sample_provider::{
    ledger::SampleLedgerEntry, performance::ScriptedResponse, script::CutStyle, steps::ReplyStep,
};

/// The flag with which a response makes its connection end with RST.
#[derive(Clone, Debug, Default)]
pub(super) struct ResetFlag(Arc<AtomicBool>);

impl ResetFlag {
    /// Makes the connection end with RST when it is closed.
    pub(super) fn raise(&self) {
        self.0.store(true, Ordering::Release);
    }
}

/// A client's socket, with the flag that determines how the socket is closed.
#[derive(Debug)]
pub(super) struct SampleConnection {
    stream: TcpStream,
    reset: ResetFlag,
}

impl SampleConnection {
    /// Wraps `stream`, and disables Nagle's algorithm.
    pub(super) fn new(stream: TcpStream, reset: ResetFlag) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Self { stream, reset })
    }
}

impl Drop for SampleConnection {
    fn drop(&mut self) {
        if self.reset.0.load(Ordering::Acquire) {
            // If this fails, the peer gets FIN, which also breaks off the response.
            let _ = self.stream.set_zero_linger();
        }
    }
}

impl AsyncRead for SampleConnection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for SampleConnection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

/// The pause before the connection is broken, so that the bytes before the break are sent.
const FLUSH_BEFORE_BREAK: Duration = Duration::from_millis(5);

/// The error of a body that breaks off because the script demands it.
#[derive(Debug, thiserror::Error)]
#[error("the response breaks off here, as the script demands")]
pub(super) struct StreamBroken;

/// The body of one response, which follows the response's steps.
pub(super) struct PacedBody {
    steps: Arc<[ReplyStep]>,
    next: usize,
    length: Option<u64>,
    gap: Duration,
    /// The timer of the pauses. Each deadline is computed from the previous deadline, so the pace does not drift. `None` before
    /// the first pause.
    timer: Option<Pin<Box<Sleep>>>,
    waiting: bool,
    entry: SampleLedgerEntry,
    reset: ResetFlag,
}

impl PacedBody {
    /// Creates the body of the response `performance`. `entry` records the bill of the response, and `reset` is the flag of its
    /// connection.
    pub(super) fn new(performance: &ScriptedResponse, entry: SampleLedgerEntry, reset: ResetFlag) -> Self {
        Self {
            steps: Arc::clone(&performance.steps),
            next: 0,
            length: performance.length,
            gap: performance.gap,
            timer: None,
            waiting: false,
            entry,
            reset,
        }
    }

    fn poll_wait(&mut self, cx: &mut Context<'_>, wait: Duration) -> Poll<()> {
        let timer = match &mut self.timer {
            Some(timer) => {
                if !self.waiting {
                    let deadline = timer.deadline() + wait;
                    timer.as_mut().reset(deadline);
                }
                timer
            }
            None => self.timer.insert(Box::pin(tokio::time::sleep(wait))),
        };
        self.waiting = true;
        ready!(timer.as_mut().poll(cx));
        self.waiting = false;
        Poll::Ready(())
    }
}

impl Body for PacedBody {
    type Data = Bytes;
    type Error = StreamBroken;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, StreamBroken>>> {
        let steps = Arc::clone(&self.steps);
        loop {
            let Some(step) = steps.get(self.next) else {
                return Poll::Ready(None);
            };
            match step {
                ReplyStep::Pause => {
                    let gap = self.gap;
                    ready!(self.poll_wait(cx, gap));
                }
                ReplyStep::Settle { deltas, ending } => self.entry.settle(*deltas, *ending),
                ReplyStep::Send { bytes, deltas } => {
                    self.next += 1;
                    self.entry.on_send(*deltas);
                    if bytes.is_empty() {
                        continue;
                    }
                    return Poll::Ready(Some(Ok(Frame::data(bytes.clone()))));
                }
                ReplyStep::Break { close } => {
                    if !self.waiting {
                        self.timer = None;
                    }
                    ready!(self.poll_wait(cx, FLUSH_BEFORE_BREAK));
                    if *close == CutStyle::Reset {
                        self.reset.raise();
                    }
                    return Poll::Ready(Some(Err(StreamBroken)));
                }
                // The server notices when the client disconnects, and then drops this body.
                ReplyStep::Stall => return Poll::Pending,
            }
            self.next += 1;
        }
    }

    fn is_end_stream(&self) -> bool {
        self.next >= self.steps.len()
    }

    fn size_hint(&self) -> SizeHint {
        self.length.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}
