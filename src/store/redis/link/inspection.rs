//! Inspects the servers: whether they are configured as weir needs them, and how full they are.

use std::collections::{BTreeSet, HashMap};

use ::redis::RedisResult;
use tokio::time::timeout;

use super::connecting::CONNECT_WAIT_MAX;
use super::{Link, Route};
use crate::store::{StoreMemory, StoreTrouble, StoreWarning};

impl Link {
    /// What is wrong with how the servers are set up.
    pub(in crate::store::redis) fn warnings(&self) -> BTreeSet<StoreWarning> {
        let mut warnings: BTreeSet<StoreWarning> = self.lanes().iter().flat_map(|lane| lane.warnings()).collect();
        if self.sentinels_deny().is_some() {
            warnings.insert(StoreWarning::MissingRights);
        }
        if let Route::Cluster(cluster) = &self.route
            && cluster.is_split()
        {
            warnings.insert(StoreWarning::SplitSlot);
        }
        warnings
    }

    /// What keeps the servers from being used.
    pub(in crate::store::redis) fn trouble(&self) -> StoreTrouble {
        let apart = match &self.route {
            Route::One { .. } => self.sentinels_deny(),
            Route::Cluster(cluster) => cluster.unreadable(),
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

    /// What the masters that are connected say of one of their settings; nothing where the user may not ask.
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

    /// How full the fullest master is.
    pub(in crate::store::redis) fn memory(&self) -> Option<StoreMemory> {
        let all = self.lanes();
        all.iter()
            .filter_map(|lane| lane.status.lock().memory)
            .reduce(StoreMemory::fuller)
    }

    fn sentinels_deny(&self) -> Option<String> {
        match &self.route {
            Route::One { finder, .. } => finder.complaint(),
            Route::Cluster(_) => None,
        }
    }
}
