//! Maintains one master link: connects, inspects the server each second, and reconnects.

use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use ::redis::aio::MultiplexedConnection;
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};

use crate::{
    edges::clock,
    store::{
        StoreError,
        redis::{
            link::{
                RedisErrorMeaning,
                connection::{CONNECT_WAIT_MAX, LastAnswer, PAUSE_MIN, RetryPauses},
                master::{MasterLink, MasterLinkState},
                sentinel::{DialedConnection, MasterFinder, fetch_report},
            },
            settings::RedisAddress,
        },
    },
};

/// The interval at which the server in use is inspected: its role, its history and its settings.
const PROBE_EVERY: Duration = Duration::from_secs(1);
/// The interval at which the user's rights are checked. They are also checked at once when a call was refused.
const RIGHTS_EVERY: Duration = Duration::from_secs(30);
/// The timeout of an inspection or a check of rights.
const PROBE_WAIT_MAX: Duration = Duration::from_secs(1);

impl MasterLink {
    /// Maintains a connection to the master until the future is dropped. An established connection can still be used after that.
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
                    tracing::info!(%server, again = is_away, "connected to redis");
                    is_away = false;
                    self.activate(opened);
                    let entered = clock::instant();
                    self.watch(number, &server, finder, &mut announced).await;
                    tracing::warn!(%server, "gave up the connection to redis; connecting again");
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
                        tracing::error!(reason, "cannot use redis; trying again");
                        logged.clone_from(&reason);
                    }
                    is_away = true;
                    self.state.send_replace(MasterLinkState::Down { reason });
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

    /// Makes one attempt to connect. If the attempt takes longer than the budget of a call, all waiting calls fail, and the
    /// attempt continues.
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
        self.state.send_replace(MasterLinkState::Up(Arc::clone(&live)));
        if live.wire.is_closed() {
            self.give_up(live.number, MasterLinkState::Connecting);
        }
        if again {
            self.epochs.send_modify(|epoch| *epoch += 1);
        }
    }

    /// Watches the connection, and returns when it is given up. It is given up if it was closed, a call got no answer, another
    /// master was announced, rights are missing, or the server's report shows that the server cannot be used.
    async fn watch(
        &self,
        number: u64,
        server: &RedisAddress,
        finder: &MasterFinder,
        announced: &mut watch::Receiver<Option<RedisAddress>>,
    ) {
        let mut states = self.state.subscribe();
        let gone = states.wait_for(|state| !matches!(state, MasterLinkState::Up(live) if live.number == number));
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
                    self.give_up(number, MasterLinkState::Down { reason });
                }
            }
        };
        let elsewhere = async {
            while announced.changed().await.is_ok() {
                let master = announced.borrow().clone();
                if master.is_some_and(|master| master != *server) {
                    self.give_up(number, MasterLinkState::Connecting);
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

    /// Inspects the server in use. Returns the link's next state if the server cannot stay in use, otherwise `None`.
    async fn inspect(&self, finder: &MasterFinder) -> Option<MasterLinkState> {
        let live = self.live_now()?;
        let (server, wire) = (&live.address, &live.wire);
        let silent = || MasterLinkState::Down {
            reason: format!("redis at {server} does not answer"),
        };
        let began = clock::instant();
        let report = match timeout(PROBE_WAIT_MAX, fetch_report(&mut wire.connection.clone())).await {
            // The inspection waits for the answers to earlier calls, and the server is sending those.
            Err(_) if wire.last_answer.time() > began => return None,
            Err(_) => return Some(silent()),
            Ok(Err(error)) if error.is_unrecoverable_error() => return Some(MasterLinkState::Connecting),
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
            return Some(MasterLinkState::Down { reason });
        }
        if report.is_replica() && !finder.accepts_replicas() {
            tracing::warn!(%server, "redis has become a replica; looking for the master");
            return Some(MasterLinkState::Connecting);
        }
        let before = self.status.lock().identity.replace(report.identity.clone());
        if before.is_some_and(|before| before != report.identity) {
            tracing::warn!(%server, "redis was restarted or its replication history has changed; checking that no acknowledged change is lost");
            self.epochs.send_modify(|epoch| *epoch += 1);
        }
        None
    }

    /// Whether the reason why an attempt to connect failed contains the recorded refusal. If it does not, drops the refusal.
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

/// The maximum time for which a server may leave all calls unanswered.
const SILENCE_MAX: Duration = Duration::from_millis(200);
/// The minimum time to wait for the answer to a PING that checks a suspected server, even if the server has already been silent
/// for [`SILENCE_MAX`].
const SIGN_WAIT_MIN: Duration = Duration::from_millis(20);

/// Marks a link as suspected until this is dropped.
struct SuspicionGuard(Arc<MasterLink>);

impl Drop for SuspicionGuard {
    fn drop(&mut self) {
        self.0.is_suspected.store(false, Ordering::Release);
    }
}

impl MasterLink {
    /// Checks a server that may be dead, because a call has got no answer since the moment `since`. Sends a PING on the link's
    /// connection `number`, after all commands that were already sent on this connection. If no answer arrives on any connection
    /// for [`SILENCE_MAX`], gives up the link's connection.
    pub(super) fn suspect(self: &Arc<Self>, number: u64, since: Instant) {
        self.runtime_connections.drop_own();
        let live = self.live_now().filter(|live| live.number == number);
        let Some(live) = live.filter(|_| !self.is_suspected.swap(true, Ordering::AcqRel)) else {
            return;
        };
        let suspicion = SuspicionGuard(Arc::clone(self));
        tokio::spawn(async move {
            let link = &suspicion.0;
            let silent = clock::instant().saturating_duration_since(since);
            let wait = SILENCE_MAX.saturating_sub(silent).max(SIGN_WAIT_MIN);
            match timeout(wait, sign_of_life(live.wire.connection.clone())).await {
                Ok(true) => link.last_answer.record(clock::instant()),
                // Other tasks notice that the connection was closed.
                Ok(false) => {}
                Err(_) if link.last_answer.time() > since => {}
                Err(_) => {
                    let reason = "redis does not answer calls".to_owned();
                    link.give_up(number, MasterLinkState::Down { reason });
                }
            }
        });
    }
}

async fn sign_of_life(mut connection: MultiplexedConnection) -> bool {
    let answer = ::redis::cmd("PING").exec_async(&mut connection).await;
    answer.err().map(|error| RedisErrorMeaning::of(&error)) != Some(RedisErrorMeaning::Broken)
}

/// The maximum delay of a timer. If a timer fires later, this process was suspended or overloaded, and read no answers during the
/// delay.
const LATE_MAX: Duration = Duration::from_millis(10);

/// The timeout of a call that waits for its answer. Redis answers the calls of a connection in order, so a waiting call is
/// not stuck while earlier ones are answered. A wait ends when Redis is silent for too long, or at the total timeout.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallTimeout {
    began: Instant,
    /// The maximum time without any answer on the connection.
    silence: Duration,
    /// The timeout in total.
    total: Duration,
    /// The time of the next check.
    next_check: Instant,
    /// The extra time that the last check granted because this process was suspended or overloaded. Zero if it granted none.
    late: Duration,
}

/// The result of checking a timeout.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TimeoutCheck {
    /// Continue to wait for this duration.
    Wait(Duration),
    /// Give up: nothing was answered since this moment.
    Silent(Instant),
    /// Give up: other calls are answered, but this one has taken too long.
    TooLong,
}

impl CallTimeout {
    pub(super) fn new(silence: Duration, total: Duration, now: Instant) -> Self {
        Self {
            began: now,
            silence,
            total: total.max(silence),
            next_check: now + silence,
            late: Duration::ZERO,
        }
    }

    /// The time until the first check.
    pub(super) fn first(&self) -> Duration {
        self.silence
    }

    /// Checks the timeout. `last_answer` belongs to the connection on which the call expects its answer. It is `None` if there is
    /// no connection yet.
    pub(super) fn check(&mut self, last_answer: Option<&LastAnswer>, now: Instant) -> TimeoutCheck {
        let late = now.saturating_duration_since(self.next_check);
        // The extra time is granted once for each delay of this process: answers that arrived meanwhile are read within less
        // time than that.
        self.late = if late > LATE_MAX && self.late.is_zero() {
            late.min(self.silence)
        } else {
            Duration::ZERO
        };
        let since = last_answer.map_or(self.began, |last_answer| last_answer.time().max(self.began));
        let until = (since + self.silence).max(now + self.late);
        let end = self.began + self.total;
        if until <= now {
            return TimeoutCheck::Silent(since);
        }
        if end <= now {
            return TimeoutCheck::TooLong;
        }
        self.next_check = until.min(end);
        TimeoutCheck::Wait(self.next_check.saturating_duration_since(now))
    }

    /// Returns the error of a call that was given up.
    pub(super) fn error(&self, check: &TimeoutCheck) -> StoreError {
        StoreError::Unavailable(match check {
            TimeoutCheck::TooLong => format!(
                "redis is overloaded: a call has waited for {} ms for the answers to earlier calls",
                self.total.as_millis()
            ),
            TimeoutCheck::Silent(_) | TimeoutCheck::Wait(_) => {
                format!("redis gave no answer within {} ms", self.silence.as_millis())
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edges::clock;

    const MS: Duration = Duration::from_millis(1);

    fn begun() -> (CallTimeout, LastAnswer, Instant) {
        let now = clock::instant();
        (CallTimeout::new(100 * MS, 1_000 * MS, now), LastAnswer::new(now), now)
    }

    #[test]
    fn nobody_waits_longer_than_redis_is_silent() {
        let (mut call_timeout, last_answer, start) = begun();
        assert_eq!(call_timeout.first(), 100 * MS);
        assert_eq!(
            call_timeout.check(Some(&last_answer), start + 100 * MS),
            TimeoutCheck::Silent(start)
        );
        let (mut call_timeout, _, start) = begun();
        assert_eq!(call_timeout.check(None, start + 100 * MS), TimeoutCheck::Silent(start));
    }

    #[test]
    fn while_others_are_answered_the_turn_comes_until_it_has_taken_too_long() {
        let (mut call_timeout, last_answer, start) = begun();
        for round in 1..10 {
            let now = start + 100 * round * MS;
            last_answer.record(now - 10 * MS);
            assert_eq!(call_timeout.check(Some(&last_answer), now), TimeoutCheck::Wait(90 * MS));
        }
        let end = start + 1_000 * MS;
        last_answer.record(end - MS);
        assert_eq!(call_timeout.check(Some(&last_answer), end), TimeoutCheck::TooLong);
    }

    #[test]
    fn what_came_before_the_call_says_nothing_of_it() {
        let (mut call_timeout, _, start) = begun();
        let old = LastAnswer::new(start - 50 * MS);
        old.record(start - 20 * MS);
        assert_eq!(
            call_timeout.check(Some(&old), start + 100 * MS),
            TimeoutCheck::Silent(start)
        );
    }

    #[test]
    fn a_process_that_was_held_up_listens_again_before_it_gives_up() {
        let (mut call_timeout, last_answer, start) = begun();
        let late = start + 160 * MS;
        assert_eq!(
            call_timeout.check(Some(&last_answer), late),
            TimeoutCheck::Wait(60 * MS)
        );
        assert_eq!(
            call_timeout.check(Some(&last_answer), late + 60 * MS),
            TimeoutCheck::Silent(start)
        );
    }
}
