//! Connections to a master: the link's main connection, additional connections of runtimes, the pauses between attempts to
//! connect, and a server's report about itself. This module also inspects the servers' memory use, and their configuration for
//! warnings and for `weir check`.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use ::redis::{Client, PushKind, RedisResult, aio::MultiplexedConnection};
use parking_lot::Mutex;
use tokio::{
    runtime::{Handle, Id},
    time::timeout,
};

use crate::{
    edges::clock,
    store::{
        StoreMemory, StoreTrouble, StoreWarning,
        redis::{
            RedisStore,
            dialer::connect,
            link::{Link, LinkTopology},
            settings::RedisAddress,
        },
    },
};

/// The main connection of a link, in use.
pub(super) struct LiveConnection {
    pub(super) wire: Arc<Wire>,
    /// The connection's number among all connections of the link.
    pub(super) number: u64,
    pub(super) address: RedisAddress,
    /// The client that creates other connections to the same server.
    pub(super) client: Client,
    /// The runtime that reads the connection's answers.
    pub(super) runtime: Id,
}

/// A connection on which calls are sent.
pub(super) struct Wire {
    pub(super) connection: MultiplexedConnection,
    /// The time of the server's last answer on this connection.
    pub(super) last_answer: LastAnswer,
    closed: Arc<AtomicBool>,
}

impl Wire {
    /// Connects. `at_end` is called when the connection is closed.
    pub(super) async fn connect(client: &Client, at_end: impl Fn() + Send + Sync + 'static) -> RedisResult<Self> {
        let closed = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&closed);
        let connection = connect(client, move |kind| {
            if kind == PushKind::Disconnection {
                flag.store(true, Ordering::Release);
                at_end();
            }
        })
        .await?;
        Ok(Self {
            connection,
            last_answer: LastAnswer::new(clock::instant()),
            closed,
        })
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }
}

/// The timeout of one attempt to connect, including finding the server, login and loading the scripts.
pub(in crate::store::redis) const CONNECT_WAIT_MAX: Duration = Duration::from_secs(1);
/// The pause after the first failed attempt. A pause is measured from the start of one attempt to the start of the next.
pub(super) const PAUSE_MIN: Duration = Duration::from_millis(50);
/// The maximum pause between two attempts.
const PAUSE_MAX: Duration = Duration::from_millis(250);

/// The pauses between attempts to connect to one server. Each is twice the previous one, from [`PAUSE_MIN`] to [`PAUSE_MAX`].
pub(in crate::store::redis) struct RetryPauses {
    next: Duration,
}

impl RetryPauses {
    pub(in crate::store::redis) fn new() -> Self {
        Self { next: PAUSE_MIN }
    }

    /// Returns the pause after another failed attempt.
    pub(in crate::store::redis) fn next_pause(&mut self) -> Duration {
        let pause = self.next;
        self.next = PAUSE_MAX.min(pause * 2);
        pause
    }

    /// Starts again with the shortest pause, because the server has answered.
    pub(in crate::store::redis) fn reset(&mut self) {
        self.next = PAUSE_MIN;
    }
}

/// The parts of INFO that weir needs. A value that a server does not report is assumed to be good.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ServerReport {
    /// Identifies the server's process and the history of its data.
    pub(super) identity: DataIdentity,
    /// The address of the master; `None` if this server is not a replica.
    pub(super) replica_of: Option<RedisAddress>,
    replica: bool,
    loading: bool,
    policy: Option<String>,
    cluster_node: bool,
    pub(super) memory: Option<StoreMemory>,
    /// The number of keys that the server has evicted since it was started, or since its statistics were reset.
    pub(super) evicted: u64,
    pub(super) warnings: BTreeSet<StoreWarning>,
}

/// Identifies the process and the replication history of a server. It changes when the data may have changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct DataIdentity {
    run_id: String,
    replication_id: String,
}

impl ServerReport {
    pub(super) fn parse(info: &str) -> Self {
        let field = |name: &str| {
            info.lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(str::trim))
        };
        let text = |name: &str| field(name).unwrap_or_default().to_owned();
        let policy = field("maxmemory_policy").map(str::to_owned);
        let replicas = field("connected_slaves").and_then(|count| count.parse::<u64>().ok());
        // Redis reports this field only if `min-replicas-to-write` is set.
        let unguarded = replicas.is_some_and(|count| count > 0) && field("min_slaves_good_slaves").is_none();
        let number = |name: &str| field(name).and_then(|number| number.parse::<u64>().ok());
        let evicted = number("evicted_keys").unwrap_or(0);
        let warnings = [
            (StoreWarning::Evicted, evicted > 0),
            (
                StoreWarning::Eviction,
                policy.as_deref().is_some_and(|policy| policy != "noeviction"),
            ),
            (StoreWarning::NoAppendOnlyFile, field("aof_enabled") == Some("0")),
            (StoreWarning::NoMinReplicas, unguarded),
        ];
        // A server without its own limit is limited by the machine's memory.
        let most = number("maxmemory")
            .filter(|most| *most > 0)
            .or(number("total_system_memory"));
        let port = field("master_port").and_then(|port| port.parse().ok());
        Self {
            identity: DataIdentity {
                run_id: text("run_id"),
                replication_id: text("master_replid"),
            },
            replica_of: field("master_host")
                .zip(port)
                .and_then(|(host, port)| RedisAddress::new(host, port)),
            replica: field("role") == Some("slave"),
            loading: field("loading") == Some("1"),
            policy,
            cluster_node: field("cluster_enabled") == Some("1"),
            memory: number("used_memory")
                .zip(most)
                .map(|(used, most)| StoreMemory { used, limit: most }),
            evicted,
            warnings: warnings
                .into_iter()
                .filter_map(|(warning, is_so)| is_so.then_some(warning))
                .collect(),
        }
    }

    pub(super) fn is_replica(&self) -> bool {
        self.replica
    }

    /// Returns why this server is not used, and what to do; `None` if it can be used.
    pub(super) fn refusal(&self) -> Option<String> {
        if self.loading {
            return Some("is loading its data".to_owned());
        }
        let policy = self.policy.as_ref().filter(|policy| *policy != "noeviction")?;
        let lost = if policy.starts_with("volatile-") {
            "rows of the log, sessions and counters of quotas, which expire"
        } else {
            "keys and money"
        };
        Some(format!(
            "may evict weir's data (maxmemory-policy {policy}), such as {lost}; set maxmemory-policy to noeviction"
        ))
    }

    /// Whether the server is a node of a cluster.
    pub(super) fn is_cluster_node(&self) -> bool {
        self.cluster_node
    }
}

/// The number of calls after which a runtime gets its own connection. Also the number of calls between a failed attempt to
/// connect and the next one.
pub(in crate::store::redis) const CALLS_MIN: u32 = 64;
/// Maximum number of runtimes with their own connection.
const RUNTIMES_MAX: usize = 16;

/// Additional connections to a master, one for each runtime that calls often. With its own connection, a runtime also reads the
/// answers to its calls itself.
///
/// Such a connection is dropped with the link's main connection. Calls use the main connection while the additional connection is
/// being established, after it was closed, and after a call on it got no answer. The link's supervisor watches only the main
/// connection.
#[derive(Clone, Default)]
pub(super) struct RuntimeConnections(Arc<Mutex<HashMap<Id, RuntimeConnection>>>);

struct RuntimeConnection {
    /// The number of the main connection beside which this one was opened.
    number: u64,
    state: DialState,
}

enum DialState {
    /// There is no connection yet; this is the number of calls so far.
    Counting(u32),
    Dialing,
    Ready(Arc<Wire>),
}

impl RuntimeConnections {
    /// Returns the connection for a call from this runtime.
    pub(super) fn wire(&self, live: &Arc<LiveConnection>) -> Arc<Wire> {
        self.own_wire(live).unwrap_or_else(|| Arc::clone(&live.wire))
    }

    /// Returns this runtime's own connection; `None` if it has none.
    fn own_wire(&self, live: &Arc<LiveConnection>) -> Option<Arc<Wire>> {
        let here = Handle::try_current().ok()?;
        if here.id() == live.runtime {
            return None;
        }
        let mut all = self.0.lock();
        if !all.contains_key(&here.id()) && all.len() >= RUNTIMES_MAX {
            return None;
        }
        let entry = all
            .entry(here.id())
            .or_insert_with(|| RuntimeConnection::counting(live.number));
        if entry.number != live.number || entry.is_closed() {
            *entry = RuntimeConnection::counting(live.number);
        }
        match &mut entry.state {
            DialState::Ready(wire) => return Some(Arc::clone(wire)),
            DialState::Dialing => {}
            DialState::Counting(calls) if *calls < CALLS_MIN => *calls += 1,
            DialState::Counting(_) => {
                entry.state = DialState::Dialing;
                drop(all);
                here.spawn(self.clone().dial(Arc::clone(live), here.id()));
            }
        }
        None
    }

    /// Drops this runtime's own connection, because a call on it got no answer.
    pub(super) fn drop_own(&self) {
        if let Ok(here) = Handle::try_current() {
            self.0.lock().remove(&here.id());
        }
    }

    /// The number of runtimes' own connections that are in use.
    #[cfg(test)]
    pub(super) fn ready(&self) -> usize {
        let all = self.0.lock();
        all.values()
            .filter(|entry| matches!(entry.state, DialState::Ready(_)) && !entry.is_closed())
            .count()
    }

    async fn dial(self, live: Arc<LiveConnection>, runtime: Id) {
        let connected = timeout(CONNECT_WAIT_MAX, Wire::connect(&live.client, || {})).await;
        let mut all = self.0.lock();
        // The result is ignored if the main connection has been given up meanwhile.
        if let Some(entry) = all.get_mut(&runtime).filter(|entry| entry.number == live.number) {
            entry.state = match connected {
                Ok(Ok(wire)) => DialState::Ready(Arc::new(wire)),
                Ok(Err(_)) | Err(_) => DialState::Counting(0),
            };
        }
    }
}

impl RuntimeConnection {
    fn counting(number: u64) -> Self {
        Self {
            number,
            state: DialState::Counting(0),
        }
    }

    fn is_closed(&self) -> bool {
        matches!(&self.state, DialState::Ready(wire) if wire.is_closed())
    }
}

/// The time of the last answer of a connection or a server.
pub(super) struct LastAnswer {
    born: Instant,
    /// Microseconds from `born` to the last answer.
    micros: AtomicU64,
}

impl LastAnswer {
    /// Creates the value for a new connection or server. `now` is treated as the time of its first answer.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            born: now,
            micros: AtomicU64::new(0),
        }
    }

    /// Records an answer, even if it is an error.
    pub(super) fn record(&self, now: Instant) {
        let micros = now.saturating_duration_since(self.born).as_micros();
        let micros = u64::try_from(micros).unwrap_or(u64::MAX);
        self.micros.fetch_max(micros, Ordering::Relaxed);
    }

    /// Returns the time of the last answer.
    pub(super) fn time(&self) -> Instant {
        self.born + Duration::from_micros(self.micros.load(Ordering::Relaxed))
    }
}

impl Link {
    /// Returns the faults in the configuration of the servers.
    pub(in crate::store::redis) fn warnings(&self) -> BTreeSet<StoreWarning> {
        let mut warnings: BTreeSet<StoreWarning> = self.links().iter().flat_map(|link| link.warnings()).collect();
        if self.sentinel_complaint().is_some() {
            warnings.insert(StoreWarning::MissingRights);
        }
        if let LinkTopology::Cluster(cluster) = &self.route
            && cluster.is_split()
        {
            warnings.insert(StoreWarning::SplitSlot);
        }
        warnings
    }

    /// Returns the problems that keep the servers from being used.
    pub(in crate::store::redis) fn trouble(&self) -> StoreTrouble {
        let apart = match &self.route {
            LinkTopology::One { .. } => self.sentinel_complaint(),
            LinkTopology::Cluster(cluster) => cluster.map_error(),
        };
        let mut trouble = StoreTrouble {
            refused: false,
            details: apart.into_iter().collect(),
        };
        for link in self.links() {
            let StoreTrouble { refused, details } = link.trouble();
            trouble.refused |= refused;
            trouble.details.extend(details);
        }
        trouble
    }

    /// Returns the values of one setting on the connected masters; empty if the user lacks the right to read settings.
    pub(in crate::store::redis) async fn setting(&self, name: &str) -> Vec<String> {
        let mut values = Vec::new();
        for live in self.links().iter().filter_map(|link| link.live_now()) {
            let mut ask = ::redis::cmd("CONFIG");
            ask.arg("GET").arg(name);
            let told = timeout(CONNECT_WAIT_MAX, ask.query_async(&mut live.wire.connection.clone())).await;
            let told: HashMap<String, String> = told.ok().and_then(RedisResult::ok).unwrap_or_default();
            values.extend(told.into_values());
        }
        values
    }

    /// Returns the memory of the fullest master; `None` if no master has reported it.
    pub(in crate::store::redis) fn memory(&self) -> Option<StoreMemory> {
        let all = self.links();
        all.iter()
            .filter_map(|link| link.status.lock().memory)
            .reduce(StoreMemory::fuller)
    }

    fn sentinel_complaint(&self) -> Option<String> {
        match &self.route {
            LinkTopology::One { finder, .. } => finder.complaint(),
            LinkTopology::Cluster(_) => None,
        }
    }
}

/// Advice to change a setting of the servers. weir also works if the setting is not changed.
struct AdvisedSetting {
    name: &'static str,
    unfit: &'static str,
    /// Whether the setting matters only for the nodes of a cluster.
    is_for_clusters: bool,
    advice: &'static str,
}

const SETTINGS: [AdvisedSetting; 2] = [
    AdvisedSetting {
        name: "list-compress-depth",
        unfit: "0",
        is_for_clusters: false,
        advice: "redis keeps the rows of the log uncompressed, in about three times the memory: set list-compress-depth to 1",
    },
    AdvisedSetting {
        name: "cluster-require-full-coverage",
        unfit: "yes",
        is_for_clusters: true,
        advice: "all masters of the redis cluster stop while one of them is down: set cluster-require-full-coverage to no",
    },
];

impl RedisStore {
    /// Whether all masters are connected. If there are sentinels, one of the sentinels must also have answered.
    pub fn is_connected(&self) -> bool {
        self.link.is_connected()
    }

    /// Returns advice for settings of the connected masters. A server that does not let weir read its settings is skipped: weir
    /// does not need that right.
    pub async fn advice(&self) -> Vec<&'static str> {
        let mut advice = Vec::new();
        for setting in &SETTINGS {
            if setting.is_for_clusters && !self.link.is_cluster() {
                continue;
            }
            let values = self.link.setting(setting.name).await;
            if values.iter().any(|value| value == setting.unfit) {
                advice.push(setting.advice);
            }
        }
        advice
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_quarter_of_a_second_and_begin_anew_after_an_answer() {
        let mut pauses = RetryPauses::new();
        let taken: Vec<_> = (0..5).map(|_| pauses.next_pause().as_millis()).collect();
        assert_eq!(taken, [50, 100, 200, 250, 250]);
        pauses.reset();
        assert_eq!(pauses.next_pause(), PAUSE_MIN);
    }

    fn warnings(info: &str) -> Vec<StoreWarning> {
        ServerReport::parse(info).warnings.into_iter().collect()
    }

    #[test]
    fn what_is_not_said_is_taken_for_good() {
        assert_eq!(ServerReport::parse(""), ServerReport::default());
        assert_eq!(ServerReport::default().refusal(), None);
    }

    #[test]
    fn settings_that_lose_data_are_warned_of() {
        let good = "maxmemory_policy:noeviction\r\naof_enabled:1\r\nconnected_slaves:0\r\n";
        assert!(warnings(good).is_empty());
        assert_eq!(warnings("maxmemory_policy:volatile-lru\r\n"), [StoreWarning::Eviction]);
        assert_eq!(warnings("aof_enabled:0\r\n"), [StoreWarning::NoAppendOnlyFile]);
        assert_eq!(
            warnings("maxmemory_policy:noeviction\r\nevicted_keys:1\r\n"),
            [StoreWarning::Evicted]
        );
        assert!(warnings("evicted_keys:0\r\n").is_empty());
        assert_eq!(warnings("connected_slaves:2\r\n"), [StoreWarning::NoMinReplicas]);
        assert!(warnings("connected_slaves:2\r\nmin_slaves_good_slaves:2\r\n").is_empty());
    }

    #[test]
    fn a_server_that_may_evict_anything_is_refused() {
        let refusal = |policy| ServerReport::parse(&format!("maxmemory_policy:{policy}\r\n")).refusal();
        for policy in [
            "allkeys-lru",
            "allkeys-lfu",
            "allkeys-random",
            "volatile-lru",
            "volatile-ttl",
        ] {
            let said = refusal(policy).unwrap();
            assert!(said.contains("set maxmemory-policy to noeviction"), "{said}");
            assert_eq!(
                said.contains("rows of the log"),
                policy.starts_with("volatile"),
                "{said}"
            );
        }
        assert_eq!(refusal("noeviction"), None);
        assert!(ServerReport::parse("loading:1\r\n").refusal().is_some());
    }

    #[test]
    fn a_server_is_as_full_as_its_limit_says_or_its_machine() {
        let memory = |info: &str| {
            ServerReport::parse(info)
                .memory
                .map(|memory| (memory.used, memory.limit))
        };
        let machine = "used_memory:30\r\ntotal_system_memory:1000\r\n";
        assert_eq!(memory(&format!("{machine}maxmemory:40\r\n")), Some((30, 40)));
        assert_eq!(memory(&format!("{machine}maxmemory:0\r\n")), Some((30, 1000)));
        assert_eq!(memory("used_memory:30\r\n"), None);
        let of = |used, most| StoreMemory { used, limit: most };
        assert_eq!(of(30, 40).fuller(of(300, 1000)), of(30, 40));
        assert_eq!(
            of(300, 1000).fuller(of(u64::MAX - 1, u64::MAX)),
            of(u64::MAX - 1, u64::MAX)
        );
    }

    #[test]
    fn a_replica_names_its_master() {
        let replica = ServerReport::parse("role:slave\r\nmaster_host:10.0.0.2\r\nmaster_port:6380\r\n");
        assert!(replica.is_replica());
        assert_eq!(replica.replica_of.unwrap().to_string(), "10.0.0.2:6380");
        assert!(!ServerReport::parse("role:master\r\n").is_replica());
    }

    #[test]
    fn another_process_or_another_line_of_replication_is_another_identity() {
        let identity = |run, line| ServerReport::parse(&format!("run_id:{run}\r\nmaster_replid:{line}\r\n")).identity;
        assert_eq!(identity(1, 2), identity(1, 2));
        assert_ne!(identity(1, 2), identity(3, 2));
        assert_ne!(identity(1, 2), identity(1, 3));
    }
}
