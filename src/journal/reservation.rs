//! Room in the journal: what is free, and what a request has reserved.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicI64, Ordering},
};

/// The room that is not reserved. It is reserved and released without the journal's lock, under which others write.
#[derive(Debug, Default)]
pub(super) struct FreeRoom {
    /// Negative if reserved room was lost.
    bytes: AtomicI64,
    /// Only a lack of room can prevent a reservation.
    is_open: AtomicBool,
}

impl FreeRoom {
    /// Reserves `bytes`. Returns `false` if fewer are free, or if the cause of a refusal must be found under the lock.
    pub(super) fn reserve_if_open(&self, bytes: u64) -> bool {
        self.is_open.load(Ordering::Acquire) && self.reserve(bytes)
    }

    /// Reserves `bytes`; returns `false` if fewer are free.
    pub(super) fn reserve(&self, bytes: u64) -> bool {
        let Ok(bytes) = i64::try_from(bytes) else { return false };
        let left = |free: i64| (free >= bytes).then(|| free - bytes);
        let taken = self.bytes.fetch_update(Ordering::AcqRel, Ordering::Acquire, left);
        taken.is_ok()
    }

    /// Whether at least `bytes` are free.
    pub(super) fn has_room(&self, bytes: u64) -> bool {
        i64::try_from(bytes).is_ok_and(|bytes| self.bytes.load(Ordering::Acquire) >= bytes)
    }

    /// Releases bytes that were reserved and are not needed, or have been written.
    pub(super) fn release(&self, bytes: u64) {
        self.resize(0, bytes);
    }

    /// Adjusts for a change of the total room, free and reserved.
    pub(super) fn resize(&self, before: u64, after: u64) {
        self.bytes
            .fetch_add(after.cast_signed().wrapping_sub(before.cast_signed()), Ordering::AcqRel);
    }

    /// The reserved part of the total room.
    #[cfg(test)]
    pub(super) fn promised(&self, all: u64) -> u64 {
        let free = self.bytes.load(Ordering::Acquire);
        u64::try_from(all.cast_signed().saturating_sub(free)).unwrap_or(0)
    }

    /// Sets whether room may be reserved without the journal's lock.
    pub(super) fn set_open(&self, is_open: bool) {
        self.is_open.store(is_open, Ordering::Release);
    }
}

/// Reserved room in the journal. Dropping it releases the unused rest.
#[derive(Debug)]
pub(crate) struct Reservation {
    free: Arc<FreeRoom>,
    remaining: u64,
}

impl Reservation {
    pub(super) fn new(free: Arc<FreeRoom>, remaining: u64) -> Self {
        Self { free, remaining }
    }

    /// The bytes that are still reserved.
    pub(crate) fn remaining(&self) -> u64 {
        self.remaining
    }

    pub(super) fn grow(&mut self, bytes: u64) {
        self.remaining = self.remaining.saturating_add(bytes);
    }

    pub(super) fn spend(&mut self, bytes: u64) {
        self.remaining = self.remaining.saturating_sub(bytes);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.remaining > 0 {
            self.free.release(self.remaining);
        }
    }
}
