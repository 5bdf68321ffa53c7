//! Where a request is sent, and where to next when that fails. What may be chosen was fixed at admission; what is known
//! of credentials, places and budgets decides among it.

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
    vec::IntoIter,
};

use smallvec::SmallVec;

use crate::{
    domain::{
        operation::Operation,
        provider_state::StateKey,
        retry::{REST_AFTER_LIMIT, REST_AFTER_REFUSAL, RETRY_AFTER_OBEYED_MAX},
        route::Leg,
        session_hint::SessionHint,
    },
    pools::{CredentialState, Place, Places, Pool, Pools},
};

/// Attempts of one request in all, at all providers.
pub const ATTEMPTS_MAX: usize = 12;

/// The pause before a connect is tried again: long enough for a provider's front to come back, too short to be noticed.
const CONNECT_RETRY_PAUSE: Duration = Duration::from_millis(100);

/// Statuses that say that a place's front has nobody behind it.
const PLACE_FAILURES: [u16; 3] = [502, 503, 504];

/// The attempts of one request.
#[derive(Debug)]
pub struct Attempts {
    operation: Operation,
    /// The provider in turn.
    leg: Leg,
    /// How many came before it in this request.
    legs_left_behind: usize,
    /// Those that may come after it.
    later: IntoIter<Leg>,
    pools: Arc<Pools>,
    session: Option<SessionHint>,
    pool: Arc<Pool>,
    places: Arc<Places>,
    credential: Arc<CredentialState>,
    /// Whether it rested when it was chosen, for want of another: then its success says that the rest is over.
    was_resting: bool,
    /// Credentials that this provider has limited or refused in this request.
    tried: SmallVec<[Arc<CredentialState>; 2]>,
    /// Addresses of this provider that failed.
    failed: SmallVec<[SocketAddr; 2]>,
    /// Connects that failed since the last that stood.
    connects: usize,
    /// How often the request was sent to this provider, without what met a stale connection.
    sent: u8,
    /// Attempts in all.
    made: usize,
    place: Option<Place>,
    pause: Duration,
    reason: Option<&'static str>,
    /// Whether the next attempt takes a connection that was never used.
    fresh: bool,
}

/// How a provider answered, as far as a further attempt depends on it.
#[derive(Clone, Copy, Debug)]
pub struct Answered {
    /// The status.
    pub status: u16,
    /// Whether it refuses the credential.
    pub refused: bool,
    /// How long it asks to wait.
    pub asked_pause: Option<Duration>,
    /// Whether the body can be sent once more.
    pub can_resend: bool,
}

impl Attempts {
    /// Begins with the first leg that has a credential awake, or with the first. `None` when no leg has a pool, which
    /// only a catalogue and pools of different versions would bring about.
    pub fn begin(
        operation: Operation,
        mut legs: Vec<Leg>,
        pools: Arc<Pools>,
        session: Option<SessionHint>,
        dice: f64,
        now: Instant,
    ) -> Option<Self> {
        let awake = |leg: &Leg| {
            pools
                .of(&leg.provider.name)
                .is_some_and(|pool| pool.credentials.choose_awake(&[], None, 0.0, now).is_some())
        };
        let serves = |leg: &Leg| {
            let known = session.as_ref().and_then(SessionHint::served_by);
            known.is_some_and(|known| known.provider == leg.provider.name)
        };
        let first = legs
            .iter()
            .position(serves)
            .or_else(|| legs.iter().position(awake))
            .unwrap_or(0);
        let mut later = legs.split_off(first).into_iter();
        let leg = later.next()?;
        let (pool, places) = entered(&pools, &leg, operation)?;
        let credential = chosen(&pool, &leg, session.as_ref(), dice, now)?;
        pool.earn();
        Some(Self {
            operation,
            leg,
            legs_left_behind: 0,
            later,
            pools,
            session,
            pool,
            places,
            was_resting: credential.rests_until(now).is_some(),
            credential,
            tried: SmallVec::new(),
            failed: SmallVec::new(),
            connects: 0,
            sent: 0,
            made: 0,
            place: None,
            pause: Duration::ZERO,
            reason: None,
            fresh: false,
        })
    }

    /// The provider in turn.
    pub fn leg(&self) -> &Leg {
        &self.leg
    }

    /// The places of the provider in turn.
    pub fn places(&self) -> &Arc<Places> {
        &self.places
    }

    /// How many providers came before the one in turn; another number means that the body has to be made anew.
    pub fn legs_left_behind(&self) -> usize {
        self.legs_left_behind
    }

    /// The credential in turn.
    pub fn credential(&self) -> &CredentialState {
        &self.credential
    }

    /// The state at a provider that the request continues.
    pub fn state(&self) -> Option<StateKey> {
        self.session.as_ref().and_then(SessionHint::state)
    }

    /// The place of the running attempt.
    pub fn place(&self) -> Option<&Place> {
        self.place.as_ref()
    }

    /// How long to wait before the next attempt.
    pub fn take_pause(&mut self) -> Duration {
        std::mem::take(&mut self.pause)
    }

    /// Why the next attempt is a further one; `None` for the first.
    pub fn take_reason(&mut self) -> Option<&'static str> {
        self.reason.take()
    }

    /// The next attempt begins: where it goes. `None` when no name of the provider's places is resolved and no other
    /// provider is left.
    pub fn next_place(&mut self, dice: f64, now: Instant) -> Option<&Place> {
        self.made += 1;
        self.place = self.places.pick(&self.failed, now);
        while self.place.is_none() && !self.is_bound() && self.next_leg("unresolved", dice, now) {
            self.place = self.places.pick(&self.failed, now);
        }
        self.place.as_ref()
    }

    /// The connection stands; the request is about to be sent.
    pub fn connected(&mut self) {
        self.connects = 0;
        self.sent = self.sent.saturating_add(1);
    }

    /// No connection could be made. Whether to try once more: another address, or after `retries_max` of them another
    /// provider.
    pub fn connect_failed(&mut self, retries_max: usize, dice: f64, now: Instant) -> bool {
        self.place_failed(now);
        self.connects += 1;
        if self.made >= ATTEMPTS_MAX {
            return false;
        }
        if self.connects <= retries_max {
            self.pause = CONNECT_RETRY_PAUSE;
            self.reason = Some("connect");
            return true;
        }
        !self.is_bound() && self.next_leg("connect", dice, now)
    }

    /// The pooled connection was closed before any byte of an answer. Whether to send once more; then over a connection
    /// that was never used, because what closed one of a pool has often closed all of it. Such a sending is none of
    /// those that the provider's retries are counted by: the provider has not said anything.
    pub fn connection_was_stale(&mut self) -> bool {
        let again = self.made < ATTEMPTS_MAX;
        if again {
            self.sent = self.sent.saturating_sub(1);
            self.fresh = true;
            self.reason = Some("stale_connection");
        }
        again
    }

    /// Whether the attempt that begins must not take a connection from the pool.
    pub fn take_fresh(&mut self) -> bool {
        std::mem::take(&mut self.fresh)
    }

    /// No answer came in time, or it broke off before its head.
    pub fn place_failed(&mut self, now: Instant) {
        if let Some(place) = &self.place {
            self.places.failed(place.address, now);
            self.failed.push(place.address);
        }
    }

    /// An answer has come: what it says of credential and place is kept, and whether to try once more is decided.
    pub fn answered(&mut self, answer: &Answered, dice: f64, now: Instant) -> bool {
        let limited = answer.status == 429;
        if let Some(place) = &self.place {
            if PLACE_FAILURES.contains(&answer.status) {
                self.places.failed(place.address, now);
                self.failed.push(place.address);
            } else {
                self.places.worked(place.address);
            }
        }
        if answer.refused {
            self.credential
                .rest(answer.asked_pause.unwrap_or(REST_AFTER_REFUSAL), now);
        } else if limited {
            self.credential
                .rest(answer.asked_pause.unwrap_or(REST_AFTER_LIMIT), now);
        } else if answer.status < 400 && self.was_resting {
            self.credential.wake();
        }
        if !answer.can_resend || self.made >= ATTEMPTS_MAX {
            return false;
        }
        // A limit is the credential's, so another one comes first; anything else may be over by now.
        let again = limited && self.other_credential(answer, dice, now)
            || self.same_again(answer, dice)
            || !limited && self.other_credential(answer, dice, now);
        again || self.other_provider(answer, dice, now)
    }

    fn same_again(&mut self, answer: &Answered, dice: f64) -> bool {
        let policy = &self.leg().provider.retry;
        let asked = answer.asked_pause.unwrap_or_default();
        if !policy.is_retried(answer.status) || self.sent >= policy.attempts || asked > RETRY_AFTER_OBEYED_MAX {
            return false;
        }
        let pause = policy.pause(u32::from(self.sent), dice).max(asked);
        if !self.pool.spend() {
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
        self.tried.push(Arc::clone(&self.credential));
        let session = self.session.as_ref().map(SessionHint::number);
        let Some(next) = self.pool.credentials.choose_awake(&self.tried, session, dice, now) else {
            return false;
        };
        if !self.pool.spend() {
            return false;
        }
        self.credential = next;
        self.was_resting = false;
        self.reason = Some("credential");
        true
    }

    fn other_provider(&mut self, answer: &Answered, dice: f64, now: Instant) -> bool {
        let failed = answer.status == 429 || answer.refused || self.leg().provider.retry.is_retried(answer.status);
        failed
            && (answer.refused || !self.is_bound())
            && self.later.len() > 0
            && self.pool.spend()
            && self.next_leg("provider", dice, now)
    }

    /// State that lies at the provider binds the request to the credential that has it, as long as that one is taken.
    fn is_bound(&self) -> bool {
        self.session.as_ref().is_some_and(SessionHint::is_binding)
    }

    fn next_leg(&mut self, reason: &'static str, dice: f64, now: Instant) -> bool {
        let Some(leg) = self.later.next() else {
            return false;
        };
        let Some((pool, places)) = entered(&self.pools, &leg, self.operation) else {
            return false;
        };
        let Some(credential) = chosen(&pool, &leg, self.session.as_ref(), dice, now) else {
            return false;
        };
        self.leg = leg;
        self.legs_left_behind += 1;
        self.pool = pool;
        self.places = places;
        self.was_resting = credential.rests_until(now).is_some();
        self.credential = credential;
        self.tried.clear();
        self.failed.clear();
        self.connects = 0;
        self.sent = 0;
        self.reason = Some(reason);
        true
    }
}

fn entered(pools: &Pools, leg: &Leg, operation: Operation) -> Option<(Arc<Pool>, Arc<Places>)> {
    let pool = pools.of(&leg.provider.name)?;
    Some((Arc::clone(pool), Arc::clone(pool.places(operation)?)))
}

/// A session's credential is the one that served it before, if that is remembered and still there.
fn chosen(
    pool: &Pool,
    leg: &Leg,
    session: Option<&SessionHint>,
    dice: f64,
    now: Instant,
) -> Option<Arc<CredentialState>> {
    let remembered = session
        .and_then(SessionHint::served_by)
        .filter(|known| known.provider == leg.provider.name)
        .and_then(|known| pool.credentials.named(&known.credential));
    remembered
        .cloned()
        .or_else(|| pool.credentials.choose(session.map(SessionHint::number), dice, now))
}
