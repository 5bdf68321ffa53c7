//! The stability record between this node and the store. Each second, this node sends its counts ([`publisher`]); every few
//! seconds, it reads the counts of all nodes ([`snapshot`]). Readers only see the last snapshot.

pub(crate) mod public;
pub(crate) mod publisher;
pub(crate) mod snapshot;

pub(crate) use publisher::Publisher;
pub(crate) use snapshot::{Snapshot, Snapshots};
