//! The provider's side of the proxy.

pub(crate) mod connect;
pub(crate) mod connector;
pub(crate) mod send;
pub(crate) mod verdict;
