//! Clients and providers that mean harm, as data (`tests/hostile/*.toml`): what each does, and what has to come of it.
//!
//! `tests/hostile/run` runs them all and prints one table.

mod attack;
mod attacks;
pub(crate) mod bodies;
mod floods;
mod frames;
mod http2;
mod pieces;
mod providers;
mod report;
mod slow;
pub(crate) mod smuggling;
mod tls;

use crate::front::closed;
