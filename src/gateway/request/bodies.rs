//! The memory and the processor time that the bodies of all requests share.

use crate::{
    config::GatewayConfig,
    domain::{
        faults::refusal::{BodyShare, Refusal},
        keys::secret::KeyDigest,
    },
    edges::{
        body_budget::{BodyBudget, BodyHolder, BodyLimits, BodyReservation, NoRoom},
        limiter::client::ClientAddress,
    },
    gateway::request::body_work::{BodyWork, KeyWork, TURN_WAIT_MAX, WorkShare},
};

/// The memory and the processor time that the bodies of all requests share. Clones share them, too.
#[derive(Clone, Debug)]
pub(crate) struct BodyResources {
    budget: BodyBudget,
    work: BodyWork,
}

impl BodyResources {
    /// Unused resources, with the configured limits.
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

    /// An empty lease of memory for a body with this key from this address; `None` for an address that speaks for many clients.
    pub(crate) fn lease(&self, key: KeyDigest, address: Option<ClientAddress>) -> BodyReservation {
        self.budget.reservation(BodyHolder {
            key: *key.as_bytes(),
            address,
        })
    }

    /// The work on a body with this key.
    pub(crate) fn work(&self, key: KeyDigest) -> KeyWork {
        self.work.for_key(key)
    }

    /// The bytes in use now.
    pub(crate) fn bytes(&self) -> u64 {
        self.budget.in_use()
    }
}

/// Reserves memory for `bytes` more of a body.
///
/// # Errors
/// The refusal for the limit that is reached.
pub(crate) fn grow_lease(lease: &mut BodyReservation, bytes: usize) -> Result<(), Refusal> {
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
