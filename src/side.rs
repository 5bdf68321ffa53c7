//! The listeners beside the gateway's: the operators' endpoints, the public stability service, the redirect to HTTPS and the
//! admin API.

pub(crate) mod admin;
pub(crate) mod connection;
pub(crate) mod ops;
pub(crate) mod public;
pub(crate) mod service;
