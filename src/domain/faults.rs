//! Failures and their consequences: ends, refusals, retries, circuit breakers, minimum speeds, and the stability of models.

pub(crate) mod circuit;
pub(crate) mod end;
pub(crate) mod pace;
pub(crate) mod refusal;
pub(crate) mod retry;
pub(crate) mod stability;
