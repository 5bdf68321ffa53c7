//! The consumption log in Postgres: one table with a partition per day, filled by COPY. A lane's watermark is written in the
//! same transaction as its rows, so each row is there exactly once.

mod columns;
mod connection;
mod error;
mod migrations;
mod pages;
mod partitions;
mod reading;
mod retention;
mod settings;
mod setup;
mod sink;
#[cfg(test)]
mod tests;
mod tls;

pub(crate) use retention::PostgresRetention;
pub(crate) use settings::PostgresSettings;
pub(crate) use setup::{Grants, set_up};
pub(crate) use sink::PostgresLog;
