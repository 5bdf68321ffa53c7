//! What goes wrong and what follows: outcomes, refusals, retries, circuit breakers, the record of each hour.

pub mod circuit;
pub mod outcome;
pub mod pace;
pub mod refusal;
pub mod retry;
pub mod stability;
