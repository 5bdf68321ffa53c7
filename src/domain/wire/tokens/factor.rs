//! The factor between an estimate and a model's own count.

/// How much a model's own count differs from the estimate, in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Factor(u32);

impl Factor {
    /// The factor of so many thousandths.
    pub(crate) const fn thousandths(thousandths: u32) -> Self {
        Self(thousandths)
    }

    /// The factor 1, which leaves an estimate unchanged.
    pub(crate) const ONE: Self = Self(1_000);

    /// The corrected estimate, rounded up.
    pub(crate) fn apply(self, tokens: u64) -> u64 {
        let thousandths = u128::from(tokens) * u128::from(self.0);
        u64::try_from(thousandths.div_ceil(1_000)).unwrap_or(u64::MAX)
    }
}
