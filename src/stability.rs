//! What is counted of the models' stability, between the journal, the store and those who read it.

pub mod snapshot;

pub use snapshot::{Snapshot, Snapshots};
