//! Resolves the host names of providers to socket addresses in the background.
//!
//! Requests must not wait for a name server and must not depend on one. `HttpPeer::new` with a name would block until the name is
//! resolved, and would panic if the lookup failed. So a task resolves every name at the start, and then at intervals of
//! `refresh`. Requests read the last good addresses without a lock. A request to a provider with an unresolved name gets 503.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use async_trait::async_trait;
use futures_util::future::join_all;
use tokio::sync::{Notify, watch};

/// The wait after the first failed lookup. The wait doubles with each further failure, up to [`ResolverSettings::refresh`].
pub(crate) const RETRY_FIRST: Duration = Duration::from_secs(1);

/// Maximum number of addresses that are stored per name and address family.
pub(crate) const ADDRESSES_MAX: usize = 64;

/// The interval and the timeout of lookups.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResolverSettings {
    /// The interval between successful lookups of a name. It is also the maximum wait after a failed lookup.
    pub refresh: Duration,
    /// Timeout of a single lookup.
    pub timeout: Duration,
}

/// A source of addresses for a host name. Production uses [`SystemLookup`]; tests have their own.
#[async_trait]
pub(crate) trait HostLookup: Send + Sync {
    /// Returns the addresses of `host`, each with `port`. An empty list is treated as a failure.
    async fn lookup(&self, host: &str, port: u16) -> std::io::Result<Vec<SocketAddr>>;
}

/// The system's resolver, which uses `/etc/hosts` and `nsswitch.conf`.
#[derive(Debug)]
pub(crate) struct SystemLookup;

#[async_trait]
impl HostLookup for SystemLookup {
    async fn lookup(&self, host: &str, port: u16) -> std::io::Result<Vec<SocketAddr>> {
        Ok(tokio::net::lookup_host((host, port)).await?.collect())
    }
}

/// The last good addresses of every provider host. Reading is cheap; [`Resolver::run`] refreshes them.
pub(crate) struct Resolver {
    settings: ResolverSettings,
    lookup: Box<dyn HostLookup>,
    targets: ArcSwap<Vec<Arc<HostTarget>>>,
    table: ArcSwap<AddressTable>,
    hosts_changed: Notify,
    tried: watch::Sender<bool>,
    moved: watch::Sender<()>,
}

/// The addresses by host, then by port. The ports of a host are a list and not a second map, because nearly every host has only
/// one port. The map's key is only the host, so a lookup needs no owned key.
type AddressTable = HashMap<String, Vec<(u16, AddressFamilies)>>;

/// The addresses of one name and port, by family (IPv4 and IPv6).
#[derive(Clone, Debug, PartialEq, Eq)]
struct AddressFamilies {
    /// The addresses of the family that the system lists first. The system sorts addresses by reachability (RFC 6724), so this
    /// family works, while the other one may not. If both were used on a machine with IPv4 only, every second connection would
    /// fail.
    preferred: Arc<[SocketAddr]>,
    /// The addresses of the other family, which are used if a preferred address does not answer.
    other: Arc<[SocketAddr]>,
}

#[derive(Debug)]
struct HostTarget {
    host: String,
    port: u16,
    failures: AtomicU64,
}

impl Resolver {
    /// Creates a resolver of `hosts` that uses the system's resolver. Nothing is resolved before [`Resolver::run`].
    pub(crate) fn new(hosts: Vec<(String, u16)>, settings: ResolverSettings) -> Self {
        Self::with_lookup(hosts, settings, Box::new(SystemLookup))
    }

    /// Like [`Resolver::new`], but with `lookup` as the source of addresses.
    pub(crate) fn with_lookup(
        hosts: Vec<(String, u16)>,
        settings: ResolverSettings,
        lookup: Box<dyn HostLookup>,
    ) -> Self {
        Self {
            settings,
            lookup,
            targets: ArcSwap::from_pointee(targets(hosts, &[])),
            table: ArcSwap::default(),
            hosts_changed: Notify::new(),
            tried: watch::Sender::new(false),
            moved: watch::Sender::new(()),
        }
    }

    /// Returns the last good addresses of a host, of the family that the system prefers. Returns `None` for a name that is not
    /// configured or was never resolved. Never waits. If `host` is an IP address (also `[::1]`), it is returned unchanged.
    pub(crate) fn addresses(&self, host: &str, port: u16) -> Option<Arc<[SocketAddr]>> {
        if let Some(literal) = literal(host) {
            return Some(Arc::from([SocketAddr::new(literal, port)]));
        }
        let table = self.table.load();
        table
            .get(host)?
            .iter()
            .find(|(known, _)| *known == port)
            .map(|(_, found)| Arc::clone(&found.preferred))
    }

    /// Returns an address to try when `address` does not answer. `address` is one of [`Resolver::addresses`]; the returned
    /// address has the same name, but is in the other family. Returns `None` if that family has no address. As far as possible,
    /// the results for different addresses are different. Never waits.
    pub(crate) fn other_family(&self, host: &str, port: u16, address: SocketAddr) -> Option<SocketAddr> {
        let table = self.table.load();
        let (_, found) = table.get(host)?.iter().find(|(known, _)| *known == port)?;
        let at = found.preferred.iter().position(|known| *known == address)?;
        found.other.get(at.checked_rem(found.other.len())?).copied()
    }

    /// Replaces the set of names at a reload. Names that remain keep their known addresses. The addresses of removed names are
    /// dropped at once. The running task resolves the new names.
    pub(crate) fn set_hosts(&self, hosts: Vec<(String, u16)>) {
        let next = targets(hosts, &self.targets.load());
        self.targets.store(Arc::new(next));
        // The targets are read again inside the closure, because a lookup that ends in the meantime must not bring back a removed
        // name.
        self.table.rcu(|table| {
            let mut kept = AddressTable::clone(table);
            let targets = self.targets.load();
            kept.retain(|host, ports| {
                ports.retain(|(port, _)| is_target(&targets, host, *port));
                !ports.is_empty()
            });
            kept
        });
        self.moved.send_replace(());
        self.hosts_changed.notify_one();
    }

    /// Returns a receiver that is notified whenever an address may have changed: an address was found, or a name was removed.
    pub(crate) fn subscribe_changes(&self) -> watch::Receiver<()> {
        self.moved.subscribe()
    }

    /// Returns the number of failed lookups so far by host, for the metrics.
    pub(crate) fn failures(&self) -> Vec<(String, u64)> {
        let mut sums: HashMap<String, u64> = HashMap::new();
        for target in self.targets.load().iter() {
            *sums.entry(target.host.clone()).or_default() += target.failures.load(Ordering::Relaxed);
        }
        sums.into_iter().collect()
    }

    /// Waits until [`Resolver::run`] has tried to resolve every name once, successfully or not, so that the first request after a
    /// start can be served. Once the task runs, this takes at most [`ResolverSettings::timeout`].
    pub(crate) async fn first_pass(&self) {
        // The sender is part of `self`, so waiting cannot fail.
        let mut tried = self.tried.subscribe();
        let _seen = tried.wait_for(|tried| *tried).await;
    }

    /// The background task. It first resolves all names in parallel, then each of them periodically until `shutdown` becomes
    /// true.
    pub(crate) async fn run(self: Arc<Self>, mut shutdown: watch::Receiver<bool>) {
        loop {
            tokio::select! {
                () = self.keep_resolved() => {}
                () = self.hosts_changed.notified() => {}
                _ = shutdown.wait_for(|stop| *stop) => return,
            }
        }
    }

    /// Resolves all names and refreshes them. Never returns; the caller drops the future when the names change.
    async fn keep_resolved(&self) {
        let targets = self.targets.load_full();
        let first = join_all(targets.iter().map(|target| self.resolve(target))).await;
        self.tried.send_replace(true);
        let loops = targets.iter().zip(first).map(|(target, resolved)| async move {
            let mut failures = u32::from(!resolved);
            loop {
                tokio::time::sleep(wait(failures, self.settings.refresh)).await;
                failures = if self.resolve(target).await {
                    0
                } else {
                    failures.saturating_add(1)
                };
            }
        });
        join_all(loops).await;
        std::future::pending::<()>().await;
    }

    /// Looks up one name and stores its addresses. If the lookup fails, keeps the last good addresses and returns false.
    async fn resolve(&self, target: &HostTarget) -> bool {
        let answer = tokio::time::timeout(self.settings.timeout, self.lookup.lookup(&target.host, target.port)).await;
        let reason = match answer {
            Ok(Ok(found)) if !found.is_empty() => {
                self.store_addresses(target, &families(&found));
                return true;
            }
            Ok(Ok(_)) => "the answer has no address".to_owned(),
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer within {} ms", self.settings.timeout.as_millis()),
        };
        target.failures.fetch_add(1, Ordering::Relaxed);
        let last_good = self.addresses(&target.host, target.port).is_some();
        tracing::warn!(
            host = %target.host,
            port = target.port,
            %reason,
            last_good,
            "cannot resolve the provider's host name; weir tries again. If the field `last_good` is true, weir uses the last \
             known addresses in the meantime"
        );
        false
    }

    fn store_addresses(&self, target: &HostTarget, found: &AddressFamilies) {
        let known = |ports: &Vec<(u16, AddressFamilies)>| {
            let same_port = ports.iter().find(|(port, _)| *port == target.port);
            same_port.is_some_and(|(_, known)| known == found)
        };
        if self.table.load().get(&target.host).is_some_and(known) {
            return;
        }
        self.table.rcu(|table| {
            let mut next = AddressTable::clone(table);
            if is_target(&self.targets.load(), &target.host, target.port) {
                let ports = next.entry(target.host.clone()).or_default();
                ports.retain(|(port, _)| *port != target.port);
                ports.push((target.port, found.clone()));
            }
            next
        });
        self.moved.send_replace(());
    }
}

impl std::fmt::Debug for Resolver {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Resolver")
            .field("table", &self.table.load())
            .finish_non_exhaustive()
    }
}

/// Returns the wait before the next lookup of a name after `failures` failures in a row.
fn wait(failures: u32, refresh: Duration) -> Duration {
    match failures.checked_sub(1) {
        None => refresh,
        Some(doublings) => RETRY_FIRST.saturating_mul(2u32.saturating_pow(doublings)).min(refresh),
    }
}

/// Splits addresses by family, without duplicates, in the system's order. The first address's family is preferred.
fn families(found: &[SocketAddr]) -> AddressFamilies {
    let prefers_v4 = found.first().is_some_and(SocketAddr::is_ipv4);
    let (mut preferred, mut other) = (Vec::new(), Vec::new());
    for address in found {
        let kept: &mut Vec<SocketAddr> = match address.is_ipv4() == prefers_v4 {
            true => &mut preferred,
            false => &mut other,
        };
        if kept.len() < ADDRESSES_MAX && !kept.contains(address) {
            kept.push(*address);
        }
    }
    AddressFamilies {
        preferred: preferred.into(),
        other: other.into(),
    }
}

fn literal(host: &str) -> Option<IpAddr> {
    let bare = host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .unwrap_or(host);
    bare.parse().ok()
}

fn is_target(targets: &[Arc<HostTarget>], host: &str, port: u16) -> bool {
    targets.iter().any(|target| target.port == port && target.host == host)
}

/// Returns the names to resolve, without duplicates and without IP addresses. Names that were in `known` keep their failure
/// counts.
fn targets(hosts: Vec<(String, u16)>, known: &[Arc<HostTarget>]) -> Vec<Arc<HostTarget>> {
    let mut targets: Vec<Arc<HostTarget>> = Vec::new();
    for (host, port) in hosts {
        if literal(&host).is_some() || is_target(&targets, &host, port) {
            continue;
        }
        let same = known
            .iter()
            .find(|target| target.port == port && target.host == host)
            .cloned();
        let failures = AtomicU64::new(0);
        targets.push(same.unwrap_or_else(|| Arc::new(HostTarget { host, port, failures })));
    }
    targets
}

#[cfg(test)]
mod tests;
