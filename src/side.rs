//! The services beside the gateway: the operators' endpoints, the public stability service and the admin API.

pub(crate) mod admin;
mod connection;
pub(crate) mod ops;
pub(crate) mod public;
pub(crate) mod redirect;
pub(crate) mod service;
pub(crate) mod unix_socket;
