//! Finds the master of a link in the settings, or by querying the sentinels. Connects the link to a server, and reads the
//! server's report about itself.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use ::redis::{ErrorKind, PushKind, RedisError, RedisResult, ServerErrorKind, aio::MultiplexedConnection};
use parking_lot::Mutex;
use tokio::{
    runtime::Handle,
    sync::Notify,
    time::{sleep, timeout},
};

use crate::store::{
    StoreWarning,
    redis::{
        dialer::{RedisDialer, connect},
        link::{
            connection::{LiveConnection, RetryPauses, ServerReport, Wire},
            master::{MasterLink, MasterLinkState},
        },
        rights::{self, MissingUserRights},
        settings::RedisAddress,
    },
};

/// The timeout of a query of one sentinel, including the connect.
const SENTINEL_WAIT_MAX: Duration = Duration::from_millis(300);
/// The interval at which a sentinel is queried even if it has announced nothing.
const ASK_EVERY: Duration = Duration::from_secs(1);
/// The channel on which sentinels announce a new master.
const SWITCHES: &str = "+switch-master";

/// The way in which the server of a link is found.
pub(super) enum MasterFinder {
    /// The link uses the configured server, which must be a master.
    Standalone(RedisAddress),
    /// The link uses this node of a cluster. If the node is a replica, it redirects calls to its master itself.
    Node(RedisAddress),
    Sentinel(Sentinels),
}

impl MasterFinder {
    pub(super) fn accepts_replicas(&self) -> bool {
        matches!(self, Self::Node(_))
    }

    /// Connects the link to the server.
    pub(super) async fn open(&self, link: &Arc<MasterLink>) -> Result<DialedConnection, String> {
        match self {
            Self::Node(address) => link.dial(address).await,
            Self::Standalone(address) => {
                let opened = link.dial(address).await?;
                if opened.report.as_ref().is_some_and(ServerReport::is_cluster_node) {
                    return Err(link.refuse(format!(
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
            Self::Sentinel(sentinel) => sentinel.open(link).await,
        }
    }

    /// Returns the rights that the user lacks at the sentinels, with the `ACL SETUSER` arguments that grant them; `None` if the
    /// user has all rights.
    pub(super) fn complaint(&self) -> Option<String> {
        let Self::Sentinel(sentinel) = self else { return None };
        let denied = sentinel.denied.lock();
        (!denied.is_empty()).then(|| denied.values().map(String::as_str).collect::<Vec<_>>().join("; "))
    }

    /// Whether sentinels name the master.
    pub(super) fn is_sentinel(&self) -> bool {
        matches!(self, Self::Sentinel(_))
    }

    /// Follows the sentinels' announcements of a new master for a link. Never returns.
    pub(super) async fn follow(&self, link: &MasterLink) {
        match self {
            Self::Standalone(_) | Self::Node(_) => std::future::pending().await,
            Self::Sentinel(sentinel) => sentinel.follow(link).await,
        }
    }
}

/// The sentinels of one master.
pub(super) struct Sentinels {
    nodes: Vec<RedisAddress>,
    master_name: String,
    /// The index of the sentinel that is queried first. It is the sentinel that has answered most recently.
    first: AtomicUsize,
    user: String,
    /// The rights that the user lacks at the sentinel that was queried last. The keys are the `ACL SETUSER` arguments that
    /// would grant these rights.
    denied: Mutex<BTreeMap<&'static str, String>>,
}

/// The rights that weir needs at a sentinel: to query the master's address, and to be notified of a new master.
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

    /// Records a right that the user lacks at a sentinel, and returns a message about it. Logs the message the first time.
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

    /// Asks one sentinel after the other for the master, until a server that a sentinel names confirms that it is a master. If
    /// the server has become a replica, uses the replica's master. The sentinels may not know that master yet if they did not
    /// perform the failover.
    async fn open(&self, link: &Arc<MasterLink>) -> Result<DialedConnection, String> {
        let mut reasons = Vec::new();
        for (index, sentinel) in self.in_turn() {
            let named = match self.query_sentinel(sentinel, &link.dialer).await {
                Ok(named) => named,
                Err(reason) => {
                    reasons.push(reason);
                    continue;
                }
            };
            self.first.store(index, Ordering::Relaxed);
            match follow_replica(link, &named).await {
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

    async fn follow(&self, link: &MasterLink) {
        let mut pauses = RetryPauses::new();
        loop {
            for (index, sentinel) in self.in_turn() {
                let told = Arc::new(SentinelPushes::default());
                let subscribed = timeout(SENTINEL_WAIT_MAX, self.subscribe(sentinel, &link.dialer, &told)).await;
                if let Ok(Ok(connection)) = subscribed {
                    pauses.reset();
                    self.first.store(index, Ordering::Relaxed);
                    self.listen(connection, &told, link).await;
                    tracing::info!(%sentinel, "lost the connection to the redis sentinel; trying the next sentinel");
                    break;
                }
            }
            sleep(pauses.next_pause()).await;
        }
    }

    /// Connects to a sentinel, and subscribes to its announcements of a new master. If the user may not subscribe, returns the
    /// connection without the subscription.
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

    /// Queries the sentinel for the master at intervals, and at once when the sentinel announces a switch. Records each master
    /// that the sentinel names. Returns when the connection is lost.
    async fn listen(&self, mut connection: MultiplexedConnection, told: &SentinelPushes, link: &MasterLink) {
        while let Ok(Ok(named)) = timeout(SENTINEL_WAIT_MAX, self.fetch_master(&mut connection)).await {
            link.announced.send_if_modified(|known| {
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

/// The signals of a sentinel's connection: the sentinel announced a switch of the master, or the connection was lost.
#[derive(Default)]
struct SentinelPushes {
    switched: Notify,
    lost: Notify,
}

async fn follow_replica(link: &Arc<MasterLink>, named: &RedisAddress) -> Result<DialedConnection, String> {
    let opened = link.dial(named).await?;
    let Some(report) = opened.report.as_ref().filter(|report| report.is_replica()) else {
        return Ok(opened);
    };
    let Some(master) = report.replica_of.clone() else {
        return Err(format!("redis at {named} is a replica but does not report its master"));
    };
    let opened = link.dial(&master).await?;
    if opened.report.as_ref().is_some_and(ServerReport::is_replica) {
        return Err(format!("redis at {named} and {master} are both replicas"));
    }
    Ok(opened)
}

/// A new connection, with the server's report. The report is `None` if the ACL user may not read it.
pub(super) struct DialedConnection {
    pub(super) live: Arc<LiveConnection>,
    pub(super) report: Option<ServerReport>,
}

impl MasterLink {
    /// Connects to a server, inspects it, and loads the scripts into it.
    pub(super) async fn dial(self: &Arc<Self>, address: &RedisAddress) -> Result<DialedConnection, String> {
        let fault = |error: RedisError| format!("cannot use redis at {address}: {error}");
        let number = self.dialed.fetch_add(1, Ordering::Relaxed);
        let link = Arc::downgrade(self);
        let at_end = move || {
            if let Some(link) = link.upgrade() {
                link.give_up(number, MasterLinkState::Connecting);
            }
        };
        let client = self.dialer.data_client(address).map_err(fault)?;
        let (missing, connected) = tokio::join!(self.dialer.missing_rights(address), Wire::connect(&client, at_end));
        if let Some(refusal) = missing.and_then(|missing| self.record_rights(missing)) {
            return Err(refusal);
        }
        let wire = connected.map_err(fault)?;
        let mut connection = wire.connection.clone();
        let report = fetch_report(&mut connection).await.map_err(fault)?;
        if let Some(reason) = report.as_ref().and_then(ServerReport::refusal) {
            self.record_report(report.as_ref());
            return Err(self.refuse(format!("redis at {address} {reason}")));
        }
        let loaded = self.dialer.scripts.exec_async(&mut connection).await;
        loaded.map_err(fault)?;
        let live = LiveConnection {
            wire: Arc::new(wire),
            number,
            address: address.clone(),
            client,
            runtime: Handle::current().id(),
        };
        Ok(DialedConnection {
            live: Arc::new(live),
            report,
        })
    }

    /// Records the reason why a server is not used although it answers. Returns the reason.
    pub(super) fn refuse(&self, reason: String) -> String {
        self.status.lock().refusal = Some(reason.clone());
        reason
    }

    /// Records the rights that the user lacks. Returns why the server is not used; `None` if it can be used.
    pub(super) fn record_rights(&self, missing: MissingUserRights) -> Option<String> {
        let MissingUserRights { refusal, complaint } = missing;
        {
            let mut status = self.status.lock();
            if let Some(complaint) = complaint.as_ref().filter(|_| status.complaint != complaint) {
                tracing::warn!(kind = StoreWarning::MissingRights.kind(), "{complaint}");
            }
            if status.complaint.is_some() && complaint.is_none() {
                tracing::info!("the redis user now has the rights that it lacked");
            }
            status.complaint = complaint;
            status.denied = refusal.is_some();
        }
        refusal.map(|refusal| self.refuse(refusal))
    }

    pub(super) fn record_report(&self, report: Option<&ServerReport>) {
        let Some(report) = report else { return };
        let before = {
            let mut status = self.status.lock();
            status.memory = report.memory;
            status.evicted = report.evicted;
            std::mem::replace(&mut status.warnings, report.warnings.clone())
        };
        for warning in report.warnings.difference(&before) {
            tracing::warn!(kind = warning.kind(), "{}", warning.advice());
        }
        for warning in before.difference(&report.warnings) {
            tracing::info!(
                kind = warning.kind(),
                "a warning about the redis settings no longer applies"
            );
        }
    }
}

/// Reads a server's report. Returns `None`, and no error, if the ACL user may not read the report.
pub(super) async fn fetch_report(connection: &mut MultiplexedConnection) -> RedisResult<Option<ServerReport>> {
    let info: RedisResult<String> = ::redis::cmd("INFO").query_async(connection).await;
    match info {
        Ok(info) => Ok(Some(ServerReport::parse(&info))),
        Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoPerm) => {
            ::redis::cmd("PING").exec_async(connection).await.map(|()| None)
        }
        Err(error) => Err(error),
    }
}
