//! The input side of a usage object, and how later numbers replace earlier ones.

use crate::domain::wire::usage::{COUNT_MAX, Usage, fields::Field};

/// What stands after another frame: its number, if it has one; but a zero erases nothing.
pub(super) fn newest(before: Option<u64>, now: Option<u64>) -> Option<u64> {
    match (before, now) {
        (Some(before), Some(0)) => Some(before),
        (before, now) => now.or(before),
    }
}

/// The thinking that the details of an output count.
pub(super) fn thinking(details: Field<'_>) -> Option<u64> {
    let [thinking] = details.fields(&["thinking_tokens"]);
    thinking.count()
}

/// The input side of one usage object: `input_tokens`, `cache_read_input_tokens`, `cache_creation_input_tokens` and
/// `cache_creation`.
pub(super) type InputFields<'a> = [Field<'a>; 4];

/// The input side of one usage object, or of several.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    input: Option<u64>,
    cache_read: Option<u64>,
    cache_creation: Option<u64>,
    split: Option<(u64, u64)>,
}

impl Counts {
    /// What one run of an answer says of itself. How its cache writes are split it may leave to the answer.
    pub(super) fn of_run(run: InputFields<'_>, answer: &Self) -> Self {
        let mut counts = Self::default();
        counts.merge(run);
        if counts.cache_creation.is_some() {
            counts.split = counts.split.or(answer.split);
        }
        counts
    }

    /// Whether input was counted at all.
    pub(super) fn has_input(&self) -> bool {
        self.input.is_some()
    }

    pub(super) fn merge(&mut self, [input, read, written, split]: InputFields<'_>) {
        self.input = newest(self.input, input.count());
        self.cache_read = newest(self.cache_read, read.count());
        self.cache_creation = newest(self.cache_creation, written.count());
        let parts = split.fields(&["ephemeral_5m_input_tokens", "ephemeral_1h_input_tokens"]);
        let parts = parts.map(Field::count);
        let [short, long] = parts.map(Option::unwrap_or_default);
        let is_known = parts.iter().any(Option::is_some);
        let is_erased = (short, long) == (0, 0) && self.split.is_some();
        if is_known && !is_erased {
            self.split = Some((short, long));
        }
    }

    /// Cache writes of short and long life. The total is the newest number; the split comes only with `message_start`, and is
    /// scaled when the total has grown since. Without a split all of it is short, which is the protocol's default.
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
