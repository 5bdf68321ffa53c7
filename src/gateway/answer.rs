//! A provider's answer on its way to the client.

pub mod broken_off;
pub mod decoder;
pub mod hidden_head;
pub mod owner;
pub mod possible_error;
pub mod redirect;
pub mod relay;
pub mod spend_limit;
pub mod withheld_error;
