//! What goes wrong and what follows: outcomes, refusals, retries, circuit breakers, the record of each hour.

pub(crate) mod circuit;
pub(crate) mod outcome;
pub(crate) mod pace;
pub(crate) mod refusal;
pub(crate) mod retry;
pub(crate) mod stability;
