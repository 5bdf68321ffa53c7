//! The parts of the gateway that all requests share.

use std::{collections::HashMap, sync::Arc};

use ipnet::IpNet;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::{
    console::portal::Portal,
    edges::switches::ProviderSwitches,
    gateway::{
        attempt::deadline::Deadlines,
        drain::Drain,
        log_entry::RequestReporters,
        reply::{SignedInAgents, own_usage::OwnUsage},
        request::body::BodyResources,
    },
    money::billing::Billing,
    providers::{CurrentConfig, learnt_usage::LearnedUsage, sessions::StateRegistry},
    stability::public::PublicService,
    store::key_cache::KeyCache,
    telemetry::metrics::Metrics,
};

/// The parts that all requests share. Built once by `wiring`; Pingora holds it as the proxy application, a clone in each worker.
#[derive(Clone, Debug)]
pub(crate) struct Gateway {
    /// The current config snapshot. A reload replaces it; a running request keeps its own.
    pub live: Arc<CurrentConfig>,
    /// Providers that an operator has switched off on this node.
    pub switches: Arc<ProviderSwitches>,
    /// Looks up keys, first in the local cache, then in the store.
    pub keys: Arc<KeyCache>,
    /// Knows which account owns state at a provider, and which provider and credential serve it.
    pub sessions: Arc<StateRegistry>,
    /// Estimation factors per model and typical usage per key, learnt from finished requests.
    pub learnt: Arc<LearnedUsage>,
    /// Admits requests against balance, quota and rates, and charges them.
    pub billing: Billing,
    /// The services that weir answers itself.
    pub pages: Arc<LocalServices>,
    /// The limits of requests and clients.
    pub limits: Arc<GatewayLimits>,
    /// Metrics and access log.
    pub reporters: Arc<RequestReporters>,
    /// Counts running requests and connections, and stops them at shutdown.
    pub drain: Drain,
}

/// The services that weir answers itself, without a provider.
#[derive(Debug)]
pub(crate) struct LocalServices {
    /// The public stability service, which needs no key.
    pub public: Arc<PublicService>,
    /// Answers requests for a key's own usage.
    pub own_usage: OwnUsage,
    /// The answers for agents that are signed in; `None` if agents cannot sign in.
    pub agents: Option<SignedInAgents>,
    /// The portal for owners of keys; `None` if it is switched off.
    pub portal: Option<Arc<Portal>>,
}

/// The limits of requests and clients.
#[derive(Debug)]
pub(crate) struct GatewayLimits {
    /// Networks of proxies whose `X-Forwarded-For` is trusted.
    pub trusted_proxies: Vec<IpNet>,
    /// Memory for request bodies, and processor time to work on them.
    pub bodies: BodyResources,
    /// The maximum number of running requests.
    pub running_max: usize,
    /// Limits the number of detached answers.
    pub detached_permits: Arc<Semaphore>,
    /// Limits concurrent token counts per key.
    pub count_slots: KeySlots,
    /// The time limits of running attempts.
    pub deadlines: Deadlines,
}

impl Gateway {
    /// The metrics registry.
    pub(crate) fn metrics(&self) -> &Metrics {
        &self.reporters.metrics
    }
}

/// Counts each key's concurrent requests of one kind. An entry exists only while one of the key's requests runs, so the running
/// requests bound the memory. Clones share the counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeySlots {
    taken: Arc<Mutex<HashMap<Arc<str>, usize>>>,
}

/// One of a key's slots, returned on drop.
#[derive(Debug)]
#[must_use = "the slot is returned as soon as it is dropped"]
pub(crate) struct KeySlot {
    slots: KeySlots,
    key: Arc<str>,
}

impl KeySlots {
    /// Acquires one of the key's `max` slots; `None` if all are taken. Never waits.
    pub(crate) fn acquire(&self, key: &str, max: usize) -> Option<KeySlot> {
        let mut taken = self.taken.lock();
        let key = match taken.get_key_value(key) {
            Some((_, count)) if *count >= max => return None,
            Some((key, _)) => Arc::clone(key),
            None if max == 0 => return None,
            None => Arc::from(key),
        };
        *taken.entry(Arc::clone(&key)).or_default() += 1;
        drop(taken);
        Some(KeySlot {
            slots: self.clone(),
            key,
        })
    }

    /// The number of keys with a slot taken.
    #[cfg(test)]
    pub(crate) fn keys(&self) -> usize {
        self.taken.lock().len()
    }
}

impl Drop for KeySlot {
    fn drop(&mut self) {
        let mut taken = self.slots.taken.lock();
        if let Some(count) = taken.get_mut(&self.key) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                taken.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_has_its_own_limit_and_it_is_exact() {
        let slots = KeySlots::default();
        let held: Vec<KeySlot> = (0..3).map(|_| slots.acquire("a", 3).unwrap()).collect();
        assert!(slots.acquire("a", 3).is_none());
        assert!(slots.acquire("b", 3).is_some());
        assert!(
            slots.acquire("a", 4).is_some(),
            "the limit may change while places are taken"
        );
        assert!(slots.acquire("c", 0).is_none());
        drop(held);
        assert!(slots.acquire("a", 1).is_some());
    }

    #[test]
    fn nothing_is_left_of_a_key_that_is_idle() {
        let slots = KeySlots::default();
        let held: Vec<KeySlot> = (0..100)
            .filter_map(|key| slots.acquire(&format!("key{key}"), 1))
            .collect();
        assert_eq!(slots.keys(), 100);
        drop(held);
        assert_eq!(slots.keys(), 0);
    }

    #[test]
    fn threads_together_never_take_more_than_there_are() {
        let slots = KeySlots::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..2000 {
                        let _held = slots.acquire("a", 2);
                        let count = slots.taken.lock().get("a").copied().unwrap_or(0);
                        assert!(count <= 2);
                    }
                });
            }
        });
        assert_eq!(slots.keys(), 0);
    }
}
