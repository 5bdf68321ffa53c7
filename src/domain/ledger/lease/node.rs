//! One lease, as the node has it that admits requests out of it.
//!
//! What is free of it is what the store said that it has, less what the requests in it hold, less what those that have ended
//! cost as long as the store had not applied their steps, less what is being given back or asked for. An answer of the store
//! has the amount and the last applied step of one moment, so each answer sets that right, in whatever order requests end
//! meanwhile. One question runs at a time.
//!
//! Only a lease that the store has confirmed within the last second is used. So nothing is admitted by what an operator has
//! changed more than a second ago, and nothing out of a lease that the store may have given to others: for that the holder must
//! not be heard of for [`super::super::node::LEASE_MS`].
//!
//! Of rates and places it has a [`share`].

mod share;
#[cfg(test)]
mod tests;

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use crate::domain::{
    ledger::{
        admission::Grant,
        lease::{LeaseAnswer, LeaseChange, Leased, Rated, day_of, node::share::Share},
    },
    money::NanoUsd,
    quick_map::QuickMap,
};

/// How long after a question that the store has answered nothing more is admitted.
pub(crate) const USED_FOR: Duration = Duration::from_secs(1);
/// How often the store is asked about a lease that is used. A quarter of the second in which all leases are to come back.
pub(crate) const ASK_EVERY: Duration = Duration::from_millis(250);
/// How often about one in which requests only end: a third of the holder's lease.
pub(crate) const KEEP_EVERY: Duration = Duration::from_secs(10);
/// The least time between two questions for more.
pub(crate) const GROW_EVERY: Duration = Duration::from_millis(20);
/// How long a lease may lie unused before it is given back.
pub(crate) const IDLE_FOR: Duration = Duration::from_secs(2);
/// The most costs remembered one by one until the store has applied them. Further ones are added to the last.
const OWED_MAX: usize = 1_024;

/// What should be free of a lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Target {
    /// For estimates.
    pub(crate) amount: NanoUsd,
    /// Where rates are limited.
    pub(crate) rated: Rated,
}

/// What the store is to be asked about a lease, as [`super::AskLease`] has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Question {
    pub(crate) turn: u64,
    pub(crate) change: LeaseChange,
    pub(crate) used: Rated,
    pub(crate) free: Rated,
    pub(crate) places: u64,
}

/// A request's part of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    /// Its number among the lease's.
    pub(crate) number: u64,
    /// When it was admitted, by the store's clock, in milliseconds since the Unix epoch.
    pub(crate) at_ms: i64,
    /// Key and account, as the store last described them; `hold` is the lease's amount.
    pub(crate) grant: Grant,
}

/// A lease at its node. It begins as one that the store has not been asked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeLease {
    /// What the store said that it has.
    amount: NanoUsd,
    last_reply: Option<LastReply>,
    share: Share,
    cuts: QuickMap<u64, NanoUsd>,
    cut: NanoUsd,
    next: u64,
    /// What running requests have asked the store for beyond what was free.
    asked_for: NanoUsd,
    owed: VecDeque<(u64, NanoUsd)>,
    owed_in_all: NanoUsd,
    /// Costs whose steps could not be recorded.
    lost: NanoUsd,
    /// What is being given back.
    returning: NanoUsd,
    /// The number of the last question, and how many ran in the lease then.
    turn: u64,
    running_then: u64,
    is_asking: bool,
    /// The last question was not answered, so the store may have more of it than it said.
    is_unsure: bool,
    /// When it was not answered.
    in_vain: Option<Instant>,
    /// What it had when it was asked to grow, and what for.
    before_growth: Option<(NanoUsd, Target)>,
    /// It did not grow when it was asked to, or not enough of rates and places.
    is_near: bool,
    /// Nothing is admitted out of it any more.
    is_over: bool,
    /// The store does not have it any more.
    is_gone: bool,
    used: Option<Instant>,
}

/// The latest answer of the store, with the times of the question and of the answer.
#[derive(Clone, Copy, Debug)]
struct LastReply {
    asked: Instant,
    answered: Instant,
    leased: Leased,
}

impl NodeLease {
    /// Admits a request at a time, if the lease is confirmed and has all of its estimate, and of rates and places. `expires_at` is
    /// when its key expires, in seconds since the Unix epoch.
    pub(crate) fn cut(&mut self, estimate: NanoUsd, tokens: u64, expires_at: Option<i64>, now: Instant) -> Option<Cut> {
        let estimate = estimate.max(NanoUsd::ZERO);
        let reply = self.confirmed(now)?;
        let (at_ms, latest_ms) = (reply.at(reply.answered, now), reply.at(reply.asked, now));
        let is_today = day_of(reply.leased.since_ms) == day_of(at_ms) && day_of(at_ms) == day_of(latest_ms);
        let is_expired = expires_at.is_some_and(|end| end <= latest_ms.div_euclid(1000));
        self.is_over |= day_of(reply.leased.since_ms) != day_of(at_ms);
        if !is_today || is_expired || self.free() < estimate || self.free() <= NanoUsd::ZERO {
            return None;
        }
        if !self.share.has(tokens, self.running()) {
            return None;
        }
        self.share.take(tokens);
        self.next += 1;
        self.cuts.insert(self.next, estimate);
        self.cut = self.cut.saturating_add(estimate);
        self.used = Some(now);
        Some(Cut {
            number: self.next,
            at_ms,
            grant: reply.leased.grant,
        })
    }

    /// Gives a running request up to that much more, of what is free. Zero if that is nothing, or not certain.
    pub(crate) fn enlarge(&mut self, number: u64, more: NanoUsd, now: Instant) -> NanoUsd {
        if self.confirmed(now).is_none() {
            return NanoUsd::ZERO;
        }
        let more = more.min(self.free()).max(NanoUsd::ZERO);
        self.add(number, more)
    }

    /// A running request asks the store for more than is free; [`NodeLease::got`] follows.
    pub(crate) fn asks(&mut self, more: NanoUsd) {
        self.asked_for = self.asked_for.saturating_add(more);
    }

    /// What it got of it.
    pub(crate) fn got(&mut self, number: u64, asked: NanoUsd, got: NanoUsd) {
        self.asked_for = self.asked_for.saturating_sub(asked);
        self.add(number, got);
    }

    fn add(&mut self, number: u64, more: NanoUsd) -> NanoUsd {
        // One that has ended meanwhile needs nothing.
        let Some(cut) = self.cuts.get_mut(&number) else {
            return NanoUsd::ZERO;
        };
        *cut = cut.saturating_add(more);
        self.cut = self.cut.saturating_add(more);
        more
    }

    /// A request has ended, and a step charges it; `None`: the step could not be recorded.
    pub(crate) fn ended(&mut self, number: u64, cost: NanoUsd, step: Option<u64>) {
        let Some(cut) = self.cuts.remove(&number) else { return };
        self.cut = self.cut.saturating_sub(cut);
        let Some(step) = step else {
            self.lost = self.lost.saturating_add(cost);
            return;
        };
        self.owed_in_all = self.owed_in_all.saturating_add(cost);
        let is_full = self.owed.len() >= OWED_MAX;
        match self.owed.back_mut().filter(|_| is_full) {
            Some((last, owed)) => (*last, *owed) = (step.max(*last), owed.saturating_add(cost)),
            None => self.owed.push_back((step, cost)),
        }
    }

    /// Nothing is admitted out of it any more; what is free goes back.
    pub(crate) fn end(&mut self) {
        self.is_over = true;
    }

    /// What to ask the store now; [`NodeLease::answered`] follows. `target` is what should be free.
    pub(crate) fn wants(&mut self, target: Target, now: Instant) -> Option<Question> {
        // While the store is away, all leases of a node ask four times a second each, and no more.
        let was_in_vain = self.in_vain.is_some_and(|at| now < at + ASK_EVERY);
        if self.is_asking || self.is_gone || was_in_vain {
            return None;
        }
        if self.used.is_some_and(|used| now >= used + IDLE_FOR) {
            self.end();
        }
        let free = self.free();
        let since = self.last_reply.map(|reply| now.saturating_duration_since(reply.asked));
        let change = if self.is_over {
            let waits = [self.asked_for, self.lost];
            let is_settled = self.cuts.is_empty() && self.owed.is_empty() && waits == [NanoUsd::ZERO; 2];
            match since {
                _ if is_settled => LeaseChange::End,
                _ if free > NanoUsd::ZERO || self.share.is_there() => LeaseChange::Return(free.max(NanoUsd::ZERO)),
                Some(since) if since < self.ends_every() => return None,
                _ => LeaseChange::Return(NanoUsd::ZERO),
            }
        } else if self.is_low(target) && since.is_none_or(|since| since >= self.grows_every()) {
            LeaseChange::Grow(target.amount.saturating_sub(free).max(NanoUsd::ZERO))
        } else if free.saturating_sub(target.amount) > target.amount {
            LeaseChange::Return(free.saturating_sub(target.amount))
        } else if since.is_none_or(|since| since >= ASK_EVERY) {
            LeaseChange::Return(NanoUsd::ZERO)
        } else {
            return None;
        };
        if let LeaseChange::Return(amount) = change {
            self.returning = self.returning.saturating_add(amount);
        }
        self.before_growth = matches!(change, LeaseChange::Grow(_)).then_some((self.amount, target));
        self.is_asking = true;
        self.turn += 1;
        self.running_then = self.running();
        let free = if self.is_over { Rated::default() } else { target.rated };
        Some(Question {
            turn: self.turn,
            change,
            used: self.share.used(),
            free,
            places: self.share.asks(free, self.running_then),
        })
    }

    /// How often to ask for more: seldom, where that was of no use.
    fn grows_every(&self) -> Duration {
        if self.is_near { ASK_EVERY } else { GROW_EVERY }
    }

    /// How often to look whether it can end: soon, when only the store is waited for, when it is not known what the store has, or
    /// when fewer run than it counts.
    fn ends_every(&self) -> Duration {
        if self.cuts.is_empty() || self.is_unsure || self.running() != self.running_then {
            ASK_EVERY
        } else {
            KEEP_EVERY
        }
    }

    /// The answer to a question; `None`: it did not come, and it is not known what became of it.
    pub(crate) fn answered(&mut self, answer: Option<&LeaseAnswer>, asked: Instant, answered: Instant) {
        self.is_asking = false;
        self.in_vain = answer.is_none().then_some(answered);
        match answer {
            Some(LeaseAnswer::Held(leased)) => self.on_reply(*leased, asked, answered),
            Some(LeaseAnswer::Refused | LeaseAnswer::Gone) => {
                (self.is_over, self.is_gone) = (true, true);
            }
            // What was to be given back counts as given until the next answer; no question is obeyed behind a later one.
            None => self.is_unsure = true,
        }
    }

    fn on_reply(&mut self, leased: Leased, asked: Instant, answered: Instant) {
        let watermark = leased.grant.watermark;
        // An answer that was lost may be from before all leases were taken back. It would have the mark of then.
        self.is_over |= self.last_reply.is_none() && self.is_unsure;
        if let Some(before) = &self.last_reply {
            // Others may have it by now, or the store has forgotten what was charged to it.
            self.is_over |= before.leased.recall != leased.recall || before.leased.grant.watermark > watermark;
        }
        self.amount = leased.grant.hold;
        self.share.set_allowance(leased.allowance);
        if let Some((before, target)) = self.before_growth.take() {
            let lacks_money = self.is_short(target.amount) && self.amount <= before;
            self.is_near = lacks_money || self.share.is_low(target.rated, self.running());
        }
        (self.returning, self.is_unsure) = (NanoUsd::ZERO, false);
        while let Some((_, cost)) = self.owed.front().copied().filter(|(step, _)| *step <= watermark) {
            self.owed.pop_front();
            self.owed_in_all = self.owed_in_all.saturating_sub(cost);
        }
        self.used.get_or_insert(answered);
        self.last_reply = Some(LastReply {
            asked,
            answered,
            leased,
        });
    }

    /// What nobody has or waits for.
    pub(crate) fn free(&self) -> NanoUsd {
        let used = [self.cut, self.asked_for, self.owed_in_all, self.lost, self.returning];
        used.into_iter().fold(self.amount, NanoUsd::saturating_sub)
    }

    /// Whether it should grow.
    pub(crate) fn is_low(&self, target: Target) -> bool {
        self.is_short(target.amount) || self.share.is_low(target.rated, self.running())
    }

    fn is_short(&self, amount: NanoUsd) -> bool {
        half(amount) > self.free()
    }

    /// What the store holds for it.
    pub(crate) fn amount(&self) -> NanoUsd {
        self.amount
    }

    /// How many requests run in it.
    pub(crate) fn running(&self) -> u64 {
        u64::try_from(self.cuts.len()).unwrap_or(u64::MAX)
    }

    /// Whether nothing is admitted out of it any more.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Whether it can be forgotten.
    pub(crate) fn is_done(&self) -> bool {
        self.is_gone && self.cuts.is_empty()
    }

    fn confirmed(&self, now: Instant) -> Option<LastReply> {
        self.last_reply
            .filter(|reply| !self.is_over && now.saturating_duration_since(reply.asked) < USED_FOR)
    }
}

impl LastReply {
    /// The store's time at a moment, if the answer was made at another one.
    fn at(&self, made: Instant, now: Instant) -> i64 {
        let since = now.saturating_duration_since(made).as_millis();
        let since = i64::try_from(since).unwrap_or(i64::MAX);
        self.leased.grant.at_ms.saturating_add(since)
    }
}

fn half(amount: NanoUsd) -> NanoUsd {
    NanoUsd::from_nanos(amount.nanos() / 2)
}
