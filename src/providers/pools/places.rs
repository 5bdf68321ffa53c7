//! Chooses the backend that a request is sent to. Pingora's balancer spreads requests by weight; addresses that fail are ejected
//! for a while.

use std::{
    cell::RefCell,
    collections::{BTreeSet, HashMap},
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use parking_lot::Mutex;
use pingora::Result;
use pingora_load_balancing::{
    Backend, Backends, Extensions, LoadBalancer, discovery::ServiceDiscovery, selection::RoundRobin,
};

use super::{
    breaker::{Breaker, CircuitPermit, Probing},
    check::{BackendCheck, Origins},
};
use crate::{
    domain::{
        quick_map::QuickMap,
        rules::{Origin, WeightedOrigin},
    },
    edges::resolver::Resolver,
};

/// How long a backend's other address family goes first after it has answered sooner: about as long as RFC 6555 section 4
/// recommends to remember it.
pub(super) const OTHER_FAMILY_FOR: Duration = Duration::from_secs(600);
/// The most addresses examined for one choice.
const EXAMINED_MAX: usize = 256;

/// A provider's backend: an address to connect to, with its origin.
#[derive(Clone, Debug)]
pub(crate) struct ProviderBackend {
    /// The address that identifies the backend: successes and failures count for it.
    pub address: SocketAddr,
    /// The address to connect to first: `address`, or that of the host's other family if that one has recently answered sooner.
    pub first: SocketAddr,
    /// Scheme, host and port: the backend's name for TLS and for the `Host` header.
    pub origin: Arc<Origin>,
}

/// The state of an address.
#[derive(Clone, Debug)]
pub(crate) struct BackendState {
    pub address: SocketAddr,
    /// The first of its origins.
    pub origin: Arc<Origin>,
    /// The time until which it is ejected after failures in a row; `None` if it is not.
    pub ejected_until: Option<Instant>,
}

/// The backends of one provider.
pub(crate) struct ProviderBackends {
    balancer: LoadBalancer<RoundRobin>,
    /// A circuit for each current address.
    breakers: Mutex<QuickMap<SocketAddr, Breaker>>,
    resolver: Arc<Resolver>,
    /// Addresses whose host answers sooner over the other family, with the time until which that is assumed.
    turned: Mutex<HashMap<SocketAddr, Instant>>,
}

/// Resolves names for the balancer.
struct Discovery {
    origins: Vec<(Arc<Origin>, u16)>,
    resolver: Arc<Resolver>,
}

#[async_trait]
impl ServiceDiscovery for Discovery {
    async fn discover(&self) -> Result<(BTreeSet<Backend>, HashMap<u64, bool>)> {
        let mut found: HashMap<SocketAddr, (usize, Vec<Arc<Origin>>)> = HashMap::new();
        for (origin, weight) in &self.origins {
            let addresses = self.resolver.addresses(&origin.host, origin.port);
            for address in addresses.iter().flat_map(|addresses| addresses.iter()) {
                let (weights, origins) = found.entry(*address).or_default();
                *weights += usize::from(*weight);
                origins.push(Arc::clone(origin));
            }
        }
        let backend = |(address, (weight, origins)): (SocketAddr, (usize, Vec<Arc<Origin>>))| {
            let mut ext = Extensions::new();
            ext.insert(Origins(origins.into()));
            Backend {
                addr: address.into(),
                weight,
                ext,
            }
        };
        Ok((found.into_iter().map(backend).collect(), HashMap::new()))
    }
}

impl ProviderBackends {
    /// Whether an address of an origin's host is known.
    pub(super) fn is_resolved(&self, origin: &Origin) -> bool {
        self.resolver.addresses(&origin.host, origin.port).is_some()
    }

    /// Backends without addresses. [`Places::update`] adds them.
    pub(crate) fn new(origins: &[WeightedOrigin], resolver: Arc<Resolver>) -> Self {
        let shared: Vec<(Arc<Origin>, u16)> = origins
            .iter()
            .map(|place| (Arc::new(place.origin.clone()), place.weight))
            .collect();
        let mut balancer = LoadBalancer::from_backends(Backends::new(Box::new(Discovery {
            origins: shared,
            resolver: Arc::clone(&resolver),
        })));
        balancer.set_health_check(Box::new(BackendCheck::new(origins, Arc::clone(&resolver))));
        Self {
            balancer,
            breakers: Mutex::default(),
            resolver,
            turned: Mutex::default(),
        }
    }

    /// Takes over the resolver's current addresses.
    pub(crate) async fn update(&self) {
        // `Discovery` cannot fail.
        let _ = self.balancer.update().await;
        let there = self.balancer.backends().get_backend();
        let is_there = |address: &SocketAddr| {
            let is_same = |backend: &Backend| backend.addr.as_inet() == Some(address);
            there.iter().any(is_same)
        };
        self.breakers.lock().retain(|address, _| is_there(address));
        self.turned.lock().retain(|address, _| is_there(address));
    }

    /// Checks the health of every address, if there is more than one. The circuit of an unhealthy one opens, so that after its
    /// recovery one request probes it before the others.
    pub(crate) async fn check(&self, now: Instant) {
        let backends = self.balancer.backends();
        let there = backends.get_backend();
        if there.len() < 2 {
            return;
        }
        backends.run_health_check(true).await;
        for backend in there.iter().filter(|backend| !backends.ready(backend)) {
            if let Some(address) = backend.addr.as_inet() {
                self.breaker(address).open_for(Duration::ZERO, now);
            }
        }
    }

    /// Chooses a backend whose address is healthy and not in `tried`, possibly as a probe; or else one that is ejected or
    /// unhealthy; or else any. The permit reports whether the address works. It fails without a connection, without an answer in
    /// time, and with an answer which says that no server behind the front end works. `None` if no host of the provider is
    /// resolved.
    pub(crate) fn pick(
        &self,
        tried: &[SocketAddr],
        probing: Probing,
        now: Instant,
    ) -> Option<(ProviderBackend, CircuitPermit)> {
        let there = self.balancer.backends().get_backend();
        let chosen;
        let (backend, permit) = match there.first() {
            // Without the balancer, which would be the most expensive part.
            Some(only) if there.len() == 1 => (only, self.enter_new(only, tried, probing, now)),
            _ => {
                let (backend, permit) = self.choose(tried, probing, now)?;
                chosen = backend;
                (&chosen, permit)
            }
        };
        let address = *backend.addr.as_inet()?;
        let Origins(origins) = backend.ext.get::<Origins>()?;
        let origin = Arc::clone(origins.get(tried.len().checked_rem(origins.len())?)?);
        let permit = permit.unwrap_or_else(|| self.breaker(&address).force_enter(now));
        Some((self.backend(address, origin, now), permit))
    }

    /// The permit for an address that is not in `tried`, unless it is ejected.
    fn enter_new(
        &self,
        backend: &Backend,
        tried: &[SocketAddr],
        probing: Probing,
        now: Instant,
    ) -> Option<CircuitPermit> {
        let address = backend.addr.as_inet().filter(|address| !tried.contains(address))?;
        self.breaker(address).enter(probing, now)
    }

    /// One of several addresses, and the permit if it has one.
    fn choose(&self, tried: &[SocketAddr], probing: Probing, now: Instant) -> Option<(Backend, Option<CircuitPermit>)> {
        // One pass in the balancer's order, which advances by one with each pass. It records the second-best choices.
        let (permit, untried, any) = (RefCell::new(None), RefCell::new(None), RefCell::new(None));
        let accept = |backend: &Backend, healthy: bool| {
            if healthy {
                *permit.borrow_mut() = self.enter_new(backend, tried, probing, now);
                if permit.borrow().is_some() {
                    return true;
                }
            }
            let is_new = backend.addr.as_inet().is_some_and(|address| !tried.contains(address));
            let noted = if is_new { &untried } else { &any };
            noted.borrow_mut().get_or_insert_with(|| backend.clone());
            false
        };
        let best = self.balancer.select_with(b"", EXAMINED_MAX, accept);
        let backend = best.or(untried.into_inner()).or(any.into_inner())?;
        Some((backend, permit.into_inner()))
    }

    /// The backend of an address, with the family that is expected to answer first.
    fn backend(&self, address: SocketAddr, origin: Arc<Origin>, now: Instant) -> ProviderBackend {
        let is_turned = self.turned.lock().get(&address).is_some_and(|until| *until > now);
        let turned = is_turned.then(|| self.resolver.other_family(&origin.host, origin.port, address));
        ProviderBackend {
            address,
            first: turned.flatten().unwrap_or(address),
            origin,
        }
    }

    /// The address to try in addition if a backend's first one does not answer soon; `None` if its host has only one family.
    pub(crate) fn second(&self, place: &ProviderBackend) -> Option<SocketAddr> {
        match place.first == place.address {
            true => self
                .resolver
                .other_family(&place.origin.host, place.origin.port, place.address),
            false => Some(place.address),
        }
    }

    /// Both families of a backend's host were tried, and `winner` was the first to connect.
    pub(crate) fn on_family_answered(&self, place: &ProviderBackend, winner: SocketAddr, now: Instant) {
        if winner == place.address {
            self.turned.lock().remove(&place.address);
            return;
        }
        if self
            .turned
            .lock()
            .insert(place.address, now + OTHER_FAMILY_FOR)
            .is_none()
        {
            let name = &place.origin.host;
            tracing::warn!(%name, address = %place.address, used = %winner, "a provider answers only, or sooner, at its other address family");
        }
    }

    /// Whether there is an address that is not in `tried`.
    pub(crate) fn has_untried(&self, tried: &[SocketAddr]) -> bool {
        let there = self.balancer.backends().get_backend();
        let is_other = |backend: &Backend| backend.addr.as_inet().is_some_and(|address| !tried.contains(address));
        there.iter().any(is_other)
    }

    /// The number of ejected addresses.
    pub(crate) fn ejected(&self, now: Instant) -> usize {
        let all = self.breakers.lock();
        all.values().filter(|one| one.open_until(now).is_some()).count()
    }

    /// The current addresses of all hosts, with their state.
    pub(crate) fn states(&self, now: Instant) -> Vec<BackendState> {
        let there = self.balancer.backends().get_backend();
        let state = |backend: &Backend| {
            let address = *backend.addr.as_inet()?;
            let origins = backend.ext.get::<Origins>()?;
            Some(BackendState {
                address,
                origin: Arc::clone(origins.0.first()?),
                ejected_until: self.breaker(&address).open_until(now),
            })
        };
        there.iter().filter_map(state).collect()
    }

    fn breaker(&self, address: &SocketAddr) -> Breaker {
        self.breakers.lock().entry(*address).or_default().clone()
    }
}

impl std::fmt::Debug for ProviderBackends {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("ProviderBackends")
            .field("backends", &self.balancer.backends().get_backend())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        domain::faults::circuit::{EJECTED_AFTER, EJECTED_FIRST, READMITTED_AFTER},
        edges::resolver::ResolverSettings,
    };

    async fn places(urls: &[(&str, u16)]) -> ProviderBackends {
        let settings = ResolverSettings {
            refresh: Duration::from_secs(60),
            timeout: Duration::from_secs(1),
        };
        let origins: Vec<WeightedOrigin> = urls
            .iter()
            .map(|(url, weight)| WeightedOrigin {
                weight: *weight,
                ..WeightedOrigin::only(Origin::parse(url).unwrap())
            })
            .collect();
        let places = ProviderBackends::new(&origins, Arc::new(Resolver::new(Vec::new(), settings)));
        places.update().await;
        places
    }

    const ANY: Probing = Probing::Allowed;

    fn ports(places: &ProviderBackends, count: usize, now: Instant) -> HashMap<u16, usize> {
        let mut ports = HashMap::new();
        for _ in 0..count {
            let (place, _) = places.pick(&[], ANY, now).unwrap();
            *ports.entry(place.address.port()).or_default() += 1;
        }
        ports
    }

    fn fail(places: &ProviderBackends, address: SocketAddr, now: Instant) {
        places.breaker(&address).force_enter(now).report_failure(now);
    }

    #[tokio::test]
    async fn weights_share_the_requests() {
        let places = places(&[("http://127.0.0.1:1001", 1), ("http://127.0.0.1:1002", 3)]).await;
        let counts = ports(&places, 400, crate::edges::clock::instant());
        assert_eq!((counts[&1001], counts[&1002]), (100, 300));
    }

    #[tokio::test]
    async fn an_address_that_fails_is_left_out() {
        let places = places(&[("http://127.0.0.1:1001", 1), ("http://127.0.0.1:1002", 1)]).await;
        let now = crate::edges::clock::instant();
        let ill: SocketAddr = "127.0.0.1:1001".parse().unwrap();
        for _ in 1..EJECTED_AFTER {
            fail(&places, ill, now);
        }
        assert_eq!(ports(&places, 10, now).len(), 2);
        fail(&places, ill, now);
        assert_eq!((ports(&places, 10, now).len(), places.ejected(now)), (1, 1));
        assert_eq!(ports(&places, 10, now + EJECTED_FIRST).len(), 2);
    }

    #[tokio::test]
    async fn an_address_that_comes_back_is_asked_by_one_request_until_that_succeeds() {
        let places = places(&[("http://127.0.0.1:1001", 1), ("http://127.0.0.1:1002", 1)]).await;
        let now = crate::edges::clock::instant();
        let ill: SocketAddr = "127.0.0.1:1001".parse().unwrap();
        for _ in 0..EJECTED_AFTER {
            fail(&places, ill, now);
        }
        let later = now + EJECTED_FIRST;
        let mut expected = 1;
        while expected < READMITTED_AFTER {
            let mut running: Vec<(ProviderBackend, CircuitPermit)> =
                (0..100).map(|_| places.pick(&[], ANY, later).unwrap()).collect();
            running.retain(|(place, _)| place.address == ill);
            assert_eq!(running.len(), expected as usize);
            running.remove(0).1.report_success(later);
            expected += 1;
        }
    }

    #[tokio::test]
    async fn a_further_attempt_goes_elsewhere_and_the_last_place_is_never_lost() {
        let two = places(&[("http://127.0.0.1:1001", 1), ("http://127.0.0.1:1002", 1)]).await;
        let now = crate::edges::clock::instant();
        let first = two.pick(&[], ANY, now).unwrap().0.address;
        assert!(two.has_untried(&[first]));
        assert_ne!(two.pick(&[first], ANY, now).unwrap().0.address, first);
        let one = places(&[("http://127.0.0.1:1001", 1)]).await;
        let only = one.pick(&[], ANY, now).unwrap().0.address;
        for _ in 0..9 {
            fail(&one, only, now);
        }
        assert!(!one.has_untried(&[only]));
        for tried in [&[][..], &[only]] {
            assert_eq!(one.pick(tried, ANY, now).unwrap().0.address, only);
        }
        assert_eq!(one.ejected(now), 1);
    }

    #[tokio::test]
    async fn places_behind_one_address_keep_their_names() {
        let places = places(&[("http://127.0.0.1:1001", 1), ("https://127.0.0.1:1001", 1)]).await;
        let now = crate::edges::clock::instant();
        let (first, _) = places.pick(&[], ANY, now).unwrap();
        let (second, _) = places.pick(&[first.address], ANY, now).unwrap();
        assert_ne!(first.origin.https, second.origin.https);
    }

    #[tokio::test]
    async fn a_name_that_is_not_resolved_has_no_place() {
        assert!(
            places(&[("http://nowhere.invalid", 1)])
                .await
                .pick(&[], ANY, crate::edges::clock::instant())
                .is_none()
        );
    }
}
