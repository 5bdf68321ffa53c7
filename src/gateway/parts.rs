//! The parts of the gateway that all requests share.

use std::sync::Arc;

use ipnet::IpNet;
use tokio::sync::Semaphore;

use crate::{
    console::portal::Portal,
    edges::ProviderSwitches,
    gateway::{
        attempt::deadline::Deadlines,
        conversations::Conversations,
        drain::Drain,
        key_slots::KeySlots,
        lines::LineRefusals,
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

/// The parts of the gateway that all requests share. `wiring` builds the gateway once; Pingora runs it as the proxy application,
/// with a clone in each worker.
#[derive(Clone, Debug)]
pub(crate) struct Gateway {
    /// The current config snapshot. A reload replaces it, but a running request uses its own to the end.
    pub live: Arc<CurrentConfig>,
    /// The providers that an operator has switched off on this node.
    pub switches: Arc<ProviderSwitches>,
    /// Looks up key records, first in the local cache, then in the store.
    pub keys: Arc<KeyCache>,
    /// Records which account owns which state at a provider, and which provider and credential serve the state.
    pub sessions: Arc<StateRegistry>,
    /// Estimation factors per model and typical usage per key, both learned from finished requests.
    pub learnt: Arc<LearnedUsage>,
    /// Admits requests within balance, quota and rates, and charges their accounts.
    pub billing: Billing,
    /// The services with which weir answers requests itself.
    pub pages: Arc<LocalServices>,
    /// The limits on requests and clients.
    pub limits: Arc<GatewayLimits>,
    /// The metrics and the access log.
    pub reporters: Arc<RequestReporters>,
    /// Counts running requests and connections, and ends them at shutdown.
    pub drain: Drain,
}

/// The services with which weir answers requests itself, without a provider.
#[derive(Debug)]
pub(crate) struct LocalServices {
    /// The public stability service, which needs no key.
    pub public: Arc<PublicService>,
    /// Answers requests for a key's own usage.
    pub own_usage: OwnUsage,
    /// The data for answers to signed-in agents; `None` if agents cannot sign in.
    pub agents: Option<SignedInAgents>,
    /// The portal for owners of keys; `None` if it is switched off.
    pub portal: Option<Arc<Portal>>,
}

/// The limits on requests and clients.
#[derive(Debug)]
pub(crate) struct GatewayLimits {
    /// The networks of the proxies whose `X-Forwarded-For` is trusted.
    pub trusted_proxies: Vec<IpNet>,
    /// The limits on memory for request bodies, and on processor time for the work on them.
    pub bodies: BodyResources,
    /// The maximum number of running requests.
    pub running_max: usize,
    /// Limits the number of detached answers.
    pub detached_permits: Arc<Semaphore>,
    /// Limits each key's concurrent token counts.
    pub count_slots: KeySlots,
    /// Limits each key's open sockets.
    pub socket_slots: KeySlots,
    /// The conversations of all sockets.
    pub conversations: Arc<Conversations>,
    /// The provider addresses that have refused a WebSocket.
    pub line_refusals: Arc<LineRefusals>,
    /// The time limits of running attempts.
    pub deadlines: Deadlines,
}

impl Gateway {
    /// The metrics registry.
    pub(crate) fn metrics(&self) -> &Metrics {
        &self.reporters.metrics
    }
}
