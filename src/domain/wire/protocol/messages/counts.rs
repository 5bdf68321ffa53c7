//! The input side of a usage object, and how later counts replace earlier ones.

use crate::domain::wire::usage::{COUNT_MAX, Usage, fields::ReportField};

/// The count after another event: the newer one, but a zero replaces nothing.
pub(super) fn newest_count(before: Option<u64>, now: Option<u64>) -> Option<u64> {
    match (before, now) {
        (Some(before), Some(0)) => Some(before),
        (before, now) => now.or(before),
    }
}

/// The thinking tokens in the details of the output.
pub(super) fn thinking_tokens(details: ReportField<'_>) -> Option<u64> {
    let [thinking] = details.fields(&["thinking_tokens"]);
    thinking.count()
}

/// The input side of one usage object: `input_tokens`, `cache_read_input_tokens`, `cache_creation_input_tokens` and
/// `cache_creation`.
pub(super) type InputFields<'a> = [ReportField<'a>; 4];

/// The input side of one usage object, or of several.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct InputCounts {
    input: Option<u64>,
    cache_read: Option<u64>,
    cache_creation: Option<u64>,
    split: Option<(u64, u64)>,
}

impl InputCounts {
    /// The counts of one run of an answer. If the run does not split its cache writes, they are split like the answer's.
    pub(super) fn of_run(run: InputFields<'_>, answer: &Self) -> Self {
        let mut counts = Self::default();
        counts.merge(run);
        if counts.cache_creation.is_some() {
            counts.split = counts.split.or(answer.split);
        }
        counts
    }

    /// Whether the input was reported.
    pub(super) fn has_input(&self) -> bool {
        self.input.is_some()
    }

    pub(super) fn merge(&mut self, [input, read, written, split]: InputFields<'_>) {
        self.input = newest_count(self.input, input.count());
        self.cache_read = newest_count(self.cache_read, read.count());
        self.cache_creation = newest_count(self.cache_creation, written.count());
        let parts = split.fields(&["ephemeral_5m_input_tokens", "ephemeral_1h_input_tokens"]);
        let parts = parts.map(ReportField::count);
        let [short, long] = parts.map(Option::unwrap_or_default);
        let is_known = parts.iter().any(Option::is_some);
        let is_erased = (short, long) == (0, 0) && self.split.is_some();
        if is_known && !is_erased {
            self.split = Some((short, long));
        }
    }

    /// The cache writes with short and with long lifetime. The total is the newest count; the split comes only with
    /// `message_start`, and is scaled to the total. Without a split, all have the short lifetime, the protocol's default.
    fn cache_writes(&self) -> (u64, u64) {
        let (short, long) = self.split.unwrap_or((0, 0));
        let parts = u128::from(short) + u128::from(long);
        let Some(total) = self.cache_creation else {
            return (short, long);
        };
        if parts == 0 {
            return (total, 0);
        }
        let scaled = u128::from(total) * u128::from(long) / parts;
        let long = u64::try_from(scaled).unwrap_or(COUNT_MAX).min(total);
        (total - long, long)
    }

    pub(super) fn usage(&self) -> Usage {
        let (cache_write_short, cache_write_long) = self.cache_writes();
        Usage {
            input_uncached: self.input.unwrap_or(0),
            cache_read: self.cache_read.unwrap_or(0),
            cache_write_short,
            cache_write_long,
            ..Usage::default()
        }
    }
}
