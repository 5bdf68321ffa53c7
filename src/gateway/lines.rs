//! WebSockets from weir to providers, here called lines. Each line belongs to one socket of a client, carries one request at a
//! time, and is never used for any other socket. To Pingora, a request on a line looks like a POST on a new connection to the
//! provider ([`pipe`]), so attempts, time limits and billing work as for a POST.

mod pipe;
mod stream;
#[cfg(test)]
mod tests;
mod turn;

use std::{
    collections::HashMap,
    fmt,
    net::{SocketAddr, TcpStream as SocketHandle},
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use bytes::Bytes;
use parking_lot::Mutex;
use pingora::{
    Error, protocols::l4::stream::Stream as ConnectionStream, server::configuration::ServerConf,
    upstreams::peer::HttpPeer,
};
use tokio::sync::{mpsc, oneshot};

use crate::{
    domain::wire::responses_socket::provider_frame::CreateFrame,
    edges::clock,
    gateway::{
        drain::Drain,
        lines::{
            pipe::{RefusedHandshake, RequestPipe},
            stream::{LineConnector, LineStream, OpenedLine, OpeningFailure},
            turn::{LineState, LineTask, LineTurn},
        },
    },
    telemetry::metrics::{HandshakeRefusal, Metrics},
};

pub(crate) use self::turn::LineProgress;
pub(crate) use crate::gateway::lines::turn::LineTimes;

/// The capacity in bytes of the pipe between a line and Pingora.
const PIPE_BYTES: usize = 64 * 1024;

/// The resources that all lines of a worker share.
pub(crate) struct LineHost {
    connector: LineConnector,
    refusals: Arc<LineRefusals>,
    metrics: Arc<Metrics>,
}

impl LineHost {
    /// Creates a host whose lines connect with the options of Pingora's proxy.
    pub(crate) fn new(conf: &ServerConf, refusals: Arc<LineRefusals>, (metrics, drain): (Arc<Metrics>, Drain)) -> Self {
        Self {
            connector: LineConnector::new(conf, drain),
            refusals,
            metrics,
        }
    }
}

/// The form of a request that continues a previous response. It can be sent only on the line that carried that response.
#[derive(Debug)]
pub(crate) struct LineContinuation {
    /// The id of the response that the request continues.
    pub parent: String,
    /// The frame, which contains the id of the continued response and only the new part of the input.
    pub frame: CreateFrame,
}

/// A request to be sent over a line.
pub(crate) struct LineRequest {
    /// The peer to which a POST would go, limited to HTTP/1.1.
    pub peer: HttpPeer,
    pub place: LinePlace,
    /// The provider's name.
    pub provider: String,
    /// The request line and the headers of the handshake, without `sec-websocket-key`. They contain the provider's endpoint and
    /// the credential, so a line carries only requests with the same endpoint and credential.
    pub head: Bytes,
    /// The frame with the complete input.
    pub frame: CreateFrame,
    /// The request as a continuation; `None` unless the request continues a response that is stored for its client's socket.
    pub continuation: Option<LineContinuation>,
    /// The length of the POST's body in bytes.
    pub body_bytes: usize,
    /// The number of the request's lane on the client's socket.
    pub lane: u8,
    /// The maximum number of lines of the client's socket.
    pub lines_max: usize,
    pub times: LineTimes,
}

/// The way in which a request reaches its provider.
pub(crate) enum LineAccess {
    /// Over a line. Pingora sends the request on this stream.
    Carried(ConnectionStream, Arc<LineProgress>),
    /// The provider refuses the credential. The stream has the provider's answer.
    Refused(ConnectionStream),
    /// No connection to the provider was established.
    Failed(Box<Error>),
    /// By POST.
    Post,
}

/// An open line in the list of its client's socket. When the last clone is dropped, the line ends as soon as it carries no
/// request.
#[derive(Clone)]
struct OpenLine {
    place: LinePlace,
    /// The handshake's request line and headers.
    head: Bytes,
    /// The lane of the most recent request.
    lane: u8,
    state: Arc<LineState>,
    turns: mpsc::Sender<LineTurn>,
    /// The handle of the line's connection. It can no longer be upgraded when the line has ended.
    handle: Weak<SocketHandle>,
}

impl OpenLine {
    /// Returns the request as a continuation; `None` unless the line's most recent response is the one that the request
    /// continues.
    fn continuation<'r>(&self, request: &'r LineRequest) -> Option<&'r LineContinuation> {
        let continuation = request.continuation.as_ref()?;
        self.state.has_response(&continuation.parent).then_some(continuation)
    }

    /// Whether the line has the endpoint and the credential that the request needs.
    fn fits(&self, request: &LineRequest) -> bool {
        self.place == request.place && self.head == request.head
    }
}

#[derive(Default)]
struct LineSet {
    lines: Vec<OpenLine>,
    /// The number of lines that are being opened.
    opening: usize,
    /// Whether the client's socket has ended.
    is_closed: bool,
}

/// The result of choosing a line for a request.
enum ChosenLine {
    /// A free line, which is now reserved.
    Free(OpenLine),
    /// A new line.
    New,
    /// No line, because all lines are in use or the client's socket has ended.
    None,
}

impl LineSet {
    /// Chooses the line for a request, in this order: the line with the response that the request continues, the line that the
    /// request's lane used, a new line, any free line.
    fn choose(&mut self, request: &LineRequest) -> ChosenLine {
        if self.is_closed {
            return ChosenLine::None;
        }
        self.lines.retain(|line| !line.turns.is_closed());
        let own = self.acquire(request, |line| line.continuation(request).is_some());
        if let Some(line) = own.or_else(|| self.acquire(request, |line| line.lane == request.lane)) {
            return ChosenLine::Free(line);
        }
        if self.lines.len() + self.opening < request.lines_max || self.drop_other(request) {
            self.opening += 1;
            return ChosenLine::New;
        }
        match self.acquire(request, |_| true) {
            Some(line) => ChosenLine::Free(line),
            None => ChosenLine::None,
        }
    }

    fn acquire(&mut self, request: &LineRequest, is_allowed: impl Fn(&OpenLine) -> bool) -> Option<OpenLine> {
        let mut fitting = self
            .lines
            .iter_mut()
            .filter(|line| line.fits(request) && is_allowed(line));
        let line = fitting.find(|line| line.state.acquire())?;
        line.lane = request.lane;
        Some(line.clone())
    }

    /// Drops a free line whose endpoint or credential differs from that of the request. Returns false if there is no such line.
    fn drop_other(&mut self, request: &LineRequest) -> bool {
        let found = self
            .lines
            .iter()
            .position(|line| !line.fits(request) && line.state.acquire());
        found.is_some_and(|index| {
            self.lines.swap_remove(index);
            true
        })
    }
}

/// The lines of one client's socket.
pub(crate) struct SocketLines {
    host: Arc<LineHost>,
    set: Mutex<LineSet>,
}

impl fmt::Debug for SocketLines {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let open = self.set.lock().lines.len();
        out.debug_struct("SocketLines")
            .field("open", &open)
            .finish_non_exhaustive()
    }
}

/// Counts a line that is being opened, until it is open or cannot be opened.
struct LineOpening<'l>(Option<&'l SocketLines>);

impl LineOpening<'_> {
    /// Adds the line, which is open now.
    fn finish(mut self, line: OpenLine) {
        if let Some(lines) = self.0.take() {
            let mut set = lines.set.lock();
            set.opening = set.opening.saturating_sub(1);
            if !set.is_closed {
                set.lines.push(line);
            }
        }
    }
}

impl Drop for LineOpening<'_> {
    fn drop(&mut self) {
        if let Some(lines) = self.0 {
            let mut set = lines.set.lock();
            set.opening = set.opening.saturating_sub(1);
        }
    }
}

impl SocketLines {
    /// Creates the set of lines for a new socket. No line is open yet.
    pub(crate) fn new(host: Arc<LineHost>) -> Arc<Self> {
        Arc::new(Self {
            host,
            set: Mutex::default(),
        })
    }

    /// Whether a request with a body of `bytes` bytes can be sent to `place` over a line.
    pub(crate) fn admits(&self, place: &LinePlace, bytes: usize) -> bool {
        self.host.refusals.admits(place, bytes, clock::instant())
    }

    /// Closes each line as soon as it carries no request, because the client's socket has ended.
    pub(crate) fn close(&self) {
        let mut set = self.set.lock();
        set.is_closed = true;
        set.lines.clear();
    }

    /// Finds or opens a line for the request, and passes the request to it. The line sends the request when Pingora has written
    /// it.
    pub(crate) async fn carry(&self, request: &LineRequest) -> LineAccess {
        loop {
            let chosen = self.set.lock().choose(request);
            match chosen {
                // If the line has just ended, another one is chosen.
                ChosenLine::Free(line) => {
                    if let Some(access) = self.begin(&line, request) {
                        return access;
                    }
                }
                ChosenLine::New => return self.carry_over_new(request).await,
                ChosenLine::None => return LineAccess::Post,
            }
        }
    }

    /// Passes a request to a line that is reserved for it. Returns `None` if the line has ended.
    fn begin(&self, line: &OpenLine, request: &LineRequest) -> Option<LineAccess> {
        let handle = line.handle.upgrade()?;
        let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
        let (complete, written) = oneshot::channel();
        let progress: Arc<LineProgress> = Arc::default();
        let (frame, complete_frame) = match line.continuation(request) {
            Some(continuation) => (continuation.frame.clone(), Some(request.frame.clone())),
            None => (request.frame.clone(), None),
        };
        let turn = LineTurn {
            frame,
            complete_frame,
            body_bytes: request.body_bytes,
            written,
            answer: theirs,
            progress: Arc::clone(&progress),
        };
        line.turns.try_send(turn).ok()?;
        self.host.metrics.sockets.line_turns.inc();
        let pipe = RequestPipe::new(ours, request.body_bytes, complete);
        Some(match pipe::stream(pipe, handle) {
            Ok(stream) => LineAccess::Carried(stream, progress),
            Err(error) => LineAccess::Failed(error),
        })
    }

    async fn carry_over_new(&self, request: &LineRequest) -> LineAccess {
        let opening = LineOpening(Some(self));
        let opened = self
            .host
            .connector
            .open(&request.peer, &request.head, request.times.open)
            .await;
        match opened {
            Ok(opened) => {
                let line = self.start(opened, request);
                opening.finish(line.clone());
                self.begin(&line, request).unwrap_or(LineAccess::Post)
            }
            Err(OpeningFailure::Connect(error)) => LineAccess::Failed(error),
            Err(OpeningFailure::Credential(why, answer)) => {
                self.host.metrics.sockets.record_handshake_refused(why);
                let socket = RefusedHandshake::new(answer.ahead.freeze(), answer.connection);
                match pipe::stream(socket, answer.handle) {
                    Ok(stream) => LineAccess::Refused(stream),
                    Err(error) => LineAccess::Failed(error),
                }
            }
            Err(OpeningFailure::Refused(why)) => {
                self.on_refused(request, why);
                LineAccess::Post
            }
        }
    }

    /// Starts the task of a new line, which is reserved for the request.
    fn start(&self, opened: OpenedLine, request: &LineRequest) -> OpenLine {
        let state = Arc::new(LineState::default());
        state.acquire();
        let (turns, receiver) = mpsc::channel(1);
        let (metrics, handle) = (&self.host.metrics, Arc::downgrade(&opened.handle));
        let task = LineTask {
            stream: LineStream::new(opened.connection, opened.ahead),
            turns: receiver,
            state: Arc::clone(&state),
            times: request.times,
            place: request.place.clone(),
            provider: request.provider.clone(),
            refusals: Arc::clone(&self.host.refusals),
            metrics: Arc::clone(metrics),
            _handle: opened.handle,
            _open: metrics.sockets.lines_open.guard(),
        };
        tokio::spawn(task.run());
        OpenLine {
            place: request.place.clone(),
            head: request.head.clone(),
            lane: request.lane,
            state,
            turns,
            handle,
        }
    }

    fn on_refused(&self, request: &LineRequest, why: HandshakeRefusal) {
        self.host.metrics.sockets.record_handshake_refused(why);
        self.host.refusals.add(&request.place, 0, clock::instant());
        tracing::warn!(
            provider = %request.provider,
            address = %request.place.address,
            reason = why.as_str(),
            "the provider did not accept the handshake of a WebSocket: for ten minutes, requests go to this address by POST"
        );
    }
}

/// The time for which requests are sent by POST after a place has refused a WebSocket or a message.
const POST_FOR: Duration = Duration::from_secs(600);

/// The maximum number of stored places. For any other place, each request tries to open a WebSocket, even if the last attempt was
/// refused.
const PLACES_MAX: usize = 1024;

/// A provider's address and host to which requests can be sent over WebSockets.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LinePlace {
    /// The address of the backend.
    pub address: SocketAddr,
    /// The host in the provider's URL.
    pub host: String,
}

/// The requests that are sent to a place by POST.
#[derive(Clone, Copy, Debug)]
struct PostOnly {
    /// The minimum length in bytes of a body that is sent by POST; 0 if all bodies are sent by POST.
    bytes_min: usize,
    until: Instant,
}

/// The places that have refused this node a WebSocket, or a message on a WebSocket. All sockets share this list.
#[derive(Debug, Default)]
pub(crate) struct LineRefusals {
    places: Mutex<HashMap<LinePlace, PostOnly>>,
}

impl LineRefusals {
    /// Whether a request with a body of `bytes` bytes can be sent to a place over a WebSocket.
    pub(crate) fn admits(&self, place: &LinePlace, bytes: usize, now: Instant) -> bool {
        let places = self.places.lock();
        let refused = places.get(place).filter(|refused| refused.until > now);
        refused.is_none_or(|refused| bytes < refused.bytes_min)
    }

    /// Makes requests with bodies of at least `bytes_min` bytes go to this place by POST for the time [`POST_FOR`].
    fn add(&self, place: &LinePlace, bytes_min: usize, now: Instant) {
        let mut places = self.places.lock();
        places.retain(|_, refused| refused.until > now);
        if places.len() >= PLACES_MAX && !places.contains_key(place) {
            return;
        }
        let known = places.get(place).map_or(usize::MAX, |refused| refused.bytes_min);
        let refused = PostOnly {
            bytes_min: bytes_min.min(known),
            until: now + POST_FOR,
        };
        places.insert(place.clone(), refused);
    }
}

#[cfg(test)]
mod refusals_tests {
    use super::*;
    use crate::edges::clock;

    fn place(host: &str) -> LinePlace {
        LinePlace {
            address: "127.0.0.1:443".parse().expect("an address"),
            host: host.to_owned(),
        }
    }

    #[test]
    fn a_place_gets_posts_for_ten_minutes_after_it_has_refused_a_handshake() {
        let (refusals, now) = (LineRefusals::default(), clock::instant());
        assert!(refusals.admits(&place("a"), 1, now));
        refusals.add(&place("a"), 0, now);
        assert!(!refusals.admits(&place("a"), 1, now) && refusals.admits(&place("b"), 1, now));
        let before = now + POST_FOR - Duration::from_millis(1);
        assert!(!refusals.admits(&place("a"), 0, before) && refusals.admits(&place("a"), 0, now + POST_FOR));
    }

    #[test]
    fn a_place_that_has_refused_a_large_message_gets_smaller_ones() {
        let (refusals, now) = (LineRefusals::default(), clock::instant());
        refusals.add(&place("a"), 100, now);
        assert!(refusals.admits(&place("a"), 99, now) && !refusals.admits(&place("a"), 100, now));
        refusals.add(&place("a"), 200, now);
        assert!(!refusals.admits(&place("a"), 100, now));
    }

    #[test]
    fn the_number_of_places_is_limited() {
        let (refusals, now) = (LineRefusals::default(), clock::instant());
        for number in 0..=PLACES_MAX {
            refusals.add(&place(&number.to_string()), 0, now);
        }
        assert!(!refusals.admits(&place("0"), 0, now));
        assert!(refusals.admits(&place(&PLACES_MAX.to_string()), 0, now));
        refusals.add(&place("new"), 0, now + POST_FOR);
        assert!(!refusals.admits(&place("new"), 0, now + POST_FOR));
    }
}
