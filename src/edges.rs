//! The small edges: the clock, the resolver, memory for bodies, switches of the operator, rate limits of clients.

pub mod body_budget;
pub mod clock;
pub mod limiter;
pub mod resolver;
pub mod switches;
