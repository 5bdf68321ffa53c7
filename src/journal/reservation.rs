//! Room in the journal: what nobody was promised, and what a request was.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicI64, Ordering},
};

/// The room that nobody was promised. It is taken and given without the journal's lock, behind which others write.
#[derive(Debug, Default)]
pub(super) struct FreeRoom {
    /// Less than zero where room was lost that had been promised.
    bytes: AtomicI64,
    /// Nothing speaks against a promise but a lack of room.
    is_open: AtomicBool,
}

impl FreeRoom {
    /// Takes that many bytes, unless there are fewer, or the lock is needed to say what speaks against it.
    pub(super) fn take_openly(&self, bytes: u64) -> bool {
        self.is_open.load(Ordering::Acquire) && self.take(bytes)
    }

    /// Takes that many bytes, unless there are fewer.
    pub(super) fn take(&self, bytes: u64) -> bool {
        let Ok(bytes) = i64::try_from(bytes) else { return false };
        let left = |free: i64| (free >= bytes).then(|| free - bytes);
        let taken = self.bytes.fetch_update(Ordering::AcqRel, Ordering::Acquire, left);
        taken.is_ok()
    }

    /// Whether there are that many bytes.
    pub(super) fn has(&self, bytes: u64) -> bool {
        i64::try_from(bytes).is_ok_and(|bytes| self.bytes.load(Ordering::Acquire) >= bytes)
    }

    /// Gives bytes back that were promised, or written.
    pub(super) fn give(&self, bytes: u64) {
        self.grow(0, bytes);
    }

    /// All the room was that much, and is this much now.
    pub(super) fn grow(&self, before: u64, after: u64) {
        self.bytes
            .fetch_add(after.cast_signed().wrapping_sub(before.cast_signed()), Ordering::AcqRel);
    }

    /// How much was promised out of all the room.
    #[cfg(test)]
    pub(super) fn promised(&self, all: u64) -> u64 {
        let free = self.bytes.load(Ordering::Acquire);
        u64::try_from(all.cast_signed().saturating_sub(free)).unwrap_or(0)
    }

    /// Whether something speaks against a promise.
    pub(super) fn open(&self, is_open: bool) {
        self.is_open.store(is_open, Ordering::Release);
    }
}

/// Room in the journal that nobody else can take. What is not used is given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Reservation {
    free: Arc<FreeRoom>,
    left: u64,
}

impl Reservation {
    pub(super) fn new(free: Arc<FreeRoom>, left: u64) -> Self {
        Self { free, left }
    }

    /// The bytes that are still reserved.
    pub(crate) fn left(&self) -> u64 {
        self.left
    }

    pub(super) fn grow(&mut self, bytes: u64) {
        self.left = self.left.saturating_add(bytes);
    }

    pub(super) fn spend(&mut self, bytes: u64) {
        self.left = self.left.saturating_sub(bytes);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.left > 0 {
            self.free.give(self.left);
        }
    }
}
