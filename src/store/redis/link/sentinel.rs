//! Finds the master of a lane: from the settings, or with a query of the sentinels.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use ::redis::{PushKind, RedisResult};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::dial::DialedConnection;
use crate::store::StoreWarning;
use crate::store::redis::dialer::{RedisDialer, connect};
use crate::store::redis::link::connection::RetryPauses;
use crate::store::redis::link::connection::ServerReport;
use crate::store::redis::link::master::MasterLane;
use crate::store::redis::rights;
use crate::store::redis::settings::RedisAddress;

/// The timeout of a query of one sentinel, including the connect.
const SENTINEL_WAIT_MAX: Duration = Duration::from_millis(300);
/// How often a sentinel is queried even if it has announced nothing.
const ASK_EVERY: Duration = Duration::from_secs(1);
/// The channel on which sentinels announce another master.
const SWITCHES: &str = "+switch-master";

/// How the server of a lane is found.
pub(super) enum MasterFinder {
    /// It is the configured server, which must be a master.
    Standalone(RedisAddress),
    /// It is a node of a cluster. If it is a replica, it redirects calls to its master itself.
    Node(RedisAddress),
    Sentinel(Sentinels),
}

impl MasterFinder {
    pub(super) fn accepts_replicas(&self) -> bool {
        matches!(self, Self::Node(_))
    }

    /// Connects the lane to the server.
    pub(super) async fn open(&self, lane: &Arc<MasterLane>) -> Result<DialedConnection, String> {
        match self {
            Self::Node(address) => lane.dial(address).await,
            Self::Standalone(address) => {
                let opened = lane.dial(address).await?;
                if opened.report.as_ref().is_some_and(ServerReport::is_cluster_node) {
                    return Err(lane.refuse(format!(
                        "redis at {address} is a node of a cluster; set store.redis.mode = \"cluster\""
                    )));
                }
                if opened.report.as_ref().is_some_and(ServerReport::is_replica) {
                    return Err(format!(
                        "redis at {address} is a replica; give its master in store.redis.nodes, or set store.redis.mode = \"sentinel\""
                    ));
                }
                Ok(opened)
            }
            Self::Sentinel(sentinel) => sentinel.open(lane).await,
        }
    }

    /// The rights that the user lacks at the sentinels, with the words that grant them; `None` if it has all.
    pub(super) fn complaint(&self) -> Option<String> {
        let Self::Sentinel(sentinel) = self else { return None };
        let denied = sentinel.denied.lock();
        (!denied.is_empty()).then(|| denied.values().map(String::as_str).collect::<Vec<_>>().join("; "))
    }

    /// Whether sentinels name the master.
    pub(super) fn is_sentinel(&self) -> bool {
        matches!(self, Self::Sentinel(_))
    }

    /// Follows the sentinels' announcements of another master, for a lane. Never returns.
    pub(super) async fn follow(&self, lane: &MasterLane) {
        match self {
            Self::Standalone(_) | Self::Node(_) => std::future::pending().await,
            Self::Sentinel(sentinel) => sentinel.follow(lane).await,
        }
    }
}

/// The sentinels of one master.
pub(super) struct Sentinels {
    nodes: Vec<RedisAddress>,
    master_name: String,
    /// The index of the sentinel that is queried first: the last one that answered.
    first: AtomicUsize,
    user: String,
    /// The rights that the user lacks at the sentinel that was queried last. The keys are the words that would grant them.
    denied: Mutex<BTreeMap<&'static str, String>>,
}

/// The rights that weir needs at a sentinel: to query the master, and to be notified of another one.
const ASK_RIGHT: &str = "+sentinel|get-master-addr-by-name";
const SUBSCRIBE_RIGHTS: &str = "+subscribe &+switch-master";

impl Sentinels {
    pub(super) fn new(nodes: Vec<RedisAddress>, master_name: String, username: Option<&str>) -> Self {
        Self {
            nodes,
            master_name,
            first: AtomicUsize::new(0),
            user: username.unwrap_or("default").to_owned(),
            denied: Mutex::default(),
        }
    }

    /// Records a right that the user lacks at a sentinel, logs it the first time, and returns the message.
    fn report_denied(&self, sentinel: &RedisAddress, what: &str, grant: &'static str) -> String {
        let text = format!(
            "the sentinel {sentinel}: user {:?} may not {what}: grant {grant}",
            self.user
        );
        if self.denied.lock().insert(grant, text.clone()).is_none() {
            tracing::warn!(kind = StoreWarning::MissingRights.kind(), "{text}");
        }
        text
    }

    /// All sentinels with their indices, starting with the one that is queried first.
    fn in_turn(&self) -> impl Iterator<Item = (usize, &RedisAddress)> {
        let first = self.first.load(Ordering::Relaxed);
        let (before, from) = self.nodes.split_at(first.min(self.nodes.len()));
        let numbered = from.iter().chain(before).enumerate();
        numbered.map(move |(steps, node)| ((first + steps) % self.nodes.len().max(1), node))
    }

    /// Queries each sentinel until one names a server that confirms that it is the master. If a named server has become a
    /// replica, the master of that replica is used: a failover without the sentinels is visible there first.
    async fn open(&self, lane: &Arc<MasterLane>) -> Result<DialedConnection, String> {
        let mut reasons = Vec::new();
        for (index, sentinel) in self.in_turn() {
            let named = match self.query_sentinel(sentinel, &lane.dialer).await {
                Ok(named) => named,
                Err(reason) => {
                    reasons.push(reason);
                    continue;
                }
            };
            self.first.store(index, Ordering::Relaxed);
            match follow_replica(lane, &named).await {
                Ok(opened) => return Ok(opened),
                Err(reason) => reasons.push(reason),
            }
        }
        reasons.dedup();
        Err(reasons.join("; "))
    }

    async fn query_sentinel(&self, sentinel: &RedisAddress, dialer: &RedisDialer) -> Result<RedisAddress, String> {
        let asked = async {
            let mut connection = connect(&dialer.sentinel_client(sentinel)?, |_| {}).await?;
            self.fetch_master(&mut connection).await
        };
        match timeout(SENTINEL_WAIT_MAX, asked).await {
            Err(_) => Err(format!(
                "the sentinel {sentinel} did not answer within {} ms",
                SENTINEL_WAIT_MAX.as_millis()
            )),
            Ok(Err(error)) if rights::is_refused(&error) => {
                Err(self.report_denied(sentinel, "query the master", ASK_RIGHT))
            }
            Ok(Err(error)) => Err(format!("cannot query the sentinel {sentinel}: {error}")),
            Ok(Ok(None)) => Err(format!(
                "the sentinel {sentinel} has no master {:?}: check store.redis.master_name",
                self.master_name
            )),
            Ok(Ok(Some(address))) => {
                self.denied.lock().remove(ASK_RIGHT);
                Ok(address)
            }
        }
    }

    async fn fetch_master(&self, connection: &mut MultiplexedConnection) -> RedisResult<Option<RedisAddress>> {
        let mut ask = ::redis::cmd("SENTINEL");
        ask.arg("GET-MASTER-ADDR-BY-NAME").arg(&self.master_name);
        let named: Option<(String, u16)> = ask.query_async(connection).await?;
        Ok(named.and_then(|(host, port)| RedisAddress::new(&host, port)))
    }

    async fn follow(&self, lane: &MasterLane) {
        let mut pauses = RetryPauses::new();
        loop {
            for (index, sentinel) in self.in_turn() {
                let told = Arc::new(SentinelPushes::default());
                let subscribed = timeout(SENTINEL_WAIT_MAX, self.subscribe(sentinel, &lane.dialer, &told)).await;
                if let Ok(Ok(connection)) = subscribed {
                    pauses.reset();
                    self.first.store(index, Ordering::Relaxed);
                    self.listen(connection, &told, lane).await;
                    tracing::info!(%sentinel, "lost the connection to the redis sentinel, trying the next sentinel");
                    break;
                }
            }
            sleep(pauses.next_pause()).await;
        }
    }

    /// Returns a connection on which the sentinel announces switches of the master, if the user may subscribe to them.
    async fn subscribe(
        &self,
        sentinel: &RedisAddress,
        dialer: &RedisDialer,
        told: &Arc<SentinelPushes>,
    ) -> RedisResult<MultiplexedConnection> {
        let told = Arc::clone(told);
        let on_push = move |kind| match kind {
            PushKind::Message => told.switched.notify_one(),
            PushKind::Disconnection => told.lost.notify_one(),
            _ => {}
        };
        let mut connection = connect(&dialer.sentinel_client(sentinel)?, on_push).await?;
        match connection.subscribe(SWITCHES).await {
            Err(error) if rights::is_refused(&error) => {
                self.report_denied(
                    sentinel,
                    "subscribe to changes of the master (weir queries it every second instead)",
                    SUBSCRIBE_RIGHTS,
                );
            }
            Err(error) => return Err(error),
            Ok(()) => drop(self.denied.lock().remove(SUBSCRIBE_RIGHTS)),
        }
        Ok(connection)
    }

    /// Records the master that the sentinel names, at once when it announces a switch. Returns when the connection is lost.
    async fn listen(&self, mut connection: MultiplexedConnection, told: &SentinelPushes, lane: &MasterLane) {
        while let Ok(Ok(named)) = timeout(SENTINEL_WAIT_MAX, self.fetch_master(&mut connection)).await {
            lane.announced.send_if_modified(|known| {
                let other = named.is_some() && *known != named;
                if other {
                    known.clone_from(&named);
                }
                other
            });
            tokio::select! {
                () = sleep(ASK_EVERY) => {}
                () = told.switched.notified() => {}
                () = told.lost.notified() => return,
            }
        }
    }
}

/// Signals for the pushes on a sentinel's connection.
#[derive(Default)]
struct SentinelPushes {
    switched: Notify,
    lost: Notify,
}

async fn follow_replica(lane: &Arc<MasterLane>, named: &RedisAddress) -> Result<DialedConnection, String> {
    let opened = lane.dial(named).await?;
    let Some(report) = opened.report.as_ref().filter(|report| report.is_replica()) else {
        return Ok(opened);
    };
    let Some(master) = report.replica_of.clone() else {
        return Err(format!("redis at {named} is a replica but does not report its master"));
    };
    let opened = lane.dial(&master).await?;
    if opened.report.as_ref().is_some_and(ServerReport::is_replica) {
        return Err(format!("redis at {named} and {master} are both replicas"));
    }
    Ok(opened)
}
