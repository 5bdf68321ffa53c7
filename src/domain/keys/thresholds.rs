//! The parts of a quota at which weir sends a notice.

use serde::{Deserialize, Serialize};

/// The parts that ledgers record, in percent. The key, else its account, else the node's configuration chooses which of them
/// send a notice.
pub(crate) const PERCENTS: [u8; 6] = [50, 75, 80, 90, 95, 100];

/// A subset of [`PERCENTS`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "Vec<u8>", into = "Vec<u8>")]
pub struct Thresholds {
    /// One bit for each of [`PERCENTS`], the lowest bit for the first.
    chosen: u8,
}

impl Thresholds {
    /// The thresholds with these parts, given in any order.
    ///
    /// # Errors
    /// The first part that is not in [`PERCENTS`].
    pub(crate) fn of(percents: impl IntoIterator<Item = u64>) -> Result<Self, u64> {
        let mut chosen = 0;
        for percent in percents {
            let place = PERCENTS.iter().position(|known| u64::from(*known) == percent);
            chosen |= 1 << place.ok_or(percent)?;
        }
        Ok(Self { chosen })
    }

    /// Whether this part is one of the thresholds.
    pub(crate) fn contains(self, percent: u8) -> bool {
        self.percents().any(|chosen| chosen == percent)
    }

    /// The parts, in ascending order.
    pub(crate) fn percents(self) -> impl Iterator<Item = u8> {
        let places = PERCENTS.into_iter().enumerate();
        places.filter_map(move |(place, percent)| (self.chosen & (1 << place) != 0).then_some(percent))
    }
}

/// Parts that only a later version of weir knows are ignored.
impl From<Vec<u8>> for Thresholds {
    fn from(percents: Vec<u8>) -> Self {
        let known = percents.into_iter().filter(|percent| PERCENTS.contains(percent));
        Self::of(known.map(u64::from)).unwrap_or_default()
    }
}

impl From<Thresholds> for Vec<u8> {
    fn from(thresholds: Thresholds) -> Self {
        thresholds.percents().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_are_parts_that_are_counted_each_once() {
        let some = Thresholds::of([100, 80, 80]).unwrap();
        assert_eq!(some.percents().collect::<Vec<_>>(), [80, 100]);
        assert!(some.contains(80) && !some.contains(90));
        assert_eq!(Thresholds::of([50, 60]), Err(60));
        let all = Thresholds::of(PERCENTS.map(u64::from)).unwrap();
        assert_eq!(all.percents().collect::<Vec<_>>(), PERCENTS);
        assert_eq!(Thresholds::of([]).unwrap().percents().count(), 0);
    }

    #[test]
    fn they_are_written_as_a_list_and_read_without_what_is_not_counted() {
        let some = Thresholds::of([50, 95]).unwrap();
        assert_eq!(serde_json::to_string(&some).unwrap(), "[50,95]");
        assert_eq!(serde_json::from_str::<Thresholds>("[95,33,50]").unwrap(), some);
    }
}
