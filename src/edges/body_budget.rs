//! The process-wide budget for request bytes that are held in memory, and the share of it that one key and one address
//! may hold.
//!
//! Bodies are gathered whole before they are forwarded (ARCHITECTURE.md, "One streaming request"), so many large uploads
//! at once could eat all memory. Whoever buffers takes room for what has arrived, piece by piece, and never for what is
//! announced: an announcement costs its sender nothing. Without room the request is refused.

use std::{collections::HashMap, hash::Hash, sync::Arc};

use parking_lot::Mutex;

use crate::edges::limiter::client::Client;

#[cfg(test)]
mod tests;

/// How many bytes may be held at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BodyLimits {
    /// By the whole process.
    pub(crate) bytes_max: u64,
    /// By one key.
    pub(crate) key_bytes_max: u64,
    /// By one address.
    pub(crate) address_bytes_max: u64,
}

/// Who a body is held for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BodyHolder {
    /// The key, by its digest.
    pub(crate) key: [u8; 32],
    /// The client's address; `None` if it speaks for many, so that its share is the whole.
    pub(crate) address: Option<Client>,
}

/// Which limit leaves no room. The whole is looked at first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoRoom {
    /// That of the process.
    All,
    /// That of the key.
    Key,
    /// That of the address.
    Address,
}

/// Counts of buffered bytes that never exceed their limits. Clones share the counts.
#[derive(Clone, Debug)]
pub(crate) struct BodyBudget {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    limits: BodyLimits,
    held: Mutex<Held>,
}

/// Bytes by holder. Each request is looked up several times; keyed at random for each map, as the standard hash is.
type Counts<K> = HashMap<K, u64, ahash::RandomState>;

#[derive(Debug, Default)]
struct Held {
    all: u64,
    /// Only who holds a byte, so never more entries than bytes.
    by_key: Counts<[u8; 32]>,
    by_address: Counts<Client>,
}

impl BodyBudget {
    /// Nothing is held yet.
    pub(crate) fn new(limits: BodyLimits) -> Self {
        Self {
            inner: Arc::new(Inner {
                limits,
                held: Mutex::default(),
            }),
        }
    }

    /// A lease of no bytes, which grows with its body.
    pub(crate) fn lease(&self, holder: BodyHolder) -> BodyLease {
        BodyLease {
            inner: Arc::clone(&self.inner),
            holder,
            bytes: 0,
        }
    }

    /// The bytes held now.
    pub(crate) fn in_use(&self) -> u64 {
        self.inner.held.lock().all
    }
}

impl Held {
    fn take(&mut self, limits: &BodyLimits, holder: &BodyHolder, bytes: u64) -> Result<(), NoRoom> {
        let fits = |held: u64, max: u64| held.checked_add(bytes).filter(|sum| *sum <= max);
        let all = fits(self.all, limits.bytes_max).ok_or(NoRoom::All)?;
        let of_key = self.by_key.get(&holder.key).copied().unwrap_or(0);
        let of_key = fits(of_key, limits.key_bytes_max).ok_or(NoRoom::Key)?;
        if let Some(address) = holder.address {
            let of_address = self.by_address.get(&address).copied().unwrap_or(0);
            let of_address = fits(of_address, limits.address_bytes_max).ok_or(NoRoom::Address)?;
            self.by_address.insert(address, of_address);
        }
        self.by_key.insert(holder.key, of_key);
        self.all = all;
        Ok(())
    }

    fn give_back(&mut self, holder: &BodyHolder, bytes: u64) {
        self.all = self.all.saturating_sub(bytes);
        less(&mut self.by_key, &holder.key, bytes);
        if let Some(address) = &holder.address {
            less(&mut self.by_address, address, bytes);
        }
    }
}

/// Takes `bytes` off a count, and forgets who holds nothing any more.
fn less<K: Eq + Hash>(counts: &mut Counts<K>, holder: &K, bytes: u64) {
    if let Some(count) = counts.get_mut(holder) {
        *count = count.saturating_sub(bytes);
        if *count == 0 {
            counts.remove(holder);
        }
    }
}

/// Bytes taken from a [`BodyBudget`]; given back on drop.
#[derive(Debug)]
#[must_use = "the bytes are given back as soon as the lease is dropped"]
pub(crate) struct BodyLease {
    inner: Arc<Inner>,
    holder: BodyHolder,
    bytes: u64,
}

impl BodyLease {
    /// Takes `more` bytes in addition. Never waits.
    ///
    /// # Errors
    /// The limit that leaves no room for them; nothing is taken then.
    pub(crate) fn grow(&mut self, more: u64) -> Result<(), NoRoom> {
        if more == 0 {
            return Ok(());
        }
        self.inner.held.lock().take(&self.inner.limits, &self.holder, more)?;
        // Cannot overflow: the sum is a part of the shared count, which is at most `bytes_max`.
        self.bytes = self.bytes.saturating_add(more);
        Ok(())
    }

    /// The bytes held by this lease.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The limits of its budget.
    pub(crate) fn limits(&self) -> BodyLimits {
        self.inner.limits
    }
}

impl Drop for BodyLease {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.inner.held.lock().give_back(&self.holder, self.bytes);
        }
    }
}
