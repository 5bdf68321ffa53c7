//! Where daily sums are not the sums of the rows.

use std::collections::BTreeSet;

use smol_str::SmolStr;

use super::{DailySums, Subject, Sums};

/// The sums of one subject, model and day that are not those of the rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    /// The day, counted from the Unix epoch, in UTC.
    pub(crate) day: i64,
    /// Whose sums they are.
    pub(crate) subject: Subject,
    /// The model.
    pub(crate) model: SmolStr,
    /// What is kept.
    pub(crate) kept: Sums,
    /// What the rows add up to.
    pub(crate) of_rows: Sums,
}

/// What differs, by day, subject and model. Sums that are all zero are the same as none.
pub(crate) fn differences(kept: &DailySums, of_rows: &DailySums) -> Vec<Difference> {
    let places: BTreeSet<_> = kept.0.keys().chain(of_rows.0.keys()).collect();
    let of = |sums: &DailySums, place| sums.0.get(place).copied().unwrap_or_default();
    let compared = places
        .into_iter()
        .map(|place| (place, of(kept, place), of(of_rows, place)));
    let differing = compared.filter(|(_, kept, of_rows)| kept != of_rows);
    differing
        .map(|((day, subject, model), kept, of_rows)| Difference {
            day: *day,
            subject: subject.clone(),
            model: model.clone(),
            kept,
            of_rows,
        })
        .collect()
}
