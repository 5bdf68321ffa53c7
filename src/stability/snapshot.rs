//! The buckets of the published window as they were read last: readers ask here, never the store.

use std::{collections::BTreeMap, sync::Arc};

use arc_swap::ArcSwapOption;

use crate::domain::stability::{Bucket, Hour};

/// What one read of the store gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// When it was read, in milliseconds since the Unix epoch.
    pub read_at_ms: i64,
    /// The hours that have anything.
    pub buckets: BTreeMap<Hour, Bucket>,
}

/// The newest snapshot.
#[derive(Debug, Default)]
pub struct Snapshots {
    current: ArcSwapOption<Snapshot>,
}

impl Snapshots {
    /// With a snapshot to begin with.
    pub fn holding(snapshot: Snapshot) -> Self {
        Self {
            current: ArcSwapOption::from_pointee(snapshot),
        }
    }

    /// The newest one; `None` until the store was read for the first time.
    pub fn get(&self) -> Option<Arc<Snapshot>> {
        self.current.load_full()
    }
}
