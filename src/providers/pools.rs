//! The run-time state of providers. A circuit keeps requests away from a backend, credential or model that has failed recently,
//! until a probe succeeds. Retry budgets limit retries. Each provider has one pool. A reload keeps the state of everything that
//! is still configured.

mod backends;
mod credentials;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::{
    domain::{
        catalogue::Catalogue,
        faults::{
            RetryBudget,
            circuit::{Circuit, CircuitEntry},
        },
        rules::{Provider, WeightedOrigin},
        wire::operation::UpstreamOperation,
    },
    edges::{clock, resolver::Resolver},
};

pub(crate) use crate::providers::pools::backends::{BackendState, ProviderBackend, ProviderBackends};
pub(crate) use crate::providers::pools::credentials::{ChosenCredential, CredentialState, Credentials};

/// The interval of health checks for providers with more than one address.
const CHECK_EVERY: Duration = Duration::from_secs(10);

/// The pools of all providers. They belong to one catalogue; a `ConfigSnapshot` contains both.
#[derive(Debug)]
pub(crate) struct Pools {
    providers: BTreeMap<String, Arc<Pool>>,
    /// Notified when the resolver's addresses change.
    moves: watch::Receiver<()>,
}

/// One provider's credentials, backends, circuits of models and retry budget.
#[derive(Debug)]
pub(crate) struct Pool {
    /// The provider's credentials, with their cooldowns.
    pub credentials: Credentials,
    /// The provider's backends. Operations with the same backends share their health.
    backends: Vec<SharedBackends>,
    /// The circuits of each model, by the provider's name for the model. The configuration bounds the number of models.
    models: Arc<Mutex<BTreeMap<String, ModelBreakers>>>,
    /// The number of requests that were sent to another provider because an open circuit or a cooldown made this one unusable.
    skipped: Arc<AtomicU64>,
    budget: Arc<Mutex<RetryBudget>>,
    budget_percent: u16,
}

/// The circuits of one model at a provider. Each model has its own, because a provider may be overloaded for one model only.
/// Requests that count tokens have a separate circuit, because other servers may process them.
#[derive(Debug, Default)]
struct ModelBreakers {
    generating: Breaker,
    counting: Breaker,
}

/// A model whose circuit at a provider is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OpenCircuit {
    /// The provider's name for the model.
    pub upstream_model: String,
    /// The earliest time at which the next probe is possible.
    pub until: Instant,
}

/// Backends of a provider, with the operations that use them.
#[derive(Debug)]
struct SharedBackends {
    operations: Vec<UpstreamOperation>,
    origins: Vec<WeightedOrigin>,
    backends: Arc<ProviderBackends>,
}

impl Pools {
    /// Builds the pools for a catalogue. Credentials, backends and budgets that also exist in `before` keep their state.
    pub(crate) fn build(catalogue: &Catalogue, resolver: &Arc<Resolver>, before: Option<&Self>) -> Self {
        let pool = |provider: &Arc<Provider>| {
            let known = before.and_then(|pools| pools.providers.get(&provider.name));
            (
                provider.name.clone(),
                Arc::new(Pool::build(provider, resolver, known.map(Arc::as_ref))),
            )
        };
        Self {
            // Subscribed before the backends read their addresses, so that no change is missed.
            moves: resolver.subscribe_changes(),
            providers: catalogue.providers().map(pool).collect(),
        }
    }

    /// The provider's pool; `None` if the provider is not in the catalogue.
    pub(crate) fn of(&self, provider: &str) -> Option<&Arc<Pool>> {
        self.providers.get(provider)
    }

    /// Returns all pools with their providers' names, in the order of the names.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &Arc<Pool>)> {
        self.providers.iter().map(|(name, pool)| (name.as_str(), pool))
    }

    /// Updates all backends to the resolver's current addresses.
    pub(crate) async fn update(&self) {
        for places in self.all_backends() {
            places.update().await;
        }
    }

    /// Keeps the addresses and the health of backends up to date until `stop` becomes true.
    pub(crate) async fn run(self: Arc<Self>, mut stop: watch::Receiver<bool>) {
        let mut moves = self.moves.clone();
        let updating = async {
            while moves.changed().await.is_ok() {
                self.update().await;
            }
            std::future::pending::<()>().await;
        };
        let checking = async {
            loop {
                tokio::time::sleep(CHECK_EVERY).await;
                futures_util::future::join_all(self.all_backends().map(|places| places.check(clock::instant()))).await;
            }
        };
        tokio::select! {
            () = updating => {}
            () = checking => {}
            _ = stop.wait_for(|stop| *stop) => {}
        }
    }

    fn all_backends(&self) -> impl Iterator<Item = &Arc<ProviderBackends>> {
        self.providers
            .values()
            .flat_map(|pool| pool.backends.iter().map(|shared| &shared.backends))
    }
}

impl Pool {
    fn build(provider: &Provider, resolver: &Arc<Resolver>, known: Option<&Self>) -> Self {
        let mut backends: Vec<SharedBackends> = Vec::new();
        for (operation, _) in provider.endpoints.iter() {
            let origins = provider.origins_for(operation);
            if let Some(shared) = backends.iter_mut().find(|shared| shared.origins == origins) {
                shared.operations.push(operation);
                continue;
            }
            let same = known.and_then(|pool| pool.backends.iter().find(|shared| shared.origins == origins));
            backends.push(SharedBackends {
                operations: vec![operation],
                backends: same.map_or_else(
                    || Arc::new(ProviderBackends::new(&origins, Arc::clone(resolver))),
                    |same| Arc::clone(&same.backends),
                ),
                origins,
            });
        }
        let percent = provider.retry.budget_percent;
        let budget = known.filter(|pool| pool.budget_percent == percent).map_or_else(
            || Arc::new(Mutex::new(RetryBudget::new(percent))),
            |pool| Arc::clone(&pool.budget),
        );
        Self {
            credentials: Credentials::new(&provider.credentials, known.map(|pool| &pool.credentials)),
            backends,
            models: known.map(|pool| Arc::clone(&pool.models)).unwrap_or_default(),
            skipped: known.map(|pool| Arc::clone(&pool.skipped)).unwrap_or_default(),
            budget,
            budget_percent: percent,
        }
    }

    /// Returns the backends that serve an operation; `None` if the provider does not serve it.
    pub(crate) fn backends(&self, operation: impl Into<UpstreamOperation>) -> Option<&Arc<ProviderBackends>> {
        let operation = operation.into();
        let serving = self
            .backends
            .iter()
            .find(|shared| shared.operations.contains(&operation));
        serving.map(|shared| &shared.backends)
    }

    /// Returns the circuit of a model at this provider. Requests that count tokens have a separate circuit.
    pub(crate) fn circuit(&self, operation: impl Into<UpstreamOperation>, upstream_model: &str) -> Breaker {
        let operation = operation.into();
        let mut models = self.models.lock();
        if !models.contains_key(upstream_model) {
            models.insert(upstream_model.to_owned(), ModelBreakers::default());
        }
        let known = models.get(upstream_model);
        let breaker = known.map(|model| match operation.is_token_count() {
            true => model.counting.clone(),
            false => model.generating.clone(),
        });
        breaker.unwrap_or_default()
    }

    /// Returns the models with an open circuit, in the order of their names.
    pub(crate) fn open_circuits(&self, now: Instant) -> Vec<OpenCircuit> {
        let models = self.models.lock();
        let skipped = |(upstream_model, model): (&String, &ModelBreakers)| {
            let (generating, counting) = (model.generating.open_until(now), model.counting.open_until(now));
            Some(OpenCircuit {
                upstream_model: upstream_model.clone(),
                until: generating.max(counting)?,
            })
        };
        models.iter().filter_map(skipped).collect()
    }

    /// Counts a request that is sent to another provider because an open circuit or a cooldown makes this one unusable.
    pub(crate) fn count_skipped(&self) {
        self.skipped.fetch_add(1, Ordering::Relaxed);
    }

    /// The number of requests counted by [`Pool::count_skipped`] since the start.
    pub(crate) fn skipped(&self) -> u64 {
        self.skipped.load(Ordering::Relaxed)
    }

    /// Adds a fraction of one retry to the retry budget, because a request makes its first attempt at this provider.
    pub(crate) fn deposit(&self) {
        self.budget.lock().deposit();
    }

    /// Takes one retry from the retry budget. Returns false if the budget is used up.
    pub(crate) fn withdraw(&self) -> bool {
        self.budget.lock().withdraw()
    }

    /// Returns the provider's host names without a known address.
    pub(crate) fn unresolved(&self) -> Vec<String> {
        let unknown = self.backends.iter().flat_map(|shared| {
            let origins = shared.origins.iter().map(|weighted| &weighted.origin);
            origins.filter(|origin| !shared.backends.is_resolved(origin))
        });
        let hosts: BTreeSet<&str> = unknown.map(|origin| origin.host.as_str()).collect();
        hosts.into_iter().map(str::to_owned).collect()
    }

    /// Returns the provider's addresses with their state. Operations that share all backends share one entry for each address.
    /// Otherwise, an address may occur several times.
    pub(crate) fn backend_states(&self, now: Instant) -> Vec<BackendState> {
        self.backends
            .iter()
            .flat_map(|shared| shared.backends.states(now))
            .collect()
    }

    /// The number of ejected addresses. A metric reports it.
    pub(crate) fn ejected(&self, now: Instant) -> usize {
        self.backends.iter().map(|shared| shared.backends.ejected(now)).sum()
    }
}

/// A circuit that requests share. Clones are the same circuit. A request needs a permit of the circuit. The permit is returned
/// regardless of how the request ends.
#[derive(Clone, Debug, Default)]
pub(crate) struct Breaker(Arc<Mutex<Circuit>>);

/// Whether a request is allowed to be a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Probing {
    /// The request can be a probe, because it can be sent elsewhere if the probe fails.
    Allowed,
    /// The request must not be a probe, because a failed probe would lose it.
    Never,
}

/// One request's permission to pass a circuit. It lasts until the request's result is reported or the permit is dropped.
#[derive(Debug)]
pub(crate) struct CircuitPermit {
    breaker: Breaker,
    entry: Option<CircuitEntry>,
}

impl Breaker {
    /// Returns a permit if the circuit admits the request; `None` if the request should go elsewhere.
    pub(crate) fn enter(&self, probing: Probing, now: Instant) -> Option<CircuitPermit> {
        let mut circuit = self.0.lock();
        if probing == Probing::Never && !circuit.is_closed(now) {
            return None;
        }
        let entry = circuit.enter(now)?;
        drop(circuit);
        Some(self.permit(entry))
    }

    /// Returns a permit for a request that cannot go elsewhere, whatever the state of the circuit.
    pub(crate) fn force_enter(&self, now: Instant) -> CircuitPermit {
        let entry = self.0.lock().force_enter(now);
        self.permit(entry)
    }

    /// Whether [`Breaker::enter`] would return a permit.
    pub(crate) fn admits(&self, probing: Probing, now: Instant) -> bool {
        let circuit = self.0.lock();
        circuit.is_closed(now) || probing == Probing::Allowed && circuit.admits(now)
    }

    /// The time until which the circuit is open; `None` if it is not open.
    pub(crate) fn open_until(&self, now: Instant) -> Option<Instant> {
        self.0.lock().open_until(now)
    }

    /// Opens the circuit for at least `pause` (see [`Circuit::cool_down`]).
    pub(crate) fn open_for(&self, pause: Duration, now: Instant) {
        self.0.lock().cool_down(pause, now);
    }

    fn permit(&self, entry: CircuitEntry) -> CircuitPermit {
        CircuitPermit {
            breaker: self.clone(),
            entry: Some(entry),
        }
    }
}

impl CircuitPermit {
    /// Reports that the request succeeded. Returns true if this has closed the circuit.
    pub(crate) fn report_success(mut self, now: Instant) -> bool {
        let entry = self.entry.take();
        entry.is_some_and(|entry| self.breaker.0.lock().on_success(entry, now))
    }

    /// Reports that the request failed. Returns true if this has opened the circuit.
    pub(crate) fn report_failure(mut self, now: Instant) -> bool {
        let entry = self.entry.take();
        entry.is_some_and(|entry| self.breaker.0.lock().on_failure(entry, now))
    }

    /// Whether the circuit is closed, so that all requests can pass.
    pub(crate) fn is_closed(&self, now: Instant) -> bool {
        self.breaker.0.lock().is_closed(now)
    }
}

impl Drop for CircuitPermit {
    fn drop(&mut self) {
        if let Some(entry) = self.entry.take() {
            self.breaker.0.lock().on_no_result(entry);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        domain::faults::circuit::{EJECTED_AFTER, EJECTED_FIRST},
        edges::clock,
    };

    #[test]
    fn a_request_that_is_dropped_gives_its_probe_back() {
        let (breaker, now) = (Breaker::default(), clock::instant());
        for number in 1..=EJECTED_AFTER {
            assert_eq!(breaker.force_enter(now).report_failure(now), number == EJECTED_AFTER);
        }
        assert!(breaker.enter(Probing::Allowed, now).is_none());
        let now = now + EJECTED_FIRST;
        assert!(breaker.enter(Probing::Never, now).is_none() && !breaker.admits(Probing::Never, now));
        let probe = breaker.enter(Probing::Allowed, now).unwrap();
        assert!(breaker.enter(Probing::Allowed, now).is_none());
        drop(probe);
        assert!(breaker.enter(Probing::Allowed, now).is_some());
    }

    #[test]
    fn of_many_that_ask_at_once_one_probes() {
        let breaker = Breaker::default();
        let now = clock::instant();
        breaker.open_for(Duration::ZERO, now);
        let permits: Vec<Option<CircuitPermit>> = std::thread::scope(|scope| {
            let asking: Vec<_> = (0..16)
                .map(|_| scope.spawn(|| breaker.enter(Probing::Allowed, now)))
                .collect();
            asking.into_iter().map(|one| one.join().unwrap()).collect()
        });
        assert_eq!(permits.iter().flatten().count(), 1);
    }
}
