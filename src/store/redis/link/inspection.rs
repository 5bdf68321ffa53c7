//! Inspects the servers: their configuration, for warnings and for `weir check`, and how full they are.

use std::collections::{BTreeSet, HashMap};

use ::redis::RedisResult;
use tokio::time::timeout;

use super::connecting::CONNECT_WAIT_MAX;
use super::{Link, LinkTopology};
use crate::store::{StoreMemory, StoreTrouble, StoreWarning};

impl Link {
    /// Faults in the configuration of the servers.
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

    /// The problems that keep the servers from being used.
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

    /// The values of one setting at the connected masters; empty if the user may not ask.
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

    /// The memory of the fullest master.
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
