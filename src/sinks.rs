//! Writes rows of the consumption log to sinks, and reads the log.
//!
//! A row is in one place, the log backend: the store, which gets it with its settlement, or a sink that the journal feeds, never
//! a request and never the store. A [`Feeder`] for each sink and each lane of the journal reads rows in the order of their
//! numbers and hands them over in batches. A sink stores its watermark in the same transaction as the rows, so it has each row
//! exactly once even after a crash. The journal keeps the rows that a sink lacks. Settlement does not wait for sinks.
//!
//! The log backend is read together with the rows that it has not acknowledged yet ([`reading`]), and is compared with the
//! daily sums ([`proof`]).

pub(crate) mod asks;
mod batching;
#[cfg(test)]
pub(crate) mod contract;
pub(crate) mod counters;
mod day_rows;
pub(crate) mod events;
mod feeder;
mod figures;
pub(crate) mod files;
pub(crate) mod fill;
pub(crate) mod home;
#[cfg(test)]
pub(crate) mod memory;
pub(crate) mod open_home;
pub(crate) mod own_journal;
pub(crate) mod postgres;
pub(crate) mod proof;
pub(crate) mod reading;
pub(crate) mod sink;
mod slices;
pub(crate) mod store_log;
mod tail;
mod tails;

pub(crate) use feeder::Feeder;
pub(crate) use figures::SinkStats;
pub(crate) use home::{FedLogBackend, LogBackend};
pub(crate) use open_home::{FedLog, FormerLogBackend, OpenLogBackend};
pub(crate) use sink::Sink;
