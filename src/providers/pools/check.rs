//! Health checks of backends: a request to the free path if the provider's file names one, or else a connect.

use std::sync::Arc;

use async_trait::async_trait;
use pingora::Result;
use pingora_load_balancing::{
    Backend,
    health_check::{HealthCheck, HttpHealthCheck, TcpHealthCheck},
};

use crate::{
    domain::rules::{Origin, WeightedOrigin},
    edges::resolver::Resolver,
};

/// The number of equal results in a row that changes a backend's health.
const CHANGES_AFTER: usize = 2;

/// The origins behind one address: more than one if they share a front end.
#[derive(Clone, Debug)]
pub(super) struct Origins(pub(super) Arc<[Arc<Origin>]>);

/// The health check of each origin of one provider, over either address family of its host: a request to the free path if the
/// provider's file names one, or else a connect. It does not verify certificates, because it sends nothing secret; connections
/// that carry requests verify them.
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

    /// The same backend over the other address family of its host.
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
        // The backend expects a `Host` with the port.
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
        tracing::warn!(address = %target.addr, healthy, "a backend of a provider changed its health");
    }

    fn health_threshold(&self, _success: bool) -> usize {
        CHANGES_AFTER
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;
    use crate::edges::resolver::{HostLookup, ResolverSettings};
    use crate::providers::pools::{Probing, ProviderBackends};

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

    /// A server that is ill until the switch is on.
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

    /// Knows these addresses by each of these names.
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

    fn urls(places: &ProviderBackends) -> std::collections::BTreeSet<String> {
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
