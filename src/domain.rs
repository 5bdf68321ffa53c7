//! weir's logic without any input or output: its functions compute decisions and bytes from their arguments. Time and randomness
//! are arguments, too.

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

/// A hash map for keys that weir or an operator chooses, such as names of accounts and models, or ids of API keys and requests.
/// Its hash function takes a fifth of the instructions of the standard one. Each map has a random seed, so clients cannot force
/// collisions even where they influence the keys (<https://github.com/tkaitchuck/aHash>, "Goals and Non-Goals").
pub(crate) type QuickMap<K, V> = HashMap<K, V, ahash::RandomState>;
