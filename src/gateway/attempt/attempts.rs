//! Chooses where each attempt of a request goes, and whether another attempt follows a failure. The candidates are
//! fixed at admission; the pools (circuit breakers, credentials, places, retry budgets) decide among them.

mod visit;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use smallvec::SmallVec;

use self::visit::{Access, Asking, Visit, Wish};
use crate::{
    domain::{
        faults::retry::{REST_AFTER_LIMIT, REST_AFTER_REFUSAL, RETRY_AFTER_OBEYED_MAX, RetryPolicy},
        wire::{provider_state::StateKey, session_hint::SessionHint},
    },
    providers::{
        endpoint::{Endpoint, Route},
        pools::{CredentialState, Place, Probing},
    },
};

/// The most attempts of one request, over all providers.
pub(crate) const ATTEMPTS_MAX: usize = 12;

/// The pause before a connect to the same address is tried again: long enough for a provider's front to come back, too short
/// to be noticed.
const CONNECT_RETRY_PAUSE: Duration = Duration::from_millis(100);

/// The attempts of one request: the current endpoint, the ones still to try, and the reason and pause for the next
/// attempt.
#[derive(Debug)]
pub(crate) struct Attempts {
    wish: Wish,
    route: Arc<Route>,
    /// The current endpoint.
    visit: Visit,
    /// The index of the current endpoint in the route.
    index: usize,
    /// The indexes of endpoints not asked yet, in order of preference.
    others: SmallVec<[usize; 4]>,
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
    /// Starts with the first endpoint whose circuit breaker admits the request and whose provider has a usable credential. If
    /// there is none, it starts with the endpoint that opens soonest. A request bound to state at a provider starts with the
    /// provider that has it. `probing` says whether the request may serve as a probe. Returns `None` for a provider without
    /// credentials, of which no route has an endpoint.
    pub(crate) fn begin(
        route: &Arc<Route>,
        session: Option<SessionHint>,
        probing: Probing,
        dice: f64,
        now: Instant,
    ) -> Option<Self> {
        let wish = Wish { session, probing };
        let endpoints = route.endpoints.as_slice();
        let (index, access) = first_access(endpoints, wish.at(dice, now))?;
        let visit = Visit::begin(Arc::clone(endpoints.get(index)?), access);
        visit.endpoint.pool.earn();
        Some(Self {
            wish,
            route: Arc::clone(route),
            visit,
            index,
            others: (0..endpoints.len()).filter(|other| *other != index).collect(),
            made: 0,
            pause: Duration::ZERO,
            reason: None,
            connection: Connection::Any,
        })
    }

    /// The current endpoint.
    pub(crate) fn endpoint(&self) -> &Endpoint {
        &self.visit.endpoint
    }

    /// The endpoint with this index in the route.
    pub(crate) fn endpoint_at(&self, index: usize) -> Option<&Arc<Endpoint>> {
        self.route.endpoints.get(index)
    }

    /// The index of the current endpoint in the route.
    pub(crate) fn index(&self) -> usize {
        self.index
    }

    /// Whether the file of a provider that may be asked has edits of bodies.
    pub(crate) fn has_edits(&self) -> bool {
        let has_some = |endpoint: &Endpoint| !endpoint.provider.body.is_empty();
        has_some(self.endpoint()) || self.others().any(|(_, other)| has_some(other))
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
            if self.is_bound() || !self.next_endpoint("unresolved", dice, now) {
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
        may && !self.is_bound() && self.next_endpoint("connect", dice, now)
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
        may && self.made < ATTEMPTS_MAX && !self.is_bound() && self.next_endpoint("unanswered", dice, now)
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
        let is_named = answer.is_retried(&self.endpoint().provider.retry);
        !answer.refused && answer.status != 429 && (is_named || answer.status >= 500)
    }

    fn same_again(&mut self, answer: &Answered, dice: f64, now: Instant) -> bool {
        let policy = &self.endpoint().provider.retry;
        let asked = answer.asked_pause.unwrap_or_default();
        let sent = self.visit.sent;
        if !answer.is_retried(policy) || sent >= policy.attempts || asked > RETRY_AFTER_OBEYED_MAX {
            return false;
        }
        let pause = policy.pause(u32::from(sent), dice).max(asked);
        if self.is_better_elsewhere(dice, now) || !self.visit.endpoint.pool.spend() {
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
        if !self.visit.endpoint.pool.spend() {
            return false;
        }
        self.visit.take_credential(next);
        self.reason = Some("credential");
        true
    }

    fn other_provider(&mut self, answer: &Answered, dice: f64, now: Instant) -> bool {
        let failed = answer.status == 429 || answer.refused || answer.is_retried(&self.endpoint().provider.retry);
        failed && (answer.refused || !self.is_bound()) && self.next_endpoint("provider", dice, now)
    }

    /// State at the provider binds the request to the credential that has it, as long as that credential is configured.
    fn is_bound(&self) -> bool {
        self.wish.is_bound()
    }

    /// Whether the current provider has failed other requests, too, while another one works. Then it is not retried.
    fn is_better_elsewhere(&self, dice: f64, now: Instant) -> bool {
        let asking = self.wish.at(dice, now);
        let works = |(_, endpoint): (usize, &Arc<Endpoint>)| Access::is_open(endpoint, asking);
        !self.is_bound() && self.visit.is_doubtful(now) && self.others().any(works)
    }

    /// The endpoints not asked yet, with their indexes in the route.
    fn others(&self) -> impl Iterator<Item = (usize, &Arc<Endpoint>)> {
        let others = self.others.iter();
        others.filter_map(|index| Some((*index, self.endpoint_at(*index)?)))
    }

    /// Goes on to another provider. A working provider is asked without cost; one that fails is asked only within its
    /// retry budget, so that many failing requests do not overload it.
    fn next_endpoint(&mut self, reason: &'static str, dice: f64, now: Instant) -> bool {
        let asking = self.wish.at(dice, now);
        let works = |(index, endpoint): (usize, &Arc<Endpoint>)| {
            let access = Access::to(endpoint, asking)?;
            Some((index, Arc::clone(endpoint), access))
        };
        let found = self.others().find_map(works);
        let is_well = found.is_some();
        let spent = |(index, endpoint): (usize, &Arc<Endpoint>)| {
            let access = endpoint
                .pool
                .spend()
                .then(|| Access::despite_breakers(endpoint, asking));
            Some((index, Arc::clone(endpoint), access.flatten()?))
        };
        let Some((index, endpoint, access)) = found.or_else(|| self.others().find_map(spent)) else {
            return false;
        };
        if is_well {
            endpoint.pool.earn();
        }
        self.visit = Visit::begin(endpoint, access);
        self.index = index;
        self.others.retain(|other| *other != index);
        self.reason = Some(reason);
        true
    }
}

/// The endpoint to begin with, by its index, and the access to it.
fn first_access(endpoints: &[Arc<Endpoint>], asking: Asking<'_>) -> Option<(usize, Access)> {
    if asking.wish.is_bound() {
        let has_awake = |endpoint: &Arc<Endpoint>| endpoint.pool.credentials.has_awake(Probing::Allowed, asking.now);
        let remembered = endpoints
            .iter()
            .position(|endpoint| asking.wish.was_served_by(endpoint));
        let first = remembered.or_else(|| endpoints.iter().position(has_awake)).unwrap_or(0);
        return Some((first, Access::despite_breakers(endpoints.get(first)?, asking)?));
    }
    for (index, endpoint) in endpoints.iter().enumerate() {
        if let Some(access) = Access::to(endpoint, asking) {
            let passed_over = endpoints.iter().take(index);
            passed_over.for_each(|endpoint| endpoint.pool.pass_over());
            return Some((index, access));
        }
    }
    let (index, endpoint) = endpoints
        .iter()
        .enumerate()
        .min_by_key(|(_, endpoint)| Access::opens(endpoint, asking))?;
    Some((index, Access::despite_breakers(endpoint, asking)?))
}

#[cfg(test)]
mod tests;
