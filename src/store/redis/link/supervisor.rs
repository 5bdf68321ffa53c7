//! Keeps one lane up: connects, inspects the server, pings it each second, and reconnects.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::connecting::{CONNECT_WAIT_MAX, PAUSE_MIN, Pauses};
use super::dial::{DialedConnection, look};
use super::finder::Finder;
use super::lane::{Lane, LaneState};
use crate::edges::clock;
use crate::store::redis::address::Address;

/// How often the server in use is looked at: its role, its history, its settings.
const PROBE_EVERY: Duration = Duration::from_secs(1);
/// How often its user's rights are asked about, besides at once when one was missed.
const RIGHTS_EVERY: Duration = Duration::from_secs(30);
/// How long it may take to answer that.
const PROBE_WAIT_MAX: Duration = Duration::from_secs(1);

impl Lane {
    /// Keeps a connection up. Cancel it to stop; what is connected then stays usable.
    pub(super) async fn keep_up(self: &Arc<Self>, finder: &Finder) {
        let mut pauses = Pauses::new();
        let mut is_away = false;
        let mut logged = String::new();
        loop {
            let began = clock::instant();
            let mut announced = self.announced.subscribe();
            let pause = match self.connect(finder).await {
                Ok(opened) => {
                    let (server, number) = (opened.live.address.clone(), opened.live.number);
                    tracing::info!(%server, again = is_away, "redis connected");
                    is_away = false;
                    self.enter(opened);
                    let entered = clock::instant();
                    self.stay(number, &server, finder, &mut announced).await;
                    tracing::warn!(%server, "redis connection given up");
                    // Whoever has answered is asked again at once, however short the connection lived.
                    if self.last_answer.at() > entered {
                        pauses.reset();
                        PAUSE_MIN
                    } else {
                        pauses.take()
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
                    pauses.take()
                }
            };
            // From start to start, so that a server that hangs for the whole attempt is asked again at once.
            let wait = pause.saturating_sub(since(began));
            if wait > self.call_budget {
                self.end_waiting("redis closes connections as soon as they are made");
            }
            tokio::select! {
                () = sleep(wait) => {}
                _ = announced.changed() => {}
            }
        }
    }

    /// One attempt. When it outlasts the callers' budget they are told so, and it goes on without them.
    async fn connect(self: &Arc<Self>, finder: &Finder) -> Result<DialedConnection, String> {
        let attempt = timeout(CONNECT_WAIT_MAX, finder.open(self));
        tokio::pin!(attempt);
        let outcome = match timeout(self.call_budget, &mut attempt).await {
            Ok(outcome) => outcome,
            Err(_) => {
                self.end_waiting("redis does not answer");
                attempt.await
            }
        };
        outcome.unwrap_or_else(|_| {
            let most = CONNECT_WAIT_MAX.as_millis();
            Err(format!("redis did not answer within {most} ms"))
        })
    }

    /// Takes a connection into use.
    fn enter(&self, opened: DialedConnection) {
        let DialedConnection { live, report } = opened;
        self.note_report(report.as_ref());
        let again = {
            let mut status = self.status.lock();
            status.identity = report.map(|report| report.identity);
            status.refusal = None;
            std::mem::replace(&mut status.connected, true)
        };
        self.last_answer.note(clock::instant());
        self.state.send_replace(LaneState::Up(Arc::clone(&live)));
        if live.wire.is_closed() {
            self.leave(live.number, LaneState::Connecting);
        }
        if again {
            self.epochs.send_modify(|epoch| *epoch += 1);
        }
    }

    /// Returns when the connection is given up: by a call, by its end, by another master that is announced, or by what the server says.
    async fn stay(
        &self,
        number: u64,
        server: &Address,
        finder: &Finder,
        announced: &mut watch::Receiver<Option<Address>>,
    ) {
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
            while announced.changed().await.is_ok() {
                let master = announced.borrow().clone();
                if master.is_some_and(|master| master != *server) {
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
        let live = self.live_now()?;
        let (server, wire) = (&live.address, &live.wire);
        let silent = || LaneState::Down {
            reason: format!("redis at {server} gives no sign of life"),
        };
        let began = clock::instant();
        let report = match timeout(PROBE_WAIT_MAX, look(&mut wire.connection.clone())).await {
            // It stands behind calls, and those are answered.
            Err(_) if wire.last_answer.at() > began => return None,
            Err(_) => return Some(silent()),
            Ok(Err(error)) if error.is_unrecoverable_error() => return Some(LaneState::Connecting),
            Ok(Err(_)) => return None,
            Ok(Ok(report)) => report,
        };
        self.note_answer(wire);
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
            self.epochs.send_modify(|epoch| *epoch += 1);
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
}

fn since(began: Instant) -> Duration {
    clock::instant().saturating_duration_since(began)
}
