//! What weir serves beside the gateway: the operators' endpoints and the admin API.

pub mod admin;
pub mod audit;
pub mod ops;
pub mod service;
pub mod unix_socket;
