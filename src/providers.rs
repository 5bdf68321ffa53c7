//! What this node knows about providers: pools, endpoints, provider state and learnt usage; and the config snapshot, which a
//! reload replaces as a whole. A request keeps the snapshot that it began with, so it never mixes two configurations.

pub(crate) mod endpoint;
pub(crate) mod learnt_usage;
pub(crate) mod live;
pub(crate) mod pools;
pub(crate) mod sessions;
