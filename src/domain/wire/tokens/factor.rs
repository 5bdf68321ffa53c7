//! The factor from an estimate to a model's own count.

/// The factor from an estimate to a model's own count, in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TokenFactor(u32);

impl TokenFactor {
    /// A factor in thousandths.
    pub(crate) const fn thousandths(thousandths: u32) -> Self {
        Self(thousandths)
    }

    /// The factor 1, which leaves an estimate unchanged.
    pub(crate) const ONE: Self = Self(1_000);

    /// The corrected estimate, rounded up.
    pub(crate) fn apply(self, tokens: u64) -> u64 {
        if let Some(thousandths) = tokens.checked_mul(self.0.into()) {
            return thousandths.div_ceil(1_000);
        }
        let thousandths = u128::from(tokens) * u128::from(self.0);
        u64::try_from(thousandths.div_ceil(1_000)).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn an_estimate_is_corrected_exactly_and_rounded_up(tokens in any::<u64>(), small in 0..10_000_000_u64, thousandths in 0..5_000_u32) {
            for tokens in [tokens, small] {
                let exact = (u128::from(tokens) * u128::from(thousandths)).div_ceil(1_000);
                let corrected = TokenFactor::thousandths(thousandths).apply(tokens);
                prop_assert_eq!(u128::from(corrected), exact.min(u128::from(u64::MAX)));
            }
        }
    }
}
