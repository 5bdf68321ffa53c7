//! Billing of running requests: admission by the ledger, records in the journal, top-ups while an answer runs, and one
//! settlement at its end. Only admission waits for the store.

mod admission;
mod admission_request;
mod bill;
mod counters;
mod denials;
mod engine;
mod figures;
mod grace;
mod growth;
mod last_seen;
mod leases;
mod leasing;
mod queue;
mod running;
mod service;
mod tally;
#[cfg(test)]
mod tests;
mod unconfirmed;
mod upkeep;

pub(crate) use admission::{Admission, AdmissionStart, QueueTicket};
pub(crate) use admission_request::{AdmissionRequest, FoundKey};
pub(crate) use bill::{Bill, Consumption, NextSample, RequestProgress};
pub(crate) use last_seen::GraceLimits;
pub(crate) use leases::LeaseLimits;
pub(crate) use service::Billing;
