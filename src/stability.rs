//! The stability record between this node and the store: what it has counted goes there each second ([`publisher`]), what
//! all nodes have counted comes back every few seconds ([`snapshot`]). Readers of the record meet the snapshot alone.

pub mod publisher;
pub mod snapshot;

pub use publisher::{Counted, Publisher};
pub use snapshot::{Snapshot, Snapshots};
