//! The process-wide budget for request bytes that are held in memory.
//!
//! Bodies are gathered whole before they are forwarded (ARCHITECTURE.md, "One streaming request"), so many large uploads
//! at once could eat all memory. Whoever buffers takes a lease first; without one the request is refused with 503.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A count of buffered bytes that never exceeds its maximum. Clones share the count.
#[derive(Clone, Debug)]
pub(crate) struct BodyBudget {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    bytes_max: u64,
    bytes: AtomicU64,
}

impl BodyBudget {
    /// A budget of `bytes_max` bytes for the whole process.
    pub(crate) fn new(bytes_max: u64) -> Self {
        Self {
            inner: Arc::new(Inner {
                bytes_max,
                bytes: AtomicU64::new(0),
            }),
        }
    }

    /// Takes `bytes` from the budget until the lease is dropped; `None` when so much is not left. Never waits.
    pub(crate) fn try_reserve(&self, bytes: u64) -> Option<BodyLease> {
        self.inner.take(bytes).then(|| BodyLease {
            inner: Arc::clone(&self.inner),
            bytes,
        })
    }

    /// The bytes leased out now.
    pub(crate) fn in_use(&self) -> u64 {
        self.inner.bytes.load(Ordering::Relaxed)
    }
}

impl Inner {
    fn take(&self, bytes: u64) -> bool {
        // The count guards no other memory, so relaxed order is enough; the compare-exchange keeps the limit exact.
        self.bytes
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| {
                taken.checked_add(bytes).filter(|sum| *sum <= self.bytes_max)
            })
            .is_ok()
    }

    fn give_back(&self, bytes: u64) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Bytes taken from a [`BodyBudget`]; given back on drop.
#[derive(Debug)]
#[must_use = "the bytes are given back as soon as the lease is dropped"]
pub(crate) struct BodyLease {
    inner: Arc<Inner>,
    bytes: u64,
}

impl BodyLease {
    /// Takes `more` bytes in addition. Returns false, and takes nothing, if the budget has not enough left.
    #[must_use]
    pub(crate) fn grow(&mut self, more: u64) -> bool {
        let taken = self.inner.take(more);
        if taken {
            // Cannot overflow: the sum is a part of the shared count, which is at most `bytes_max`.
            self.bytes = self.bytes.saturating_add(more);
        }
        taken
    }

    /// The bytes held by this lease.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for BodyLease {
    fn drop(&mut self) {
        self.inner.give_back(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_exact() {
        let budget = BodyBudget::new(100);
        let all = budget.try_reserve(100).expect("the whole budget fits");
        assert!(budget.try_reserve(1).is_none());
        assert!(budget.try_reserve(0).is_some());
        drop(all);
        assert!(budget.try_reserve(101).is_none());
        assert_eq!(budget.in_use(), 0);
    }

    #[test]
    fn absurd_sizes_do_not_wrap_around() {
        let budget = BodyBudget::new(u64::MAX);
        let most = budget.try_reserve(u64::MAX - 1).expect("fits");
        assert!(budget.try_reserve(2).is_none());
        drop(most);
        assert_eq!(budget.in_use(), 0);
    }

    #[test]
    fn a_lease_grows_and_gives_everything_back() {
        let budget = BodyBudget::new(10);
        let mut lease = budget.try_reserve(4).expect("fits");
        assert!(lease.grow(6));
        assert!(!lease.grow(1));
        assert_eq!((lease.bytes(), budget.in_use()), (10, 10));
        drop(lease);
        assert_eq!(budget.in_use(), 0);
    }

    #[test]
    fn threads_together_never_exceed_the_limit_and_leave_nothing_behind() {
        let budget = BodyBudget::new(1000);
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let budget = budget.clone();
                scope.spawn(move || {
                    for round in 0..2000u64 {
                        if let Some(mut lease) = budget.try_reserve((thread * 97 + round * 31) % 400) {
                            let _grown = lease.grow(round % 200);
                            assert!(budget.in_use() <= 1000);
                        }
                    }
                });
            }
        });
        assert_eq!(budget.in_use(), 0);
        assert!(budget.try_reserve(1000).is_some());
    }
}
