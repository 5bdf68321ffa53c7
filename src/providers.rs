//! What this node knows of providers: pools, sessions, learnt usage, and the version of it all that a reload replaces.

pub(crate) mod endpoint;
pub(crate) mod learnt_usage;
pub(crate) mod live;
pub(crate) mod pools;
pub(crate) mod sessions;
