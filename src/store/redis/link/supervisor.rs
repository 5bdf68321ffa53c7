//! Maintains one master lane: connects, inspects the server each second, and reconnects.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::dial::{DialedConnection, fetch_report};
use crate::edges::clock;
use crate::store::redis::link::connection::{CONNECT_WAIT_MAX, PAUSE_MIN, RetryPauses};
use crate::store::redis::link::master::{LaneState, MasterLane};
use crate::store::redis::link::sentinel::MasterFinder;
use crate::store::redis::settings::RedisAddress;

/// How often the server in use is inspected: its role, its history and its settings.
const PROBE_EVERY: Duration = Duration::from_secs(1);
/// How often the user's rights are checked. They are also checked at once when a call was refused.
const RIGHTS_EVERY: Duration = Duration::from_secs(30);
/// The timeout of an inspection or a check of rights.
const PROBE_WAIT_MAX: Duration = Duration::from_secs(1);

impl MasterLane {
    /// Maintains a connection to the master. Cancel this to stop; an established connection can still be used after that.
    pub(super) async fn maintain(self: &Arc<Self>, finder: &MasterFinder) {
        let mut pauses = RetryPauses::new();
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
                    self.activate(opened);
                    let entered = clock::instant();
                    self.watch(number, &server, finder, &mut announced).await;
                    tracing::warn!(%server, "redis connection given up; connecting again");
                    // A server that has answered is tried again at once, however short the connection lasted.
                    if self.last_answer.time() > entered {
                        pauses.reset();
                        PAUSE_MIN
                    } else {
                        pauses.next_pause()
                    }
                }
                Err(reason) => {
                    let refused = self.is_still_refused(&reason);
                    // A refusal that an operator has to resolve is logged again when it changes.
                    if !is_away || (refused && logged != reason) {
                        tracing::error!(reason, "cannot use redis, still trying");
                        logged.clone_from(&reason);
                    }
                    is_away = true;
                    self.state.send_replace(LaneState::Down { reason });
                    pauses.next_pause()
                }
            };
            // Pauses are measured from start to start, so that a server that hangs during the whole attempt is tried again at
            // once.
            let wait = pause.saturating_sub(elapsed_since(began));
            if wait > self.call_budget {
                self.fail_waiting("redis closes connections as soon as they are opened");
            }
            tokio::select! {
                () = sleep(wait) => {}
                _ = announced.changed() => {}
            }
        }
    }

    /// Makes one attempt to connect. If it takes longer than the budget of waiting calls, they fail, and the attempt continues.
    async fn connect(self: &Arc<Self>, finder: &MasterFinder) -> Result<DialedConnection, String> {
        let attempt = timeout(CONNECT_WAIT_MAX, finder.open(self));
        tokio::pin!(attempt);
        let outcome = match timeout(self.call_budget, &mut attempt).await {
            Ok(outcome) => outcome,
            Err(_) => {
                self.fail_waiting("redis does not answer");
                attempt.await
            }
        };
        outcome.unwrap_or_else(|_| {
            let most = CONNECT_WAIT_MAX.as_millis();
            Err(format!("redis did not answer within {most} ms"))
        })
    }

    /// Starts to use a connection.
    fn activate(&self, opened: DialedConnection) {
        let DialedConnection { live, report } = opened;
        self.record_report(report.as_ref());
        let again = {
            let mut status = self.status.lock();
            status.identity = report.map(|report| report.identity);
            status.refusal = None;
            std::mem::replace(&mut status.connected, true)
        };
        self.last_answer.record(clock::instant());
        self.state.send_replace(LaneState::Up(Arc::clone(&live)));
        if live.wire.is_closed() {
            self.give_up(live.number, LaneState::Connecting);
        }
        if again {
            self.epochs.send_modify(|epoch| *epoch += 1);
        }
    }

    /// Returns when the connection is given up: by a call, because it was closed, because another master is announced, or because
    /// of the server's report.
    async fn watch(
        &self,
        number: u64,
        server: &RedisAddress,
        finder: &MasterFinder,
        announced: &mut watch::Receiver<Option<RedisAddress>>,
    ) {
        let mut states = self.state.subscribe();
        let gone = states.wait_for(|state| !matches!(state, LaneState::Up(live) if live.number == number));
        let looks = async {
            loop {
                sleep(PROBE_EVERY).await;
                if let Some(next) = self.inspect(finder).await {
                    self.give_up(number, next);
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
                if let Some(reason) = missing.ok().flatten().and_then(|missing| self.record_rights(missing)) {
                    tracing::error!(reason, "cannot use redis; trying again");
                    self.give_up(number, LaneState::Down { reason });
                }
            }
        };
        let elsewhere = async {
            while announced.changed().await.is_ok() {
                let master = announced.borrow().clone();
                if master.is_some_and(|master| master != *server) {
                    self.give_up(number, LaneState::Connecting);
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

    /// Inspects the server in use. Returns the lane's next state if the server cannot stay in use, otherwise `None`.
    async fn inspect(&self, finder: &MasterFinder) -> Option<LaneState> {
        let live = self.live_now()?;
        let (server, wire) = (&live.address, &live.wire);
        let silent = || LaneState::Down {
            reason: format!("redis at {server} does not answer"),
        };
        let began = clock::instant();
        let report = match timeout(PROBE_WAIT_MAX, fetch_report(&mut wire.connection.clone())).await {
            // The inspection waits behind calls, and those are answered.
            Err(_) if wire.last_answer.time() > began => return None,
            Err(_) => return Some(silent()),
            Ok(Err(error)) if error.is_unrecoverable_error() => return Some(LaneState::Connecting),
            Ok(Err(_)) => return None,
            Ok(Ok(report)) => report,
        };
        self.record_answer(wire);
        self.record_report(report.as_ref());
        if report.is_none() && self.status.lock().complaint.is_none() {
            self.denied.notify_one();
        }
        let report = report?;
        if let Some(reason) = report.refusal() {
            let reason = self.refuse(format!("redis at {server} {reason}"));
            tracing::error!(reason, "cannot use redis; trying again");
            return Some(LaneState::Down { reason });
        }
        if report.is_replica() && !finder.accepts_replicas() {
            tracing::warn!(%server, "redis has become a replica, looking for the master");
            return Some(LaneState::Connecting);
        }
        let before = self.status.lock().identity.replace(report.identity.clone());
        if before.is_some_and(|before| before != report.identity) {
            tracing::warn!(%server, "redis now has another data history; checking that no acknowledged change is lost");
            self.epochs.send_modify(|epoch| *epoch += 1);
        }
        None
    }

    /// Whether the reason of a failed attempt contains the recorded refusal. If not, the refusal is dropped.
    fn is_still_refused(&self, reason: &str) -> bool {
        let mut status = self.status.lock();
        let refusal = status.refusal.take();
        status.refusal = refusal.filter(|refusal| reason.contains(refusal.as_str()));
        status.refusal.is_some()
    }
}

fn elapsed_since(began: Instant) -> Duration {
    clock::instant().saturating_duration_since(began)
}
