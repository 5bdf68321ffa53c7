//! What is known of each model in the published window.

use std::collections::{BTreeMap, BTreeSet};

use super::{Bucket, Counters, Hour};

/// The window that ends with one hour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// The current hour: the last of the window.
    pub now: Hour,
    /// By name.
    pub models: Vec<ModelWindow>,
}

/// One model in the window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelWindow {
    /// Its name in the catalogue.
    pub name: String,
    /// All hours together.
    pub total: Counters,
    /// Each hour, the oldest first, with zeros where nothing was counted.
    pub hours: Vec<(Hour, Counters)>,
}

impl Window {
    /// The window of these models, and of any other that has served in it.
    pub fn new<'a>(now: Hour, models: impl IntoIterator<Item = &'a str>, buckets: &'a BTreeMap<Hour, Bucket>) -> Self {
        let in_window = |hour: Hour| buckets.get(&hour);
        let served = now.window().filter_map(in_window).flat_map(Bucket::keys);
        let names: BTreeSet<&str> = models.into_iter().chain(served.map(String::as_str)).collect();
        let model = |name: &str| {
            let counted = |hour: Hour| {
                let counters = in_window(hour).and_then(|bucket| bucket.get(name));
                (hour, counters.copied().unwrap_or_default())
            };
            let hours: Vec<(Hour, Counters)> = now.window().map(counted).collect();
            let mut total = Counters::default();
            for (_, counters) in &hours {
                total.add(counters);
            }
            ModelWindow {
                name: name.to_owned(),
                total,
                hours,
            }
        };
        Self {
            now,
            models: names.into_iter().map(model).collect(),
        }
    }

    /// The model of that name.
    pub fn find(&self, name: &str) -> Option<&ModelWindow> {
        let place = self.models.binary_search_by(|model| model.name.as_str().cmp(name));
        place.ok().and_then(|place| self.models.get(place))
    }
}
