//! What a picker keeps.

/// What was picked at one path.
#[derive(Clone, Debug, Default)]
pub(super) struct Slot {
    /// The JSON text that was kept last.
    pub(super) raw: Vec<u8>,
    pub(super) count: u64,
    pub(super) state: SlotState,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum SlotState {
    #[default]
    Empty,
    Taken,
    TooLong,
}

/// Puts `new` in the place of what a buffer holds; the buffer is used again, and is never larger than the largest it held.
pub(in crate::domain) fn replace(buffer: &mut Vec<u8>, new: &[u8]) {
    buffer.clear();
    buffer.reserve_exact(new.len());
    buffer.extend_from_slice(new);
}

/// The places of the bits that are set.
pub(super) fn bits(mut mask: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let at = usize::try_from(mask.trailing_zeros()).ok().filter(|_| mask != 0)?;
        mask &= mask - 1;
        Some(at)
    })
}
