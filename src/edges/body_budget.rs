//! The process-wide budget of memory for request bodies, with a share for each key and each address.
//!
//! Bodies are read completely before they are forwarded (ARCHITECTURE.md, "One streaming request"), so many large uploads at
//! the same time could use up all memory. Room is reserved piece by piece for the bytes that have arrived, never for an
//! announced length, because announcing costs the sender nothing. Without room, the request is refused.

use std::{collections::HashMap, hash::Hash, sync::Arc};

use parking_lot::Mutex;

use crate::edges::limiter::ClientAddress;

#[cfg(test)]
mod tests;

/// Maximum numbers of bytes that are held at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BodyLimits {
    /// For the whole process.
    pub(crate) bytes_max: u64,
    /// For one key.
    pub(crate) key_bytes_max: u64,
    /// For one address.
    pub(crate) address_bytes_max: u64,
}

/// The key and address for which a body is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BodyHolder {
    /// The key, by its digest.
    pub(crate) key: [u8; 32],
    /// The client's address; `None` if many clients share it, so that only the other limits apply.
    pub(crate) address: Option<ClientAddress>,
}

/// The limit that leaves no room. That of the process is checked first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoRoom {
    /// The limit of the process.
    All,
    /// The limit of the key.
    Key,
    /// The limit of the address.
    Address,
}

/// Counts the held bytes and keeps them within their limits. Clones share the counts.
#[derive(Clone, Debug)]
pub(crate) struct BodyBudget {
    inner: Arc<BudgetState>,
}

#[derive(Debug)]
struct BudgetState {
    limits: BodyLimits,
    held: Mutex<HeldBytes>,
}

/// Bytes by holder. The hash is fast, because each request is looked up several times, and randomly keyed like the standard
/// one.
type BytesByHolder<K> = HashMap<K, u64, ahash::RandomState>;

#[derive(Debug, Default)]
struct HeldBytes {
    all: u64,
    /// Only holders of at least one byte.
    by_key: BytesByHolder<[u8; 32]>,
    by_address: BytesByHolder<ClientAddress>,
}

impl BodyBudget {
    /// A budget without held bytes.
    pub(crate) fn new(limits: BodyLimits) -> Self {
        Self {
            inner: Arc::new(BudgetState {
                limits,
                held: Mutex::default(),
            }),
        }
    }

    /// An empty reservation, to be grown as the body arrives.
    pub(crate) fn reservation(&self, holder: BodyHolder) -> BodyReservation {
        BodyReservation {
            inner: Arc::clone(&self.inner),
            holder,
            bytes: 0,
        }
    }

    /// The number of bytes held now.
    pub(crate) fn in_use(&self) -> u64 {
        self.inner.held.lock().all
    }
}

impl HeldBytes {
    fn reserve(&mut self, limits: &BodyLimits, holder: &BodyHolder, bytes: u64) -> Result<(), NoRoom> {
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

    fn release(&mut self, holder: &BodyHolder, bytes: u64) {
        self.all = self.all.saturating_sub(bytes);
        subtract(&mut self.by_key, &holder.key, bytes);
        if let Some(address) = &holder.address {
            subtract(&mut self.by_address, address, bytes);
        }
    }
}

/// Subtracts `bytes` from a count, and removes the entry at 0.
fn subtract<K: Eq + Hash>(counts: &mut BytesByHolder<K>, holder: &K, bytes: u64) {
    if let Some(count) = counts.get_mut(holder) {
        *count = count.saturating_sub(bytes);
        if *count == 0 {
            counts.remove(holder);
        }
    }
}

/// Bytes reserved from a [`BodyBudget`]; released on drop.
#[derive(Debug)]
#[must_use = "the bytes are released as soon as this is dropped"]
pub(crate) struct BodyReservation {
    inner: Arc<BudgetState>,
    holder: BodyHolder,
    bytes: u64,
}

impl BodyReservation {
    /// Reserves `more` additional bytes. Never waits.
    ///
    /// # Errors
    /// The limit that leaves no room for them. Nothing is reserved then.
    pub(crate) fn grow(&mut self, more: u64) -> Result<(), NoRoom> {
        if more == 0 {
            return Ok(());
        }
        self.inner.held.lock().reserve(&self.inner.limits, &self.holder, more)?;
        // This cannot overflow: the sum is part of the shared count, which is at most `bytes_max`.
        self.bytes = self.bytes.saturating_add(more);
        Ok(())
    }

    /// The number of reserved bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The limits of the budget.
    pub(crate) fn limits(&self) -> BodyLimits {
        self.inner.limits
    }
}

impl Drop for BodyReservation {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.inner.held.lock().release(&self.holder, self.bytes);
        }
    }
}
