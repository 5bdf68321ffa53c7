//! The small edges: the clock, the resolver, memory for bodies, slots for connections, switches of the operator, rate limits of clients, threads for long
//! work, requests of weir's own.

pub(crate) mod body_budget;
pub(crate) mod clock;
pub(crate) mod connection_slots;
pub(crate) mod limiter;
pub(crate) mod low_priority;
pub(crate) mod resolver;
pub(crate) mod roots;
pub(crate) mod switches;
pub(crate) mod web_client;
