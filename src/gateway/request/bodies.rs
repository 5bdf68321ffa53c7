//! What the bodies of all requests share: memory, and time of the threads.

use crate::{
    config::GatewayConfig,
    domain::{
        faults::refusal::{BodyShare, Refusal},
        keys::secret::KeyDigest,
    },
    edges::{
        body_budget::{BodyBudget, BodyHolder, BodyLease, BodyLimits, NoRoom},
        limiter::client::Client,
    },
    gateway::request::body_work::{BodyWork, KeyWork, TURN_WAIT_MAX, WorkShare},
};

/// What the bodies of all requests share. Clones share it, too.
#[derive(Clone, Debug)]
pub(crate) struct Bodies {
    budget: BodyBudget,
    work: BodyWork,
}

impl Bodies {
    /// As configured. Nothing is held or worked on yet.
    pub(crate) fn new(config: &GatewayConfig) -> Self {
        let limits = &config.bodies;
        let share = WorkShare::new(config.threads, limits.work_key_percent);
        Self {
            budget: BodyBudget::new(BodyLimits {
                bytes_max: limits.budget_bytes,
                key_bytes_max: limits.key_bytes_max(),
                address_bytes_max: limits.address_bytes_max(),
            }),
            work: BodyWork::new(share, TURN_WAIT_MAX),
        }
    }

    /// Memory for a body with this key from this address; `None` for one that speaks for many. It holds nothing yet.
    pub(crate) fn lease(&self, key: KeyDigest, address: Option<Client>) -> BodyLease {
        self.budget.lease(BodyHolder {
            key: *key.as_bytes(),
            address,
        })
    }

    /// The work on a body with this key.
    pub(crate) fn work(&self, key: KeyDigest) -> KeyWork {
        self.work.of(key)
    }

    /// The bytes held now.
    pub(crate) fn bytes(&self) -> u64 {
        self.budget.in_use()
    }
}

/// Takes room for `bytes` more of a body.
///
/// # Errors
/// The refusal for the limit that leaves none.
pub(crate) fn grow(lease: &mut BodyLease, bytes: usize) -> Result<(), Refusal> {
    lease.grow(bytes as u64).map_err(|no_room| {
        let limits = lease.limits();
        match no_room {
            NoRoom::All => Refusal::BodyBudgetExhausted,
            NoRoom::Key => Refusal::BodyShareUsed {
                whose: BodyShare::Key,
                bytes_max: limits.key_bytes_max,
            },
            NoRoom::Address => Refusal::BodyShareUsed {
                whose: BodyShare::Address,
                bytes_max: limits.address_bytes_max,
            },
        }
    })
}
