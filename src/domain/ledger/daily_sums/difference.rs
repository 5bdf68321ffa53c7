//! Differences between daily sums and the sums of the rows.

use std::collections::BTreeSet;

use smol_str::SmolStr;

use super::{DailySums, SumSubject, Sums};

/// The sums of one subject, model and day where they differ from those of the rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SumDifference {
    /// The day, counted from the Unix epoch, in UTC.
    pub(crate) day: i64,
    /// The subject of the sums.
    pub(crate) subject: SumSubject,
    /// The model.
    pub(crate) model: SmolStr,
    /// The sums in the ledger.
    pub(crate) kept: Sums,
    /// The sums of the rows.
    pub(crate) of_rows: Sums,
}

/// The differences, by day, subject and model. Sums of zero count as missing.
pub(crate) fn differences(kept: &DailySums, of_rows: &DailySums) -> Vec<SumDifference> {
    let places: BTreeSet<_> = kept.0.keys().chain(of_rows.0.keys()).collect();
    let of = |sums: &DailySums, place| sums.0.get(place).copied().unwrap_or_default();
    let compared = places
        .into_iter()
        .map(|place| (place, of(kept, place), of(of_rows, place)));
    let differing = compared.filter(|(_, kept, of_rows)| kept != of_rows);
    differing
        .map(|((day, subject, model), kept, of_rows)| SumDifference {
            day: *day,
            subject: subject.clone(),
            model: model.clone(),
            kept,
            of_rows,
        })
        .collect()
}
