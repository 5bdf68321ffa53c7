//! Attempts at providers.

pub mod attempts;
pub mod connect;
pub mod connector;
pub mod deadline;
pub mod verdict;
