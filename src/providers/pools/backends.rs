//! Chooses the backend to which a request is sent. Pingora's balancer spreads requests by weight. An address that fails is
//! ejected for a while.

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
    Backend, Backends, Extensions, LoadBalancer,
    discovery::ServiceDiscovery,
    health_check::{HealthCheck, HttpHealthCheck, TcpHealthCheck},
    selection::RoundRobin,
};

use crate::{
    domain::{
        QuickMap,
        rules::{Origin, WeightedOrigin},
    },
    edges::resolver::Resolver,
    providers::pools::{Breaker, CircuitPermit, Probing},
};

/// The time for which a backend's other address family is preferred after that family has answered sooner. RFC 6555 section 4
/// recommends storing the result for about this time.
pub(super) const OTHER_FAMILY_FOR: Duration = Duration::from_secs(600);
/// The maximum number of addresses that are examined for one choice.
const EXAMINED_MAX: usize = 256;

/// A backend of a provider: an address for connections, with the origin that the address serves.
#[derive(Clone, Debug)]
pub(crate) struct ProviderBackend {
    /// The address that identifies the backend. Successes and failures are recorded for it.
    pub address: SocketAddr,
    /// The address to which weir connects first. This is `address`. If the host has recently answered sooner over its other
    /// address family, this is the host's address in that family.
    pub first: SocketAddr,
    /// The scheme, host and port that name the backend for TLS and in the `Host` header.
    pub origin: Arc<Origin>,
}

/// The state of a backend's address.
#[derive(Clone, Debug)]
pub(crate) struct BackendState {
    pub address: SocketAddr,
    /// The first of the origins that the address serves.
    pub origin: Arc<Origin>,
    /// The time until which the address is ejected after consecutive failures; `None` if it is not ejected.
    pub ejected_until: Option<Instant>,
}

/// The backends of one provider.
pub(crate) struct ProviderBackends {
    balancer: LoadBalancer<RoundRobin>,
    /// The circuit of each current address.
    breakers: Mutex<QuickMap<SocketAddr, Breaker>>,
    resolver: Arc<Resolver>,
    /// The addresses whose host answered faster over the other IP family (IPv4 or IPv6), each with the time until which weir
    /// prefers that other family.
    turned: Mutex<HashMap<SocketAddr, Instant>>,
}

/// Gives the balancer the addresses to which the resolver has resolved the origins' host names.
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
    /// Whether an address of the origin's host is known.
    pub(super) fn is_resolved(&self, origin: &Origin) -> bool {
        self.resolver.addresses(&origin.host, origin.port).is_some()
    }

    /// Creates backends without addresses. [`ProviderBackends::update`] adds the addresses.
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

    /// Updates the backends to the resolver's current addresses.
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

    /// Checks the health of every address, if there is more than one. Opens the circuit of an unhealthy address, so one request
    /// probes the address after it has recovered, before other requests use it.
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

    /// Chooses a backend for a request. Prefers an address that is healthy, not ejected and not in `tried`; the request may be a
    /// probe of this address. If there is no such address, chooses an ejected or unhealthy address that is not in `tried`. If all
    /// addresses are in `tried`, chooses any of them. The caller uses the permit to report whether the address works. An address
    /// has failed if no connection was established, if no answer came in time, or if the answer says that no server behind the
    /// front end works. Returns `None` if no host name of the provider is resolved.
    pub(crate) fn pick(
        &self,
        tried: &[SocketAddr],
        probing: Probing,
        now: Instant,
    ) -> Option<(ProviderBackend, CircuitPermit)> {
        let there = self.balancer.backends().get_backend();
        let chosen;
        let (backend, permit) = match there.first() {
            // The balancer is left out, because its choice would be the most expensive part.
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

    /// Returns the permit for an address that is not in `tried`; `None` if the address is in `tried` or ejected.
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

    /// Chooses one of several addresses. Returns the chosen address. Also returns the permit for it, unless the address is
    /// ejected, unhealthy or in `tried`.
    fn choose(&self, tried: &[SocketAddr], probing: Probing, now: Instant) -> Option<(Backend, Option<CircuitPermit>)> {
        // One pass in the balancer's order, which advances by one with each pass. The pass records the second-best choices.
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

    /// Returns the backend of an address, with the address family that is expected to answer first.
    fn backend(&self, address: SocketAddr, origin: Arc<Origin>, now: Instant) -> ProviderBackend {
        let is_turned = self.turned.lock().get(&address).is_some_and(|until| *until > now);
        let turned = is_turned.then(|| self.resolver.other_family(&origin.host, origin.port, address));
        ProviderBackend {
            address,
            first: turned.flatten().unwrap_or(address),
            origin,
        }
    }

    /// Returns an additional address to try if a backend's first address does not answer soon; `None` if the host has only one
    /// address family.
    pub(crate) fn second(&self, place: &ProviderBackend) -> Option<SocketAddr> {
        match place.first == place.address {
            true => self
                .resolver
                .other_family(&place.origin.host, place.origin.port, place.address),
            false => Some(place.address),
        }
    }

    /// Records that both address families of a backend's host were tried, and that `winner` was the first to connect.
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
            tracing::warn!(
                %name, address = %place.address, used = %winner,
                "a provider's host is unreachable or slower over the preferred address family (IPv4 or IPv6); weir now tries \
                 the other address family first"
            );
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

    /// Returns the current addresses of all hosts, with their state.
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

/// The number of consecutive equal results after which a backend's health changes.
const CHANGES_AFTER: usize = 2;

/// The origins that share one address. There are several if their hosts share a front end.
#[derive(Clone, Debug)]
pub(super) struct Origins(pub(super) Arc<[Arc<Origin>]>);

/// The health check of each origin of one provider, over either address family of the origin's host. If the provider's file names
/// a path that can be requested free of charge, the check requests that path. Otherwise, the check only connects. The check does
/// not verify certificates, because it sends no secrets. Certificates are verified on connections that carry requests.
pub(super) struct BackendCheck {
    checks: Vec<(Origin, Box<dyn HealthCheck + Send + Sync>)>,
    resolver: Arc<Resolver>,
}

impl BackendCheck {
    pub(super) fn new(origins: &[WeightedOrigin], resolver: Arc<Resolver>) -> Self {
        let checks = origins.iter().map(|place| (place.origin.clone(), new_check(place)));
        Self {
            checks: checks.collect(),
            resolver,
        }
    }

    /// Returns the same backend over the other address family of its host; `None` if the host has none.
    fn with_other_family(&self, origin: &Origin, target: &Backend) -> Option<Backend> {
        let address = target.addr.as_inet()?;
        let other = self.resolver.other_family(&origin.host, origin.port, *address)?;
        Some(Backend {
            addr: other.into(),
            ..target.clone()
        })
    }
}

fn new_check(place: &WeightedOrigin) -> Box<dyn HealthCheck + Send + Sync> {
    let origin = &place.origin;
    if let Some(path) = &place.health_path {
        let mut check = HttpHealthCheck::new(&origin.host, origin.https);
        check.req.set_raw_path(path.as_bytes()).unwrap_or_default();
        // The backend expects a `Host` header with the port.
        let _ = check.req.insert_header(http::header::HOST, origin.host_header());
        check.peer_template.options.verify_cert = false;
        return Box::new(check);
    }
    let mut check = if origin.https {
        TcpHealthCheck::new_tls(&origin.host)
    } else {
        TcpHealthCheck::new()
    };
    check.peer_template.options.verify_cert = false;
    check
}

#[async_trait]
impl HealthCheck for BackendCheck {
    async fn check(&self, target: &Backend) -> Result<()> {
        let Some(Origins(origins)) = target.ext.get::<Origins>() else {
            return Ok(());
        };
        for origin in origins.iter() {
            let Some((_, check)) = self.checks.iter().find(|(known, _)| known == origin.as_ref()) else {
                continue;
            };
            if let Err(error) = check.check(target).await {
                let other = self.with_other_family(origin, target).ok_or(error)?;
                check.check(&other).await?;
            }
        }
        Ok(())
    }

    async fn health_status_change(&self, target: &Backend, healthy: bool) {
        tracing::warn!(address = %target.addr, healthy, "the health check of a provider's backend has a new result; the field `healthy` shows whether the backend is healthy");
    }

    fn health_threshold(&self, _success: bool) -> usize {
        CHANGES_AFTER
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        domain::faults::circuit::{EJECTED_AFTER, EJECTED_FIRST, READMITTED_AFTER},
        edges::resolver::{HostLookup, ResolverSettings},
        providers::pools::{Probing, ProviderBackends},
    };
    use std::{
        net::SocketAddr,
        sync::{
            Arc,
            atomic::{AtomicBool, Ordering},
        },
        time::Duration,
    };
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
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

    /// A server that answers every request with this status line.
    async fn server(status: &'static str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut head = [0; 4096];
                let _ = stream.read(&mut head).await;
                let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        url
    }

    /// A server that is unhealthy until the switch is on.
    async fn recovering() -> (String, Arc<AtomicBool>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let is_well = Arc::new(AtomicBool::new(false));
        let switch = Arc::clone(&is_well);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut head = [0; 4096];
                let _ = stream.read(&mut head).await;
                let status = if switch.load(Ordering::SeqCst) { 200 } else { 503 };
                let answer = format!("HTTP/1.1 {status} Scripted\r\ncontent-length: 0\r\n\r\n");
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        (url, is_well)
    }

    struct Addresses(Vec<SocketAddr>);

    #[async_trait]
    impl HostLookup for Addresses {
        async fn lookup(&self, _host: &str, _port: u16) -> std::io::Result<Vec<SocketAddr>> {
            Ok(self.0.clone())
        }
    }

    /// Returns a resolver for which each of these names has all of these addresses.
    async fn resolver(names: Vec<(String, u16)>, addresses: Vec<SocketAddr>) -> Arc<Resolver> {
        let settings = ResolverSettings {
            refresh: Duration::from_secs(60),
            timeout: Duration::from_secs(1),
        };
        let resolver = Arc::new(Resolver::with_lookup(names, settings, Box::new(Addresses(addresses))));
        let (stop, stopped) = tokio::sync::watch::channel(false);
        let resolving = tokio::spawn(Arc::clone(&resolver).run(stopped));
        resolver.first_pass().await;
        stop.send_replace(true);
        resolving.await.unwrap();
        resolver
    }

    async fn checked(places: &[(&str, Option<&str>)]) -> ProviderBackends {
        let place = |(url, path): &(&str, Option<&str>)| WeightedOrigin {
            health_path: path.map(str::to_owned),
            ..WeightedOrigin::only(Origin::parse(url).unwrap())
        };
        let origins: Vec<WeightedOrigin> = places.iter().map(place).collect();
        let places = ProviderBackends::new(&origins, resolver(Vec::new(), Vec::new()).await);
        places.update().await;
        for _ in 0..CHANGES_AFTER {
            places.check(crate::edges::clock::instant()).await;
        }
        places
    }

    fn urls(places: &ProviderBackends) -> BTreeSet<String> {
        let now = crate::edges::clock::instant();
        (0..10)
            .map(|_| format!("http://{}", places.pick(&[], Probing::Allowed, now).unwrap().0.address))
            .collect()
    }

    #[tokio::test]
    async fn a_place_whose_free_path_says_that_it_is_ill_is_left_out() {
        let (well, ill) = (server("200 OK").await, server("503 Service Unavailable").await);
        let places = checked(&[(&well, Some("/healthz")), (&ill, Some("/healthz"))]).await;
        assert_eq!(urls(&places), [well].into());
    }

    #[tokio::test]
    async fn a_place_that_has_become_well_is_asked_by_one_request_first() {
        let well = server("200 OK").await;
        let (ill, is_well) = recovering().await;
        let places = checked(&[(&well, Some("/healthz")), (&ill, Some("/healthz"))]).await;
        assert_eq!(urls(&places), [well].into());
        is_well.store(true, Ordering::SeqCst);
        for _ in 0..CHANGES_AFTER {
            places.check(crate::edges::clock::instant()).await;
        }
        let now = crate::edges::clock::instant();
        let running: Vec<_> = (0..16)
            .map(|_| places.pick(&[], Probing::Allowed, now).unwrap())
            .collect();
        let asked = running
            .iter()
            .filter(|(place, _)| ill.ends_with(&place.address.to_string()));
        assert_eq!(asked.count(), 1);
    }

    #[tokio::test]
    async fn without_a_free_path_a_connection_that_stands_is_enough() {
        let (well, ill) = (server("200 OK").await, server("503 Service Unavailable").await);
        let places = checked(&[(&well, None), (&ill, None)]).await;
        assert_eq!(urls(&places).len(), 2);
        let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let places = checked(&[(&well, None), (&format!("http://{gone}"), None)]).await;
        assert_eq!(urls(&places), [well].into());
    }

    #[tokio::test]
    async fn a_place_that_answers_at_the_other_address_family_only_is_well() {
        let alive = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let dead = TcpListener::bind("[::1]:0").await.unwrap().local_addr().unwrap();
        let resolver = resolver(
            vec![("two.example".to_owned(), 80)],
            vec![dead, alive.local_addr().unwrap()],
        );
        let place = |url: &str| WeightedOrigin::only(Origin::parse(url).unwrap());
        let second = server("200 OK").await;
        let places = ProviderBackends::new(&[place("http://two.example"), place(&second)], resolver.await);
        places.update().await;
        for _ in 0..CHANGES_AFTER {
            places.check(crate::edges::clock::instant()).await;
        }
        assert_eq!(urls(&places), [format!("http://{dead}"), second].into());
    }

    #[tokio::test]
    async fn when_all_are_ill_one_of_them_is_asked_all_the_same() {
        let ill = server("503 Service Unavailable").await;
        let other = server("503 Service Unavailable").await;
        let places = checked(&[(&ill, Some("/healthz")), (&other, Some("/healthz"))]).await;
        assert_eq!(urls(&places).len(), 2);
    }
}
