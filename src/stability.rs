//! The stability record between this node and the store. What this node has counted is sent each second
//! ([`publisher`]); what all nodes have counted is read every few seconds ([`snapshot`]). Readers only see the
//! snapshot.

pub mod public;
pub mod publisher;
pub mod snapshot;

pub use publisher::{Counted, Publisher};
pub use snapshot::{Snapshot, Snapshots};
