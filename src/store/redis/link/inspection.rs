//! Inspection of the servers: their configuration, for warnings and for `weir check`, and how full their memory is.

use std::collections::{BTreeSet, HashMap};

use ::redis::RedisResult;
use tokio::time::timeout;

use crate::store::{
    StoreMemory, StoreTrouble, StoreWarning,
    redis::{
        RedisStore,
        link::{Link, LinkTopology, connection::CONNECT_WAIT_MAX},
    },
};

impl Link {
    /// Returns the faults in the configuration of the servers.
    pub(in crate::store::redis) fn warnings(&self) -> BTreeSet<StoreWarning> {
        let mut warnings: BTreeSet<StoreWarning> = self.lanes().iter().flat_map(|lane| lane.warnings()).collect();
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
        for lane in self.lanes() {
            let StoreTrouble { refused, details } = lane.trouble();
            trouble.refused |= refused;
            trouble.details.extend(details);
        }
        trouble
    }

    /// Returns the values of one setting on the connected masters; empty if the user lacks the right to read settings.
    pub(in crate::store::redis) async fn setting(&self, name: &str) -> Vec<String> {
        let mut values = Vec::new();
        for live in self.lanes().iter().filter_map(|lane| lane.live_now()) {
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
        let all = self.lanes();
        all.iter()
            .filter_map(|lane| lane.status.lock().memory)
            .reduce(StoreMemory::fuller)
    }

    fn sentinel_complaint(&self) -> Option<String> {
        match &self.route {
            LinkTopology::One { finder, .. } => finder.complaint(),
            LinkTopology::Cluster(_) => None,
        }
    }
}

/// A setting of the servers that works, but for which another value is better.
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
    /// Whether all masters are connected, and, if there are sentinels, one of them has answered.
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
