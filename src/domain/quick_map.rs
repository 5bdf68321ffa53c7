//! The hash map for lookups on the request path.

use std::collections::HashMap;

/// A map whose keys are chosen by weir or an operator: names of accounts and models, ids of keys and requests. Its hash takes
/// a fifth of the instructions of the standard one. Each map has a random seed as well, so clients cannot make keys collide
/// even where they influence them (<https://github.com/tkaitchuck/aHash>, "Goals and Non-Goals").
pub(crate) type QuickMap<K, V> = HashMap<K, V, ahash::RandomState>;
