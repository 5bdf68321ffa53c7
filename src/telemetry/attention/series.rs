//! Series of metrics and their sums, as the alerts name them.

use super::scrape::{label, samples};

/// The series of a metric whose labels fit.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Series {
    pub(super) metric: &'static str,
    pub(super) fits: &'static [Fits],
}

/// What is asked of a label.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fits {
    Is(&'static str, &'static str),
    Among(&'static str, &'static [&'static str]),
    Beside(&'static str, &'static [&'static str]),
}

/// Series that are added up.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Sum {
    pub(super) of: &'static [Series],
    /// One sum for each value of these labels; none: each series is one. `instance` is this node, in all of them the same.
    pub(super) by: &'static [&'static str],
}

impl Series {
    fn has(&self, labels: &str) -> bool {
        self.fits.iter().all(|fits| match fits {
            Fits::Is(name, value) => label(labels, name) == Some(value),
            Fits::Among(name, values) => label(labels, name).is_some_and(|value| values.contains(&value)),
            Fits::Beside(name, values) => label(labels, name).is_none_or(|value| !values.contains(&value)),
        })
    }
}

impl Sum {
    /// The sums in a scrape, each with the labels that tell it from the others.
    pub(super) fn read(&self, scrape: &str) -> Vec<(String, f64)> {
        let mut sums = std::collections::BTreeMap::<String, f64>::new();
        for series in self.of {
            for (labels, value) in samples(scrape, series.metric).filter(|(labels, _)| series.has(labels)) {
                *sums.entry(self.group(labels)).or_default() += value;
            }
        }
        sums.into_iter().collect()
    }

    fn group(&self, labels: &str) -> String {
        if self.by.is_empty() {
            return labels.to_owned();
        }
        let told = |name: &&str| label(labels, name).map(|value| format!("{name}=\"{value}\""));
        let told: Vec<String> = self.by.iter().filter_map(told).collect();
        told.join(",")
    }
}

/// The same in the language of the alerts.
#[cfg(test)]
pub(super) mod text {
    use super::{Fits, Series, Sum};

    /// The series, over this window unless it is empty.
    pub(in crate::telemetry::attention) fn series(series: &Series, window: &str) -> String {
        let fits = |fits: &Fits| match fits {
            Fits::Is(name, value) => format!("{name}=\"{value}\""),
            Fits::Among(name, values) => format!("{name}=~\"{}\"", values.join("|")),
            Fits::Beside(name, values) => format!("{name}!~\"{}\"", values.join("|")),
        };
        let labels: Vec<String> = series.fits.iter().map(fits).collect();
        let labels = if labels.is_empty() {
            String::new()
        } else {
            format!("{{{}}}", labels.join(","))
        };
        let window = if window.is_empty() {
            String::new()
        } else {
            format!("[{window}]")
        };
        format!("{}{labels}{window}", series.metric)
    }

    /// A function of each of the series over this window, added up.
    pub(in crate::telemetry::attention) fn sum(sum: &Sum, function: &str, window: &str) -> String {
        let of = sum.of.iter().map(|one| format!("{function}({})", series(one, window)));
        let of = of.collect::<Vec<_>>().join(" or ");
        match sum.by {
            [] => of,
            by => format!("sum by ({}) ({of})", by.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_that_fit_are_added_up_by_their_labels() {
        const FAILED: [Series; 2] = [
            Series {
                metric: "weir_r",
                fits: &[Fits::Among("o", &["cut", "late"]), Fits::Beside("p", &["none"])],
            },
            Series {
                metric: "weir_r",
                fits: &[Fits::Is("o", "error"), Fits::Is("s", "5xx")],
            },
        ];
        let scrape = "weir_r{o=\"cut\",p=\"a\",s=\"2xx\"} 1\nweir_r{o=\"error\",p=\"a\",s=\"5xx\"} 2\n\
            weir_r{o=\"error\",p=\"a\",s=\"4xx\"} 4\nweir_r{o=\"late\",p=\"none\",s=\"2xx\"} 8\nweir_r{o=\"late\",p=\"b\",s=\"2xx\"} 16\n";
        let read = |by: &'static [&'static str]| Sum { of: &FAILED, by }.read(scrape);
        assert_eq!(
            read(&["p"]),
            [("p=\"a\"".to_owned(), 3.0), ("p=\"b\"".to_owned(), 16.0)]
        );
        assert_eq!(read(&["instance"]), [(String::new(), 19.0)]);
        assert_eq!(read(&[]).len(), 3);
    }
}
