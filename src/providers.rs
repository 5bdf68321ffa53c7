//! What this node knows of providers: pools, sessions, learnt usage, and the version of it all that a reload replaces.

pub mod learnt_usage;
pub mod live;
pub mod pools;
pub mod sessions;
