//! The credential, the backend and the circuits' permits that a request uses at its current provider. The permits report success
//! and failure to the circuits.

use std::{net::SocketAddr, sync::Arc, time::Instant};

use smallvec::SmallVec;

use crate::{
    domain::wire::session_hint::{ServedBy, SessionHint},
    providers::{
        Endpoint,
        pools::{ChosenCredential, CircuitPermit, CredentialState, Probing, ProviderBackend},
    },
};

/// Whether an HTTP status reports that no server works behind the backend's front end. Cloudflare defines the statuses from 520
/// on.
const fn is_backend_failure(status: u16) -> bool {
    matches!(status, 502..=504 | 520..=524 | 527)
}

/// The properties of a request that decide the choice of provider and credential.
#[derive(Debug)]
pub(super) struct RoutingHints {
    pub(super) session: Option<SessionHint>,
    pub(super) probing: Probing,
}

/// The [`RoutingHints`] of a request with the current time, and a random number in 0..1 (`dice`).
#[derive(Clone, Copy, Debug)]
pub(super) struct RoutingContext<'a> {
    pub(super) hints: &'a RoutingHints,
    pub(super) dice: f64,
    pub(super) now: Instant,
}

impl RoutingHints {
    pub(super) fn context(&self, dice: f64, now: Instant) -> RoutingContext<'_> {
        RoutingContext { hints: self, dice, now }
    }

    /// Whether only one credential can serve the request, because the provider keeps the state that the request continues.
    pub(super) fn is_bound(&self) -> bool {
        self.session.as_ref().is_some_and(SessionHint::is_binding)
    }

    /// Whether the provider of this endpoint holds the state that the request continues.
    pub(super) fn was_served_by(&self, endpoint: &Endpoint) -> bool {
        self.served_by(endpoint).is_some()
    }

    fn served_by(&self, endpoint: &Endpoint) -> Option<&ServedBy> {
        let known = self.session.as_ref().and_then(SessionHint::served_by);
        known.filter(|known| known.provider == endpoint.provider.name)
    }
}

impl RoutingContext<'_> {
    fn session(self) -> Option<u64> {
        self.hints.session.as_ref().map(SessionHint::number)
    }
}

/// Access to an endpoint: a permit of the model's circuit, and a credential for the provider.
#[derive(Debug)]
pub(super) struct ProviderAccess {
    model: CircuitPermit,
    credential: ChosenCredential,
}

/// The current endpoint, and the credential, backend and permits in use there.
#[derive(Debug)]
pub(super) struct EndpointVisit {
    pub(super) endpoint: Arc<Endpoint>,
    credential: Arc<CredentialState>,
    backend: Option<ProviderBackend>,
    permits: Permits,
    /// The credentials that were rate-limited or refused during this request.
    tried: SmallVec<[Arc<CredentialState>; 2]>,
    /// The addresses that failed during this request.
    failed: SmallVec<[SocketAddr; 2]>,
    /// The number of consecutive failed connects.
    pub(super) connects: usize,
    /// The number of times that the request was sent to this endpoint, not counting stale connections.
    pub(super) sent: u8,
}

/// The permits of the circuits that an attempt uses. Each permit is taken out when the result for its circuit is known.
#[derive(Debug)]
struct Permits {
    model: Option<CircuitPermit>,
    credential: Option<CircuitPermit>,
    backend: Option<CircuitPermit>,
}

impl ProviderAccess {
    /// Acquires access if the model's circuit admits the request, possibly as a probe, and a credential is usable; returns `None`
    /// otherwise.
    pub(super) fn acquire(endpoint: &Endpoint, asking: RoutingContext<'_>) -> Option<Self> {
        let (probing, now) = (asking.hints.probing, asking.now);
        let model = endpoint.breaker.enter(probing, now)?;
        let credentials = &endpoint.pool.credentials;
        let credential = credentials.choose_available(&[], asking.session(), asking.dice, probing, now)?;
        Some(Self { model, credential })
    }

    /// Acquires access even if a circuit is open or all credentials are in their cooldowns. A request that names provider state
    /// gets the credential under which the provider stored the state, if that credential is known and still configured. Returns
    /// `None` if the provider has no credentials.
    pub(super) fn force(endpoint: &Endpoint, asking: RoutingContext<'_>) -> Option<Self> {
        let credentials = &endpoint.pool.credentials;
        let known = asking.hints.served_by(endpoint);
        let remembered = known.and_then(|known| credentials.choose_named(&known.credential, asking.now));
        let (session, probing) = (asking.session(), asking.hints.probing);
        let credential = remembered.or_else(|| credentials.choose(session, asking.dice, probing, asking.now))?;
        let model = endpoint.breaker.force_enter(asking.now);
        Some(Self { model, credential })
    }

    /// Whether [`ProviderAccess::acquire`] would succeed.
    pub(super) fn is_open(endpoint: &Endpoint, asking: RoutingContext<'_>) -> bool {
        let (probing, now) = (asking.hints.probing, asking.now);
        endpoint.pool.credentials.has_available(probing, now) && endpoint.breaker.admits(probing, now)
    }

    /// Returns when the endpoint becomes usable; `None` if it is usable now.
    pub(super) fn opens_at(endpoint: &Endpoint, asking: RoutingContext<'_>) -> Option<Instant> {
        let model = endpoint.breaker.open_until(asking.now);
        model.max(endpoint.pool.credentials.first_available_at(asking.now))
    }
}

impl EndpointVisit {
    pub(super) fn begin(endpoint: Arc<Endpoint>, access: ProviderAccess) -> Self {
        let ChosenCredential { state, permit } = access.credential;
        Self {
            endpoint,
            credential: state,
            backend: None,
            permits: Permits {
                model: Some(access.model),
                credential: Some(permit),
                backend: None,
            },
            tried: SmallVec::new(),
            failed: SmallVec::new(),
            connects: 0,
            sent: 0,
        }
    }

    /// The current credential.
    pub(super) fn credential(&self) -> &CredentialState {
        &self.credential
    }

    /// The backend of the running attempt; `None` before it is chosen.
    pub(super) fn backend(&self) -> Option<&ProviderBackend> {
        self.backend.as_ref()
    }

    /// Whether requests for the model failed at this provider recently, so that another provider is preferable.
    pub(super) fn is_doubtful(&self, now: Instant) -> bool {
        self.permits.model.as_ref().is_some_and(|model| !model.is_closed(now))
    }

    /// Chooses a backend for the next attempt. Returns false if no host name of the provider is resolved.
    pub(super) fn next_backend(&mut self, probing: Probing, now: Instant) -> bool {
        let (place, permit) = self.endpoint.backends.pick(&self.failed, probing, now).unzip();
        self.backend = place;
        self.permits.backend = permit;
        self.backend.is_some()
    }

    /// Whether the provider has a backend that has not failed during this request.
    pub(super) fn has_other_backend(&self) -> bool {
        self.endpoint.backends.has_untried(&self.failed)
    }

    /// Chooses a usable credential that has not been tried; returns `None` if there is none.
    pub(super) fn next_credential(&mut self, asking: RoutingContext<'_>) -> Option<ChosenCredential> {
        self.tried.push(Arc::clone(&self.credential));
        let (session, probing) = (asking.session(), asking.hints.probing);
        let credentials = &self.endpoint.pool.credentials;
        credentials.choose_available(&self.tried, session, asking.dice, probing, asking.now)
    }

    /// Uses the chosen credential from now on.
    pub(super) fn use_credential(&mut self, next: ChosenCredential) {
        self.credential = next.state;
        self.permits.credential = Some(next.permit);
    }

    /// Records that the connection to the backend failed, or broke before an answer arrived.
    pub(super) fn on_backend_failed(&mut self, now: Instant) {
        let Some(place) = &self.backend else { return };
        self.failed.push(place.address);
        if self
            .permits
            .backend
            .take()
            .is_some_and(|permit| permit.report_failure(now))
        {
            tracing::warn!(
                provider = %self.endpoint.provider.name,
                address = %place.address,
                "this address of the provider failed several times in a row; further requests use the provider's other addresses, if there are any"
            );
        }
    }

    /// Records that the backend has answered with the HTTP status `status`.
    pub(super) fn on_backend_answered(&mut self, status: u16, now: Instant) {
        if is_backend_failure(status) {
            self.on_backend_failed(now);
        } else if let Some(permit) = self.permits.backend.take() {
            permit.report_success(now);
        }
    }

    /// Records that the provider has accepted the credential, whatever the answer is.
    pub(super) fn on_credential_accepted(&mut self, now: Instant) {
        if let Some(permit) = self.permits.credential.take() {
            permit.report_success(now);
        }
    }

    /// Records that the provider has answered without a failure of its own.
    pub(super) fn on_success(&mut self, now: Instant) {
        if self
            .permits
            .model
            .take()
            .is_some_and(|permit| permit.report_success(now))
        {
            tracing::info!(
                provider = %self.endpoint.provider.name,
                model = %self.endpoint.upstream_model,
                "the provider serves this model again; weir sends requests for the model to the provider as before"
            );
        }
    }

    /// Records that the request gives up on this provider, which counts as a failure of the provider for this model.
    pub(super) fn on_give_up(&mut self, now: Instant) {
        if self
            .permits
            .model
            .take()
            .is_some_and(|permit| permit.report_failure(now))
        {
            tracing::warn!(
                provider = %self.endpoint.provider.name,
                model = %self.endpoint.upstream_model,
                "this provider failed several requests for this model in a row; until a probe succeeds, weir prefers the \
                 model's other providers, if there are any"
            );
        }
    }
}
