//! Keeps one lane up: connects, inspects the server, pings it each second, and reconnects.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ::redis::aio::MultiplexedConnection;
use ::redis::{AsyncConnectionConfig, ErrorKind, PushInfo, PushKind, RedisError, RedisResult, ServerErrorKind};
use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};

use super::finder::{Finder, MasterChanges};
use super::lane::{CALLS_MAX, Lane, LaneState, LiveConnection, Origin, leave};
use super::last_answer::LastAnswer;
use super::report::Report;
use super::{CONNECT_WAIT_MAX, PAUSE_MAX, PAUSE_MIN};
use crate::edges::clock;
use crate::store::StoreWarning;
use crate::store::redis::address::Address;
use crate::store::redis::rights::Missing;
use crate::store::redis::scripts::Scripts;

/// How often the server in use is looked at: its role, its history, its settings.
const PROBE_EVERY: Duration = Duration::from_secs(1);
/// How often its user's rights are asked about, besides at once when one was missed.
const RIGHTS_EVERY: Duration = Duration::from_secs(30);
/// How long it may take to answer that.
const PROBE_WAIT_MAX: Duration = Duration::from_secs(1);

/// A connection, what its server says of itself (nothing where the user may not ask), and whether it has been closed since.
pub(super) struct DialedConnection {
    live: LiveConnection,
    pub(super) report: Option<Report>,
    closed: Arc<AtomicBool>,
}

impl Lane {
    /// Keeps a connection up. Cancel it to stop; what is connected then stays usable.
    pub(super) async fn keep_up(&self, finder: &Finder, scripts: &Scripts) {
        let mut pause = PAUSE_MIN;
        let mut is_away = false;
        let mut logged = String::new();
        loop {
            let began = clock::instant();
            let mut changes = finder.master_changes();
            match self.connect(finder, scripts).await {
                Ok(opened) => {
                    let (server, number) = (opened.live.address.clone(), opened.live.number);
                    tracing::info!(%server, again = is_away, "redis connected");
                    is_away = false;
                    self.enter(opened);
                    self.stay(number, &server, finder, &mut changes).await;
                    tracing::warn!(%server, "redis connection given up");
                    if since(began) >= PAUSE_MAX {
                        pause = PAUSE_MIN;
                        continue;
                    }
                }
                Err(reason) => {
                    let refused = self.still_refused(&reason);
                    // What an operator has to mend is logged again when it is something else.
                    if !is_away || (refused && logged != reason) {
                        tracing::error!(reason, "redis cannot be used, trying on");
                        logged.clone_from(&reason);
                    }
                    is_away = true;
                    self.state.send_replace(LaneState::Down { reason });
                }
            }
            // From start to start, so that a server that hangs for the whole attempt is asked again at once.
            let wait = pause.saturating_sub(since(began));
            self.close_for(wait);
            tokio::select! {
                () = sleep(wait) => {}
                () = changes.changed() => {}
            }
            pause = PAUSE_MAX.min(pause * 2);
        }
    }

    /// Has calls fail at once when the next attempt is further away than they would wait.
    fn close_for(&self, wait: Duration) {
        self.state.send_if_modified(|state| {
            let waiting = matches!(state, LaneState::Connecting) && wait > self.call_budget;
            if waiting {
                *state = LaneState::Down {
                    reason: "redis closes connections as soon as they are made".to_owned(),
                };
            }
            waiting
        });
    }

    /// One attempt. When it outlasts the callers' budget they are told so, and it goes on without them.
    async fn connect(&self, finder: &Finder, scripts: &Scripts) -> Result<DialedConnection, String> {
        let attempt = timeout(CONNECT_WAIT_MAX, finder.open(self, scripts));
        tokio::pin!(attempt);
        let outcome = match timeout(self.call_budget, &mut attempt).await {
            Ok(outcome) => outcome,
            Err(_) => {
                self.state.send_if_modified(|state| {
                    let waiting = matches!(state, LaneState::Connecting);
                    if waiting {
                        *state = LaneState::Down {
                            reason: "redis does not answer".to_owned(),
                        };
                    }
                    waiting
                });
                attempt.await
            }
        };
        outcome.unwrap_or_else(|_| {
            let most = CONNECT_WAIT_MAX.as_millis();
            Err(format!("redis did not answer within {most} ms"))
        })
    }

    /// Connects to a server and looks at it. A master, or any server that may be a replica, is given the scripts: with them
    /// in place a call is one round trip, also the first one.
    pub(super) async fn dial(&self, address: &Address, scripts: &Scripts) -> Result<DialedConnection, String> {
        let fault = |error: RedisError| format!("redis at {address} cannot be used: {error}");
        let number = self.dialed.fetch_add(1, Ordering::Relaxed);
        let closed = Arc::new(AtomicBool::new(false));
        let (state, flag) = (Arc::downgrade(&self.state), Arc::clone(&closed));
        let on_push = move |push: PushInfo| {
            if push.kind == PushKind::Disconnection {
                flag.store(true, Ordering::Release);
                if let Some(state) = state.upgrade() {
                    leave(&state, number, LaneState::Connecting);
                }
            }
            Ok::<(), RedisError>(())
        };
        let config = connection_config().set_push_sender(on_push);
        let client = self.dialer.data(address).map_err(fault)?;
        let (missing, connected) = tokio::join!(
            self.dialer.missing_rights(address),
            client.get_multiplexed_async_connection_with_config(&config)
        );
        if let Some(refusal) = missing.and_then(|missing| self.note_rights(missing)) {
            return Err(refusal);
        }
        let mut connection = connected.map_err(fault)?;
        let report = look(&mut connection).await.map_err(fault)?;
        if let Some(reason) = report.as_ref().and_then(Report::refusal) {
            self.note_report(report.as_ref());
            return Err(self.refuse(format!("redis at {address} {reason}")));
        }
        scripts.load(&mut connection).await.map_err(fault)?;
        Ok(DialedConnection {
            live: LiveConnection {
                connection,
                last_answer: LastAnswer::new(clock::instant()),
                number,
                address: address.clone(),
                origin: Arc::new(Origin {
                    client,
                    runtime: Handle::current().id(),
                }),
            },
            report,
            closed,
        })
    }

    /// Takes a connection into use.
    fn enter(&self, opened: DialedConnection) {
        let DialedConnection { live, report, closed } = opened;
        self.note_report(report.as_ref());
        let again = {
            let mut status = self.status.lock();
            status.identity = report.map(|report| report.identity);
            status.refusal = None;
            std::mem::replace(&mut status.connected, true)
        };
        self.last_answer.note(clock::instant());
        let number = live.number;
        self.state.send_replace(LaneState::Up(live));
        if closed.load(Ordering::Acquire) {
            self.leave(number, LaneState::Connecting);
        }
        if again {
            self.epochs.move_on();
        }
    }

    /// Returns when the connection is given up: by a call, by its end, by another master that is announced, or by what the server says.
    async fn stay(&self, number: u64, server: &Address, finder: &Finder, changes: &mut MasterChanges) {
        let mut states = self.state.subscribe();
        let gone = states.wait_for(|state| !matches!(state, LaneState::Up(live) if live.number == number));
        let looks = async {
            loop {
                sleep(PROBE_EVERY).await;
                if let Some(next) = self.inspect(finder).await {
                    self.leave(number, next);
                }
            }
        };
        let rights = async {
            loop {
                tokio::select! {
                    () = sleep(RIGHTS_EVERY) => {}
                    () = self.denied.notified() => {}
                }
                let missing = timeout(PROBE_WAIT_MAX, self.dialer.missing_rights(server)).await;
                if let Some(reason) = missing.ok().flatten().and_then(|missing| self.note_rights(missing)) {
                    tracing::error!(reason, "redis cannot be used");
                    self.leave(number, LaneState::Down { reason });
                }
            }
        };
        let elsewhere = async {
            loop {
                changes.changed().await;
                let here = self.live_now().map(|live| live.address);
                if changes.master().is_some_and(|master| Some(master) != here) {
                    self.leave(number, LaneState::Connecting);
                }
            }
        };
        tokio::select! {
            _ = gone => {}
            () = looks => {}
            () = rights => {}
            () = elsewhere => {}
        }
    }

    /// Looks at the server in use. What the lane's state has to become, if it cannot stay in use.
    async fn inspect(&self, finder: &Finder) -> Option<LaneState> {
        let mut live = self.live_now()?;
        let server = &live.address;
        let silent = || LaneState::Down {
            reason: format!("redis at {server} gives no sign of life"),
        };
        let began = clock::instant();
        let report = match timeout(PROBE_WAIT_MAX, look(&mut live.connection)).await {
            // It stands behind calls, and those are answered.
            Err(_) if live.last_answer.at() > began => return None,
            Err(_) => return Some(silent()),
            Ok(Err(error)) if error.is_unrecoverable_error() => return Some(LaneState::Connecting),
            Ok(Err(_)) => return None,
            Ok(Ok(report)) => report,
        };
        let now = clock::instant();
        live.last_answer.note(now);
        self.last_answer.note(now);
        self.note_report(report.as_ref());
        if report.is_none() && self.status.lock().complaint.is_none() {
            self.denied.notify_one();
        }
        let report = report?;
        if let Some(reason) = report.refusal() {
            let reason = self.refuse(format!("redis at {server} {reason}"));
            tracing::error!(reason, "redis cannot be used");
            return Some(LaneState::Down { reason });
        }
        if report.is_replica() && !finder.takes_replicas() {
            tracing::warn!(%server, "redis has become a replica, looking for the master");
            return Some(LaneState::Connecting);
        }
        let before = self.status.lock().identity.replace(report.identity.clone());
        if before.is_some_and(|before| before != report.identity) {
            tracing::warn!(%server, "redis has another history now, what it has acknowledged is checked");
            self.epochs.move_on();
        }
        None
    }

    /// Whether this reason of a failed attempt is that of a refusal, which is forgotten otherwise.
    fn still_refused(&self, reason: &str) -> bool {
        let mut status = self.status.lock();
        let refusal = status.refusal.take();
        status.refusal = refusal.filter(|refusal| reason.contains(refusal.as_str()));
        status.refusal.is_some()
    }

    /// A server that answers is not used for this reason.
    pub(super) fn refuse(&self, reason: String) -> String {
        self.status.lock().refusal = Some(reason.clone());
        reason
    }

    /// Takes down what the user may not do. Why the server is not used, if it is not.
    fn note_rights(&self, missing: Missing) -> Option<String> {
        let Missing { refusal, complaint } = missing;
        {
            let mut status = self.status.lock();
            if let Some(complaint) = complaint.as_ref().filter(|_| status.complaint != complaint) {
                tracing::warn!(kind = StoreWarning::MissingRights.kind(), "{complaint}");
            }
            if status.complaint.is_some() && complaint.is_none() {
                tracing::info!("the redis user has the rights that it lacked");
            }
            status.complaint = complaint;
            status.denied = refusal.is_some();
        }
        refusal.map(|refusal| self.refuse(refusal))
    }

    fn note_report(&self, report: Option<&Report>) {
        let Some(report) = report else { return };
        let before = {
            let mut status = self.status.lock();
            status.memory = report.memory;
            std::mem::replace(&mut status.warnings, report.warnings.clone())
        };
        for warning in report.warnings.difference(&before) {
            tracing::warn!(kind = warning.kind(), "{}", warning.advice());
        }
        for warning in before.difference(&report.warnings) {
            tracing::info!(kind = warning.kind(), "a warning about the store's settings has ended");
        }
    }
}

/// What all connections for calls have in common: those who call limit the time.
pub(super) fn connection_config() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None)
        .set_pipeline_buffer_size(CALLS_MAX)
}

/// Asks a server about itself. Not being allowed to ask is no fault.
async fn look(connection: &mut MultiplexedConnection) -> RedisResult<Option<Report>> {
    let info: RedisResult<String> = ::redis::cmd("INFO").query_async(connection).await;
    match info {
        Ok(info) => Ok(Some(Report::read(&info))),
        Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoPerm) => {
            ::redis::cmd("PING").exec_async(connection).await.map(|()| None)
        }
        Err(error) => Err(error),
    }
}

fn since(began: Instant) -> Duration {
    clock::instant().saturating_duration_since(began)
}
