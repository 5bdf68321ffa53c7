//! What a request holds at its current provider: model permit, credential and place. It reports their success or
//! failure to the circuit breakers.

use std::{net::SocketAddr, sync::Arc, time::Instant};

use smallvec::SmallVec;

use crate::{
    domain::wire::session_hint::{ServedBy, SessionHint},
    providers::{
        endpoint::Endpoint,
        pools::{ChosenCredential, CredentialState, Permit, Place, Probing},
    },
};

/// Whether a status says that a place's front end has no working back end; 520 and above are Cloudflare's.
const fn is_place_failure(status: u16) -> bool {
    matches!(status, 502..=504 | 520..=524 | 527)
}

/// The properties of a request that the choice of provider, credential and place depends on.
#[derive(Debug)]
pub(super) struct Wish {
    pub(super) session: Option<SessionHint>,
    pub(super) probing: Probing,
}

/// A [`Wish`] at a given time, with a random number in 0..1.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asking<'a> {
    pub(super) wish: &'a Wish,
    pub(super) dice: f64,
    pub(super) now: Instant,
}

impl Wish {
    pub(super) fn at(&self, dice: f64, now: Instant) -> Asking<'_> {
        Asking { wish: self, dice, now }
    }

    /// State at the provider binds the request to the credential that has it, as long as that credential is configured.
    pub(super) fn is_bound(&self) -> bool {
        self.session.as_ref().is_some_and(SessionHint::is_binding)
    }

    /// Whether this endpoint's provider has the state that the request continues.
    pub(super) fn was_served_by(&self, endpoint: &Endpoint) -> bool {
        self.served_by(endpoint).is_some()
    }

    fn served_by(&self, endpoint: &Endpoint) -> Option<&ServedBy> {
        let known = self.session.as_ref().and_then(SessionHint::served_by);
        known.filter(|known| known.provider == endpoint.provider.name)
    }
}

impl Asking<'_> {
    fn session(self) -> Option<u64> {
        self.wish.session.as_ref().map(SessionHint::number)
    }
}

/// Permission to use an endpoint with one of its provider's credentials.
#[derive(Debug)]
pub(super) struct Access {
    model: Permit,
    credential: ChosenCredential,
}

/// The current endpoint and what is in use there.
#[derive(Debug)]
pub(super) struct Visit {
    pub(super) endpoint: Arc<Endpoint>,
    credential: Arc<CredentialState>,
    place: Option<Place>,
    permits: Permits,
    /// Credentials that were rate-limited or refused for this request.
    tried: SmallVec<[Arc<CredentialState>; 2]>,
    /// Addresses that failed for this request.
    failed: SmallVec<[SocketAddr; 2]>,
    /// Failed connects in a row.
    pub(super) connects: usize,
    /// How often the request was sent here, without sends over a stale connection.
    pub(super) sent: u8,
}

/// Permits of the circuit breakers. Each is taken when its result is known.
#[derive(Debug)]
struct Permits {
    model: Option<Permit>,
    credential: Option<Permit>,
    place: Option<Permit>,
}

impl Access {
    /// Access if the model's breaker admits the request, possibly as a probe, and a credential is usable.
    pub(super) fn to(endpoint: &Endpoint, asking: Asking<'_>) -> Option<Self> {
        let (probing, now) = (asking.wish.probing, asking.now);
        let model = endpoint.breaker.enter(probing, now)?;
        let credentials = &endpoint.pool.credentials;
        let credential = credentials.choose_awake(&[], asking.session(), asking.dice, probing, now)?;
        Some(Self { model, credential })
    }

    /// Access that no breaker is asked for. A session keeps the credential that served it, if that is known and still
    /// configured.
    pub(super) fn despite_breakers(endpoint: &Endpoint, asking: Asking<'_>) -> Option<Self> {
        let credentials = &endpoint.pool.credentials;
        let known = asking.wish.served_by(endpoint);
        let remembered = known.and_then(|known| credentials.this_one(&known.credential, asking.now));
        let (session, probing) = (asking.session(), asking.wish.probing);
        let credential = remembered.or_else(|| credentials.choose(session, asking.dice, probing, asking.now))?;
        let model = endpoint.breaker.enter_anyway(asking.now);
        Some(Self { model, credential })
    }

    /// Whether [`Access::to`] would succeed.
    pub(super) fn is_open(endpoint: &Endpoint, asking: Asking<'_>) -> bool {
        let (probing, now) = (asking.wish.probing, asking.now);
        endpoint.pool.credentials.has_awake(probing, now) && endpoint.breaker.admits(probing, now)
    }

    /// When the endpoint may be used again. `None` means now.
    pub(super) fn opens(endpoint: &Endpoint, asking: Asking<'_>) -> Option<Instant> {
        let model = endpoint.breaker.open_until(asking.now);
        model.max(endpoint.pool.credentials.first_wakes(asking.now))
    }
}

impl Visit {
    pub(super) fn begin(endpoint: Arc<Endpoint>, access: Access) -> Self {
        let ChosenCredential { state, permit } = access.credential;
        Self {
            endpoint,
            credential: state,
            place: None,
            permits: Permits {
                model: Some(access.model),
                credential: Some(permit),
                place: None,
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

    /// The place of the running attempt.
    pub(super) fn place(&self) -> Option<&Place> {
        self.place.as_ref()
    }

    /// Whether requests failed here recently, so that another provider should be preferred.
    pub(super) fn is_doubtful(&self, now: Instant) -> bool {
        self.permits.model.as_ref().is_some_and(|model| !model.is_closed(now))
    }

    /// Chooses a place for the next attempt. Returns false if no name of the places is resolved.
    pub(super) fn next_place(&mut self, probing: Probing, now: Instant) -> bool {
        let (place, permit) = self.endpoint.places.pick(&self.failed, probing, now).unzip();
        self.place = place;
        self.permits.place = permit;
        self.place.is_some()
    }

    /// Whether there is a place that has not failed this request.
    pub(super) fn has_other_place(&self) -> bool {
        self.endpoint.places.has_other(&self.failed)
    }

    /// Chooses another usable credential, if there is one.
    pub(super) fn next_credential(&mut self, asking: Asking<'_>) -> Option<ChosenCredential> {
        self.tried.push(Arc::clone(&self.credential));
        let (session, probing) = (asking.session(), asking.wish.probing);
        let credentials = &self.endpoint.pool.credentials;
        credentials.choose_awake(&self.tried, session, asking.dice, probing, asking.now)
    }

    /// Switches to the chosen credential.
    pub(super) fn take_credential(&mut self, next: ChosenCredential) {
        self.credential = next.state;
        self.permits.credential = Some(next.permit);
    }

    /// The connection to the place failed, or broke before an answer.
    pub(super) fn place_failed(&mut self, now: Instant) {
        let Some(place) = &self.place else { return };
        self.failed.push(place.address);
        if self.permits.place.take().is_some_and(|permit| permit.failed(now)) {
            tracing::warn!(
                provider = %self.endpoint.provider.name,
                address = %place.address,
                "left out after failures in a row; other addresses are asked, where there are any"
            );
        }
    }

    /// The place has answered with `status`.
    pub(super) fn place_answered(&mut self, status: u16, now: Instant) {
        if is_place_failure(status) {
            self.place_failed(now);
        } else if let Some(permit) = self.permits.place.take() {
            permit.worked(now);
        }
    }

    /// The provider has accepted the credential, whatever it answered.
    pub(super) fn credential_worked(&mut self, now: Instant) {
        if let Some(permit) = self.permits.credential.take() {
            permit.worked(now);
        }
    }

    /// The provider has answered without a failure of its own.
    pub(super) fn worked(&mut self, now: Instant) {
        if self.permits.model.take().is_some_and(|permit| permit.worked(now)) {
            tracing::info!(
                provider = %self.endpoint.provider.name,
                model = %self.endpoint.upstream_model,
                "works again and is asked as before"
            );
        }
    }

    /// The request gives up on this provider, which counts as a failure of it.
    pub(super) fn gave_up(&mut self, now: Instant) {
        if self.permits.model.take().is_some_and(|permit| permit.failed(now)) {
            tracing::warn!(
                provider = %self.endpoint.provider.name,
                model = %self.endpoint.upstream_model,
                "failed several requests in a row; others that serve the model are asked first, where there are any, until a probe succeeds"
            );
        }
    }
}
