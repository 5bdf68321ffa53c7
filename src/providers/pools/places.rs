//! Chooses the address that a request is sent to. Pingora's balancer spreads requests by weight; addresses that fail
//! are ejected for a while.

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
    breaker::{Breaker, Permit, Probing},
    check::{Origins, PlaceCheck},
};
use crate::{
    domain::{
        quick_map::QuickMap,
        rules::{Origin, WeightedOrigin},
    },
    edges::resolver::Resolver,
};

/// How long a place is connected to over its name's other address family first, after that one has answered sooner:
/// about as long as RFC 6555 section 4 recommends to remember it.
pub(super) const TURNED_FOR: Duration = Duration::from_secs(600);
/// The most addresses examined for one choice.
const LOOKED_AT_MAX: usize = 256;

/// An address to connect to, and the place that it belongs to.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// The address that identifies the place here: successes and failures count for it.
    pub address: SocketAddr,
    /// Where to connect first: this address, or the name's other family if that answered sooner recently.
    pub first: SocketAddr,
    /// Scheme, host and port of the place: its name for TLS and for the `Host` header.
    pub origin: Arc<Origin>,
}

/// How an address stands.
#[derive(Clone, Debug)]
pub(crate) struct PlaceState {
    pub address: SocketAddr,
    /// The first of its origins.
    pub origin: Arc<Origin>,
    /// Until when it is left out after failures in a row.
    pub ejected_until: Option<Instant>,
}

/// The places of one provider.
pub(crate) struct Places {
    balancer: LoadBalancer<RoundRobin>,
    /// A breaker for each current address.
    breakers: Mutex<QuickMap<SocketAddr, Breaker>>,
    resolver: Arc<Resolver>,
    /// Addresses whose name answers sooner over the other family, and until when that is assumed.
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

impl Places {
    /// Whether an address of an origin's host is known.
    pub(super) fn is_resolved(&self, origin: &Origin) -> bool {
        self.resolver.addresses(&origin.host, origin.port).is_some()
    }

    /// Places without addresses. [`Places::update`] adds them.
    pub(crate) fn new(origins: &[WeightedOrigin], resolver: Arc<Resolver>) -> Self {
        let shared: Vec<(Arc<Origin>, u16)> = origins
            .iter()
            .map(|place| (Arc::new(place.origin.clone()), place.weight))
            .collect();
        let mut balancer = LoadBalancer::from_backends(Backends::new(Box::new(Discovery {
            origins: shared,
            resolver: Arc::clone(&resolver),
        })));
        balancer.set_health_check(Box::new(PlaceCheck::new(origins, Arc::clone(&resolver))));
        Self {
            balancer,
            breakers: Mutex::default(),
            resolver,
            turned: Mutex::default(),
        }
    }

    /// Takes over the resolver's current addresses.
    pub(crate) async fn update(&self) {
        // The discovery above cannot fail.
        let _ = self.balancer.update().await;
        let there = self.balancer.backends().get_backend();
        let is_there = |address: &SocketAddr| {
            let is_same = |backend: &Backend| backend.addr.as_inet() == Some(address);
            there.iter().any(is_same)
        };
        self.breakers.lock().retain(|address, _| is_there(address));
        self.turned.lock().retain(|address, _| is_there(address));
    }

    /// Checks the health of every address, if there is more than one. An unhealthy one rests, so that after its
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
                self.breaker(address).rest(Duration::ZERO, now);
            }
        }
    }

    /// Chooses an address that is healthy and not in `tried`, possibly as a probe; else one that is ejected or
    /// unhealthy; else any. The permit reports whether the address works. It fails without a connection, without an
    /// answer in time, and on an answer which says that the front end has no working back end. `None` if no name of the
    /// places is resolved.
    pub(crate) fn pick(&self, tried: &[SocketAddr], probing: Probing, now: Instant) -> Option<(Place, Permit)> {
        let there = self.balancer.backends().get_backend();
        let chosen;
        let (backend, permit) = match there.first() {
            // A choice costs more than all else here.
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
        let permit = permit.unwrap_or_else(|| self.breaker(&address).enter_anyway(now));
        Some((self.place(address, origin, now), permit))
    }

    /// The permit for an address that is not in `tried`, unless it is ejected.
    fn enter_new(&self, backend: &Backend, tried: &[SocketAddr], probing: Probing, now: Instant) -> Option<Permit> {
        let address = backend.addr.as_inet().filter(|address| !tried.contains(address))?;
        self.breaker(address).enter(probing, now)
    }

    /// One of several addresses, and the permit if it has one.
    fn choose(&self, tried: &[SocketAddr], probing: Probing, now: Instant) -> Option<(Backend, Option<Permit>)> {
        // One pass in the balancer's order, which advances by one with each pass. The second-best choices are noted on
        // the way.
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
        let best = self.balancer.select_with(b"", LOOKED_AT_MAX, accept);
        let backend = best.or(untried.into_inner()).or(any.into_inner())?;
        Some((backend, permit.into_inner()))
    }

    /// The place of an address, with the family that is expected to answer soonest.
    fn place(&self, address: SocketAddr, origin: Arc<Origin>, now: Instant) -> Place {
        let is_turned = self.turned.lock().get(&address).is_some_and(|until| *until > now);
        let turned = is_turned.then(|| self.resolver.other_family(&origin.host, origin.port, address));
        Place {
            address,
            first: turned.flatten().unwrap_or(address),
            origin,
        }
    }

    /// Where to connect in addition if a place's first address does not answer soon; `None` if its name has one family only.
    pub(crate) fn second(&self, place: &Place) -> Option<SocketAddr> {
        match place.first == place.address {
            true => self
                .resolver
                .other_family(&place.origin.host, place.origin.port, place.address),
            false => Some(place.address),
        }
    }

    /// Both families of a place's name were tried, and `winner` was the first to connect.
    pub(crate) fn answered(&self, place: &Place, winner: SocketAddr, now: Instant) {
        if winner == place.address {
            self.turned.lock().remove(&place.address);
            return;
        }
        if self.turned.lock().insert(place.address, now + TURNED_FOR).is_none() {
            let name = &place.origin.host;
            tracing::warn!(%name, address = %place.address, used = %winner, "a provider answers at its other address family only, or sooner");
        }
    }

    /// Whether there is an address that is not in `tried`.
    pub(crate) fn has_other(&self, tried: &[SocketAddr]) -> bool {
        let there = self.balancer.backends().get_backend();
        let is_other = |backend: &Backend| backend.addr.as_inet().is_some_and(|address| !tried.contains(address));
        there.iter().any(is_other)
    }

    /// How many addresses are ejected now.
    pub(crate) fn ejected(&self, now: Instant) -> usize {
        let all = self.breakers.lock();
        all.values().filter(|one| one.open_until(now).is_some()).count()
    }

    /// All addresses that its names have now.
    pub(crate) fn states(&self, now: Instant) -> Vec<PlaceState> {
        let there = self.balancer.backends().get_backend();
        let state = |backend: &Backend| {
            let address = *backend.addr.as_inet()?;
            let origins = backend.ext.get::<Origins>()?;
            Some(PlaceState {
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

impl std::fmt::Debug for Places {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Places")
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

    async fn places(urls: &[(&str, u16)]) -> Places {
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
        let places = Places::new(&origins, Arc::new(Resolver::new(Vec::new(), settings)));
        places.update().await;
        places
    }

    const ANY: Probing = Probing::Allowed;

    fn ports(places: &Places, count: usize, now: Instant) -> HashMap<u16, usize> {
        let mut ports = HashMap::new();
        for _ in 0..count {
            let (place, _) = places.pick(&[], ANY, now).unwrap();
            *ports.entry(place.address.port()).or_default() += 1;
        }
        ports
    }

    fn fail(places: &Places, address: SocketAddr, now: Instant) {
        places.breaker(&address).enter_anyway(now).failed(now);
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
            let mut running: Vec<(Place, Permit)> = (0..100).map(|_| places.pick(&[], ANY, later).unwrap()).collect();
            running.retain(|(place, _)| place.address == ill);
            assert_eq!(running.len(), expected as usize);
            running.remove(0).1.worked(later);
            expected += 1;
        }
    }

    #[tokio::test]
    async fn a_further_attempt_goes_elsewhere_and_the_last_place_is_never_lost() {
        let two = places(&[("http://127.0.0.1:1001", 1), ("http://127.0.0.1:1002", 1)]).await;
        let now = crate::edges::clock::instant();
        let first = two.pick(&[], ANY, now).unwrap().0.address;
        assert!(two.has_other(&[first]));
        assert_ne!(two.pick(&[first], ANY, now).unwrap().0.address, first);
        let one = places(&[("http://127.0.0.1:1001", 1)]).await;
        let only = one.pick(&[], ANY, now).unwrap().0.address;
        for _ in 0..9 {
            fail(&one, only, now);
        }
        assert!(!one.has_other(&[only]));
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
