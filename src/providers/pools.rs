//! What weir knows of its providers at run time. Circuit breakers pass over places, credentials and models that have
//! failed recently, until a probe succeeds; retry budgets limit how much is retried. There is one pool per provider,
//! and a reload keeps the state of what stays configured.

mod breaker;
mod check;
mod credentials;
mod places;

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

pub(crate) use breaker::{Breaker, Permit, Probing};
pub(crate) use credentials::{ChosenCredential, CredentialState, Credentials};
pub(crate) use places::{Place, PlaceState, Places};

use crate::{
    domain::{
        catalogue::Catalogue,
        faults::retry::RetryBudget,
        rules::{Provider, WeightedOrigin},
        wire::operation::Operation,
    },
    edges::{clock, resolver::Resolver},
};

/// How often health checks run, for providers with more than one address.
const CHECK_EVERY: Duration = Duration::from_secs(10);

/// The pools of all providers. `live` holds them with the catalogue that they were built for.
#[derive(Debug)]
pub(crate) struct Pools {
    providers: BTreeMap<String, Arc<Pool>>,
    /// Changes with the resolver's addresses.
    moves: watch::Receiver<()>,
}

/// One provider's credentials, places, model breakers and retry budget.
#[derive(Debug)]
pub(crate) struct Pool {
    /// The provider's credentials, with their rests.
    pub credentials: Credentials,
    /// The provider's places. Operations with the same places share their health.
    places: Vec<SharedPlaces>,
    /// Breakers by the provider's name for the model; bounded by the configuration.
    models: Arc<Mutex<BTreeMap<String, ModelBreakers>>>,
    /// How often a request went to another provider because of an open breaker here.
    passed_over: Arc<AtomicU64>,
    budget: Arc<Mutex<RetryBudget>>,
    budget_percent: u16,
}

/// Separate breakers, since a provider may be overloaded for one model only, and token counting may run elsewhere.
#[derive(Debug, Default)]
struct ModelBreakers {
    generating: Breaker,
    counting: Breaker,
}

/// A model that is currently not requested from this provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PassedOver {
    /// The provider's name for the model.
    pub upstream_model: String,
    /// When the next probe may go there.
    pub until: Instant,
}

/// The places of one or more operations.
#[derive(Debug)]
struct SharedPlaces {
    operations: Vec<Operation>,
    origins: Vec<WeightedOrigin>,
    places: Arc<Places>,
}

impl Pools {
    /// The pools for a catalogue. Credentials, places and budgets that `before` has as well keep their state.
    pub(crate) fn build(catalogue: &Catalogue, resolver: &Arc<Resolver>, before: Option<&Self>) -> Self {
        let pool = |provider: &Arc<Provider>| {
            let known = before.and_then(|pools| pools.providers.get(&provider.name));
            (
                provider.name.clone(),
                Arc::new(Pool::build(provider, resolver, known.map(Arc::as_ref))),
            )
        };
        Self {
            // Before a place looks for its addresses.
            moves: resolver.moves(),
            providers: catalogue.providers().map(pool).collect(),
        }
    }

    /// The provider's pool; `None` for a provider that the catalogue does not have.
    pub(crate) fn of(&self, provider: &str) -> Option<&Arc<Pool>> {
        self.providers.get(provider)
    }

    /// All pools with their providers' names, in the order of the names.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &Arc<Pool>)> {
        self.providers.iter().map(|(name, pool)| (name.as_str(), pool))
    }

    /// Takes over the resolver's current addresses.
    pub(crate) async fn update(&self) {
        for places in self.all_places() {
            places.update().await;
        }
    }

    /// Keeps addresses and health up to date until `stop` turns true.
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
                futures_util::future::join_all(self.all_places().map(|places| places.check(clock::instant()))).await;
            }
        };
        tokio::select! {
            () = updating => {}
            () = checking => {}
            _ = stop.wait_for(|stop| *stop) => {}
        }
    }

    fn all_places(&self) -> impl Iterator<Item = &Arc<Places>> {
        self.providers
            .values()
            .flat_map(|pool| pool.places.iter().map(|shared| &shared.places))
    }
}

impl Pool {
    fn build(provider: &Provider, resolver: &Arc<Resolver>, known: Option<&Self>) -> Self {
        let mut places: Vec<SharedPlaces> = Vec::new();
        for (operation, _) in provider.endpoints.iter() {
            let origins = provider.origins_of(operation);
            if let Some(shared) = places.iter_mut().find(|shared| shared.origins == origins) {
                shared.operations.push(operation);
                continue;
            }
            let same = known.and_then(|pool| pool.places.iter().find(|shared| shared.origins == origins));
            places.push(SharedPlaces {
                operations: vec![operation],
                places: same.map_or_else(
                    || Arc::new(Places::new(&origins, Arc::clone(resolver))),
                    |same| Arc::clone(&same.places),
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
            places,
            models: known.map(|pool| Arc::clone(&pool.models)).unwrap_or_default(),
            passed_over: known.map(|pool| Arc::clone(&pool.passed_over)).unwrap_or_default(),
            budget,
            budget_percent: percent,
        }
    }

    /// The places that serve an operation; `None` if the provider does not serve it.
    pub(crate) fn places(&self, operation: Operation) -> Option<&Arc<Places>> {
        let serving = self.places.iter().find(|shared| shared.operations.contains(&operation));
        serving.map(|shared| &shared.places)
    }

    /// The breaker of a model at this provider, one for token counts and one for everything else.
    pub(crate) fn model(&self, operation: Operation, upstream_model: &str) -> Breaker {
        let mut models = self.models.lock();
        if !models.contains_key(upstream_model) {
            models.insert(upstream_model.to_owned(), ModelBreakers::default());
        }
        let known = models.get(upstream_model);
        let breaker = known.map(|model| match operation.counts_tokens() {
            true => model.counting.clone(),
            false => model.generating.clone(),
        });
        breaker.unwrap_or_default()
    }

    /// The models with an open breaker, in the order of their names.
    pub(crate) fn models_passed_over(&self, now: Instant) -> Vec<PassedOver> {
        let models = self.models.lock();
        let passed_over = |(upstream_model, model): (&String, &ModelBreakers)| {
            let (generating, counting) = (model.generating.open_until(now), model.counting.open_until(now));
            Some(PassedOver {
                upstream_model: upstream_model.clone(),
                until: generating.max(counting)?,
            })
        };
        models.iter().filter_map(passed_over).collect()
    }

    /// Counts a request that goes to another provider because of an open breaker here.
    pub(crate) fn pass_over(&self) {
        self.passed_over.fetch_add(1, Ordering::Relaxed);
    }

    /// How many such requests there were since the start.
    pub(crate) fn passed_over(&self) -> u64 {
        self.passed_over.load(Ordering::Relaxed)
    }

    /// Adds a first attempt's share to the retry budget.
    pub(crate) fn earn(&self) {
        self.budget.lock().earn();
    }

    /// Takes one retry out of the budget. Returns false if the budget is used up.
    pub(crate) fn spend(&self) -> bool {
        self.budget.lock().spend()
    }

    /// Its hosts of which no address is known.
    pub(crate) fn unresolved(&self) -> Vec<String> {
        let unknown = self.places.iter().flat_map(|shared| {
            let origins = shared.origins.iter().map(|weighted| &weighted.origin);
            origins.filter(|origin| !shared.places.is_resolved(origin))
        });
        let hosts: BTreeSet<&str> = unknown.map(|origin| origin.host.as_str()).collect();
        hosts.into_iter().map(str::to_owned).collect()
    }

    /// Its addresses and how they stand; one that several operations share is there for each of them.
    pub(crate) fn all_places(&self, now: Instant) -> Vec<PlaceState> {
        self.places
            .iter()
            .flat_map(|shared| shared.places.states(now))
            .collect()
    }

    /// How many addresses are ejected now, for the metrics.
    pub(crate) fn ejected(&self, now: Instant) -> usize {
        self.places.iter().map(|shared| shared.places.ejected(now)).sum()
    }
}
