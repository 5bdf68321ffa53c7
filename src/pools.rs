//! What weir knows of its providers while it runs: which credentials rest, which places are ill, how much may be tried
//! again. One pool per provider; a reload takes over what it can.

mod check;
mod credentials;
mod places;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::watch;

pub use credentials::{CredentialState, Credentials};
pub use places::{Place, Places};

use crate::{
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

/// One provider's credentials, places and budget.
#[derive(Debug)]
pub struct Pool {
    /// Its credentials.
    pub credentials: Credentials,
    /// Its places; operations with the same places share their health.
    places: Vec<SharedPlaces>,
    budget: Arc<Mutex<RetryBudget>>,
    budget_percent: u16,
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
                futures_util::future::join_all(self.all_places().map(|places| places.check())).await;
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
            budget,
            budget_percent: percent,
        }
    }

    /// The places where an operation is served.
    pub fn places(&self, operation: Operation) -> Option<&Arc<Places>> {
        let serving = self.places.iter().find(|shared| shared.operations.contains(&operation));
        serving.map(|shared| &shared.places)
    }

    /// A request is sent for the first time.
    pub fn earn(&self) {
        self.budget.lock().unwrap_or_else(PoisonError::into_inner).earn();
    }

    /// Whether a request may be sent again; takes it out of the budget.
    pub fn spend(&self) -> bool {
        self.budget.lock().unwrap_or_else(PoisonError::into_inner).spend()
    }

    /// How many places are ejected now, for the metrics.
    pub fn ejected(&self, now: Instant) -> usize {
        self.places.iter().map(|shared| shared.places.ejected(now)).sum()
    }
}
