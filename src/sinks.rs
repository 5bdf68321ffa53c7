//! Where rows of the consumption log go besides the store, and how the log is read.
//!
//! Sinks are fed by the journal: never by a request, and never by the store. A [`Feeder`] for each sink and each lane of the
//! journal reads rows in the order of their numbers and hands them over in batches. How far a sink is, it keeps itself, in the
//! same atomic change as the rows, so that it has each row exactly once whatever is killed when. The journal keeps what a sink
//! lacks. Settlement waits for none of them.
//!
//! One of them is where the log is at home: it is read there, together with the rows that it has not acknowledged yet ([`reading`]), and
//! what it is known to have leaves the store after some days ([`trimmer`]).

pub(crate) mod asks;
mod batching;
pub(crate) mod comparison;
#[cfg(test)]
pub(crate) mod contract;
pub(crate) mod counters;
pub(crate) mod events;
mod feeder;
mod figures;
pub(crate) mod files;
pub(crate) mod fill;
pub(crate) mod home;
#[cfg(test)]
pub(crate) mod memory;
pub(crate) mod own_journal;
pub(crate) mod postgres;
pub(crate) mod reading;
pub(crate) mod sink;
mod slices;
pub(crate) mod store_log;
mod tail;
pub(crate) mod tails;
pub(crate) mod trimmer;

pub(crate) use feeder::Feeder;
pub(crate) use figures::SinkFigures;
pub(crate) use home::{FedHome, LogHome};
pub(crate) use sink::Sink;
pub(crate) use tails::Tails;
