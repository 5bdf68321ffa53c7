//! Which address of which place a request is sent to: shared by weight with Pingora's balancer, those that fail left out
//! for a while.

use std::{
    cell::RefCell,
    collections::{BTreeSet, HashMap},
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use pingora::Result;
use pingora_load_balancing::{
    Backend, Backends, Extensions, LoadBalancer, discovery::ServiceDiscovery, selection::RoundRobin,
};

use super::check::PlaceCheck;
use crate::{
    domain::rules::{Origin, WeightedOrigin},
    resolver::Resolver,
};

/// Failures in a row after which an address is left out.
pub(super) const EJECTED_AFTER: u32 = 3;
/// How long it is left out the first time; doubled with each time in a row.
pub(super) const EJECTED_FIRST: Duration = Duration::from_secs(5);
/// How long it is left out at most.
pub(super) const EJECTED_MAX: Duration = Duration::from_secs(300);
/// How long a place is connected to at its name's other address family first, after that has answered sooner: about as long as
/// RFC 6555 section 4 says to remember it.
pub(super) const TURNED_FOR: Duration = Duration::from_secs(600);
/// How many addresses are looked at for one choice.
const LOOKED_AT_MAX: usize = 256;

/// An address to connect to, and the place it belongs to.
#[derive(Clone, Debug)]
pub struct Place {
    /// The address by which it is known here: what fails or works is told of this one.
    pub address: SocketAddr,
    /// Where to connect first: there, or at the name's other address family where that answered sooner lately.
    pub first: SocketAddr,
    /// Where to connect beside, when the first does not answer soon. `None` where the name has one family only.
    pub second: Option<SocketAddr>,
    /// The place: its name for TLS and for the `Host` header.
    pub origin: Arc<Origin>,
}

/// The places of one provider.
pub struct Places {
    balancer: LoadBalancer<RoundRobin>,
    failures: Mutex<HashMap<SocketAddr, Failures>>,
    resolver: Arc<Resolver>,
    /// Addresses whose name answers sooner at the other family, and until when that is believed.
    turned: Mutex<HashMap<SocketAddr, Instant>>,
}

/// What an address has failed at.
#[derive(Clone, Copy, Debug, Default)]
struct Failures {
    in_a_row: u32,
    ejections: u32,
    out_until: Option<Instant>,
}

/// The places behind one address: more than one when they share a front.
#[derive(Clone, Debug)]
pub(super) struct Origins(pub(super) Arc<[Arc<Origin>]>);

/// Turns names into addresses for the balancer.
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
    /// Places without addresses; see [`Places::update`].
    pub fn new(origins: &[WeightedOrigin], resolver: Arc<Resolver>) -> Self {
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
            failures: Mutex::default(),
            resolver,
            turned: Mutex::default(),
        }
    }

    /// Takes over the addresses that the resolver has now.
    pub async fn update(&self) {
        // The discovery above has no way to fail.
        let _ = self.balancer.update().await;
        let there = self.balancer.backends().get_backend();
        let is_there = |address: &SocketAddr| {
            let is_same = |backend: &Backend| backend.addr.as_inet() == Some(address);
            there.iter().any(is_same)
        };
        self.lock().retain(|address, _| is_there(address));
        self.turned().retain(|address, _| is_there(address));
    }

    /// Checks the health of every address, where there is more than one to choose from.
    pub async fn check(&self) {
        if self.balancer.backends().get_backend().len() > 1 {
            self.balancer.backends().run_health_check(true).await;
        }
    }

    /// An address that works as far as is known and is not in `tried`; failing that, one that is ejected or ill, and
    /// failing that, any. `None` when no name of the places is resolved.
    pub fn pick(&self, tried: &[SocketAddr], now: Instant) -> Option<Place> {
        let is_out = |address: &SocketAddr| {
            let failures = self.lock().get(address).copied().unwrap_or_default();
            failures.out_until.is_some_and(|until| until > now)
        };
        let address = |backend: &Backend| backend.addr.as_inet().copied();
        // One look in the balancer's order, which moves on by one with each: what is second best is noted on the way.
        let (untried, any) = (RefCell::new(None), RefCell::new(None));
        let accept = |backend: &Backend, healthy: bool| {
            let Some(address) = address(backend) else { return false };
            let is_new = !tried.contains(&address);
            if is_new && healthy && !is_out(&address) {
                return true;
            }
            let noted = if is_new { &untried } else { &any };
            noted.borrow_mut().get_or_insert_with(|| backend.clone());
            false
        };
        let best = self.balancer.select_with(b"", LOOKED_AT_MAX, accept);
        let backend = best.or(untried.into_inner()).or(any.into_inner())?;
        let Origins(origins) = backend.ext.get::<Origins>()?;
        let origin = origins.get(tried.len().checked_rem(origins.len())?)?;
        Some(self.place(address(&backend)?, Arc::clone(origin), now))
    }

    /// Where to connect to for an address: at its name's two families, in the order that answers soonest.
    fn place(&self, address: SocketAddr, origin: Arc<Origin>, now: Instant) -> Place {
        let other = self.resolver.other_family(&origin.host, origin.port, address);
        let is_turned = || self.turned().get(&address).is_some_and(|until| *until > now);
        let (first, second) = match other {
            Some(other) if is_turned() => (other, Some(address)),
            other => (address, other),
        };
        Place {
            address,
            first,
            second,
            origin,
        }
    }

    /// Both families of a place's name were tried, and this one was the first to answer.
    pub fn answered(&self, place: &Place, winner: SocketAddr, now: Instant) {
        if winner == place.address {
            self.turned().remove(&place.address);
            return;
        }
        if self.turned().insert(place.address, now + TURNED_FOR).is_none() {
            let name = &place.origin.host;
            tracing::warn!(%name, address = %place.address, used = %winner, "a provider answers at its other address family only, or sooner");
        }
    }

    /// The address works.
    pub fn worked(&self, address: SocketAddr) {
        self.lock().remove(&address);
    }

    /// The address failed: no connection, no answer in time, or one that says that its front has nobody behind it.
    pub fn failed(&self, address: SocketAddr, now: Instant) {
        let mut all = self.lock();
        let failures = all.entry(address).or_default();
        failures.in_a_row += 1;
        if failures.in_a_row >= EJECTED_AFTER && failures.out_until.is_none_or(|until| until <= now) {
            let doubled = EJECTED_FIRST.saturating_mul(1 << failures.ejections.min(16));
            failures.out_until = Some(now + doubled.min(EJECTED_MAX));
            failures.ejections += 1;
        }
    }

    /// How many addresses are left out now.
    pub fn ejected(&self, now: Instant) -> usize {
        let is_out = |failures: &&Failures| failures.out_until.is_some_and(|until| until > now);
        self.lock().values().filter(is_out).count()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<SocketAddr, Failures>> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn turned(&self) -> std::sync::MutexGuard<'_, HashMap<SocketAddr, Instant>> {
        self.turned.lock().unwrap_or_else(PoisonError::into_inner)
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
    use crate::resolver::ResolverSettings;

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

    fn ports(places: &Places, count: usize, now: Instant) -> HashMap<u16, usize> {
        let mut ports = HashMap::new();
        for _ in 0..count {
            *ports.entry(places.pick(&[], now).unwrap().address.port()).or_default() += 1;
        }
        ports
    }

    #[tokio::test]
    async fn weights_share_the_requests() {
        let places = places(&[("http://127.0.0.1:1001", 1), ("http://127.0.0.1:1002", 3)]).await;
        let counts = ports(&places, 400, crate::clock::instant());
        assert_eq!((counts[&1001], counts[&1002]), (100, 300));
    }

    #[tokio::test]
    async fn an_address_that_fails_is_left_out_for_longer_each_time() {
        let places = places(&[("http://127.0.0.1:1001", 1), ("http://127.0.0.1:1002", 1)]).await;
        let mut now = crate::clock::instant();
        let ill: SocketAddr = "127.0.0.1:1001".parse().unwrap();
        for _ in 1..EJECTED_AFTER {
            places.failed(ill, now);
        }
        assert_eq!(ports(&places, 10, now).len(), 2);
        places.failed(ill, now);
        assert_eq!((ports(&places, 10, now).len(), places.ejected(now)), (1, 1));
        now += EJECTED_FIRST;
        assert_eq!(ports(&places, 10, now).len(), 2);
        places.failed(ill, now);
        assert_eq!(ports(&places, 10, now + EJECTED_FIRST).len(), 1, "twice as long");
        now += EJECTED_FIRST * 2;
        places.worked(ill);
        places.failed(ill, now);
        assert_eq!(ports(&places, 10, now).len(), 2, "begins anew");
    }

    #[tokio::test]
    async fn a_further_attempt_goes_elsewhere_and_the_last_place_is_never_lost() {
        let two = places(&[("http://127.0.0.1:1001", 1), ("http://127.0.0.1:1002", 1)]).await;
        let now = crate::clock::instant();
        let first = two.pick(&[], now).unwrap().address;
        assert_ne!(two.pick(&[first], now).unwrap().address, first);
        let one = places(&[("http://127.0.0.1:1001", 1)]).await;
        let only = one.pick(&[], now).unwrap().address;
        for _ in 0..9 {
            one.failed(only, now);
        }
        assert_eq!(one.pick(&[only], now).unwrap().address, only);
    }

    #[tokio::test]
    async fn places_behind_one_address_keep_their_names() {
        let places = places(&[("http://127.0.0.1:1001", 1), ("https://127.0.0.1:1001", 1)]).await;
        let now = crate::clock::instant();
        let first = places.pick(&[], now).unwrap();
        let second = places.pick(&[first.address], now).unwrap();
        assert_ne!(first.origin.https, second.origin.https);
    }

    #[tokio::test]
    async fn a_name_that_is_not_resolved_has_no_place() {
        assert!(
            places(&[("http://nowhere.invalid", 1)])
                .await
                .pick(&[], crate::clock::instant())
                .is_none()
        );
    }
}
