//! Time limits on a provider's answer.
//!
//! Pingora has a timeout for each read, but none for the complete answer. weir limits the time to the first byte, the time
//! between two bytes, and the total time. The body of an error answer has another limit, which begins when the answer's head has
//! arrived. To enforce the limits, weir keeps a second handle on the socket of every connection to a provider. When a limit has
//! passed, weir shuts the socket down. That ends the attempt with an error, whose reason [`Deadline::fate`] returns. The same
//! happens to a detached answer that has run for too long ([`Presence::due`]), and to all attempts when the drain ends
//! ([`Drain::expired`]).
//!
//! One task checks the deadlines of all attempts ([`Deadlines::run`]). It sleeps until the earliest time at which a limit can
//! pass. Bytes and ends of answers do not wake it, so a request costs next to nothing.

use std::{
    net::{Shutdown, TcpStream as SocketHandle},
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use pingora::{
    ErrorType, OrErr, Result,
    protocols::{Digest, raw_connect::ProxyDigest},
};
use tokio::{net::TcpStream, sync::Notify};

use crate::{
    domain::wire::protocol::Break,
    edges::clock,
    gateway::{drain::Drain, presence::Presence},
};

/// The minimum interval between two checks of all attempts. This is also the longest delay until a limit is enforced.
const LATE_MAX: Duration = Duration::from_millis(50);

/// The number of lists over which running attempts are spread, so that threads seldom wait for each other.
const LISTS: usize = 16;

/// The time limits of one attempt.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AttemptLimits {
    /// The maximum time from the request's last byte to the answer's first byte.
    pub first_byte: Duration,
    /// The maximum time between two reads of the answer.
    pub idle: Duration,
    /// The maximum time from the start of the attempt to the answer's last byte.
    pub total: Duration,
    /// The maximum time from the head of an error answer to its last byte.
    pub error_body: Duration,
}

/// Duplicates a socket's handle. Returns the socket, and a digest that contains the second handle. Pingora attaches application
/// data to a connection only as a part of a CONNECT response, so the digest contains an empty response, too.
pub(crate) fn with_handle(socket: TcpStream) -> Result<(TcpStream, ProxyDigest)> {
    let (socket, handle) = duplicate(socket).or_err(ErrorType::SocketError, "keeping a handle on the socket")?;
    Ok((socket, digest_with(Arc::new(handle))?))
}

/// Returns a digest that contains this handle of a socket.
pub(crate) fn digest_with(handle: Arc<SocketHandle>) -> Result<ProxyDigest> {
    let empty = pingora::http::ResponseHeader::build(200, Some(0))?;
    Ok(ProxyDigest::new(Box::new(empty), Some(Box::new(handle))))
}

fn duplicate(socket: TcpStream) -> std::io::Result<(TcpStream, SocketHandle)> {
    let socket = socket.into_std()?;
    let handle = socket.try_clone()?;
    Ok((TcpStream::from_std(socket)?, handle))
}

/// Returns the second handle on the connection that Pingora chose for an attempt, whether new or from the pool; `None` if the
/// connection has none.
pub(crate) fn socket_handle(digest: Option<&Digest>) -> Option<Arc<SocketHandle>> {
    handle_in(digest?.proxy_digest.as_ref()?)
}

/// Returns the handle in a digest that [`digest_with`] has created; `None` for any other digest.
pub(crate) fn handle_in(digest: &ProxyDigest) -> Option<Arc<SocketHandle>> {
    digest.user_data.as_ref()?.downcast_ref::<Arc<SocketHandle>>().cloned()
}

/// Whether a deadline has ended its attempt, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Fate {
    /// The deadline has not ended the attempt.
    Running = 0,
    /// The attempt has been ended because a time limit has passed.
    Expired = 1,
    /// The attempt has been ended because the drain has ended.
    Stopped = 2,
}

impl Fate {
    /// Returns the reason why the answer breaks off; `None` if the deadline has not ended the attempt.
    pub(crate) fn break_reason(self) -> Option<Break> {
        match self {
            Self::Running => None,
            Self::Expired => Some(Break::ProviderTimeout),
            Self::Stopped => Some(Break::Stopped),
        }
    }
}

/// The deadlines of all attempts. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Deadlines {
    shared: Arc<DeadlineLists>,
}

#[derive(Debug)]
struct DeadlineLists {
    /// The running attempts.
    lists: [Mutex<Vec<Arc<DeadlineState>>>; LISTS],
    began: Instant,
    /// The time of the next check, in milliseconds after `began`; `u64::MAX` while no attempt runs.
    next_ms: AtomicU64,
    /// Notified when `next_ms` has become earlier.
    sooner: Notify,
    /// Reports the end of the drain.
    drain: Drain,
}

/// The deadline of one attempt. Dropping it ends the time limits.
#[derive(Debug)]
pub(crate) struct Deadline {
    state: Arc<DeadlineState>,
    shared: Arc<DeadlineLists>,
}

#[derive(Debug)]
struct DeadlineState {
    handle: Arc<SocketHandle>,
    started: Instant,
    limits: AttemptLimits,
    /// Tracks the client, and adds a time limit once it has disconnected; `None` if the request ends with its client.
    presence: Option<Arc<Presence>>,
    /// The time of the answer's most recent byte, in milliseconds after `started`; 0 before the first byte.
    last_byte_ms: AtomicU64,
    /// The time at which the head of an error answer arrived, in milliseconds after `started`; 0 if none has.
    error_head_ms: AtomicU64,
    fate: AtomicU8,
    /// The index of this attempt in its list. It changes only while the list is locked.
    index: AtomicUsize,
}

impl Deadlines {
    /// Creates an empty set of deadlines. All attempts are stopped when `drain` ends.
    pub(crate) fn new(drain: Drain) -> Self {
        Self {
            shared: Arc::new(DeadlineLists {
                lists: Default::default(),
                began: clock::instant(),
                next_ms: AtomicU64::new(u64::MAX),
                sooner: Notify::new(),
                drain,
            }),
        }
    }

    /// Begins the deadline of an attempt. `handle` is shut down when the drain ends or a limit passes. The limits include the one
    /// of `presence`.
    pub(crate) fn begin(
        &self,
        handle: Arc<SocketHandle>,
        limits: AttemptLimits,
        presence: Option<Arc<Presence>>,
        now: Instant,
    ) -> Deadline {
        let state = Arc::new(DeadlineState {
            handle,
            started: now,
            limits,
            presence,
            last_byte_ms: AtomicU64::new(0),
            error_head_ms: AtomicU64::new(0),
            fate: AtomicU8::new(Fate::Running as u8),
            index: AtomicUsize::new(0),
        });
        let shared = Arc::clone(&self.shared);
        shared.add(&state);
        shared.check_by(state.next_check(now));
        if shared.drain.is_expired() {
            // All attempts may have been stopped before this one was added.
            state.end(Fate::Stopped);
        }
        Deadline { state, shared }
    }

    /// Ends each attempt when one of its limits passes, and all attempts when the drain ends.
    pub(crate) async fn run(self) {
        let mut out_of_time = std::pin::pin!(self.shared.drain.expired());
        let mut earliest = self.shared.began;
        loop {
            tokio::select! {
                () = &mut out_of_time => break,
                () = self.shared.due(earliest) => {}
            }
            let now = clock::instant();
            self.shared.check(now);
            earliest = now + LATE_MAX;
        }
        self.shared.for_each(|state| state.end(Fate::Stopped));
    }
}

impl DeadlineLists {
    /// Returns the list to which an attempt belongs, chosen by the attempt's memory address.
    fn list(&self, state: &Arc<DeadlineState>) -> Option<&Mutex<Vec<Arc<DeadlineState>>>> {
        self.lists
            .get(Arc::as_ptr(state).addr() / size_of::<DeadlineState>() % LISTS)
    }

    fn add(&self, state: &Arc<DeadlineState>) {
        if let Some(list) = self.list(state) {
            let mut list = list.lock();
            state.index.store(list.len(), Ordering::Relaxed);
            list.push(Arc::clone(state));
        }
    }

    fn remove(&self, state: &Arc<DeadlineState>) {
        let Some(list) = self.list(state) else { return };
        let mut list = list.lock();
        let index = state.index.load(Ordering::Relaxed);
        if index < list.len() {
            list.swap_remove(index);
        }
        if let Some(moved) = list.get(index) {
            moved.index.store(index, Ordering::Relaxed);
        }
    }

    fn for_each(&self, mut act: impl FnMut(&DeadlineState)) {
        for list in &self.lists {
            list.lock().iter().for_each(|state| act(state));
        }
    }

    /// Ends the attempts whose limits have passed, and schedules the next check.
    fn check(&self, now: Instant) {
        // Reset before the lists are read, because an attempt that is added later schedules a check of its own.
        self.next_ms.store(u64::MAX, Ordering::SeqCst);
        let mut next: Option<Instant> = None;
        self.for_each(|state| {
            if state.fate() != Fate::Running {
                return;
            }
            if state.due() <= now {
                return state.end(Fate::Expired);
            }
            let own = state.next_check(now);
            next = Some(next.map_or(own, |next| next.min(own)));
        });
        if let Some(next) = next {
            self.advance(next);
        }
    }

    /// Makes sure that a check happens at `time` at the latest.
    fn check_by(&self, time: Instant) {
        if self.advance(time) {
            self.sooner.notify_one();
        }
    }

    /// Moves the next check forward to `time`, if the check is due after `time`. Otherwise, changes nothing and returns false.
    fn advance(&self, time: Instant) -> bool {
        let since = time.saturating_duration_since(self.began).as_millis();
        let millis = u64::try_from(since).unwrap_or(u64::MAX);
        millis < self.next_ms.load(Ordering::SeqCst) && millis < self.next_ms.fetch_min(millis, Ordering::SeqCst)
    }

    /// Waits until the next check is due, but at least until `earliest`.
    async fn due(&self, earliest: Instant) {
        loop {
            let next = match self.next_ms.load(Ordering::SeqCst) {
                u64::MAX => None,
                // Rounded up, because a limit passes at some time within that millisecond.
                millis => Some(self.began + Duration::from_millis(millis + 1)),
            };
            let passed = async {
                match next {
                    Some(next) => tokio::time::sleep_until(next.max(earliest).into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = passed => return,
                () = self.sooner.notified() => {}
            }
        }
    }
}

impl Deadline {
    /// Records that bytes of the answer have arrived, which restarts the idle limit.
    pub(crate) fn on_byte(&self, now: Instant) {
        let millis = self.state.millis(now);
        self.state.last_byte_ms.store(millis, Ordering::Release);
    }

    /// Records that the head of an error answer has arrived, which starts the limit of the answer's body.
    pub(crate) fn on_error_head(&self, now: Instant) {
        let millis = self.state.millis(now);
        self.state.error_head_ms.store(millis, Ordering::Release);
    }

    /// Returns the time since the attempt's connection was established.
    pub(crate) fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.state.started)
    }

    /// Returns whether the deadline has ended the attempt, and why.
    pub(crate) fn fate(&self) -> Fate {
        self.state.fate()
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        self.shared.remove(&self.state);
    }
}

impl DeadlineState {
    /// Returns the time since the attempt's start in milliseconds; at least 1.
    fn millis(&self, now: Instant) -> u64 {
        let since = now.saturating_duration_since(self.started).as_millis();
        u64::try_from(since).unwrap_or(u64::MAX).max(1)
    }

    fn fate(&self) -> Fate {
        match self.fate.load(Ordering::Acquire) {
            fate if fate == Fate::Expired as u8 => Fate::Expired,
            fate if fate == Fate::Stopped as u8 => Fate::Stopped,
            _ => Fate::Running,
        }
    }

    /// Ends the attempt, unless it has ended already.
    fn end(&self, fate: Fate) {
        let running = Fate::Running as u8;
        let ended = self
            .fate
            .compare_exchange(running, fate as u8, Ordering::AcqRel, Ordering::Acquire);
        if ended.is_ok() {
            // An error means that the connection is closed already.
            let _ = self.handle.shutdown(Shutdown::Both);
        }
    }

    /// Returns the time at which the next limit passes.
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

    /// Returns when to check this attempt again. The first byte, the head of an error and a disconnect of the client each begin a
    /// new limit. So the check is due at the present deadline, or earlier if a limit that begins now could pass earlier.
    fn next_check(&self, now: Instant) -> Instant {
        let finish = self
            .presence
            .as_ref()
            .map_or(Duration::MAX, |presence| presence.time_limit());
        let shortest = self.limits.idle.min(self.limits.error_body).min(finish);
        self.due().min(now + shortest)
    }
}

#[cfg(test)]
mod tests;
