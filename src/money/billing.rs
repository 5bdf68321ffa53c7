//! The money of running requests: admission by the ledger, records in the journal, larger holds while an answer runs,
//! and one settlement at its end. Only admission waits for the store.

mod bill;
mod counters;
mod engine;
mod figures;
mod grace;
mod growth;
mod last_seen;
mod priced_route;
mod queue;
mod recheck;
mod running;
mod service;
mod tally;
#[cfg(test)]
mod tests;
mod unconfirmed;
mod upkeep;
mod wanted;

pub use bill::{Bill, Consumed, Progress};
pub use engine::NotAdmitted;
pub use last_seen::GraceLimits;
pub use priced_route::{PricedLeg, PricedRoute};
pub use queue::QueuePosition;
pub use service::Billing;
pub use wanted::Wanted;
