//! Time limits on a provider's answer.
//!
//! Pingora has one timeout per read and none for the whole answer. weir has three: to the first byte, between two
//! bytes, and in total; the rest of an error answer has a limit of its own. Every upstream connection therefore keeps a second handle on its socket. A watch that passes
//! its limit shuts the socket down, which ends the attempt with an error that [`Watch::fate`] explains. The same
//! happens to an answer that has run for too long after its client disconnected ([`Presence::due`]), and to whatever
//! still runs when the process has no more time ([`Drain::out_of_time`]).

use std::{
    net::{Shutdown, TcpStream as SocketHandle},
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use pingora::{
    ErrorType, OrErr, Result,
    protocols::{Digest, raw_connect::ProxyDigest},
};
use tokio::{net::TcpStream, sync::Notify, task::JoinHandle};

use crate::{
    domain::wire::protocol::Break,
    edges::clock,
    gateway::{drain::Drain, presence::Presence},
};

/// The time limits of one attempt.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// From the request's last byte to the answer's first.
    pub first_byte: Duration,
    /// Between two reads of the answer.
    pub idle: Duration,
    /// From the start of the attempt to the answer's last byte.
    pub total: Duration,
    /// From the head of an error answer to its last byte.
    pub error_body: Duration,
}

/// The socket and a digest that carries a second handle on it. Pingora attaches application data to a connection only
/// as part of a CONNECT response, so an empty response stands in.
pub(crate) fn with_handle(socket: TcpStream) -> Result<(TcpStream, ProxyDigest)> {
    let (socket, handle) = duplicated(socket).or_err(ErrorType::SocketError, "keeping a handle on the socket")?;
    let empty = pingora::http::ResponseHeader::build(200, Some(0))?;
    let digest = ProxyDigest::new(Box::new(empty), Some(Box::new(Arc::new(handle))));
    Ok((socket, digest))
}

fn duplicated(socket: TcpStream) -> std::io::Result<(TcpStream, SocketHandle)> {
    let socket = socket.into_std()?;
    let handle = socket.try_clone()?;
    Ok((TcpStream::from_std(socket)?, handle))
}

/// The second handle of the connection that Pingora chose for an attempt, new or from its pool.
pub(crate) fn handle_of(digest: Option<&Digest>) -> Option<Arc<SocketHandle>> {
    let data = digest?.proxy_digest.as_ref()?.user_data.as_ref()?;
    data.downcast_ref::<Arc<SocketHandle>>().cloned()
}

/// How a watch has ended its attempt, if it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Fate {
    /// The watch has not ended the attempt.
    Running = 0,
    /// A time limit has passed.
    Expired = 1,
    /// The process has no more time.
    Stopped = 2,
}

impl Fate {
    /// Why an answer that the watch has ended breaks off; `None` if the watch has not.
    pub(crate) fn broken(self) -> Option<Break> {
        match self {
            Self::Running => None,
            Self::Expired => Some(Break::ProviderTimeout),
            Self::Stopped => Some(Break::Stopped),
        }
    }
}

/// Watches one attempt, until dropped.
#[derive(Debug)]
pub(crate) struct Watch {
    state: Arc<State>,
    task: JoinHandle<()>,
}

#[derive(Debug)]
struct State {
    started: Instant,
    limits: Limits,
    /// Adds a limit once the client has disconnected.
    presence: Option<Arc<Presence>>,
    /// Milliseconds after `started` at which the last byte passed; 0 before the first.
    last_byte_ms: AtomicU64,
    /// Milliseconds after `started` at which the head of an error answer came; 0 if none did.
    error_head_ms: AtomicU64,
    fate: AtomicU8,
    /// Something has made the deadline earlier.
    sooner: Notify,
}

impl Watch {
    /// Starts the watch. It shuts `handle` down when a limit passes, including that of `presence`, or when `drain` is
    /// out of time.
    pub(crate) fn start(
        handle: Arc<SocketHandle>,
        limits: Limits,
        presence: Option<Arc<Presence>>,
        drain: Drain,
        now: Instant,
    ) -> Self {
        let state = Arc::new(State {
            started: now,
            limits,
            presence,
            last_byte_ms: AtomicU64::new(0),
            error_head_ms: AtomicU64::new(0),
            fate: AtomicU8::new(Fate::Running as u8),
            sooner: Notify::new(),
        });
        let watched = Arc::clone(&state);
        let task = tokio::spawn(async move {
            let fate = tokio::select! {
                () = watched.expire() => Fate::Expired,
                () = drain.out_of_time() => Fate::Stopped,
            };
            watched.fate.store(fate as u8, Ordering::Release);
            // An error means that the connection is closed already.
            let _ = handle.shutdown(Shutdown::Both);
        });
        Self { state, task }
    }

    /// Bytes of the answer have arrived: restarts the idle limit.
    pub(crate) fn byte_seen(&self, now: Instant) {
        if self.state.last_byte_ms.swap(self.state.millis(now), Ordering::AcqRel) == 0 {
            self.state.sooner.notify_one();
        }
    }

    /// The head of an error answer has arrived: starts the limit of its rest.
    pub(crate) fn error_seen(&self, now: Instant) {
        self.state
            .error_head_ms
            .store(self.state.millis(now), Ordering::Release);
        self.state.sooner.notify_one();
    }

    /// Time since the attempt's connection was established.
    pub(crate) fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.state.started)
    }

    /// How the watch has ended the attempt, if it has.
    pub(crate) fn fate(&self) -> Fate {
        match self.state.fate.load(Ordering::Acquire) {
            fate if fate == Fate::Expired as u8 => Fate::Expired,
            fate if fate == Fate::Stopped as u8 => Fate::Stopped,
            _ => Fate::Running,
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl State {
    /// Milliseconds since the start; at least 1.
    fn millis(&self, now: Instant) -> u64 {
        let since = now.saturating_duration_since(self.started).as_millis();
        u64::try_from(since).unwrap_or(u64::MAX).max(1)
    }

    /// Returns when a limit has passed. Only the first byte, an error's head and the client's disconnect can make the deadline
    /// earlier; later bytes defer it.
    async fn expire(&self) {
        loop {
            tokio::select! {
                () = tokio::time::sleep_until(self.due().into()) => {}
                () = self.sooner.notified() => continue,
                () = self.client_left() => continue,
            }
            if clock::instant() >= self.due() {
                return;
            }
        }
    }

    fn due(&self) -> Instant {
        let next = match self.last_byte_ms.load(Ordering::Acquire) {
            0 => self.limits.first_byte,
            seen => Duration::from_millis(seen) + self.limits.idle,
        };
        let rest = match self.error_head_ms.load(Ordering::Acquire) {
            0 => Duration::MAX,
            seen => Duration::from_millis(seen) + self.limits.error_body,
        };
        let due = self.started + next.min(self.limits.total).min(rest);
        let unattended = self.presence.as_ref().and_then(|presence| presence.due());
        unattended.map_or(due, |unattended| unattended.min(due))
    }

    async fn client_left(&self) {
        match &self.presence {
            Some(presence) => presence.limited().await,
            None => std::future::pending().await,
        }
    }
}
