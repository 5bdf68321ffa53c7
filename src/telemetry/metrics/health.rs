//! Whether something works, as a gauge.

/// Whether something works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Health {
    /// It works: 1 in the metric.
    Up,
    /// It does not: 0 in the metric.
    Down,
}

impl Health {
    pub(super) fn as_gauge(self) -> i64 {
        i64::from(self == Self::Up)
    }
}
