//! Chooses the endpoint of each attempt of a request, and decides whether another attempt follows a failure. The candidates are
//! fixed at admission; the pools (circuits, credentials, backends, retry budgets) decide among them.

mod visit;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use smallvec::SmallVec;

use self::visit::{EndpointVisit, ProviderAccess, RoutingContext, RoutingHints};
use crate::{
    domain::{
        faults::{COOLDOWN_AFTER_LIMIT, COOLDOWN_AFTER_REFUSAL, RETRY_AFTER_OBEYED_MAX, RetryPolicy},
        wire::{provider_state::StateKey, session_hint::SessionHint},
    },
    providers::{
        Endpoint, Route,
        pools::{CredentialState, Probing, ProviderBackend},
    },
};

/// The maximum number of attempts of one request, at all providers together.
pub(crate) const ATTEMPTS_MAX: usize = 12;

/// The pause before weir connects to the same address again: long enough for a provider's front end to restart, too short for
/// users to notice.
const CONNECT_RETRY_PAUSE: Duration = Duration::from_millis(100);

/// The attempts of one request: the current endpoint, the endpoints that remain, the reason for the next attempt, and the pause
/// before it.
#[derive(Debug)]
pub(crate) struct AttemptPlan {
    hints: RoutingHints,
    route: Arc<Route>,
    /// The current endpoint.
    visit: EndpointVisit,
    /// The route index of the current endpoint.
    index: usize,
    /// The route indexes of the endpoints that have not been tried, in order of preference.
    others: SmallVec<[usize; 4]>,
    /// The number of attempts that have begun.
    made: usize,
    pause: Duration,
    reason: Option<&'static str>,
    /// The kind of connection that the next attempt is allowed to use.
    connection: ConnectionChoice,
}

/// The kind of connection that an attempt is allowed to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ConnectionChoice {
    /// A connection from the pool, or a new one.
    #[default]
    Any,
    /// A new connection only.
    New,
    /// A new connection only, over HTTP/1.1.
    NewOverHttp1,
}

/// The facts about a provider's answer that decide whether another attempt follows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AnswerOutcome {
    /// The provider's HTTP status.
    pub status: u16,
    /// Whether the provider refuses the credential.
    pub refused: bool,
    /// The pause that the provider requests (`Retry-After` or its protocol's own field); `None` if it requests none.
    pub asked_pause: Option<Duration>,
    /// Whether the request's body can be sent again.
    pub can_resend: bool,
    /// Whether the provider's status is a success, but the body contains no answer. This counts as a failure, whatever the
    /// provider's file says about the status.
    pub never_began: bool,
}

impl AnswerOutcome {
    /// Whether the retry rules of a provider's file allow the request to be repeated after this answer.
    fn is_retried(&self, policy: &RetryPolicy) -> bool {
        self.never_began || policy.is_retryable(self.status)
    }
}

impl AttemptPlan {
    /// Chooses the endpoint for the first attempt. This is the first endpoint of the route at which the circuit admits the
    /// request and the provider has a usable credential. If there is no such endpoint, it is the one that becomes usable soonest.
    /// A request bound to state at a provider starts with the provider that holds the state. `probing` says whether the request
    /// is allowed to be a probe, and `dice` is a random number in 0..1. Returns `None` if the chosen provider has no credentials.
    /// This does not happen, because no route contains such a provider.
    pub(crate) fn begin(
        route: &Arc<Route>,
        session: Option<SessionHint>,
        probing: Probing,
        dice: f64,
        now: Instant,
    ) -> Option<Self> {
        let wish = RoutingHints { session, probing };
        let endpoints = route.endpoints.as_slice();
        let (index, access) = first_access(endpoints, wish.context(dice, now))?;
        let visit = EndpointVisit::begin(Arc::clone(endpoints.get(index)?), access);
        visit.endpoint.pool.deposit();
        Some(Self {
            hints: wish,
            route: Arc::clone(route),
            visit,
            index,
            others: (0..endpoints.len()).filter(|other| *other != index).collect(),
            made: 0,
            pause: Duration::ZERO,
            reason: None,
            connection: ConnectionChoice::Any,
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

    /// Whether the file of the current provider, or of a provider that may follow, edits bodies.
    pub(crate) fn has_edits(&self) -> bool {
        let has_some = |endpoint: &Endpoint| !endpoint.provider.body.is_empty() || endpoint.translation.is_some();
        has_some(self.endpoint()) || self.others().any(|(_, other)| has_some(other))
    }

    /// The current credential.
    pub(crate) fn credential(&self) -> &CredentialState {
        self.visit.credential()
    }

    /// The secret of the current credential.
    pub(crate) fn secret(&self) -> &str {
        self.credential().credential.secret.expose()
    }

    /// The provider state that the request continues; `None` if it continues none.
    pub(crate) fn state(&self) -> Option<StateKey> {
        self.hints.session.as_ref().and_then(SessionHint::state)
    }

    /// The backend of the running attempt; `None` before it is chosen.
    pub(crate) fn backend(&self) -> Option<&ProviderBackend> {
        self.visit.backend()
    }

    /// Returns the time to wait before the next attempt, and resets it to zero. The time is zero if the attempt can begin at
    /// once.
    pub(crate) fn take_pause(&mut self) -> Duration {
        std::mem::take(&mut self.pause)
    }

    /// Takes the reason of the next attempt, as a metric label; `None` for the first attempt.
    pub(crate) fn take_reason(&mut self) -> Option<&'static str> {
        self.reason.take()
    }

    /// Begins the next attempt and chooses its backend. Continues with the next provider if none of the current provider's host
    /// names is resolved. Returns `None` if no provider remains.
    pub(crate) fn next_backend(&mut self, dice: f64, now: Instant) -> Option<&ProviderBackend> {
        self.made += 1;
        while !self.visit.next_backend(self.hints.probing, now) {
            if self.is_bound() || !self.next_endpoint("unresolved", dice, now) {
                break;
            }
        }
        self.visit.backend()
    }

    /// Records that the attempt's connection is established and the request is about to be sent.
    pub(crate) fn on_connected(&mut self) {
        self.visit.connects = 0;
        self.visit.sent = self.visit.sent.saturating_add(1);
    }

    /// Handles a failed connect. Returns whether another attempt follows. The attempt is made at the same provider, at another
    /// address if possible. After `retries_max` retries, it is made at another provider.
    pub(crate) fn on_connect_failed(&mut self, retries_max: usize, dice: f64, now: Instant) -> bool {
        self.visit.on_backend_failed(now);
        self.visit.connects += 1;
        let may = self.made < ATTEMPTS_MAX;
        if may && self.visit.connects <= retries_max && !self.should_go_elsewhere(dice, now) {
            if !self.visit.has_other_backend() {
                self.pause = CONNECT_RETRY_PAUSE;
            }
            self.reason = Some("connect");
            return true;
        }
        self.visit.on_give_up(now);
        may && !self.is_bound() && self.next_endpoint("connect", dice, now)
    }

    /// Handles a pooled connection that the provider closed before it answered the request. Returns whether to send the request
    /// again. The next attempt then uses a new connection, because the others in the pool are probably closed, too. The failed
    /// attempt does not count towards the provider's maximum of attempts, because the provider has not seen the request.
    pub(crate) fn on_stale_connection(&mut self) -> bool {
        let again = self.made < ATTEMPTS_MAX;
        if again {
            self.visit.sent = self.visit.sent.saturating_sub(1);
            self.connection = ConnectionChoice::New;
            self.reason = Some("stale_connection");
        }
        again
    }

    /// Handles a provider that demands HTTP/1.1. Returns whether to send the request again over HTTP/1.1. As with a stale
    /// connection, the provider has not begun to work on the request.
    pub(crate) fn on_http1_required(&mut self) -> bool {
        let again = self.on_stale_connection();
        if again {
            self.connection = ConnectionChoice::NewOverHttp1;
            self.reason = Some("http1_required");
        }
        again
    }

    /// Takes the kind of connection that the next attempt is allowed to use.
    pub(crate) fn take_connection(&mut self) -> ConnectionChoice {
        std::mem::take(&mut self.connection)
    }

    /// Handles a provider that timed out, or closed the connection before the answer's head. Returns whether to continue with
    /// another provider. Another provider gets the request only if the operator permits it (`may`), because the first provider
    /// may have served it.
    pub(crate) fn on_no_answer(&mut self, may: bool, dice: f64, now: Instant) -> bool {
        self.visit.on_backend_failed(now);
        self.visit.on_give_up(now);
        may && self.made < ATTEMPTS_MAX && !self.is_bound() && self.next_endpoint("unanswered", dice, now)
    }

    /// Handles an answer: updates the circuits and the credential's cooldown. Returns whether another attempt follows.
    pub(crate) fn on_answer(&mut self, answer: &AnswerOutcome, dice: f64, now: Instant) -> bool {
        let limited = answer.status == 429;
        let failed = self.is_failure(answer);
        self.visit.on_backend_answered(answer.status, now);
        if answer.refused || limited {
            let usual = if answer.refused {
                COOLDOWN_AFTER_REFUSAL
            } else {
                COOLDOWN_AFTER_LIMIT
            };
            self.credential().cool_down(answer.asked_pause.unwrap_or(usual), now);
        } else if !failed {
            self.visit.on_credential_accepted(now);
            self.visit.on_success(now);
        }
        let may = answer.can_resend && self.made < ATTEMPTS_MAX;
        // A rate limit applies to one credential, so another credential is tried before the same one. Any other error may be
        // transient, so the same credential is tried first.
        let here = may
            && (limited && self.switch_credential(answer, dice, now)
                || self.retry_here(answer, dice, now)
                || !limited && self.switch_credential(answer, dice, now));
        if here {
            return true;
        }
        if failed {
            self.visit.on_give_up(now);
        }
        may && self.switch_provider(answer, dice, now)
    }

    /// Whether the answer is a failure of the provider itself, and not of the credential or the request.
    fn is_failure(&self, answer: &AnswerOutcome) -> bool {
        let is_named = answer.is_retried(&self.endpoint().provider.retry);
        !answer.refused && answer.status != 429 && (is_named || answer.status >= 500)
    }

    fn retry_here(&mut self, answer: &AnswerOutcome, dice: f64, now: Instant) -> bool {
        let policy = &self.endpoint().provider.retry;
        let asked = answer.asked_pause.unwrap_or_default();
        let sent = self.visit.sent;
        if !answer.is_retried(policy) || sent >= policy.attempts || asked > RETRY_AFTER_OBEYED_MAX {
            return false;
        }
        let pause = policy.pause(u32::from(sent), dice).max(asked);
        if self.should_go_elsewhere(dice, now) || !self.visit.endpoint.pool.withdraw() {
            return false;
        }
        self.pause = pause;
        self.reason = Some("status");
        true
    }

    fn switch_credential(&mut self, answer: &AnswerOutcome, dice: f64, now: Instant) -> bool {
        if !answer.refused && (answer.status != 429 || self.is_bound()) {
            return false;
        }
        let asking = self.hints.context(dice, now);
        let Some(next) = self.visit.next_credential(asking) else {
            return false;
        };
        if !self.visit.endpoint.pool.withdraw() {
            return false;
        }
        self.visit.use_credential(next);
        self.reason = Some("credential");
        true
    }

    fn switch_provider(&mut self, answer: &AnswerOutcome, dice: f64, now: Instant) -> bool {
        let failed = answer.status == 429 || answer.refused || answer.is_retried(&self.endpoint().provider.retry);
        failed && (answer.refused || !self.is_bound()) && self.next_endpoint("provider", dice, now)
    }

    /// Whether only one credential can serve the request, because the provider keeps the state that the request continues.
    fn is_bound(&self) -> bool {
        self.hints.is_bound()
    }

    /// Whether other requests fail at the current provider, too, while another provider works. If so, this request is not retried
    /// here.
    fn should_go_elsewhere(&self, dice: f64, now: Instant) -> bool {
        let asking = self.hints.context(dice, now);
        let works = |(_, endpoint): (usize, &Arc<Endpoint>)| ProviderAccess::is_open(endpoint, asking);
        !self.is_bound() && self.visit.is_doubtful(now) && self.others().any(works)
    }

    /// Returns the endpoints that have not been tried, with their route indexes.
    fn others(&self) -> impl Iterator<Item = (usize, &Arc<Endpoint>)> {
        let others = self.others.iter();
        others.filter_map(|index| Some((*index, self.endpoint_at(*index)?)))
    }

    /// Continues with another provider. Returns false if none can be used. An attempt at a working provider is free. An attempt
    /// at a failing provider takes a retry from the provider's retry budget, so that many failing requests do not overload the
    /// provider.
    fn next_endpoint(&mut self, reason: &'static str, dice: f64, now: Instant) -> bool {
        let asking = self.hints.context(dice, now);
        let works = |(index, endpoint): (usize, &Arc<Endpoint>)| {
            let access = ProviderAccess::acquire(endpoint, asking)?;
            Some((index, Arc::clone(endpoint), access))
        };
        let found = self.others().find_map(works);
        let is_well = found.is_some();
        let spent = |(index, endpoint): (usize, &Arc<Endpoint>)| {
            let access = endpoint
                .pool
                .withdraw()
                .then(|| ProviderAccess::force(endpoint, asking));
            Some((index, Arc::clone(endpoint), access.flatten()?))
        };
        let Some((index, endpoint, access)) = found.or_else(|| self.others().find_map(spent)) else {
            return false;
        };
        if is_well {
            endpoint.pool.deposit();
        }
        self.visit = EndpointVisit::begin(endpoint, access);
        self.index = index;
        self.others.retain(|other| *other != index);
        self.reason = Some(reason);
        true
    }
}

/// Chooses the first endpoint. Returns the endpoint's route index and the access to it.
fn first_access(endpoints: &[Arc<Endpoint>], asking: RoutingContext<'_>) -> Option<(usize, ProviderAccess)> {
    if asking.hints.is_bound() {
        let has_awake =
            |endpoint: &Arc<Endpoint>| endpoint.pool.credentials.has_available(Probing::Allowed, asking.now);
        let remembered = endpoints
            .iter()
            .position(|endpoint| asking.hints.was_served_by(endpoint));
        let first = remembered.or_else(|| endpoints.iter().position(has_awake)).unwrap_or(0);
        return Some((first, ProviderAccess::force(endpoints.get(first)?, asking)?));
    }
    for (index, endpoint) in endpoints.iter().enumerate() {
        if let Some(access) = ProviderAccess::acquire(endpoint, asking) {
            let skipped = endpoints.iter().take(index);
            skipped.for_each(|endpoint| endpoint.pool.count_skipped());
            return Some((index, access));
        }
    }
    let (index, endpoint) = endpoints
        .iter()
        .enumerate()
        .min_by_key(|(_, endpoint)| ProviderAccess::opens_at(endpoint, asking))?;
    Some((index, ProviderAccess::force(endpoint, asking)?))
}

#[cfg(test)]
mod tests;
