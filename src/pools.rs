//! What weir knows of its providers while it runs: what has failed lately (a place, a credential, a model at a provider) and
//! is passed over until a probe finds it well, and how much may be tried again. One pool per provider; a reload takes over
//! what it can.

mod breaker;
mod check;
mod credentials;
mod places;

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::sync::watch;

pub use breaker::{Breaker, Permit, Probing};
pub use credentials::{ChosenCredential, CredentialState, Credentials};
pub use places::{Place, Places};

use crate::{
    clock,
    domain::{
        catalogue::Catalogue,
        operation::Operation,
        retry::RetryBudget,
        route::{Leg, Route},
        rules::{Provider, WeightedOrigin},
    },
    resolver::Resolver,
};

/// How often changed addresses are taken over.
const UPDATE_EVERY: Duration = Duration::from_secs(1);
/// How often places are checked, where a provider has more than one.
const CHECK_EVERY: Duration = Duration::from_secs(10);

/// All providers' pools.
#[derive(Debug)]
pub struct Pools {
    providers: BTreeMap<String, Arc<Pool>>,
}

/// One provider's credentials, places, models and budget.
#[derive(Debug)]
pub struct Pool {
    /// Its credentials.
    pub credentials: Credentials,
    /// Its places; operations with the same places share their health.
    places: Vec<SharedPlaces>,
    /// What is known of its models, by its names for them: no more than the configuration has.
    models: Arc<Mutex<BTreeMap<String, ModelBreakers>>>,
    /// How often a request went elsewhere because of that.
    passed_over: Arc<AtomicU64>,
    budget: Arc<Mutex<RetryBudget>>,
    budget_percent: u16,
}

/// What fails by itself at a provider: one may be overloaded for one model and well for another, and counts tokens elsewhere.
#[derive(Debug, Default)]
struct ModelBreakers {
    generating: Breaker,
    counting: Breaker,
}

/// A model that a provider is not asked for now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassedOver {
    /// The provider's name for it.
    pub upstream_model: String,
    /// Until when.
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
    /// Pools for a catalogue. Credentials, places and budgets that `before` has too keep what is known of them.
    pub fn build(catalogue: &Catalogue, resolver: &Arc<Resolver>, before: Option<&Self>) -> Self {
        let pool = |provider: &Arc<Provider>| {
            let known = before.and_then(|pools| pools.providers.get(&provider.name));
            (
                provider.name.clone(),
                Arc::new(Pool::build(provider, resolver, known.map(Arc::as_ref))),
            )
        };
        Self {
            providers: catalogue.providers().map(pool).collect(),
        }
    }

    /// A provider's pool.
    pub fn of(&self, provider: &str) -> Option<&Arc<Pool>> {
        self.providers.get(provider)
    }

    /// Whether any provider of a route has more than one credential.
    pub fn has_choice(&self, route: &Route) -> bool {
        let several = |leg: &Leg| {
            self.of(&leg.provider.name)
                .is_some_and(|pool| pool.credentials.len() > 1)
        };
        route.legs.iter().any(several)
    }

    /// All of them, by provider.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Arc<Pool>)> {
        self.providers.iter().map(|(name, pool)| (name.as_str(), pool))
    }

    /// Takes over the addresses that the resolver has now.
    pub async fn update(&self) {
        for places in self.all_places() {
            places.update().await;
        }
    }

    /// Keeps addresses and health current until `stop` turns true.
    pub async fn run(self: Arc<Self>, mut stop: watch::Receiver<bool>) {
        let updating = async {
            loop {
                tokio::time::sleep(UPDATE_EVERY).await;
                self.update().await;
            }
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

    /// The places where an operation is served.
    pub fn places(&self, operation: Operation) -> Option<&Arc<Places>> {
        let serving = self.places.iter().find(|shared| shared.operations.contains(&operation));
        serving.map(|shared| &shared.places)
    }

    /// What is known of a model here.
    pub fn model(&self, operation: Operation, upstream_model: &str) -> Breaker {
        let mut models = self.models.lock().unwrap_or_else(PoisonError::into_inner);
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

    /// The models that it is not asked for now, in the order of their names.
    pub fn models_passed_over(&self, now: Instant) -> Vec<PassedOver> {
        let models = self.models.lock().unwrap_or_else(PoisonError::into_inner);
        let passed_over = |(upstream_model, model): (&String, &ModelBreakers)| {
            let (generating, counting) = (model.generating.open_until(now), model.counting.open_until(now));
            Some(PassedOver {
                upstream_model: upstream_model.clone(),
                until: generating.max(counting)?,
            })
        };
        models.iter().filter_map(passed_over).collect()
    }

    /// A request goes elsewhere because of what is known of this provider.
    pub fn pass_over(&self) {
        self.passed_over.fetch_add(1, Ordering::Relaxed);
    }

    /// How often that was so since the start.
    pub fn passed_over(&self) -> u64 {
        self.passed_over.load(Ordering::Relaxed)
    }

    /// A request is sent to it for the first time.
    pub fn earn(&self) {
        self.budget.lock().unwrap_or_else(PoisonError::into_inner).earn();
    }

    /// Whether it may be asked once more than its requests and its health call for; takes it out of its budget.
    pub fn spend(&self) -> bool {
        self.budget.lock().unwrap_or_else(PoisonError::into_inner).spend()
    }

    /// How many places are ejected now, for the metrics.
    pub fn ejected(&self, now: Instant) -> usize {
        self.places.iter().map(|shared| shared.places.ejected(now)).sum()
    }
}
