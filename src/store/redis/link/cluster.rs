//! A cluster: one lane per master, and the slot map.
//!
//! The map is read each second, at once when a server redirects a call, and more often while a master is unreachable.

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

use super::finder::Finder;
use super::lane::{Lane, until};
use super::live_connection::LiveConnection;
use super::misplaced_keys::MisplacedKeys;
use super::slots::{Slot, SlotMap};
use crate::store::StoreError;
use crate::store::redis::address::Address;
use crate::store::redis::dialer::{Dialer, connect};
use crate::store::redis::rights;

/// How often the slot map is read while all masters are connected.
const READ_EVERY: Duration = Duration::from_secs(1);
/// How often it is read while a master is not connected.
const READ_EVERY_AWAY: Duration = Duration::from_millis(200);
/// The minimum time between two reads, so that a moving slot under load does not cause thousands.
const READ_PAUSE: Duration = Duration::from_millis(20);
/// How long one node may take to answer, including the connect.
const READ_WAIT_MAX: Duration = Duration::from_millis(300);
/// After how many maps without a server its lane ends.
const ABSENT_MAX: u32 = 10;

/// The lanes of a cluster and its slot map.
pub(super) struct Cluster {
    seeds: Vec<Address>,
    map: watch::Sender<MapState>,
    lanes: Mutex<BTreeMap<Address, ClusterLane>>,
    /// A new lane needs a supervisor.
    grown: Notify,
    /// The map must be read now.
    stale: Notify,
    misplaced: MisplacedKeys,
    dialer: Arc<Dialer>,
    epochs: watch::Sender<u64>,
    call_budget: Duration,
}

/// The last map that was read, or why none was; nothing before the first attempt.
type MapState = Option<Result<Arc<SlotMap>, String>>;

struct ClusterLane {
    lane: Arc<Lane>,
    /// How many maps in a row were without its server.
    absent: u32,
}

impl Cluster {
    /// `namespace`: that of weir's keys.
    pub(super) fn new(
        seeds: Vec<Address>,
        namespace: &str,
        dialer: &Arc<Dialer>,
        epochs: &watch::Sender<u64>,
        call_budget: Duration,
    ) -> Self {
        Self {
            seeds,
            map: watch::Sender::default(),
            lanes: Mutex::default(),
            grown: Notify::new(),
            stale: Notify::new(),
            misplaced: MisplacedKeys::new(namespace),
            dialer: Arc::clone(dialer),
            epochs: epochs.clone(),
            call_budget,
        }
    }

    /// The lane to the master of a slot, waiting for the first map.
    pub(super) async fn lane(&self, slot: Slot) -> Result<Arc<Lane>, StoreError> {
        let owner = {
            let mut maps = self.map.subscribe();
            match maps.wait_for(Option::is_some).await.as_deref() {
                Ok(Some(Ok(map))) => map.owner(slot).cloned(),
                Ok(Some(Err(reason))) => return Err(StoreError::Unavailable(reason.clone())),
                Ok(None) | Err(_) => None,
            }
        };
        match owner {
            Some(owner) => Ok(self.lane_to(&owner)),
            None => Err(StoreError::Unavailable(format!(
                "no master of the redis cluster has slot {slot}"
            ))),
        }
    }

    /// The lane to a server; created if necessary.
    pub(super) fn lane_to(&self, address: &Address) -> Arc<Lane> {
        let mut lanes = self.lanes.lock();
        let kept = lanes.entry(address.clone()).or_insert_with(|| {
            self.grown.notify_one();
            ClusterLane {
                lane: Arc::new(Lane::new(&self.dialer, &self.epochs, self.call_budget)),
                absent: 0,
            }
        });
        Arc::clone(&kept.lane)
    }

    /// The master of a slot, as far as known.
    pub(super) fn owner(&self, slot: Slot) -> Option<Address> {
        self.map.borrow().as_ref()?.as_ref().ok()?.owner(slot).cloned()
    }

    /// Waits until something is so that can only become so with a change of the map.
    pub(super) async fn until(&self, is_so: impl FnMut() -> bool) {
        until(self.map.subscribe(), is_so).await;
    }

    /// A call was redirected, so the map is outdated.
    pub(super) fn note_stale(&self) {
        self.stale.notify_one();
    }

    /// Whether masters have keys of each other's slots.
    pub(super) fn is_split(&self) -> bool {
        self.misplaced.are_there()
    }

    /// The map and all masters in it, if all of them are there.
    fn whole(&self) -> Option<(Arc<SlotMap>, Vec<Arc<LiveConnection>>)> {
        let map = self.map.borrow().clone()?.ok()?;
        let lanes = self.lanes.lock();
        let live = |address| lanes.get(address)?.lane.live_now();
        let masters = map.masters().into_iter().map(live).collect::<Option<Vec<_>>>()?;
        drop(lanes);
        Some((map, masters))
    }

    pub(super) fn all(&self) -> Vec<Arc<Lane>> {
        self.lanes.lock().values().map(|kept| Arc::clone(&kept.lane)).collect()
    }

    /// Why there is no map; `None` if there is one.
    pub(super) fn unreadable(&self) -> Option<String> {
        self.map.borrow().as_ref()?.as_ref().err().cloned()
    }

    /// Keeps the map and all lanes up. Cancel it to stop.
    pub(super) async fn keep_up(&self) {
        let mut running = FuturesUnordered::new();
        let mut driven = BTreeSet::new();
        let reading = self.keep_map();
        let looking = self.misplaced.keep_looking(|| self.whole());
        tokio::pin!(reading, looking);
        loop {
            for (address, ClusterLane { lane, .. }) in &*self.lanes.lock() {
                if driven.insert(address.clone()) {
                    running.push(keep_up(Arc::clone(lane), address.clone()));
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

    /// Reads the map periodically. Never returns.
    async fn keep_map(&self) {
        let mut turn = 0;
        loop {
            match self.read_map(turn).await {
                Ok(map) => self.adopt(map),
                Err(reason) => self.note_unreadable(reason),
            }
            turn += 1;
            let period = if self.is_whole() { READ_EVERY } else { READ_EVERY_AWAY };
            tokio::select! {
                () = sleep(period) => {}
                () = self.stale.notified() => {}
            }
            sleep(READ_PAUSE).await;
        }
    }

    /// The last map goes on; calls are told only where there is none.
    fn note_unreadable(&self, reason: String) {
        self.map.send_if_modified(|map| {
            let is_there = matches!(map, Some(Ok(_)));
            if !is_there {
                if map.is_none() {
                    tracing::error!(reason, "the redis cluster cannot be reached, trying on");
                }
                *map = Some(Err(reason));
            }
            !is_there
        });
    }

    /// Whether all masters are connected.
    pub(super) fn is_whole(&self) -> bool {
        let lanes = self.lanes.lock();
        !lanes.is_empty() && lanes.values().all(|kept| kept.lane.live_now().is_some())
    }

    /// Asks the servers that are there, another one first each time; without any, all that have been heard of.
    async fn read_map(&self, turn: usize) -> Result<SlotMap, String> {
        let up: Vec<_> = {
            let lanes = self.lanes.lock();
            lanes.values().filter_map(|kept| kept.lane.live_now()).collect()
        };
        let mut reasons = Vec::new();
        let first = turn.checked_rem(up.len()).unwrap_or_default();
        for live in up.iter().cycle().skip(first).take(up.len()) {
            match ask(Some(live.wire.connection.clone()), &live.address, &self.dialer).await {
                Ok(map) => return Ok(map),
                Err(reason) => reasons.push(reason),
            }
        }
        let known: Vec<Address> = self.lanes.lock().keys().cloned().collect();
        for address in self.seeds.iter().chain(&known) {
            match ask(None, address, &self.dialer).await {
                Ok(map) => return Ok(map),
                Err(reason) => reasons.push(reason),
            }
        }
        reasons.dedup();
        Err(reasons.join("; "))
    }

    fn adopt(&self, map: SlotMap) {
        for master in map.masters() {
            self.lane_to(master);
        }
        let masters = map.masters();
        self.lanes.lock().retain(|address, kept| {
            kept.absent = if masters.contains(address) { 0 } else { kept.absent + 1 };
            let stays = kept.absent < ABSENT_MAX;
            if !stays {
                kept.lane.ended.notify_one();
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
            tracing::info!(masters = map.masters().len(), "redis cluster map read");
            *known = Some(Ok(Arc::clone(&map)));
            true
        });
        if handed_over {
            tracing::warn!("slots of the redis cluster have other masters now, what they have acknowledged is checked");
            self.epochs.send_modify(|epoch| *epoch += 1);
        }
    }
}

/// Keeps the lane to a server up until that has left the cluster; answers with which it was.
async fn keep_up(lane: Arc<Lane>, address: Address) -> Address {
    let finder = Finder::Node(address.clone());
    tokio::select! {
        () = lane.keep_up(&finder) => {}
        () = lane.ended.notified() => {}
    }
    address
}

/// Reads the map of one node, over a connection of its own if none is given.
async fn ask(connection: Option<MultiplexedConnection>, node: &Address, dialer: &Dialer) -> Result<SlotMap, String> {
    let asked = async {
        let mut connection = match connection {
            Some(connection) => connection,
            None => connect(&dialer.data(node)?, |_| {}).await?,
        };
        let answer: RedisResult<Value> = ::redis::cmd("CLUSTER").arg("SLOTS").query_async(&mut connection).await;
        answer
    };
    match timeout(READ_WAIT_MAX, asked).await {
        Err(_) => Err(format!(
            "redis at {node} did not answer within {} ms",
            READ_WAIT_MAX.as_millis()
        )),
        Ok(Err(error)) if rights::is_refused(&error) => Err(denied(node, dialer).await),
        Ok(Err(error))
            if error
                .detail()
                .is_some_and(|detail| detail.contains("cluster support disabled")) =>
        {
            Err(format!(
                "redis at {node} is no node of a cluster; set store.redis.mode = \"standalone\" or \"sentinel\""
            ))
        }
        Ok(Err(error)) => Err(format!(
            "redis at {node} cannot be asked for the cluster's slots: {error}"
        )),
        Ok(Ok(answer)) => SlotMap::read(&answer, node)
            .ok_or_else(|| format!("redis at {node} describes the cluster's slots in an unknown way")),
    }
}

/// What the user may not do at a node that does not tell it the map.
async fn denied(node: &Address, dialer: &Dialer) -> String {
    let missing = timeout(READ_WAIT_MAX, dialer.missing_rights(node)).await;
    let refusal = missing.ok().flatten().and_then(|missing| missing.refusal);
    refusal.unwrap_or_else(|| format!("redis at {node}: {}", dialer.rights.refused()))
}
