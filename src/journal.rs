//! The journal: this node's own durable record of what it owes to accounts.
//!
//! It is a folder of append-only segments. Each is allocated in full before it is written, so a full disk is found at
//! admission ([`Journal::reserve`]) and never at the end of an answer. A record is in the page cache when
//! [`Journal::append`] returns, so the end of the process loses nothing. It is on disk at most
//! [`crate::config::JournalConfig::sync`] later, so a power cut loses at most that; only operators' changes wait for it
//! ([`Journal::synced`]).
//!
//! The journal numbers the steps of each account; their order in the file is the order of their numbers. In memory it keeps
//! the positions of steps that the store has not acknowledged, which [`crate::money::settlement`] sends, and the counts of
//! settled rows by hour and model, for the stability record.

mod accounts;
mod checked;
mod checkpoints;
mod contents;
mod damage;
mod disk;
mod engine;
mod error;
mod files;
mod folder;
pub mod frame;
mod gaps;
mod handle;
mod holders;
mod identity;
mod index;
mod indexes;
pub(crate) mod lanes;
mod position;
mod reader;
mod replay;
mod reservation;
mod retention;
mod rows;
mod shares;
mod sinks;
mod sizes;
mod steps;
mod sync;
mod synced;
mod tail;
mod tallies;
#[cfg(test)]
pub(crate) mod tests;

pub(crate) use accounts::UnsentSteps;
pub(crate) use error::{JournalError, JournalUnavailable};
pub(crate) use handle::{Journal, OpenedJournal};
pub(crate) use position::Position;
pub(crate) use replay::UncertainSettlement;
pub(crate) use reservation::Reservation;
pub use rows::NumberedRow;
pub(crate) use rows::RowReader;
#[cfg(test)]
pub(crate) use sizes::{ADMIT_BYTES_MAX, SEGMENT_BYTES_MIN};
pub(crate) use sizes::{REQUEST_BYTES, STEP_BYTES_MAX};
