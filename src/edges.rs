//! Small parts that connect the gateway to the operating system and the network: clock, name resolver, memory budget for bodies,
//! connection slots, switches for providers, rate limits of clients, low-priority threads and a web client.

pub(crate) mod body_budget;
pub(crate) mod clock;
pub(crate) mod connection_slots;
pub(crate) mod limiter;
pub(crate) mod low_priority;
pub(crate) mod resolver;

pub(crate) mod switches;
pub(crate) mod web_client;
