//! Limits how many sockets each key has open, and how many of its requests count tokens at the same time.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;

/// Counts the slots that each key uses, for one kind of request or for sockets. A key has an entry only while one of its slots is
/// in use, so the number of used slots bounds the memory. Clones share the counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeySlots {
    taken: Arc<Mutex<HashMap<Arc<str>, usize>>>,
}

/// A key's slot for one request or socket; returned on drop.
#[derive(Debug)]
#[must_use = "the slot is returned as soon as it is dropped"]
pub(crate) struct KeySlot {
    slots: KeySlots,
    key: Arc<str>,
}

impl KeySlots {
    /// Acquires one of the key's `max` slots; returns `None` if all are in use. Never waits.
    pub(crate) fn acquire(&self, key: &str, max: usize) -> Option<KeySlot> {
        let mut taken = self.taken.lock();
        let key = match taken.get_key_value(key) {
            Some((_, count)) if *count >= max => return None,
            Some((key, _)) => Arc::clone(key),
            None if max == 0 => return None,
            None => Arc::from(key),
        };
        *taken.entry(Arc::clone(&key)).or_default() += 1;
        drop(taken);
        Some(KeySlot {
            slots: self.clone(),
            key,
        })
    }

    /// The number of keys with at least one slot in use.
    #[cfg(test)]
    pub(crate) fn keys(&self) -> usize {
        self.taken.lock().len()
    }
}

impl Drop for KeySlot {
    fn drop(&mut self) {
        let mut taken = self.slots.taken.lock();
        if let Some(count) = taken.get_mut(&self.key) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                taken.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_has_its_own_limit_and_it_is_exact() {
        let slots = KeySlots::default();
        let held: Vec<KeySlot> = (0..3).map(|_| slots.acquire("a", 3).unwrap()).collect();
        assert!(slots.acquire("a", 3).is_none());
        assert!(slots.acquire("b", 3).is_some());
        assert!(
            slots.acquire("a", 4).is_some(),
            "the limit may change while places are taken"
        );
        assert!(slots.acquire("c", 0).is_none());
        drop(held);
        assert!(slots.acquire("a", 1).is_some());
    }

    #[test]
    fn nothing_is_left_of_a_key_that_is_idle() {
        let slots = KeySlots::default();
        let held: Vec<KeySlot> = (0..100)
            .filter_map(|key| slots.acquire(&format!("key{key}"), 1))
            .collect();
        assert_eq!(slots.keys(), 100);
        drop(held);
        assert_eq!(slots.keys(), 0);
    }

    #[test]
    fn threads_together_never_take_more_than_there_are() {
        let slots = KeySlots::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..2000 {
                        let _held = slots.acquire("a", 2);
                        let count = slots.taken.lock().get("a").copied().unwrap_or(0);
                        assert!(count <= 2);
                    }
                });
            }
        });
        assert_eq!(slots.keys(), 0);
    }
}
