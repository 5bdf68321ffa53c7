//! weir: an authenticated, metering gateway in front of generative-model providers.
//!
//! The map, in reading order. Who may use whom is a table, held by a test (`tests/integration/house/directions.rs`).
//! [`domain`] is pure: no I/O, no async, no clock, no Pingora, no Redis.

pub mod cli;
pub mod config;
pub mod domain;
pub mod edges;
pub mod front;
pub mod gateway;
pub mod journal;
pub mod money;
pub mod providers;
#[cfg(feature = "sample-provider")]
pub mod sample_provider;
pub mod side;
pub mod stability;
pub mod store;
pub mod telemetry;
pub mod wiring;
