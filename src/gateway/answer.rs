//! A provider's answer on its way to the client.

pub mod body;
pub mod broken_off;
pub mod error;
pub mod fields;
pub mod head;
pub mod interim;
pub mod redirect;
pub mod spend_limit;
