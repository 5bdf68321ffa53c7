//! When an account's leases are to come back: see [`super::leasing`] for what moves it.

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Recall {
    /// Moves whenever all of them are to come back.
    pub(super) mark: u64,
    /// Since when a limit is near; `None` once a lease has grown.
    pub(super) near_ms: Option<i64>,
}
