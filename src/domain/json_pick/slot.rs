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
