//! Maps that are looked into several times for each request.

use std::collections::HashMap;

/// A map whose keys weir or an operator has chosen: names of accounts and models, identifiers of keys and requests. Its hash
/// takes a fifth of the instructions of the standard one. It is keyed at random for each map too, so that clients could not
/// make keys collide where they had a part in them (<https://github.com/tkaitchuck/aHash>, "Goals and Non-Goals").
pub(crate) type QuickMap<K, V> = HashMap<K, V, ahash::RandomState>;
