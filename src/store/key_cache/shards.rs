//! Picks one of several locks.

/// One of several locks, chosen by a byte that is random in every digest and id, so that requests do not contend for one.
pub(super) fn pick<'a, T>(all: &'a [T], byte: Option<&u8>) -> Option<&'a T> {
    shard_index(all, byte).and_then(|slot| all.get(slot))
}

pub(super) fn shard_index<T>(all: &[T], byte: Option<&u8>) -> Option<usize> {
    let byte = byte.map_or(0, |byte| usize::from(*byte));
    byte.checked_rem(all.len())
}
