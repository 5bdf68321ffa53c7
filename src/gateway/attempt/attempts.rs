//! Chooses where each attempt of a request goes, and whether another attempt follows a failure. The candidates are
//! fixed at admission; the pools (circuit breakers, credentials, places, retry budgets) decide among them.

mod visit;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use self::visit::{Access, Asking, Visit, Wish};
use crate::{
    domain::{
        catalogue::route::Leg,
        faults::retry::{REST_AFTER_LIMIT, REST_AFTER_REFUSAL, RETRY_AFTER_OBEYED_MAX, RetryPolicy},
        wire::{operation::Operation, provider_state::StateKey, session_hint::SessionHint},
    },
    providers::pools::{CredentialState, Place, Places, Pools, Probing},
};

/// The most attempts of one request, over all providers.
pub(crate) const ATTEMPTS_MAX: usize = 12;

/// The pause before a connect to the same address is tried again: long enough for a provider's front to come back, too short
/// to be noticed.
const CONNECT_RETRY_PAUSE: Duration = Duration::from_millis(100);

/// The attempts of one request: the current provider, the ones still to try, and the reason and pause for the next
/// attempt.
#[derive(Debug)]
pub(crate) struct Attempts {
    wish: Wish,
    /// The current provider.
    visit: Visit,
    /// Providers not asked yet, in order of preference.
    others: Vec<Leg>,
    pools: Arc<Pools>,
    /// Attempts begun so far.
    made: usize,
    pause: Duration,
    reason: Option<&'static str>,
    /// What the next attempt may use.
    connection: Connection,
}

/// A connection that an attempt may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Connection {
    /// One of the pool, or a new one.
    #[default]
    Any,
    /// A new one.
    New,
    /// A new one, over HTTP/1.1.
    NewOverHttp1,
}

/// What decides about a further attempt after a provider has answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answered {
    /// The provider's HTTP status.
    pub status: u16,
    /// The answer refuses weir's credential.
    pub refused: bool,
    /// The pause that the provider asks for (`Retry-After` or its protocol's own field).
    pub asked_pause: Option<Duration>,
    /// The body can be sent again.
    pub can_resend: bool,
    /// The provider has answered with a success that never began: it has failed, whatever its file says of this status.
    pub never_began: bool,
}

impl Answered {
    /// Whether the request may be repeated at a provider with these rules.
    fn is_retried(&self, policy: &RetryPolicy) -> bool {
        self.never_began || policy.is_retried(self.status)
    }
}

impl Attempts {
    /// Starts with the first leg whose circuit breaker admits the request and which has a usable credential. If there
    /// is none, it starts with the leg that opens soonest. A request bound to state at a provider starts with the
    /// provider that has it. `probing` says whether the request may serve as a probe. Returns `None` if a leg has no
    /// pool, which can only happen if catalogue and pools are of different versions.
    pub(crate) fn begin(
        operation: Operation,
        mut legs: Vec<Leg>,
        pools: Arc<Pools>,
        session: Option<SessionHint>,
        probing: Probing,
        dice: f64,
        now: Instant,
    ) -> Option<Self> {
        let wish = Wish {
            operation,
            session,
            probing,
        };
        let (first, access) = first_access(&pools, &legs, wish.at(dice, now))?;
        let leg = legs.remove(first);
        let visit = Visit::begin(leg, access);
        visit.pool.earn();
        Some(Self {
            wish,
            visit,
            others: legs,
            pools,
            made: 0,
            pause: Duration::ZERO,
            reason: None,
            connection: Connection::Any,
        })
    }

    /// The current provider, with its model name, target and price.
    pub(crate) fn leg(&self) -> &Leg {
        &self.visit.leg
    }

    /// Whether the file of a provider that may be asked has edits of bodies.
    pub(crate) fn has_edits(&self) -> bool {
        let has_some = |leg: &Leg| !leg.provider.body.is_empty();
        has_some(self.leg()) || self.others.iter().any(has_some)
    }

    /// The current provider's places.
    pub(crate) fn places(&self) -> &Arc<Places> {
        self.visit.places()
    }

    /// The current credential.
    pub(crate) fn credential(&self) -> &CredentialState {
        self.visit.credential()
    }

    /// The current credential's secret.
    pub(crate) fn secret(&self) -> &str {
        self.credential().credential.secret.expose()
    }

    /// The state at a provider that the request continues.
    pub(crate) fn state(&self) -> Option<StateKey> {
        self.wish.session.as_ref().and_then(SessionHint::state)
    }

    /// The place of the running attempt, once it has been chosen.
    pub(crate) fn place(&self) -> Option<&Place> {
        self.visit.place()
    }

    /// The pause before the next attempt; zero if there is none. Resets it.
    pub(crate) fn take_pause(&mut self) -> Duration {
        std::mem::take(&mut self.pause)
    }

    /// The metric label that says why the next attempt is a retry; `None` for the first. Resets it.
    pub(crate) fn take_reason(&mut self) -> Option<&'static str> {
        self.reason.take()
    }

    /// Begins the next attempt and chooses its place. Goes on to the next provider if no name of the current one's
    /// places is resolved. Returns `None` if no provider is left.
    pub(crate) fn next_place(&mut self, dice: f64, now: Instant) -> Option<&Place> {
        self.made += 1;
        while !self.visit.next_place(self.wish.probing, now) {
            if self.is_bound() || !self.next_leg("unresolved", dice, now) {
                break;
            }
        }
        self.visit.place()
    }

    /// The attempt's connection is established and the request is about to be sent.
    pub(crate) fn connected(&mut self) {
        self.visit.connects = 0;
        self.visit.sent = self.visit.sent.saturating_add(1);
    }

    /// The connection failed. Returns whether to try again: another address of the provider, or, after `retries_max`
    /// retries, another provider.
    pub(crate) fn connect_failed(&mut self, retries_max: usize, dice: f64, now: Instant) -> bool {
        self.visit.place_failed(now);
        self.visit.connects += 1;
        let may = self.made < ATTEMPTS_MAX;
        if may && self.visit.connects <= retries_max && !self.is_better_elsewhere(dice, now) {
            if !self.visit.has_other_place() {
                self.pause = CONNECT_RETRY_PAUSE;
            }
            self.reason = Some("connect");
            return true;
        }
        self.visit.gave_up(now);
        may && !self.is_bound() && self.next_leg("connect", dice, now)
    }

    /// The provider closed a pooled connection before it answered. Returns whether to send again; the next attempt then
    /// uses a new connection, because the other pooled ones are likely closed, too. The failed attempt does not count
    /// against the provider's retries, since the provider has not seen the request.
    pub(crate) fn connection_was_stale(&mut self) -> bool {
        let again = self.made < ATTEMPTS_MAX;
        if again {
            self.visit.sent = self.visit.sent.saturating_sub(1);
            self.connection = Connection::New;
            self.reason = Some("stale_connection");
        }
        again
    }

    /// The provider wants the request over HTTP/1.1. Returns whether to send it so; as with a stale connection, the provider has
    /// not begun to work on it.
    pub(crate) fn wants_http1(&mut self) -> bool {
        let again = self.connection_was_stale();
        if again {
            self.connection = Connection::NewOverHttp1;
            self.reason = Some("http1_required");
        }
        again
    }

    /// What the next attempt may use. Resets it.
    pub(crate) fn take_connection(&mut self) -> Connection {
        std::mem::take(&mut self.connection)
    }

    /// The provider timed out, or closed the connection before an answer's head. Returns whether to go on to another
    /// provider. `may` allows that; it is the operator's decision, because the silent provider may have served the
    /// request.
    pub(crate) fn unanswered(&mut self, may: bool, dice: f64, now: Instant) -> bool {
        self.visit.place_failed(now);
        self.visit.gave_up(now);
        may && self.made < ATTEMPTS_MAX && !self.is_bound() && self.next_leg("unanswered", dice, now)
    }

    /// The provider has answered. Updates the circuit breakers and the credential's rest, and returns whether to try
    /// again.
    pub(crate) fn answered(&mut self, answer: &Answered, dice: f64, now: Instant) -> bool {
        let limited = answer.status == 429;
        let failed = self.is_failure(answer);
        self.visit.place_answered(answer.status, now);
        if answer.refused || limited {
            let usual = if answer.refused {
                REST_AFTER_REFUSAL
            } else {
                REST_AFTER_LIMIT
            };
            self.credential().rest(answer.asked_pause.unwrap_or(usual), now);
        } else if !failed {
            self.visit.credential_worked(now);
            self.visit.worked(now);
        }
        let may = answer.can_resend && self.made < ATTEMPTS_MAX;
        // A rate limit concerns the credential, so another credential goes first. Any other error may be transient.
        let here = may
            && (limited && self.other_credential(answer, dice, now)
                || self.same_again(answer, dice, now)
                || !limited && self.other_credential(answer, dice, now));
        if here {
            return true;
        }
        if failed {
            self.visit.gave_up(now);
        }
        may && self.other_provider(answer, dice, now)
    }

    /// Whether the answer is a failure of the provider, rather than of the credential or the request.
    fn is_failure(&self, answer: &Answered) -> bool {
        let is_named = answer.is_retried(&self.leg().provider.retry);
        !answer.refused && answer.status != 429 && (is_named || answer.status >= 500)
    }

    fn same_again(&mut self, answer: &Answered, dice: f64, now: Instant) -> bool {
        let policy = &self.leg().provider.retry;
        let asked = answer.asked_pause.unwrap_or_default();
        let sent = self.visit.sent;
        if !answer.is_retried(policy) || sent >= policy.attempts || asked > RETRY_AFTER_OBEYED_MAX {
            return false;
        }
        let pause = policy.pause(u32::from(sent), dice).max(asked);
        if self.is_better_elsewhere(dice, now) || !self.visit.pool.spend() {
            return false;
        }
        self.pause = pause;
        self.reason = Some("status");
        true
    }

    fn other_credential(&mut self, answer: &Answered, dice: f64, now: Instant) -> bool {
        if !answer.refused && (answer.status != 429 || self.is_bound()) {
            return false;
        }
        let asking = self.wish.at(dice, now);
        let Some(next) = self.visit.next_credential(asking) else {
            return false;
        };
        if !self.visit.pool.spend() {
            return false;
        }
        self.visit.take_credential(next);
        self.reason = Some("credential");
        true
    }

    fn other_provider(&mut self, answer: &Answered, dice: f64, now: Instant) -> bool {
        let failed = answer.status == 429 || answer.refused || answer.is_retried(&self.leg().provider.retry);
        failed && (answer.refused || !self.is_bound()) && self.next_leg("provider", dice, now)
    }

    /// State at the provider binds the request to the credential that has it, as long as that credential is configured.
    fn is_bound(&self) -> bool {
        self.wish.is_bound()
    }

    /// Whether the current provider has failed other requests, too, while another one works. Then it is not retried.
    fn is_better_elsewhere(&self, dice: f64, now: Instant) -> bool {
        let asking = self.wish.at(dice, now);
        let works = |leg: &Leg| Access::is_open(&self.pools, leg, asking);
        !self.is_bound() && self.visit.is_doubtful(now) && self.others.iter().any(works)
    }

    /// Goes on to another provider. A working provider is asked without cost; one that fails is asked only within its
    /// retry budget, so that many failing requests do not overload it.
    fn next_leg(&mut self, reason: &'static str, dice: f64, now: Instant) -> bool {
        let asking = self.wish.at(dice, now);
        let works = |leg: &Leg| Access::to(&self.pools, leg, asking);
        let found = self
            .others
            .iter()
            .enumerate()
            .find_map(|(at, leg)| Some((at, works(leg)?)));
        let is_well = found.is_some();
        let spent = |leg: &Leg| {
            let pool = self.pools.of(&leg.provider.name)?;
            pool.spend().then(|| Access::anyway(&self.pools, leg, asking))?
        };
        let found = found.or_else(|| {
            self.others
                .iter()
                .enumerate()
                .find_map(|(at, leg)| Some((at, spent(leg)?)))
        });
        let Some((at, access)) = found else {
            return false;
        };
        self.visit = Visit::begin(self.others.remove(at), access);
        if is_well {
            self.visit.pool.earn();
        }
        self.reason = Some(reason);
        true
    }
}

/// The leg to begin with, by its index in `legs`, and the access to it.
fn first_access(pools: &Pools, legs: &[Leg], asking: Asking<'_>) -> Option<(usize, Access)> {
    if asking.wish.is_bound() {
        let has_awake = |leg: &Leg| {
            let pool = pools.of(&leg.provider.name);
            pool.is_some_and(|pool| pool.credentials.has_awake(Probing::Allowed, asking.now))
        };
        let remembered = legs.iter().position(|leg| asking.wish.was_served_by(leg));
        let first = remembered.or_else(|| legs.iter().position(has_awake)).unwrap_or(0);
        return Some((first, Access::anyway(pools, legs.get(first)?, asking)?));
    }
    for (at, leg) in legs.iter().enumerate() {
        if let Some(access) = Access::to(pools, leg, asking) {
            let passed_over = legs.iter().take(at).filter_map(|leg| pools.of(&leg.provider.name));
            passed_over.for_each(|pool| pool.pass_over());
            return Some((at, access));
        }
    }
    let (at, leg) = legs
        .iter()
        .enumerate()
        .min_by_key(|(_, leg)| Access::opens(pools, leg, asking))?;
    Some((at, Access::anyway(pools, leg, asking)?))
}

#[cfg(test)]
mod tests;
