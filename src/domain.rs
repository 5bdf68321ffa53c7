//! The pure core: bytes and values in, decisions and bytes out. Time and randomness are passed in as arguments.

pub(crate) mod catalogue;
pub(crate) mod faults;
pub(crate) mod keys;
pub(crate) mod ledger;
pub(crate) mod money;
pub(crate) mod quick_json;
pub(crate) mod rules;
pub(crate) mod settings;
pub(crate) mod sign_in;
pub(crate) mod strict_toml;
pub(crate) mod translation;
pub(crate) mod version;
pub(crate) mod wire;

use std::collections::HashMap;

/// A map whose keys are chosen by weir or an operator: names of accounts and models, ids of keys and requests. Its hash takes
/// a fifth of the instructions of the standard one. Each map has a random seed as well, so clients cannot make keys collide
/// even where they influence them (<https://github.com/tkaitchuck/aHash>, "Goals and Non-Goals").
pub(crate) type QuickMap<K, V> = HashMap<K, V, ahash::RandomState>;
