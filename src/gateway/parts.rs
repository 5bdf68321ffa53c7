//! What all requests share.

use std::sync::Arc;

use ipnet::IpNet;
use tokio::sync::Semaphore;

use crate::{
    console::portal::Portal,
    edges::switches::Switches,
    gateway::{
        attempt::deadline::Deadlines,
        drain::Drain,
        key_slots::KeySlots,
        log_entry::Sinks,
        reply::{agent_settings::Agents, own_usage::OwnUsage},
        request::bodies::Bodies,
    },
    money::billing::Billing,
    providers::{learnt_usage::Learnt, live::LiveCell, sessions::Sessions},
    stability::public::Public,
    store::key_cache::KeyCache,
    telemetry::metrics::Metrics,
};

/// What all requests share. Built once by `wiring`; Pingora holds it as the proxy application, a clone in each worker.
#[derive(Clone, Debug)]
pub(crate) struct Gateway {
    /// Configuration, catalogue and pools. A reload replaces them as a whole; a running request keeps the version it
    /// began with.
    pub live: Arc<LiveCell>,
    /// Providers that an operator has switched off on this node.
    pub switches: Arc<Switches>,
    /// Looks up API keys: in the local cache first, then in the store.
    pub keys: Arc<KeyCache>,
    /// Which account owns state at a provider, and which provider and credential serve it.
    pub sessions: Arc<Sessions>,
    /// Estimation factors per model and typical usage per key, learnt from finished requests.
    pub learnt: Arc<Learnt>,
    /// Admits requests against balance, quota and rates, and charges them.
    pub billing: Billing,
    /// What is answered here.
    pub pages: Arc<Pages>,
    /// What requests and clients may take of this process.
    pub limits: Arc<Limits>,
    /// Metrics and access log.
    pub sinks: Arc<Sinks>,
    /// Counts running requests and connections, and stops them at shutdown.
    pub drain: Drain,
}

/// What is answered here and goes to no provider.
#[derive(Debug)]
pub(crate) struct Pages {
    /// The public stability service, which asks for no key.
    pub public: Arc<Public>,
    /// Tells keys what they have used.
    pub own_usage: OwnUsage,
    /// What agents that are signed in are told; `None`: none can sign in.
    pub agents: Option<Agents>,
    /// The portal for owners of keys; `None`: it is switched off.
    pub portal: Option<Arc<Portal>>,
}

/// What requests and clients may take of this process.
#[derive(Debug)]
pub(crate) struct Limits {
    /// Networks of proxies whose `X-Forwarded-For` is believed.
    pub trusted_proxies: Vec<IpNet>,
    /// Memory for request bodies, and time to work on them.
    pub bodies: Bodies,
    /// The most requests that run at a time.
    pub running_max: usize,
    /// Limits the answers that are read to their end after the client has disconnected.
    pub finishing: Arc<Semaphore>,
    /// Limits concurrent token counts per key.
    pub count_slots: KeySlots,
    /// The time limits of the attempts under way.
    pub deadlines: Deadlines,
}

impl Gateway {
    /// The metrics registry.
    pub(crate) fn metrics(&self) -> &Metrics {
        &self.sinks.metrics
    }
}
