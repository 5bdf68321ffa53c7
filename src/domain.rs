//! The pure core: bytes and values in, decisions and bytes out. Time and randomness come in as arguments.

pub mod catalogue;
pub mod faults;
pub mod keys;
pub mod ledger;
pub mod money;
pub mod rules;
pub mod strict_toml;
pub mod wire;
