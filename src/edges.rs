//! The small edges: the clock, the resolver, memory for bodies, switches of the operator, rate limits of clients, threads for long
//! work.

pub(crate) mod body_budget;
pub(crate) mod clock;
pub(crate) mod limiter;
pub(crate) mod low_priority;
pub(crate) mod resolver;
pub(crate) mod switches;
