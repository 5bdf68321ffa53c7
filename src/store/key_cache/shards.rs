//! One of several locks, so that requests do not contend for one.

/// One of several, chosen by a byte that is random in every digest and id.
pub(super) fn pick<'a, T>(all: &'a [T], byte: Option<&u8>) -> Option<&'a T> {
    slot(all, byte).and_then(|slot| all.get(slot))
}

pub(super) fn slot<T>(all: &[T], byte: Option<&u8>) -> Option<usize> {
    let byte = byte.map_or(0, |byte| usize::from(*byte));
    byte.checked_rem(all.len())
}
