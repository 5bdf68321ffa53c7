//! The state that all bills of this node share, the running requests among it, and how a request gets its hold.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Instant,
};

use crate::{
    domain::{
        faults::refusal::Refusal,
        keys::key::KeyRecord,
        ledger::{AdmitCall, AdmitReply, Denial, LimitScope, NodeId, ProviderState},
    },
    edges::clock,
    journal::Journal,
    money::billing::{
        counters::BillingCounters,
        denials::Denials,
        grace::Grace,
        last_seen::GraceLimits,
        leases::{LeaseLimits, Leases},
        queue::Queues,
        running::{GrantedHold, RunningRequests},
        tally::CountedRequest,
        unconfirmed::UnconfirmedHolds,
    },
    store::{StoreError, key_cache::KeyCache, ledger::LedgerStore, time::StoreTime},
};

/// The state that all bills share.
pub(super) struct BillingEngine {
    pub(super) ledger: Arc<dyn LedgerStore>,
    pub(super) journal: Arc<Journal>,
    /// Rereads the record of a key.
    pub(super) keys: Arc<KeyCache>,
    pub(super) denials: Denials,
    pub(super) node: NodeId,
    pub(super) time: Arc<StoreTime>,
    pub(super) running: RunningRequests,
    pub(super) grace: Grace,
    pub(super) leases: Leases,
    /// Requests that wait for holds of running requests.
    pub(super) queues: Arc<Queues>,
    /// Holds that the store may have from admissions that it has not answered.
    pub(super) unconfirmed: UnconfirmedHolds,
    pub(super) counters: BillingCounters,
}

/// Why a request was not admitted.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NotAdmitted {
    /// The store denied it: a limit, the account, or the key itself.
    Denied(Denial),
    /// The key's record has changed: read it again and retry.
    StaleKey,
    /// It is refused without asking the store again.
    Refused(Refusal),
}

impl NotAdmitted {
    /// Whether this may come from an outdated record of the key.
    pub(super) fn may_be_outdated(&self) -> bool {
        match self {
            Self::StaleKey => true,
            Self::Denied(denial) => denial.depends_on_key(),
            Self::Refused(_) => false,
        }
    }
}

impl From<Refusal> for NotAdmitted {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl BillingEngine {
    pub(super) fn new(
        ledger: Arc<dyn LedgerStore>,
        journal: Arc<Journal>,
        keys: Arc<KeyCache>,
        grace: GraceLimits,
        leases: Option<LeaseLimits>,
    ) -> Self {
        let time = Arc::new(StoreTime::new(clock::instant()));
        Self {
            denials: Denials::new(Arc::clone(&ledger), Arc::clone(&time)),
            ledger,
            keys,
            node: journal.node().clone(),
            journal,
            time,
            running: RunningRequests::default(),
            grace: Grace::new(grace),
            leases: Leases::new(leases),
            queues: Arc::default(),
            unconfirmed: UnconfirmedHolds::default(),
            counters: BillingCounters::default(),
        }
    }

    /// The refusal for a denial of this key.
    pub(super) fn refusal(&self, key: &KeyRecord, denial: Denial) -> Refusal {
        Refusal::from_denial(denial, key.terms.reset, self.time.now_seconds(clock::instant()))
    }

    /// The hold from a ledger that can answer at once; `None` if [`Self::hold`] must ask it.
    pub(super) fn obtain_hold_now(&self, ask: &AdmitCall) -> Option<Result<GrantedHold, NotAdmitted>> {
        let asked = clock::instant();
        let answer = self.ledger.admit_now(ask)?;
        Some(self.on_admit_reply(ask, &answer, asked))
    }

    /// Asks the ledger for a hold, and admits by grace while it is unreachable.
    pub(super) async fn obtain_hold(&self, ask: &AdmitCall) -> Result<GrantedHold, NotAdmitted> {
        let doubt = self.unconfirmed.begin(ask);
        let asked = clock::instant();
        match self.ledger.admit(ask).await {
            Ok(answer) => {
                doubt.disarm();
                self.on_admit_reply(ask, &answer, asked)
            }
            Err(error) => {
                let at = clock::instant();
                let seat = self.admit_by_grace(ask, &error)?;
                // The request's settlement ends the hold that the store may have.
                doubt.disarm();
                Ok(GrantedHold {
                    seat,
                    at_ms: self.time.now_ms(at),
                    at,
                    watermark: 0,
                    balance: None,
                    quota: None,
                    // The account's terms are unknown, so the narrower right applies.
                    provider_state: ProviderState::Own,
                    allocation: None,
                })
            }
        }
    }

    /// The hold that the ledger's reply grants; records the reply.
    fn on_admit_reply(&self, ask: &AdmitCall, answer: &AdmitReply, asked: Instant) -> Result<GrantedHold, NotAdmitted> {
        let at = clock::instant();
        let grant = match answer {
            AdmitReply::Granted(grant) => grant,
            &AdmitReply::Refused(denial) => {
                self.grace.on_denied(&ask.key, denial);
                self.recall_leases(&ask.key, denial);
                return Err(NotAdmitted::Denied(denial));
            }
            AdmitReply::StaleKey => return Err(NotAdmitted::StaleKey),
        };
        self.time.record(grant.at_ms, asked, at);
        Ok(GrantedHold {
            seat: self.grace.on_granted(ask, grant),
            at_ms: grant.at_ms,
            at,
            watermark: grant.watermark,
            balance: Some(grant.balance),
            quota: grant.quota,
            provider_state: grant.provider_state,
            allocation: None,
        })
    }

    /// Gives back unused leases of this node that count against the limit in `denial`.
    fn recall_leases(&self, asking: &KeyRecord, denial: Denial) {
        match denial {
            Denial::BalanceHeld => self.leases.recall(|key| key.account == asking.account),
            Denial::QuotaHeld(_) => self.leases.recall(|key| key.id == asking.id),
            Denial::Concurrency { scope, lent: true, .. } | Denial::RateLimited { scope, lent: true, .. } => {
                match scope {
                    LimitScope::Key => self.leases.recall(|key| key.id == asking.id),
                    LimitScope::Account => self.leases.recall(|key| key.account == asking.account),
                }
            }
            Denial::Concurrency { lent: false, .. }
            | Denial::RateLimited { lent: false, .. }
            | Denial::KeyRevoked
            | Denial::KeyExpired
            | Denial::AccountUnknown
            | Denial::AccountSuspended
            | Denial::BalanceExhausted
            | Denial::QuotaExhausted(_) => {}
        }
    }

    /// Admits a request without the store, if its grace allows.
    fn admit_by_grace(&self, ask: &AdmitCall, error: &StoreError) -> Result<CountedRequest, Refusal> {
        tracing::debug!(%error, "the ledger did not answer");
        if matches!(error, StoreError::Busy(_)) {
            // The store is only busy and can admit a retry: no grace.
            return Err(Refusal::StoreUnavailable);
        }
        let seat = self.grace.admit(ask).map_err(|denial| match denial {
            // This denial is not the store's, so it is neither confirmed nor remembered, and no request queues for it.
            Some(denial) => self.refusal(&ask.key, denial),
            None => Refusal::StoreUnavailable,
        })?;
        self.counters.grace_admissions.fetch_add(1, Ordering::Relaxed);
        Ok(seat)
    }
}
