//! Keys: where a head has them, what they may spend, and what never leaves weir.

pub mod credential;
pub mod key;
pub mod key_id;
pub mod not_forwarded;
pub mod query;
pub mod secret;
pub mod terms;
