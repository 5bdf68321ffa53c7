//! Small parts at the edges of the process: clock, resolver, memory for bodies, connection slots, provider switches, rate
//! limits of clients, low-priority threads, a web client.

pub(crate) mod body_budget;
pub(crate) mod clock;
pub(crate) mod connection_slots;
pub(crate) mod limiter;
pub(crate) mod low_priority;
pub(crate) mod resolver;

pub(crate) mod switches;
pub(crate) mod web_client;
