//! How large records, segments and reservations are.

/// The largest record, in bytes.
pub(crate) const RECORD_BYTES_MAX: u64 = 256 * 1024;
/// The smallest segment that can be configured.
pub(crate) const SEGMENT_BYTES_MIN: u64 = 4096;
/// The largest frame of a [`crate::domain::ledger::Record::Admit`] whose texts are at most 128 bytes each, with as many tags as
/// a request may have.
pub(crate) const ADMIT_BYTES_MAX: u64 = 2560;
/// The largest frame of a settlement with the same texts; and one with as many parts as a row may have, if no text of it is
/// longer than 40 bytes.
pub(crate) const STEP_BYTES_MAX: u64 = 2560;
/// What a request needs: its admission and its settlement. A record that is larger all the same takes more room where
/// there is some.
pub(crate) const REQUEST_BYTES: u64 = ADMIT_BYTES_MAX + STEP_BYTES_MAX;
