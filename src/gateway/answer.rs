//! A provider's answer on its way to the client.

pub(crate) mod beginning;
pub(crate) mod body;
pub(crate) mod error;
pub(crate) mod fields;
pub(crate) mod head;
pub(crate) mod interim;
pub(crate) mod shape;
pub(crate) mod spend_limit;
