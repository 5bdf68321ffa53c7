//! What all bills of this node share, and how a request gets its hold.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Instant,
};

use crate::{
    domain::{
        faults::refusal::Refusal,
        keys::key::KeyRecord,
        ledger::{Admit, AdmitReply, Denial, NodeId, ProviderState, Scope},
    },
    edges::clock,
    journal::Journal,
    money::billing::{
        counters::Counters,
        denials::Denials,
        grace::Grace,
        last_seen::GraceLimits,
        leases::{LeaseLimits, Leases},
        queue::Queues,
        running::{GrantedHold, RunningRequests},
        tally::Seat,
        unconfirmed::UnconfirmedHolds,
    },
    store::{StoreError, key_cache::KeyCache, ledger::LedgerStore, time::StoreTime},
};

/// The state that all bills share.
pub(super) struct BillingEngine {
    pub(super) ledger: Arc<dyn LedgerStore>,
    pub(super) journal: Arc<Journal>,
    /// Where the record of a key is read again.
    pub(super) keys: Arc<KeyCache>,
    pub(super) denials: Denials,
    pub(super) node: NodeId,
    pub(super) time: Arc<StoreTime>,
    pub(super) running: RunningRequests,
    pub(super) grace: Grace,
    pub(super) leases: Leases,
    /// Requests that wait for holds of running requests.
    pub(super) queues: Arc<Queues>,
    /// Admissions without an answer from the store; each may have left a hold there.
    pub(super) unconfirmed: UnconfirmedHolds,
    pub(super) counters: Counters,
}

/// Why one attempt did not admit a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NotAdmitted {
    /// The store denied it: a limit, the account, or the key itself.
    Denied(Denial),
    /// The key's record has changed: read it again and retry.
    StaleKey,
    /// It is refused, whatever the store would say now.
    Refused(Refusal),
}

impl NotAdmitted {
    /// Whether the key's record may be outdated by which this came out.
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
            counters: Counters::default(),
        }
    }

    /// The refusal for a denial of this key.
    pub(super) fn refusal(&self, key: &KeyRecord, denial: Denial) -> Refusal {
        Refusal::of(denial, key.terms.reset, self.time.now_seconds(clock::instant()))
    }

    /// The answer of a ledger that is at hand; `None`: it is to be asked by [`Self::hold`].
    pub(super) fn hold_now(&self, ask: &Admit) -> Option<Result<GrantedHold, NotAdmitted>> {
        let asked = clock::instant();
        let answer = self.ledger.admit_now(ask)?;
        Some(self.answered(ask, &answer, asked))
    }

    /// Asks the ledger for a hold, and admits by grace while it is away.
    pub(super) async fn hold(&self, ask: &Admit) -> Result<GrantedHold, NotAdmitted> {
        let doubt = self.unconfirmed.begin(ask);
        let asked = clock::instant();
        match self.ledger.admit(ask).await {
            Ok(answer) => {
                doubt.settled();
                self.answered(ask, &answer, asked)
            }
            Err(error) => {
                let at = clock::instant();
                let seat = self.grace(ask, &error)?;
                // Its settlement ends the hold that the store may have.
                doubt.settled();
                Ok(GrantedHold {
                    seat,
                    at_ms: self.time.now_ms(at),
                    at,
                    watermark: 0,
                    balance: None,
                    quota: None,
                    // What the operator allows is unknown, so the narrower right applies.
                    provider_state: ProviderState::Own,
                    part: None,
                })
            }
        }
    }

    /// What an answer of the ledger grants.
    fn answered(&self, ask: &Admit, answer: &AdmitReply, asked: Instant) -> Result<GrantedHold, NotAdmitted> {
        let at = clock::instant();
        let grant = match answer {
            AdmitReply::Granted(grant) => grant,
            &AdmitReply::Refused(denial) => {
                self.grace.refused(&ask.key, denial);
                self.recall_for(&ask.key, denial);
                return Err(NotAdmitted::Denied(denial));
            }
            AdmitReply::StaleKey => return Err(NotAdmitted::StaleKey),
        };
        self.time.told(grant.at_ms, asked, at);
        Ok(GrantedHold {
            seat: self.grace.granted(ask, grant),
            at_ms: grant.at_ms,
            at,
            watermark: grant.watermark,
            balance: Some(grant.balance),
            quota: grant.quota,
            provider_state: grant.provider_state,
            part: None,
        })
    }

    /// What is free of this node's own leases is there for one who waits for a limit that counts them.
    fn recall_for(&self, asking: &KeyRecord, denial: Denial) {
        match denial {
            Denial::BalanceHeld => self.leases.recall(|key| key.account == asking.account),
            Denial::QuotaHeld(_) => self.leases.recall(|key| key.id == asking.id),
            Denial::Concurrency { scope, lent: true, .. } | Denial::RateLimited { scope, lent: true, .. } => {
                match scope {
                    Scope::Key => self.leases.recall(|key| key.id == asking.id),
                    Scope::Account => self.leases.recall(|key| key.account == asking.account),
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

    /// Admits a request without the store, as far as the grace allows.
    fn grace(&self, ask: &Admit, error: &StoreError) -> Result<Seat, Refusal> {
        tracing::debug!(%error, "the ledger did not answer");
        if matches!(error, StoreError::Busy(_)) {
            // The store is only busy: a retry is admitted normally.
            return Err(Refusal::StoreUnavailable);
        }
        let seat = self.grace.admit(ask).map_err(|denial| match denial {
            // It is no answer of the store, so it is neither confirmed nor remembered, and nobody waits for it.
            Some(denial) => self.refusal(&ask.key, denial),
            None => Refusal::StoreUnavailable,
        })?;
        self.counters.offline.fetch_add(1, Ordering::Relaxed);
        Ok(seat)
    }
}
