//! Where a request is sent, and where to next when that fails. What may be chosen was fixed at admission; what is known
//! of providers, credentials, places and budgets decides among it.

mod visit;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use self::visit::{Access, Asking, Visit, Wish};
use crate::{
    domain::{
        operation::Operation,
        provider_state::StateKey,
        retry::{REST_AFTER_LIMIT, REST_AFTER_REFUSAL, RETRY_AFTER_OBEYED_MAX},
        route::Leg,
        session_hint::SessionHint,
    },
    pools::{CredentialState, Place, Places, Pools, Probing},
};

/// Attempts of one request in all, at all providers.
pub const ATTEMPTS_MAX: usize = 12;

/// The pause before a connect to the same address is tried again: long enough for a provider's front to come back, too short
/// to be noticed.
const CONNECT_RETRY_PAUSE: Duration = Duration::from_millis(100);

/// The attempts of one request.
#[derive(Debug)]
pub struct Attempts {
    wish: Wish,
    /// The provider in turn.
    visit: Visit,
    /// How many came before it in this request.
    legs_left_behind: usize,
    /// Those that were not asked yet, the preferred one first.
    others: Vec<Leg>,
    pools: Arc<Pools>,
    /// Attempts in all.
    made: usize,
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
    /// Begins with the first leg that works and has a credential awake; where there is none, with the one that is to be asked
    /// again first. What a provider keeps is asked for where it lies. `probing` says whether the request can be sent elsewhere
    /// after it was sent once. `None` when no leg has a pool, which only a catalogue and pools of different versions would
    /// bring about.
    pub fn begin(
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
            legs_left_behind: 0,
            others: legs,
            pools,
            made: 0,
            pause: Duration::ZERO,
            reason: None,
            fresh: false,
        })
    }

    /// The provider in turn.
    pub fn leg(&self) -> &Leg {
        &self.visit.leg
    }

    /// The places of the provider in turn.
    pub fn places(&self) -> &Arc<Places> {
        self.visit.places()
    }

    /// How many providers came before the one in turn; another number means that the body has to be made anew.
    pub fn legs_left_behind(&self) -> usize {
        self.legs_left_behind
    }

    /// The credential in turn.
    pub fn credential(&self) -> &CredentialState {
        self.visit.credential()
    }

    /// The state at a provider that the request continues.
    pub fn state(&self) -> Option<StateKey> {
        self.wish.session.as_ref().and_then(SessionHint::state)
    }

    /// The place of the running attempt.
    pub fn place(&self) -> Option<&Place> {
        self.visit.place()
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
        while !self.visit.next_place(self.wish.probing, now) {
            if self.is_bound() || !self.next_leg("unresolved", dice, now) {
                break;
            }
        }
        self.visit.place()
    }

    /// The connection stands; the request is about to be sent.
    pub fn connected(&mut self) {
        self.visit.connects = 0;
        self.visit.sent = self.visit.sent.saturating_add(1);
    }

    /// No connection could be made. Whether to try once more: another address, or after `retries_max` of them another
    /// provider.
    pub fn connect_failed(&mut self, retries_max: usize, dice: f64, now: Instant) -> bool {
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

    /// The pooled connection was closed before any byte of an answer. Whether to send once more; then over a connection
    /// that was never used, because what closed one of a pool has often closed all of it. Such a sending is none of
    /// those that the provider's retries are counted by: the provider has not said anything.
    pub fn connection_was_stale(&mut self) -> bool {
        let again = self.made < ATTEMPTS_MAX;
        if again {
            self.visit.sent = self.visit.sent.saturating_sub(1);
            self.fresh = true;
            self.reason = Some("stale_connection");
        }
        again
    }

    /// Whether the attempt that begins must not take a connection from the pool.
    pub fn take_fresh(&mut self) -> bool {
        std::mem::take(&mut self.fresh)
    }

    /// No answer came in time, or it broke off before its head. Whether to go on to another provider, if the request `may` be
    /// sent once more: the one that was silent may have served it all the same.
    pub fn unanswered(&mut self, may: bool, dice: f64, now: Instant) -> bool {
        self.visit.place_failed(now);
        self.visit.gave_up(now);
        may && self.made < ATTEMPTS_MAX && !self.is_bound() && self.next_leg("unanswered", dice, now)
    }

    /// An answer has come: what it says of provider, credential and place is kept, and whether to try once more is decided.
    pub fn answered(&mut self, answer: &Answered, dice: f64, now: Instant) -> bool {
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
        // A limit is the credential's, so another one comes first; anything else may be over by now.
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

    /// Whether an answer speaks of the provider, and neither of the credential nor of the request.
    fn is_failure(&self, answer: &Answered) -> bool {
        let is_named = self.leg().provider.retry.is_retried(answer.status);
        !answer.refused && answer.status != 429 && (is_named || answer.status >= 500)
    }

    fn same_again(&mut self, answer: &Answered, dice: f64, now: Instant) -> bool {
        let policy = &self.leg().provider.retry;
        let asked = answer.asked_pause.unwrap_or_default();
        let sent = self.visit.sent;
        if !policy.is_retried(answer.status) || sent >= policy.attempts || asked > RETRY_AFTER_OBEYED_MAX {
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
        let failed = answer.status == 429 || answer.refused || self.leg().provider.retry.is_retried(answer.status);
        failed && (answer.refused || !self.is_bound()) && self.next_leg("provider", dice, now)
    }

    /// State that lies at the provider binds the request to the credential that has it, as long as that one is taken.
    fn is_bound(&self) -> bool {
        self.wish.is_bound()
    }

    /// Whether the provider in turn has failed others too and another one works: then it is not asked once more.
    fn is_better_elsewhere(&self, dice: f64, now: Instant) -> bool {
        let asking = self.wish.at(dice, now);
        let works = |leg: &Leg| Access::is_open(&self.pools, leg, asking);
        !self.is_bound() && self.visit.is_doubtful(now) && self.others.iter().any(works)
    }

    /// Goes on to another provider. One that works is asked as by any request that begins with it; one that does not only as
    /// often as its own budget for further attempts allows, so that many that fail together do not load each other.
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
        self.legs_left_behind += 1;
        self.reason = Some(reason);
        true
    }
}

/// The provider to begin with, by its place among `legs`, and the right to ask it.
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
