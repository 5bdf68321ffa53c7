//! The sizes of records, segments and reservations.

/// The largest record, in bytes.
pub(crate) const RECORD_BYTES_MAX: u64 = 256 * 1024;
/// The smallest segment that can be configured.
pub(crate) const SEGMENT_BYTES_MIN: u64 = 4096;
/// The largest frame of a [`crate::domain::ledger::Record::Admit`] with the maximum number of tags and texts of at most 128
/// bytes each.
pub(crate) const ADMIT_BYTES_MAX: u64 = 2560;
/// The largest frame of a settlement with such texts. It also suffices for one with the maximum number of parts and texts of at
/// most 40 bytes each.
pub(crate) const STEP_BYTES_MAX: u64 = 2560;
/// The room reserved for a request: its admission and its settlement. A larger record takes more room if there is any.
pub(crate) const REQUEST_BYTES: u64 = ADMIT_BYTES_MAX + STEP_BYTES_MAX;
