//! Admission: a request gets a bill, a place in a queue, or a refusal. A limit that was just raised, on whichever node, is
//! not reported as reached: where that may be, the key's record is read again once.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    domain::{
        faults::refusal::Refusal,
        keys::{key::KeyRecord, secret::KeyDigest},
        ledger::Denial,
        wire::operation::Operation,
    },
    edges::clock,
    money::billing::{
        admission_request::{AdmissionRequest, FoundKey},
        bill::Bill,
        engine::NotAdmitted,
        queue::QueuePosition,
        service::{Billing, FirstStep, Question},
    },
};

/// How far an admission has come without waiting.
pub(crate) enum Admitting<'a> {
    /// It is decided.
    Decided(Result<Admission<'a>, Refusal>),
    /// A store has to be asked: [`PendingAdmission::decided`].
    Pending(PendingAdmission<'a>),
}

/// An admission that a store is to be asked for.
pub(crate) struct PendingAdmission<'a> {
    billing: &'a Billing,
    request: &'a AdmissionRequest<'a>,
    /// When it began.
    asked: Instant,
    next: Next,
}

/// What a store is asked next.
enum Next {
    /// The ledger, for the hold.
    Hold(Box<Question>),
    /// The store of keys, because the key's record may be outdated by which this came out.
    Key(NotAdmitted),
}

/// What a request that asked for admission has got.
#[derive(Debug)]
pub(crate) enum Admission<'a> {
    /// The right to be forwarded, and its open charge.
    Admitted(Bill),
    /// A place in a queue, because running requests hold all that is left.
    Queued(QueueTicket<'a>),
}

/// A request's place in a queue for what running requests hold: a hold, or a part of it, comes back when a request ends. A
/// request whose limit is spent does not wait. If the ticket is dropped, the request leaves the queue.
#[derive(Debug)]
pub(crate) struct QueueTicket<'a> {
    billing: &'a Billing,
    request: &'a AdmissionRequest<'a>,
    position: QueuePosition,
}

impl Billing {
    /// Refuses a request before its body is read for what no body can change. This costs a call only where a refusal is
    /// likely, and an operator's change takes effect at once, because the store confirms it. A request that passes is still
    /// checked by [`Billing::admit`].
    ///
    /// - A rate or concurrency limit is seen by what this node has admitted and refused itself.
    /// - A key that was denied within the last minute is asked for.
    /// - So is one whose body is heavy, unless the store said a moment ago that there is money for it: then to receive and
    ///   decode the body takes far longer than the call. For small bodies the call would be the longer wait.
    pub(crate) async fn refuse_early(
        &self,
        key: FoundKey<'_>,
        operation: Operation,
        body_is_heavy: bool,
    ) -> Result<(), Refusal> {
        if operation.counts_tokens() {
            return Box::pin(self.refuse_spent(key)).await;
        }
        let (engine, record, now) = (&self.engine, key.record, clock::instant());
        let foreseen = engine.grace.foresees(record);
        if !engine.keys.store_is_reachable() {
            // Rates hold without the store. Nothing else can be confirmed, and a cached key has its grace.
            return foreseen.map_or(Ok(()), |denial| Err(engine.refusal(record, denial)));
        }
        // What few requests need is boxed, so that not each one carries the room for it.
        if let Some(denial) = foreseen.or_else(|| engine.denials.recall(&record.id, now)) {
            return Box::pin(self.confirm(key, denial, now)).await;
        }
        if body_is_heavy
            && !engine.grace.vouches_for(record)
            && let Some(denial) = Box::pin(engine.denials.check(record)).await
        {
            engine.denials.remember(&record.id, denial, now);
            return Box::pin(self.confirm(key, denial, now)).await;
        }
        Ok(())
    }

    /// Refuses a token count, which is free, for a key whose quota is spent: such a key cannot be used
    /// (docs/interface.md, Token counts). The store is asked, once, only where the key has a quota; while it is away nobody
    /// is refused.
    async fn refuse_spent(&self, key: FoundKey<'_>) -> Result<(), Refusal> {
        let now = clock::instant();
        if !self.engine.keys.store_is_reachable() {
            return Ok(());
        }
        match self.engine.denials.check_quota(key.record).await {
            Some(denial) => self.confirm(key, denial, now).await,
            None => Ok(()),
        }
    }

    /// Refuses for a denial if the store says that it holds.
    async fn confirm(&self, key: FoundKey<'_>, denial: Denial, now: Instant) -> Result<(), Refusal> {
        let engine = &self.engine;
        let record = match denial.depends_on_key() {
            true => match self.reread(key.digest, now).await {
                // Without the store's answer nobody is refused.
                Err(Refusal::StoreUnavailable) => return Ok(()),
                found => found?,
            },
            false => Arc::clone(key.record),
        };
        match engine.denials.confirm(&record, denial).await {
            Some(denial) => Err(engine.refusal(&record, denial)),
            None => {
                engine.denials.forget(&record.id);
                Ok(())
            }
        }
    }

    /// Admits a request: puts its hold and opens its bill. This waits for nothing: without a lease, and with a ledger that is
    /// not at hand, the admission is pending. A request waits behind those that wait already, also one whose key has a lease.
    /// `answered` is told how long the first answer took, out of a lease or by the ledger.
    pub(crate) fn admit<'a>(
        &'a self,
        request: &'a AdmissionRequest<'a>,
        answered: &mut impl FnMut(Duration),
    ) -> Admitting<'a> {
        let record = request.key.record;
        if let Some(denial) = self.waits_behind(record) {
            return Admitting::Decided(self.queue(request, denial));
        }
        let asked = clock::instant();
        let next = match self.try_now(record, request) {
            FirstStep::Asks(question) => Next::Hold(question),
            FirstStep::Answered(answer) => {
                answered(clock::instant().saturating_duration_since(asked));
                match answer {
                    Err(not_admitted) if not_admitted.may_be_outdated() => Next::Key(not_admitted),
                    answer => return Admitting::Decided(self.decide(record, request, answer, asked)),
                }
            }
        };
        Admitting::Pending(PendingAdmission {
            billing: self,
            request,
            asked,
            next,
        })
    }

    /// What the last answer to an attempt by this record of the key means for the request; `asked` is when the store was asked.
    fn decide<'a>(
        &'a self,
        key: &KeyRecord,
        request: &'a AdmissionRequest<'a>,
        answer: Result<Bill, NotAdmitted>,
        asked: Instant,
    ) -> Result<Admission<'a>, Refusal> {
        match answer {
            Ok(bill) => Ok(Admission::Admitted(bill)),
            Err(NotAdmitted::Denied(denial)) if denial.is_held() => self.queue(request, denial),
            Err(not_admitted) => Err(self.refuse(key, not_admitted, asked)),
        }
    }

    /// The last place in the queue for what was denied, unless nobody may wait or the queue is full.
    fn queue<'a>(&'a self, request: &'a AdmissionRequest<'a>, denial: Denial) -> Result<Admission<'a>, Refusal> {
        let (key, limits) = (request.key.record, request.limits);
        let may_wait = !limits.held_wait.is_zero();
        let position = may_wait.then(|| self.wait_behind(key, denial, limits.held_waiting_max));
        match position.flatten() {
            Some(position) => Ok(Admission::Queued(QueueTicket {
                billing: self,
                request,
                position,
            })),
            None => Err(self.engine.refusal(key, denial)),
        }
    }

    /// The refusal for a request that was not admitted. A denial is remembered; `asked` is when the store was asked.
    fn refuse(&self, key: &KeyRecord, not_admitted: NotAdmitted, asked: Instant) -> Refusal {
        match not_admitted {
            NotAdmitted::Denied(denial) => {
                self.engine.denials.remember(&key.id, denial, asked);
                self.engine.refusal(key, denial)
            }
            // A key that changes faster than it can be read is not served on a guess.
            NotAdmitted::StaleKey => Refusal::StoreUnavailable,
            NotAdmitted::Refused(refusal) => refusal,
        }
    }

    /// The key's record, read from the store now.
    async fn reread(&self, digest: &KeyDigest, now: Instant) -> Result<Arc<KeyRecord>, Refusal> {
        let found = self.engine.keys.find_anew(digest, now).await;
        let key = found
            .map_err(|_| Refusal::StoreUnavailable)?
            .ok_or(Refusal::KeyUnknown)?;
        key.check(digest, self.engine.time.now_seconds(clock::instant()))?;
        Ok(key)
    }

    /// The key's record as the cache has it now: its quota may have been raised while the request waited.
    async fn current(&self, digest: &KeyDigest, known: Arc<KeyRecord>) -> Arc<KeyRecord> {
        match self.engine.keys.find_known(digest, clock::instant()).await {
            Ok(Some(key)) => key,
            // The admission decides whether the key is still valid.
            Ok(None) | Err(_) => known,
        }
    }
}

impl<'a> PendingAdmission<'a> {
    /// Asks the stores, and decides. `answered` is told how long the ledger's first answer took.
    pub(crate) async fn decided(self, answered: &mut impl FnMut(Duration)) -> Result<Admission<'a>, Refusal> {
        let Self {
            billing,
            request,
            asked,
            next,
        } = self;
        let FoundKey { digest, record } = request.key;
        let answer = match next {
            Next::Key(not_admitted) => Err(not_admitted),
            Next::Hold(question) => {
                let answer = billing.ask_ledger(*question, request).await;
                answered(clock::instant().saturating_duration_since(asked));
                answer
            }
        };
        let outdated = match answer {
            Err(not_admitted) if not_admitted.may_be_outdated() => not_admitted,
            answer => return billing.decide(record, request, answer, asked),
        };
        let key = billing.reread(digest, clock::instant()).await?;
        let answer = match outdated {
            NotAdmitted::StaleKey => billing.try_admit(&key, request).await,
            _ if key.revision != record.revision => billing.try_admit(&key, request).await,
            denied => Err(denied),
        };
        billing.decide(&key, request, answer, asked)
    }
}

impl QueueTicket<'_> {
    /// Waits until the store admits the request, for at most `[money] held_wait_ms`. That limits the waiting, not the
    /// store's last answer.
    pub(crate) async fn admitted(self) -> Result<Bill, Refusal> {
        let Self {
            billing,
            request,
            mut position,
        } = self;
        let digest = request.key.digest;
        let until = tokio::time::Instant::from_std(clock::instant() + request.limits.held_wait);
        let mut key = Arc::clone(request.key.record);
        let mut last = None;
        loop {
            if tokio::time::timeout_at(until, position.turn()).await.is_err() {
                let denial = last.or_else(|| position.denial()).unwrap_or(Denial::BalanceHeld);
                return Err(billing.engine.refusal(&key, denial));
            }
            key = billing.current(digest, key).await;
            let mut answer = billing.try_admit(&key, request).await;
            if answer.as_ref().err() == Some(&NotAdmitted::StaleKey) {
                key = billing.reread(digest, clock::instant()).await?;
                answer = billing.try_admit(&key, request).await;
            }
            if let Err(NotAdmitted::Denied(denial)) = answer
                && denial.is_held()
            {
                position.refused(&key.id, denial);
                last = Some(denial);
                continue;
            }
            position.done();
            return answer.map_err(|not_admitted| billing.refuse(&key, not_admitted, clock::instant()));
        }
    }
}
