//! weir: an authenticated, metering gateway in front of generative-model providers.
//!
//! The map, in reading order. Who may use whom is a table, held by a test (`tests/integration/house/directions.rs`).
//! [`domain`] is pure: no I/O, no async, no clock, no Pingora, no Redis.

pub mod domain;

pub mod clock;
pub mod config;

pub mod journal;
pub mod key_cache;
pub mod store;

pub mod access_log;
pub mod body_budget;
pub mod limiter;
pub mod metrics;
pub mod resolver;
pub mod tls;

pub mod account_changes;
pub mod learnt_usage;
pub mod pools;
pub mod sessions;
pub mod settlement;
pub mod stability;
pub mod switches;

pub mod live;

pub mod billing;
pub mod front;
pub mod gateway;
pub mod public;
pub mod side;

#[cfg(feature = "sample-provider")]
pub mod sample_provider;

pub mod cli;
pub mod wiring;
