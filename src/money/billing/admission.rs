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
        service::Billing,
    },
};

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
            return self.refuse_spent(key).await;
        }
        let (engine, record, now) = (&self.engine, key.record, clock::instant());
        let foreseen = engine.grace.foresees(record);
        if !engine.keys.store_is_reachable() {
            // Rates hold without the store. Nothing else can be confirmed, and a cached key has its grace.
            return foreseen.map_or(Ok(()), |denial| Err(engine.refusal(record, denial)));
        }
        if let Some(denial) = foreseen.or_else(|| engine.denials.recall(&record.id, now)) {
            return self.confirm(key, denial, now).await;
        }
        if body_is_heavy
            && !engine.grace.vouches_for(record)
            && let Some(denial) = engine.denials.check(record).await
        {
            engine.denials.remember(&record.id, denial, now);
            return self.confirm(key, denial, now).await;
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

    /// Admits a request: puts its hold and opens its bill. A request waits behind those that wait already, also one whose
    /// key has a lease. `answered` is told how long the first answer took, out of a lease or by the ledger.
    pub(crate) async fn admit<'a>(
        &'a self,
        request: &'a AdmissionRequest<'a>,
        answered: impl FnOnce(Duration),
    ) -> Result<Admission<'a>, Refusal> {
        let FoundKey { digest, record } = request.key;
        if let Some(denial) = self.waits_behind(record) {
            return self.queue(request, denial);
        }
        let asked = clock::instant();
        let mut answer = self.try_admit(record, request).await;
        answered(clock::instant().saturating_duration_since(asked));
        let may_be_outdated = match &answer {
            Err(NotAdmitted::StaleKey) => true,
            Err(NotAdmitted::Denied(denial)) => denial.depends_on_key(),
            Err(NotAdmitted::Refused(_)) | Ok(_) => false,
        };
        let mut key = Arc::clone(record);
        if may_be_outdated {
            key = self.reread(digest, clock::instant()).await?;
            if answer.as_ref().err() == Some(&NotAdmitted::StaleKey) || key.revision != record.revision {
                answer = self.try_admit(&key, request).await;
            }
        }
        match answer {
            Ok(bill) => Ok(Admission::Admitted(bill)),
            Err(NotAdmitted::Denied(denial)) if denial.is_held() => self.queue(request, denial),
            Err(not_admitted) => Err(self.refuse(&key, not_admitted, asked)),
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
