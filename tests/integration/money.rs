//! Money that adds up: what is charged, who is refused, and what faults do to neither.

mod account_races;
mod bounds;
mod clocks;
mod crash;
mod disconnects;
pub(crate) mod disk;
mod emptied;
mod exact;
mod failover;
mod faults;
mod grace;
mod held;
mod homes;
mod kills;
mod leases;
mod leaving;
mod limits;
mod log_bucket;
mod log_files;
mod log_shared;
mod models;
mod moving_slots;
mod notices;
mod redis_away;
mod reports;
mod spend_limit;
mod verified;
