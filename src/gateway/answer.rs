//! A provider's answer on its way to the client.

pub mod body;
pub mod broken_off;
pub mod decoder;
pub mod error;
pub mod fields;
pub mod head;
pub mod interim;
pub mod outlet;
pub mod owner;
pub mod possible_error;
pub mod redirect;
pub mod spend_limit;
pub mod withheld_error;
