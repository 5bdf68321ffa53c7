//! Provider host names to socket addresses, in the background.
//!
//! The request path must neither wait for a name server nor depend on one: `HttpPeer::new` with a name would resolve it
//! blocking and panic on failure. So a task resolves every name at start and again every `refresh`;
//! requests read the last good answer without a lock. An unknown name means 503.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use async_trait::async_trait;
use futures_util::future::join_all;
use tokio::sync::{Notify, watch};

/// The first wait after a failed lookup; it doubles with each further failure, up to [`ResolverSettings::refresh`].
pub(crate) const RETRY_FIRST: Duration = Duration::from_secs(1);

/// At most so many addresses are kept per name and address family.
pub(crate) const ADDRESSES_MAX: usize = 64;

/// How often and how patiently names are resolved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResolverSettings {
    /// The wait between two good lookups of a name, and the longest wait after a failed one.
    pub refresh: Duration,
    /// The longest a single lookup may take.
    pub timeout: Duration,
}

/// Turns one name into addresses. The real one asks the system; tests bring their own.
#[async_trait]
pub(crate) trait Lookup: Send + Sync {
    /// The addresses of `host`, each with `port`. An empty answer counts as a failure.
    async fn lookup(&self, host: &str, port: u16) -> std::io::Result<Vec<SocketAddr>>;
}

/// The system's resolver: honours `/etc/hosts` and `nsswitch.conf`.
#[derive(Debug)]
pub(crate) struct SystemLookup;

#[async_trait]
impl Lookup for SystemLookup {
    async fn lookup(&self, host: &str, port: u16) -> std::io::Result<Vec<SocketAddr>> {
        Ok(tokio::net::lookup_host((host, port)).await?.collect())
    }
}

/// The last good addresses of every provider host. Cheap to read, refreshed by [`Resolver::run`].
pub(crate) struct Resolver {
    settings: ResolverSettings,
    lookup: Box<dyn Lookup>,
    targets: ArcSwap<Vec<Arc<Target>>>,
    table: ArcSwap<Table>,
    hosts_changed: Notify,
    tried: watch::Sender<bool>,
    moved: watch::Sender<()>,
}

/// Few ports per host (nearly always one), so a list beats a second map and needs no owned key to be asked.
type Table = HashMap<String, Vec<(u16, Families)>>;

/// The addresses of one name.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Families {
    /// Those of the family that the system puts first. It sorts by what it can reach (RFC 6724), so this one works and the other
    /// may not: spreading over both would send every second connection of an IPv4-only machine into the void.
    preferred: Arc<[SocketAddr]>,
    /// Those of the other family, for when the preferred one does not answer.
    other: Arc<[SocketAddr]>,
}

#[derive(Debug)]
struct Target {
    host: String,
    port: u16,
    failures: AtomicU64,
}

impl Resolver {
    /// A resolver of `hosts` that asks the system; nothing is resolved before [`Resolver::run`].
    pub(crate) fn new(hosts: Vec<(String, u16)>, settings: ResolverSettings) -> Self {
        Self::with_lookup(hosts, settings, Box::new(SystemLookup))
    }

    /// The same with another source of addresses.
    pub(crate) fn with_lookup(hosts: Vec<(String, u16)>, settings: ResolverSettings, lookup: Box<dyn Lookup>) -> Self {
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

    /// The last good addresses of the family that the system prefers; `None` for a name that is not configured or was never
    /// resolved. Never waits. A literal address (also `[::1]`) is its own answer.
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

    /// Where to connect when `address`, one of [`Resolver::addresses`], does not answer: an address of the same name and the
    /// other family, if there is one. Different addresses get different ones, as far as they go. Never waits.
    pub(crate) fn other_family(&self, host: &str, port: u16, address: SocketAddr) -> Option<SocketAddr> {
        let table = self.table.load();
        let (_, found) = table.get(host)?.iter().find(|(known, _)| *known == port)?;
        let at = found.preferred.iter().position(|known| *known == address)?;
        found.other.get(at.checked_rem(found.other.len())?).copied()
    }

    /// Replaces the set of names, for a reload. Answers already known for names that stay are kept; names that went are
    /// forgotten at once; new ones are resolved by the running task.
    pub(crate) fn set_hosts(&self, hosts: Vec<(String, u16)>) {
        let next = targets(hosts, &self.targets.load());
        self.targets.store(Arc::new(next));
        // Read again inside: a lookup that ends meanwhile must not bring a forgotten name back.
        self.table.rcu(|table| {
            let mut kept = Table::clone(table);
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

    /// Changes whenever an address may have: one was found, or a name was forgotten.
    pub(crate) fn moves(&self) -> watch::Receiver<()> {
        self.moved.subscribe()
    }

    /// Failed lookups so far, by host, for the metrics.
    pub(crate) fn failures(&self) -> Vec<(String, u64)> {
        let mut sums: HashMap<String, u64> = HashMap::new();
        for target in self.targets.load().iter() {
            *sums.entry(target.host.clone()).or_default() += target.failures.load(Ordering::Relaxed);
        }
        sums.into_iter().collect()
    }

    /// Waits until every name was tried once by [`Resolver::run`], successfully or not: a start that waits for this
    /// answers its first request. Bounded by [`ResolverSettings::timeout`] once the task runs.
    pub(crate) async fn first_pass(&self) {
        // The sender lives in self, so waiting cannot fail.
        let mut tried = self.tried.subscribe();
        let _seen = tried.wait_for(|tried| *tried).await;
    }

    /// The task: resolves all names at once in parallel, then each again and again until `shutdown` turns true.
    pub(crate) async fn run(self: Arc<Self>, mut shutdown: watch::Receiver<bool>) {
        loop {
            tokio::select! {
                () = self.keep_resolved() => {}
                () = self.hosts_changed.notified() => {}
                _ = shutdown.wait_for(|stop| *stop) => return,
            }
        }
    }

    /// Never returns; is dropped when the names change.
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

    /// One lookup; false when it brought nothing, in which case the last good answer stays.
    async fn resolve(&self, target: &Target) -> bool {
        let answer = tokio::time::timeout(self.settings.timeout, self.lookup.lookup(&target.host, target.port)).await;
        let reason = match answer {
            Ok(Ok(found)) if !found.is_empty() => {
                self.keep(target, &families(&found));
                return true;
            }
            Ok(Ok(_)) => "the answer holds no address".to_owned(),
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer within {} ms", self.settings.timeout.as_millis()),
        };
        target.failures.fetch_add(1, Ordering::Relaxed);
        let last_good = self.addresses(&target.host, target.port).is_some();
        tracing::warn!(host = %target.host, port = target.port, %reason, last_good, "provider host not resolved");
        false
    }

    fn keep(&self, target: &Target, found: &Families) {
        let known = |ports: &Vec<(u16, Families)>| {
            let same_port = ports.iter().find(|(port, _)| *port == target.port);
            same_port.is_some_and(|(_, known)| known == found)
        };
        if self.table.load().get(&target.host).is_some_and(known) {
            return;
        }
        self.table.rcu(|table| {
            let mut next = Table::clone(table);
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

/// The wait before the next lookup after so many failures in a row.
fn wait(failures: u32, refresh: Duration) -> Duration {
    match failures.checked_sub(1) {
        None => refresh,
        Some(doublings) => RETRY_FIRST.saturating_mul(2u32.saturating_pow(doublings)).min(refresh),
    }
}

/// Each address once, in the system's order.
fn families(found: &[SocketAddr]) -> Families {
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
    Families {
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

fn is_target(targets: &[Arc<Target>], host: &str, port: u16) -> bool {
    targets.iter().any(|target| target.port == port && target.host == host)
}

/// Each name once, literals left out, counts of names that stay carried over.
fn targets(hosts: Vec<(String, u16)>, known: &[Arc<Target>]) -> Vec<Arc<Target>> {
    let mut targets: Vec<Arc<Target>> = Vec::new();
    for (host, port) in hosts {
        if literal(&host).is_some() || is_target(&targets, &host, port) {
            continue;
        }
        let same = known
            .iter()
            .find(|target| target.port == port && target.host == host)
            .cloned();
        let failures = AtomicU64::new(0);
        targets.push(same.unwrap_or_else(|| Arc::new(Target { host, port, failures })));
    }
    targets
}

#[cfg(test)]
mod tests;
