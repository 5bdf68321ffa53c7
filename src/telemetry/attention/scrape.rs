//! What a scrape (Prometheus' text format) has of a metric.

/// The samples of a metric: what is between its braces, and the value.
pub(super) fn samples<'a>(scrape: &'a str, name: &'static str) -> impl Iterator<Item = (&'a str, f64)> {
    scrape.lines().filter_map(move |line| {
        let rest = line.strip_prefix(name)?;
        let (labels, value) = match rest.strip_prefix('{') {
            Some(rest) => rest.rsplit_once("} ")?,
            None => ("", rest.strip_prefix(' ')?),
        };
        Some((labels, value.trim().parse().ok()?))
    })
}

/// The value of a label, as it is written there; `None` if there is no such label.
pub(super) fn label<'a>(labels: &'a str, name: &str) -> Option<&'a str> {
    let mut rest = labels;
    loop {
        let (label, behind) = rest.split_once("=\"")?;
        let (value, behind) = behind.split_once('"')?;
        if label == name {
            return Some(value);
        }
        rest = behind.strip_prefix(',')?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_is_read_with_its_labels_and_none_that_only_begins_alike() {
        let scrape = "# HELP weir_a text\nweir_a{x=\"1\",le=\"+Inf\"} 2\nweir_ab 3\nweir_b 4\n";
        let read: Vec<(&str, f64)> = samples(scrape, "weir_a").collect();
        assert_eq!(read, [("x=\"1\",le=\"+Inf\"", 2.0)]);
        let [(labels, _)] = read[..] else { panic!("{read:?}") };
        assert_eq!(
            (label(labels, "le"), label(labels, "x"), label(labels, "e")),
            (Some("+Inf"), Some("1"), None)
        );
        assert_eq!(samples(scrape, "weir_b").collect::<Vec<_>>(), [("", 4.0)]);
    }
}
