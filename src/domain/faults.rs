//! What goes wrong and what follows: ends, refusals, retries, circuit breakers, the record of each hour.

pub(crate) mod circuit;
pub(crate) mod end;
pub(crate) mod pace;
pub(crate) mod refusal;
pub(crate) mod retry;
pub(crate) mod stability;
