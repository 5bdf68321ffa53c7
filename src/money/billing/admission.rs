//! Admission: a request gets a bill, a position in a queue, or a refusal. If the key's record may be outdated, it is read again
//! once. Otherwise, weir could refuse a request because of a limit that an operator has just raised.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use smol_str::SmolStr;

use crate::{
    config::money::MoneyConfig,
    domain::{
        catalogue::models::PricedRoute,
        faults::refusal::Refusal,
        keys::{KeyRecord, secret::KeyDigest},
        ledger::{Denial, calibration::Estimate, consumption::RequestTransport, ids::Tag},
        money::NanoUsd,
        wire::operation::Operation,
    },
    edges::clock,
    money::billing::{Billing, FirstStep, PreparedAdmitCall, bill::Bill, engine::NotAdmitted, queue::QueuePosition},
};

/// The result of the first part of an admission, which does not wait.
pub(crate) enum AdmissionStart<'a> {
    /// The admission is decided.
    Decided(Result<Admission<'a>, Refusal>),
    /// The admission needs a call to a store. [`PendingAdmission::decide`] makes this call.
    Pending(PendingAdmission<'a>),
}

/// An admission that needs a call to a store.
pub(crate) struct PendingAdmission<'a> {
    billing: &'a Billing,
    request: &'a AdmissionRequest<'a>,
    /// The time at which the admission began.
    asked: Instant,
    next: NextStoreCall,
}

/// The next call to a store that an admission needs.
enum NextStoreCall {
    /// A call to the ledger, for the hold.
    Hold(Box<PreparedAdmitCall>),
    /// A call to the key store, because the request was not admitted and the key's cached record may be outdated.
    Key(NotAdmitted),
}

/// The result for a request that was not refused.
#[derive(Debug)]
pub(crate) enum Admission<'a> {
    /// The request may be forwarded; its charge is open.
    Admitted(Bill),
    /// The request has a position in a queue. The limit that denied it would suffice without the holds of running requests.
    Queued(QueueTicket<'a>),
}

/// A request's position in a queue for money that running requests hold. When a running request ends, its hold or a part of that
/// hold becomes free. A request does not wait if charges, rather than holds, have used up its limit. If the ticket is dropped,
/// the request leaves the queue.
#[derive(Debug)]
pub(crate) struct QueueTicket<'a> {
    billing: &'a Billing,
    request: &'a AdmissionRequest<'a>,
    position: QueuePosition,
}

impl Billing {
    /// Refuses a request before its body is read, if the body cannot change the decision. This costs a call to the store only if
    /// a refusal is likely. The store confirms each refusal, so an operator's change takes effect at once. A request that passes
    /// is still checked by [`Billing::admit`].
    ///
    /// - A denial by a rate or concurrency limit is predicted from the requests that this node has admitted and refused.
    /// - A key that was denied within the last minute is checked with the store.
    /// - A key whose request has a heavy body is checked too, unless the store has just reported that the key has money:
    ///   receiving and decoding such a body takes far longer than the call. For a small body, the call would take longer.
    pub(crate) async fn refuse_early(
        &self,
        key: FoundKey<'_>,
        operation: Operation,
        body_is_heavy: bool,
    ) -> Result<(), Refusal> {
        if operation.is_token_count() {
            return Box::pin(self.refuse_spent(key)).await;
        }
        let (engine, record, now) = (&self.engine, key.record, clock::instant());
        let foreseen = engine.grace.predict_denial(record);
        if !engine.keys.is_store_reachable() {
            // Rates apply without the store. No other limit can be confirmed, and a cached key has its grace.
            return foreseen.map_or(Ok(()), |denial| Err(engine.refusal(record, denial)));
        }
        // Futures that few requests need are boxed, so that the other requests need no memory for them.
        if let Some(denial) = foreseen.or_else(|| engine.denials.recall(&record.id, now)) {
            return Box::pin(self.refuse_if_confirmed(key, denial, now)).await;
        }
        if body_is_heavy
            && !engine.grace.has_recent_funds(record)
            && let Some(denial) = Box::pin(engine.denials.check_funds(record)).await
        {
            engine.denials.remember(&record.id, denial, now);
            return Box::pin(self.refuse_if_confirmed(key, denial, now)).await;
        }
        Ok(())
    }

    /// Refuses a token count if the key's quota is spent. Token counts are free, but a key whose quota is spent cannot be used
    /// for them (docs/interface.md, Token counts). The store is called once, and only if the key has a quota. While the store is
    /// unreachable, no token count is refused.
    async fn refuse_spent(&self, key: FoundKey<'_>) -> Result<(), Refusal> {
        let now = clock::instant();
        if !self.engine.keys.is_store_reachable() {
            return Ok(());
        }
        match self.engine.denials.check_quota(key.record).await {
            Some(denial) => self.refuse_if_confirmed(key, denial, now).await,
            None => Ok(()),
        }
    }

    /// Refuses a request because of `denial`, if the store confirms the denial.
    async fn refuse_if_confirmed(&self, key: FoundKey<'_>, denial: Denial, now: Instant) -> Result<(), Refusal> {
        let engine = &self.engine;
        let record = match denial.depends_on_key() {
            true => match self.reread_key(key.digest, now).await {
                // Without the store's answer, no request is refused.
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

    /// Admits a request: places its hold and opens its bill. Never waits: if the key has no lease and the ledger cannot answer at
    /// once, the admission is pending. If other requests already wait because of a limit of the key or its account, the request
    /// joins their queue, even if its key has a lease. If a lease or the ledger answers at once, `answered` is called with the
    /// time that this answer took.
    pub(crate) fn admit<'a>(
        &'a self,
        request: &'a AdmissionRequest<'a>,
        answered: &mut impl FnMut(Duration),
    ) -> AdmissionStart<'a> {
        let record = request.key.record;
        if let Some(denial) = self.queue_denial(record) {
            return AdmissionStart::Decided(self.queue_or_refuse(request, denial));
        }
        let asked = clock::instant();
        let next = match self.try_admit_now(record, request) {
            FirstStep::Asks(question) => NextStoreCall::Hold(question),
            FirstStep::Answered(answer) => {
                answered(clock::instant().saturating_duration_since(asked));
                match answer {
                    Err(not_admitted) if not_admitted.may_be_outdated() => NextStoreCall::Key(not_admitted),
                    answer => return AdmissionStart::Decided(self.decide(record, request, answer, asked)),
                }
            }
        };
        AdmissionStart::Pending(PendingAdmission {
            billing: self,
            request,
            asked,
            next,
        })
    }

    /// Decides on the basis of the store's last reply (`answer`). `key` is the key's record that was used in the call. `asked` is
    /// the time of the call to the store.
    fn decide<'a>(
        &'a self,
        key: &KeyRecord,
        request: &'a AdmissionRequest<'a>,
        answer: Result<Bill, NotAdmitted>,
        asked: Instant,
    ) -> Result<Admission<'a>, Refusal> {
        match answer {
            Ok(bill) => Ok(Admission::Admitted(bill)),
            Err(NotAdmitted::Denied(denial)) if denial.is_held() => self.queue_or_refuse(request, denial),
            Err(not_admitted) => Err(self.refuse(key, not_admitted, asked)),
        }
    }

    /// Puts the request at the end of the queue for the limit that denied it. Refuses the request if it is not allowed to wait or
    /// the queue is full.
    fn queue_or_refuse<'a>(
        &'a self,
        request: &'a AdmissionRequest<'a>,
        denial: Denial,
    ) -> Result<Admission<'a>, Refusal> {
        let (key, limits) = (request.key.record, request.limits);
        let may_wait = !limits.held_wait.is_zero();
        let position = may_wait.then(|| self.enqueue(key, denial, limits.held_waiting_max));
        match position.flatten() {
            Some(position) => Ok(Admission::Queued(QueueTicket {
                billing: self,
                request,
                position,
            })),
            None => Err(self.engine.refusal(key, denial)),
        }
    }

    /// Returns the refusal of a request that was not admitted, and remembers its denial. `asked` is the time of the call to the
    /// store.
    fn refuse(&self, key: &KeyRecord, not_admitted: NotAdmitted, asked: Instant) -> Refusal {
        match not_admitted {
            NotAdmitted::Denied(denial) => {
                self.engine.denials.remember(&key.id, denial, asked);
                self.engine.refusal(key, denial)
            }
            // A key that changes faster than its record can be read is refused, because its terms are unknown.
            NotAdmitted::StaleKey => Refusal::StoreUnavailable,
            NotAdmitted::Refused(refusal) => refusal,
        }
    }

    /// Reads the key's record from the store.
    async fn reread_key(&self, digest: &KeyDigest, now: Instant) -> Result<Arc<KeyRecord>, Refusal> {
        let found = self.engine.keys.refetch(digest, now).await;
        let key = found
            .map_err(|_| Refusal::StoreUnavailable)?
            .ok_or(Refusal::KeyUnknown)?;
        key.check(digest, self.engine.time.now_seconds(clock::instant()))?;
        Ok(key)
    }

    /// Returns the record that the key cache has for the key now. The key's quota may have been raised while the request waited.
    async fn current_key(&self, digest: &KeyDigest, known: Arc<KeyRecord>) -> Arc<KeyRecord> {
        match self.engine.keys.find_known(digest, clock::instant()).await {
            Ok(Some(key)) => key,
            // The admission decides whether the key is still valid.
            Ok(None) | Err(_) => known,
        }
    }
}

impl<'a> PendingAdmission<'a> {
    /// Calls the stores, and decides. `answered` is called with the time that the ledger's first answer took.
    pub(crate) async fn decide(self, answered: &mut impl FnMut(Duration)) -> Result<Admission<'a>, Refusal> {
        let Self {
            billing,
            request,
            asked,
            next,
        } = self;
        let FoundKey { digest, record } = request.key;
        let answer = match next {
            NextStoreCall::Key(not_admitted) => Err(not_admitted),
            NextStoreCall::Hold(question) => {
                let answer = billing.ask_ledger(*question, request).await;
                answered(clock::instant().saturating_duration_since(asked));
                answer
            }
        };
        let outdated = match answer {
            Err(not_admitted) if not_admitted.may_be_outdated() => not_admitted,
            answer => return billing.decide(record, request, answer, asked),
        };
        let key = billing.reread_key(digest, clock::instant()).await?;
        let answer = match outdated {
            NotAdmitted::StaleKey => billing.try_admit(&key, request).await,
            _ if key.revision != record.revision => billing.try_admit(&key, request).await,
            denied => Err(denied),
        };
        billing.decide(&key, request, answer, asked)
    }
}

impl QueueTicket<'_> {
    /// Waits until the store admits the request, for at most `[money] held_wait_ms`. The duration of the last call to the store
    /// is not included in that time.
    pub(crate) async fn wait_for_admission(self) -> Result<Bill, Refusal> {
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
            if tokio::time::timeout_at(until, position.wait_for_turn()).await.is_err() {
                let denial = last.or_else(|| position.denial()).unwrap_or(Denial::BalanceHeld);
                return Err(billing.engine.refusal(&key, denial));
            }
            key = billing.current_key(digest, key).await;
            let mut answer = billing.try_admit(&key, request).await;
            if answer.as_ref().err() == Some(&NotAdmitted::StaleKey) {
                key = billing.reread_key(digest, clock::instant()).await?;
                answer = billing.try_admit(&key, request).await;
            }
            if let Err(NotAdmitted::Denied(denial)) = answer
                && denial.is_held()
            {
                position.on_denied(&key.id, denial);
                last = Some(denial);
                continue;
            }
            position.leave_answered();
            return answer.map_err(|not_admitted| billing.refuse(&key, not_admitted, clock::instant()));
        }
    }
}

/// A key that the key cache has found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FoundKey<'a> {
    /// The digest with which the key's record can be read again.
    pub digest: &'a KeyDigest,
    /// The key's record in this node's cache.
    pub record: &'a Arc<KeyRecord>,
}

/// A request that is to be admitted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AdmissionRequest<'a> {
    /// The key of the request.
    pub key: FoundKey<'a>,
    /// weir's id of the request.
    pub request_id: &'a SmolStr,
    /// The requested operation.
    pub operation: Operation,
    /// The model's name as given by the client.
    pub model_asked: &'a str,
    /// Whether the client wants a streamed answer.
    pub stream: bool,
    /// How the request reached weir.
    pub transport: RequestTransport,
    /// The tags given by the client.
    pub(crate) tags: &'a [Tag],
    /// The requested model, and its price at each provider that may serve it.
    pub route: &'a Arc<PricedRoute>,
    /// The expected usage.
    pub estimate: Estimate,
    /// When the request's head arrived.
    pub arrived: Instant,
    /// The settings of `[money]`. They include the maximum time in a queue and the maximum number of waiting requests.
    pub limits: &'a MoneyConfig,
}

/// The expected cost of a request at the most expensive of its providers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EstimatedCost {
    /// The total cost, which is the amount of the hold.
    pub(super) total: NanoUsd,
    /// The part of the cost that the output causes.
    pub(super) output: NanoUsd,
    /// The cost of the input without a cache. This amount is charged if no usage becomes known.
    pub(super) uncached_input: NanoUsd,
}

impl AdmissionRequest<'_> {
    pub(super) fn estimated_cost(&self) -> EstimatedCost {
        let [mut whole, mut input, mut uncached_input] = [NanoUsd::ZERO; 3];
        for price in self.route.prices() {
            whole = whole.max(self.estimate.cost(price));
            input = input.max(self.estimate.input_cost(price));
            uncached_input = uncached_input.max(self.estimate.uncached_cost(price));
        }
        EstimatedCost {
            total: whole,
            output: whole.saturating_sub(input).max(NanoUsd::ZERO),
            uncached_input,
        }
    }
}
