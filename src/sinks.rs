//! Where rows of the consumption log go, and how the log is read.
//!
//! A row is in one place, the log's home: the store, with its settlement, or a sink that is fed by the journal, never by a request,
//! and never by the store. A [`Feeder`] for each sink and each lane of the journal reads rows in the order of their numbers and hands
//! them over in batches. How far a sink is, it keeps itself, in the same atomic change as the rows, so that it has each row exactly
//! once whatever is killed when. The journal keeps what a sink lacks. Settlement waits for none of them.
//!
//! The home is read together with the rows that it has not acknowledged yet ([`reading`]), and is held against the daily sums
//! ([`proof`]).

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
pub(crate) use figures::SinkFigures;
pub(crate) use home::{FedHome, LogHome};
pub(crate) use open_home::{FedLog, FormerHome, OpenHome};
pub(crate) use sink::Sink;
