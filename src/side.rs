//! The services besides the gateway: the operators' endpoints, the public stability service and the admin API.

pub mod admin;
pub mod audit;
pub mod ops;
pub mod public;
pub mod redirect;
pub mod service;
pub mod unix_socket;
