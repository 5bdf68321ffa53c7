//! The stability record between this node and the store. What this node has counted is sent each second
//! ([`publisher`]); what all nodes have counted is read every few seconds ([`snapshot`]). Readers only see the
//! snapshot.

pub(crate) mod public;
pub(crate) mod publisher;
pub(crate) mod snapshot;

pub(crate) use publisher::Publisher;
pub(crate) use snapshot::{Snapshot, Snapshots};
