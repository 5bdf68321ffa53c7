//! Finds the master: by the settings, or by asking the sentinels.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use ::redis::{PushKind, RedisResult};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::connecting::Pauses;
use super::dial::DialedConnection;
use super::lane::Lane;
use super::report::Report;
use crate::store::StoreWarning;
use crate::store::redis::address::Address;
use crate::store::redis::dialer::{Dialer, connect};
use crate::store::redis::rights;

/// How long one sentinel may take to answer, connecting included.
const SENTINEL_WAIT_MAX: Duration = Duration::from_millis(300);
/// How often a sentinel is asked without having said anything.
const ASK_EVERY: Duration = Duration::from_secs(1);
/// Where sentinels tell of another master.
const SWITCHES: &str = "+switch-master";

/// Finds the server of a lane.
pub(super) enum Finder {
    /// The one server, which has to be a master.
    Standalone(Address),
    /// A node of a cluster. As a replica it sends calls to its master itself.
    Node(Address),
    Sentinel(Sentinel),
}

impl Finder {
    pub(super) fn takes_replicas(&self) -> bool {
        matches!(self, Self::Node(_))
    }

    /// Connects the lane to the server.
    pub(super) async fn open(&self, lane: &Arc<Lane>) -> Result<DialedConnection, String> {
        match self {
            Self::Node(address) => lane.dial(address).await,
            Self::Standalone(address) => {
                let opened = lane.dial(address).await?;
                if opened.report.as_ref().is_some_and(Report::is_cluster_node) {
                    return Err(lane.refuse(format!(
                        "redis at {address} is a node of a cluster; set store.redis.mode = \"cluster\""
                    )));
                }
                if opened.report.as_ref().is_some_and(Report::is_replica) {
                    return Err(format!(
                        "redis at {address} is a replica; give its master in store.redis.nodes, or set store.redis.mode = \"sentinel\""
                    ));
                }
                Ok(opened)
            }
            Self::Sentinel(sentinel) => sentinel.open(lane).await,
        }
    }

    /// What the sentinels deny, with what to do.
    pub(super) fn complaint(&self) -> Option<String> {
        let Self::Sentinel(sentinel) = self else { return None };
        let denied = sentinel.denied.lock();
        (!denied.is_empty()).then(|| denied.values().map(String::as_str).collect::<Vec<_>>().join("; "))
    }

    /// Whether there are sentinels, who name the master.
    pub(super) fn is_sentinel(&self) -> bool {
        matches!(self, Self::Sentinel(_))
    }

    /// Listens for news, for a lane. Never returns.
    pub(super) async fn follow(&self, lane: &Lane) {
        match self {
            Self::Standalone(_) | Self::Node(_) => std::future::pending().await,
            Self::Sentinel(sentinel) => sentinel.follow(lane).await,
        }
    }
}

/// The sentinels of one master.
pub(super) struct Sentinel {
    nodes: Vec<Address>,
    master_name: String,
    /// Which of them is asked first: the last that answered.
    first: AtomicUsize,
    user: String,
    /// What the user may not do at the sentinel that was asked last, by what would grant it.
    denied: Mutex<BTreeMap<&'static str, String>>,
}

/// The rights that weir needs at a sentinel: to ask for the master, and to be told of another one.
const ASK_RIGHT: &str = "+sentinel|get-master-addr-by-name";
const SUBSCRIBE_RIGHTS: &str = "+subscribe &+switch-master";

impl Sentinel {
    pub(super) fn new(nodes: Vec<Address>, master_name: String, username: Option<&str>) -> Self {
        Self {
            nodes,
            master_name,
            first: AtomicUsize::new(0),
            user: username.unwrap_or("default").to_owned(),
            denied: Mutex::default(),
        }
    }

    /// Says what the user may not do, once.
    fn deny(&self, sentinel: &Address, what: &str, grant: &'static str) -> String {
        let text = format!(
            "the sentinel {sentinel}: user {:?} may not {what}: grant {grant}",
            self.user
        );
        if self.denied.lock().insert(grant, text.clone()).is_none() {
            tracing::warn!(kind = StoreWarning::MissingRights.kind(), "{text}");
        }
        text
    }

    /// All of them, the one to ask first in front.
    fn in_turn(&self) -> impl Iterator<Item = (usize, &Address)> {
        let first = self.first.load(Ordering::Relaxed);
        let (before, from) = self.nodes.split_at(first.min(self.nodes.len()));
        let numbered = from.iter().chain(before).enumerate();
        numbered.map(move |(steps, node)| ((first + steps) % self.nodes.len().max(1), node))
    }

    /// Asks each sentinel until one names a server that says of itself that it is the master. A named one that has become a
    /// replica says who its master is, and that one is taken: a failover without the sentinels shows there first.
    async fn open(&self, lane: &Arc<Lane>) -> Result<DialedConnection, String> {
        let mut reasons = Vec::new();
        for (index, sentinel) in self.in_turn() {
            let named = match self.ask(sentinel, &lane.dialer).await {
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

    async fn ask(&self, sentinel: &Address, dialer: &Dialer) -> Result<Address, String> {
        let asked = async {
            let mut connection = connect(&dialer.sentinel(sentinel)?, |_| {}).await?;
            self.master(&mut connection).await
        };
        match timeout(SENTINEL_WAIT_MAX, asked).await {
            Err(_) => Err(format!(
                "the sentinel {sentinel} did not answer within {} ms",
                SENTINEL_WAIT_MAX.as_millis()
            )),
            Ok(Err(error)) if rights::is_refused(&error) => Err(self.deny(sentinel, "ask for the master", ASK_RIGHT)),
            Ok(Err(error)) => Err(format!("the sentinel {sentinel} cannot be asked: {error}")),
            Ok(Ok(None)) => Err(format!(
                "the sentinel {sentinel} knows no master {:?}, see store.redis.master_name",
                self.master_name
            )),
            Ok(Ok(Some(address))) => {
                self.denied.lock().remove(ASK_RIGHT);
                Ok(address)
            }
        }
    }

    async fn master(&self, connection: &mut MultiplexedConnection) -> RedisResult<Option<Address>> {
        let mut ask = ::redis::cmd("SENTINEL");
        ask.arg("GET-MASTER-ADDR-BY-NAME").arg(&self.master_name);
        let named: Option<(String, u16)> = ask.query_async(connection).await?;
        Ok(named.and_then(|(host, port)| Address::new(&host, port)))
    }

    async fn follow(&self, lane: &Lane) {
        let mut pauses = Pauses::new();
        loop {
            for (index, sentinel) in self.in_turn() {
                let told = Arc::new(SentinelPushes::default());
                let subscribed = timeout(SENTINEL_WAIT_MAX, self.subscribe(sentinel, &lane.dialer, &told)).await;
                if let Ok(Ok(connection)) = subscribed {
                    pauses.reset();
                    self.first.store(index, Ordering::Relaxed);
                    self.listen(connection, &told, lane).await;
                    tracing::info!(%sentinel, "redis sentinel lost, going on to the next");
                    break;
                }
            }
            sleep(pauses.take()).await;
        }
    }

    /// A connection that tells of switches, if the user may hear of them.
    async fn subscribe(
        &self,
        sentinel: &Address,
        dialer: &Dialer,
        told: &Arc<SentinelPushes>,
    ) -> RedisResult<MultiplexedConnection> {
        let told = Arc::clone(told);
        let on_push = move |kind| match kind {
            PushKind::Message => told.switched.notify_one(),
            PushKind::Disconnection => told.lost.notify_one(),
            _ => {}
        };
        let mut connection = connect(&dialer.sentinel(sentinel)?, on_push).await?;
        match connection.subscribe(SWITCHES).await {
            Err(error) if rights::is_refused(&error) => {
                self.deny(
                    sentinel,
                    "hear of another master (it is asked each second)",
                    SUBSCRIBE_RIGHTS,
                );
            }
            Err(error) => return Err(error),
            Ok(()) => drop(self.denied.lock().remove(SUBSCRIBE_RIGHTS)),
        }
        Ok(connection)
    }

    /// Notes whom the sentinel names, at once when it tells of a switch. Returns when it is gone.
    async fn listen(&self, mut connection: MultiplexedConnection, told: &SentinelPushes, lane: &Lane) {
        while let Ok(Ok(named)) = timeout(SENTINEL_WAIT_MAX, self.master(&mut connection)).await {
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

/// What a sentinel's connection tells by itself.
#[derive(Default)]
struct SentinelPushes {
    switched: Notify,
    lost: Notify,
}

async fn follow_replica(lane: &Arc<Lane>, named: &Address) -> Result<DialedConnection, String> {
    let opened = lane.dial(named).await?;
    let Some(report) = opened.report.as_ref().filter(|report| report.is_replica()) else {
        return Ok(opened);
    };
    let Some(master) = report.replica_of.clone() else {
        return Err(format!("redis at {named} is a replica and names no master"));
    };
    let opened = lane.dial(&master).await?;
    if opened.report.as_ref().is_some_and(Report::is_replica) {
        return Err(format!("redis at {named} and {master} are both replicas"));
    }
    Ok(opened)
}
