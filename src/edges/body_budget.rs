//! The process-wide memory budget for request bodies, with a limit for each API key and each client address.
//!
//! Bodies are read completely before they are forwarded (ARCHITECTURE.md, "One streaming request"), so many large uploads at the
//! same time could use up all memory. Memory is reserved piece by piece for the bytes that have arrived, never for an announced
//! length, because announcing costs the sender nothing. If there is no room for a piece, the request is refused.

use std::{collections::HashMap, hash::Hash, sync::Arc};

use parking_lot::Mutex;

use crate::edges::limiter::ClientAddress;

#[cfg(test)]
mod tests;

/// Maximum numbers of body bytes that are in memory at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BodyLimits {
    /// The maximum for the whole process, in bytes.
    pub(crate) bytes_max: u64,
    /// The maximum for one API key, in bytes.
    pub(crate) key_bytes_max: u64,
    /// The maximum for one client address, in bytes.
    pub(crate) address_bytes_max: u64,
}

/// The API key and the client address for which a request body's memory is reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BodyHolder {
    /// The digest of the API key.
    pub(crate) key: [u8; 32],
    /// The client's address. `None` if many clients share the address; then no limit per address applies.
    pub(crate) address: Option<ClientAddress>,
}

/// The limit that leaves no room for more bytes. The limit of the process is checked first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoRoom {
    /// The limit for the whole process.
    All,
    /// The limit for the API key.
    Key,
    /// The limit for the client address.
    Address,
}

/// Counts the reserved body bytes and keeps them within the limits. Clones share the counts.
#[derive(Clone, Debug)]
pub(crate) struct BodyBudget {
    inner: Arc<BudgetState>,
}

#[derive(Debug)]
struct BudgetState {
    limits: BodyLimits,
    held: Mutex<HeldBytes>,
}

/// The number of reserved bytes of each holder. The hash function is a fast one, because each request needs several lookups. It
/// is seeded randomly, like the standard one.
type BytesByHolder<K> = HashMap<K, u64, ahash::RandomState>;

#[derive(Debug, Default)]
struct HeldBytes {
    all: u64,
    /// Reserved bytes by API key. As in `by_address`, a holder without reserved bytes has no entry.
    by_key: BytesByHolder<[u8; 32]>,
    by_address: BytesByHolder<ClientAddress>,
}

impl BodyBudget {
    /// Creates a budget without reserved bytes.
    pub(crate) fn new(limits: BodyLimits) -> Self {
        Self {
            inner: Arc::new(BudgetState {
                limits,
                held: Mutex::default(),
            }),
        }
    }

    /// Returns an empty reservation for `holder`. The caller lets the reservation grow as the body arrives.
    pub(crate) fn reservation(&self, holder: BodyHolder) -> BodyReservation {
        BodyReservation {
            inner: Arc::clone(&self.inner),
            holder,
            bytes: 0,
        }
    }

    /// The number of bytes reserved at present.
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

/// Subtracts `bytes` from the count of `holder`, and removes the entry when its count becomes 0.
fn subtract<K: Eq + Hash>(counts: &mut BytesByHolder<K>, holder: &K, bytes: u64) {
    if let Some(count) = counts.get_mut(holder) {
        *count = count.saturating_sub(bytes);
        if *count == 0 {
            counts.remove(holder);
        }
    }
}

/// A number of bytes reserved from a [`BodyBudget`]. They are released when this is dropped.
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
    /// Returns the limit that leaves no room for the bytes. In that case, nothing is reserved.
    pub(crate) fn grow(&mut self, more: u64) -> Result<(), NoRoom> {
        if more == 0 {
            return Ok(());
        }
        self.inner.held.lock().reserve(&self.inner.limits, &self.holder, more)?;
        // This cannot overflow, because the sum is at most the shared count, which is at most `bytes_max`.
        self.bytes = self.bytes.saturating_add(more);
        Ok(())
    }

    /// The number of bytes in this reservation.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The limits of the budget to which this reservation belongs.
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
