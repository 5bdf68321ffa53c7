//! The pure core: bytes and values in, decisions and bytes out. Time and randomness are passed in as arguments.

pub(crate) mod catalogue;
pub(crate) mod faults;
pub(crate) mod keys;
pub(crate) mod ledger;
pub(crate) mod money;
pub(crate) mod quick_json;
pub(crate) mod quick_map;
pub(crate) mod role;
pub(crate) mod rules;
pub(crate) mod settings;
pub(crate) mod sign_in;
pub(crate) mod strict_toml;
pub(crate) mod version;
pub(crate) mod wire;
