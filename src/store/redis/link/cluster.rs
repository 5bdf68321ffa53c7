//! A Redis cluster: one link for each master, and the map of hash slots.
//!
//! The map is read every second, at once when a server redirects a call, and more often while a master is unreachable.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use ::redis::{RedisResult, Value};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};

use super::slots::{HashSlot, SlotMap};
use crate::store::StoreError;
use crate::store::redis::dialer::{RedisDialer, connect};
use crate::store::redis::link::connection::LiveConnection;
use crate::store::redis::link::master::{MasterLink, wait_until};
use crate::store::redis::link::sentinel::MasterFinder;
use crate::store::redis::link::slots::MisplacedKeys;
use crate::store::redis::rights;
use crate::store::redis::settings::RedisAddress;

/// The interval at which the slot map is read while all masters are connected.
const READ_EVERY: Duration = Duration::from_secs(1);
/// The interval at which the slot map is read while a master is not connected.
const READ_EVERY_AWAY: Duration = Duration::from_millis(200);
/// The minimum time between two reads, so that a moving slot under load does not cause thousands of reads.
const READ_PAUSE: Duration = Duration::from_millis(20);
/// The timeout for reading the slot map from one node, including the connect.
const READ_WAIT_MAX: Duration = Duration::from_millis(300);
/// A server's link ends when the server is missing from this number of consecutive slot maps.
const ABSENT_MAX: u32 = 10;

/// The links of a cluster, and its slot map.
pub(super) struct Cluster {
    seeds: Vec<RedisAddress>,
    map: watch::Sender<MapState>,
    links: Mutex<BTreeMap<RedisAddress, ClusterLink>>,
    /// Signals that a new link needs a supervisor.
    grown: Notify,
    /// Signals that the slot map must be read now.
    stale: Notify,
    misplaced: MisplacedKeys,
    dialer: Arc<RedisDialer>,
    epochs: watch::Sender<u64>,
    call_budget: Duration,
}

/// The last slot map that was read, or why none could be read; `None` before the first attempt.
type MapState = Option<Result<Arc<SlotMap>, String>>;

struct ClusterLink {
    link: Arc<MasterLink>,
    /// The number of consecutive slot maps without the link's server.
    absent: u32,
}

impl Cluster {
    /// Creates the cluster without connections. `namespace` is that of weir's Redis keys.
    pub(super) fn new(
        seeds: Vec<RedisAddress>,
        namespace: &str,
        dialer: &Arc<RedisDialer>,
        epochs: &watch::Sender<u64>,
        call_budget: Duration,
    ) -> Self {
        Self {
            seeds,
            map: watch::Sender::default(),
            links: Mutex::default(),
            grown: Notify::new(),
            stale: Notify::new(),
            misplaced: MisplacedKeys::new(namespace),
            dialer: Arc::clone(dialer),
            epochs: epochs.clone(),
            call_budget,
        }
    }

    /// Returns the link to the master of a hash slot. Waits for the first slot map.
    pub(super) async fn link(&self, slot: HashSlot) -> Result<Arc<MasterLink>, StoreError> {
        let owner = {
            let mut maps = self.map.subscribe();
            match maps.wait_for(Option::is_some).await.as_deref() {
                Ok(Some(Ok(map))) => map.owner(slot).cloned(),
                Ok(Some(Err(reason))) => return Err(StoreError::Unavailable(reason.clone())),
                Ok(None) | Err(_) => None,
            }
        };
        match owner {
            Some(owner) => Ok(self.link_to(&owner)),
            None => Err(StoreError::Unavailable(format!(
                "no master of the redis cluster owns hash slot {slot}"
            ))),
        }
    }

    /// Returns the link to a server. Creates it if necessary.
    pub(super) fn link_to(&self, address: &RedisAddress) -> Arc<MasterLink> {
        let mut links = self.links.lock();
        let kept = links.entry(address.clone()).or_insert_with(|| {
            self.grown.notify_one();
            ClusterLink {
                link: Arc::new(MasterLink::new(&self.dialer, &self.epochs, self.call_budget)),
                absent: 0,
            }
        });
        Arc::clone(&kept.link)
    }

    /// Returns the master of a hash slot; `None` if it is unknown.
    pub(super) fn owner(&self, slot: HashSlot) -> Option<RedisAddress> {
        self.map.borrow().as_ref()?.as_ref().ok()?.owner(slot).cloned()
    }

    /// Waits until a condition is true. The condition must depend only on the slot map.
    pub(super) async fn wait_until(&self, is_so: impl FnMut() -> bool) {
        wait_until(self.map.subscribe(), is_so).await;
    }

    /// Signals that a call was redirected, so the slot map is outdated.
    pub(super) fn mark_stale(&self) {
        self.stale.notify_one();
    }

    /// Whether any master has keys in a hash slot that it does not own.
    pub(super) fn is_split(&self) -> bool {
        self.misplaced.has_any()
    }

    /// Returns the slot map and the connections to all masters in it; `None` if not all of them are connected.
    fn complete_map(&self) -> Option<(Arc<SlotMap>, Vec<Arc<LiveConnection>>)> {
        let map = self.map.borrow().clone()?.ok()?;
        let links = self.links.lock();
        let live = |address| links.get(address)?.link.live_now();
        let masters = map.masters().into_iter().map(live).collect::<Option<Vec<_>>>()?;
        drop(links);
        Some((map, masters))
    }

    pub(super) fn all_links(&self) -> Vec<Arc<MasterLink>> {
        self.links.lock().values().map(|kept| Arc::clone(&kept.link)).collect()
    }

    /// Returns the reason why there is no slot map; `None` if there is one.
    pub(super) fn map_error(&self) -> Option<String> {
        self.map.borrow().as_ref()?.as_ref().err().cloned()
    }

    /// Maintains the slot map and all links. Cancel this to stop.
    pub(super) async fn maintain(&self) {
        let mut running = FuturesUnordered::new();
        let mut driven = BTreeSet::new();
        let reading = self.maintain_map();
        let looking = self.misplaced.search_repeatedly(|| self.complete_map());
        tokio::pin!(reading, looking);
        loop {
            for (address, ClusterLink { link, .. }) in &*self.links.lock() {
                if driven.insert(address.clone()) {
                    running.push(maintain_link(Arc::clone(link), address.clone()));
                }
            }
            tokio::select! {
                () = self.grown.notified() => {}
                Some(address) = running.next() => {
                    driven.remove(&address);
                }
                () = &mut reading => {}
                () = &mut looking => {}
            }
        }
    }

    /// Reads the slot map periodically. Never returns.
    async fn maintain_map(&self) {
        let mut turn = 0;
        loop {
            match self.read_map(turn).await {
                Ok(map) => self.adopt(map),
                Err(reason) => self.record_unreadable(reason),
            }
            turn += 1;
            let period = if self.is_complete() {
                READ_EVERY
            } else {
                READ_EVERY_AWAY
            };
            tokio::select! {
                () = sleep(period) => {}
                () = self.stale.notified() => {}
            }
            sleep(READ_PAUSE).await;
        }
    }

    /// Records that the slot map could not be read. If an earlier map was read, it stays in use. Otherwise, calls fail with this
    /// reason.
    fn record_unreadable(&self, reason: String) {
        self.map.send_if_modified(|map| {
            let is_there = matches!(map, Some(Ok(_)));
            if !is_there {
                if map.is_none() {
                    tracing::error!(reason, "cannot reach the redis cluster; trying again");
                }
                *map = Some(Err(reason));
            }
            !is_there
        });
    }

    /// Whether all masters are connected.
    pub(super) fn is_complete(&self) -> bool {
        let links = self.links.lock();
        !links.is_empty() && links.values().all(|kept| kept.link.live_now().is_some())
    }

    /// Reads the slot map from the connected servers, starting with a different one each time. If none of them answers, tries all
    /// known addresses.
    async fn read_map(&self, turn: usize) -> Result<SlotMap, String> {
        let up: Vec<_> = {
            let links = self.links.lock();
            links.values().filter_map(|kept| kept.link.live_now()).collect()
        };
        let mut reasons = Vec::new();
        let first = turn.checked_rem(up.len()).unwrap_or_default();
        for live in up.iter().cycle().skip(first).take(up.len()) {
            match query_slot_map(Some(live.wire.connection.clone()), &live.address, &self.dialer).await {
                Ok(map) => return Ok(map),
                Err(reason) => reasons.push(reason),
            }
        }
        let known: Vec<RedisAddress> = self.links.lock().keys().cloned().collect();
        for address in self.seeds.iter().chain(&known) {
            match query_slot_map(None, address, &self.dialer).await {
                Ok(map) => return Ok(map),
                Err(reason) => reasons.push(reason),
            }
        }
        reasons.dedup();
        Err(reasons.join("; "))
    }

    fn adopt(&self, map: SlotMap) {
        for master in map.masters() {
            self.link_to(master);
        }
        let masters = map.masters();
        self.links.lock().retain(|address, kept| {
            kept.absent = if masters.contains(address) { 0 } else { kept.absent + 1 };
            let stays = kept.absent < ABSENT_MAX;
            if !stays {
                kept.link.ended.notify_one();
            }
            stays
        });
        let mut handed_over = false;
        let map = Arc::new(map);
        self.map.send_if_modified(|known| {
            if let Some(Ok(before)) = known {
                handed_over = before.hands_over_to(&map);
                if *before == map {
                    return false;
                }
            }
            tracing::info!(
                masters = map.masters().len(),
                "the slot map of the redis cluster was read"
            );
            *known = Some(Ok(Arc::clone(&map)));
            true
        });
        if handed_over {
            tracing::warn!(
                "some hash slots of the redis cluster have moved to other masters; checking that no acknowledged change is lost"
            );
            self.epochs.send_modify(|epoch| *epoch += 1);
        }
    }
}

/// Maintains the link to a server until the server has left the cluster, and returns the server's address.
async fn maintain_link(link: Arc<MasterLink>, address: RedisAddress) -> RedisAddress {
    let finder = MasterFinder::Node(address.clone());
    tokio::select! {
        () = link.maintain(&finder) => {}
        () = link.ended.notified() => {}
    }
    address
}

/// Reads the slot map of one node, over a new connection if none is given.
async fn query_slot_map(
    connection: Option<MultiplexedConnection>,
    node: &RedisAddress,
    dialer: &RedisDialer,
) -> Result<SlotMap, String> {
    let asked = async {
        let mut connection = match connection {
            Some(connection) => connection,
            None => connect(&dialer.data_client(node)?, |_| {}).await?,
        };
        let answer: RedisResult<Value> = ::redis::cmd("CLUSTER").arg("SLOTS").query_async(&mut connection).await;
        answer
    };
    match timeout(READ_WAIT_MAX, asked).await {
        Err(_) => Err(format!(
            "redis at {node} did not answer within {} ms",
            READ_WAIT_MAX.as_millis()
        )),
        Ok(Err(error)) if rights::is_refused(&error) => Err(denial_text(node, dialer).await),
        Ok(Err(error))
            if error
                .detail()
                .is_some_and(|detail| detail.contains("cluster support disabled")) =>
        {
            Err(format!(
                "redis at {node} is not a node of a cluster; set store.redis.mode = \"standalone\" or \"sentinel\""
            ))
        }
        Ok(Err(error)) => Err(format!("cannot read the cluster's slots from redis at {node}: {error}")),
        Ok(Ok(answer)) => SlotMap::read(&answer, node)
            .ok_or_else(|| format!("cannot parse the cluster's slots that redis at {node} reports")),
    }
}

/// Returns the rights that the user lacks at a node that does not report the slot map.
async fn denial_text(node: &RedisAddress, dialer: &RedisDialer) -> String {
    let missing = timeout(READ_WAIT_MAX, dialer.missing_rights(node)).await;
    let refusal = missing.ok().flatten().and_then(|missing| missing.refusal);
    refusal.unwrap_or_else(|| format!("redis at {node}: {}", dialer.rights.refusal_text()))
}
