//! Histograms by their buckets, as Prometheus reads them.

use std::collections::BTreeMap;

use super::scrape::label;

/// The buckets of each histogram, `(upper bound, observations up to it)`, without the bound in the labels.
pub(super) fn by_bucket(grown: impl Iterator<Item = (String, f64)>) -> Vec<(String, Vec<(f64, f64)>)> {
    let mut histograms = BTreeMap::<String, Vec<(f64, f64)>>::new();
    for (labels, count) in grown {
        let Some(bound) = label(&labels, "le") else { continue };
        let Ok(upper) = bound.parse() else { continue };
        let of = labels.replacen(&format!("le=\"{bound}\""), "", 1);
        let of = of.trim_matches(',').to_owned();
        histograms.entry(of).or_default().push((upper, count));
    }
    histograms.into_iter().collect()
}

/// The value that so large a part of the observations is below, on a straight line within its bucket, as Prometheus tells it;
/// `None` where there are fewer than `at_least`.
pub(super) fn below(quantile: f64, mut buckets: Vec<(f64, f64)>, at_least: f64) -> Option<f64> {
    buckets.sort_by(|one, other| one.0.total_cmp(&other.0));
    let (_, total) = *buckets.last()?;
    if total < at_least || total <= 0.0 {
        return None;
    }
    let rank = quantile * total;
    let (mut lower, mut before) = (0.0, 0.0);
    for (upper, count) in buckets {
        if count >= rank {
            // What is beyond all bounds is at least at the last one.
            return Some(if upper.is_finite() {
                lower + (upper - lower) * (rank - before) / (count - before)
            } else {
                lower
            });
        }
        (lower, before) = (upper, count);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_told_apart_by_what_stands_beside_their_bounds() {
        let of = |labels: &str, count| (labels.to_owned(), count);
        let grown = [
            of("le=\"1\",m=\"a\"", 1.0),
            of("le=\"+Inf\",m=\"a\"", 2.0),
            of("le=\"1\"", 3.0),
            of("m=\"a\"", 9.0),
        ];
        let told = by_bucket(grown.into_iter());
        let wanted = [
            (String::new(), vec![(1.0, 3.0)]),
            ("m=\"a\"".to_owned(), vec![(1.0, 1.0), (f64::INFINITY, 2.0)]),
        ];
        assert_eq!(told, wanted);
    }

    #[test]
    fn a_quantile_is_on_the_line_through_its_bucket() {
        let buckets = |counts: [f64; 3]| {
            let bounds = [f64::INFINITY, 1.0, 2.0];
            bounds.into_iter().zip(counts).collect::<Vec<_>>()
        };
        assert_eq!(below(0.5, buckets([10.0, 5.0, 10.0]), 1.0), Some(1.0));
        assert_eq!(below(0.75, buckets([10.0, 5.0, 10.0]), 1.0), Some(1.5));
        assert_eq!(below(0.25, buckets([10.0, 5.0, 10.0]), 1.0), Some(0.5));
        assert_eq!(
            below(0.99, buckets([10.0, 5.0, 5.0]), 1.0),
            Some(2.0),
            "beyond all bounds"
        );
        assert_eq!(below(0.5, buckets([10.0, 5.0, 10.0]), 11.0), None, "too few");
        assert_eq!(below(0.5, buckets([0.0; 3]), 0.0), None);
    }
}
