//! The published window: the counters of each model.

use std::collections::{BTreeMap, BTreeSet};

use super::{Hour, ModelCounters, StabilityCounters};

/// The counters of all models in the window that ends with one hour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StabilityWindow {
    /// The current hour: the last of the window.
    pub now: Hour,
    /// The models, sorted by name.
    pub models: Vec<ModelWindow>,
}

/// The counters of one model in the window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelWindow {
    /// The model's name in the catalogue.
    pub name: String,
    /// The sum of all hours.
    pub total: StabilityCounters,
    /// The counters of each hour, the oldest first; zero where nothing was counted.
    pub hours: Vec<(Hour, StabilityCounters)>,
}

impl StabilityWindow {
    /// The window with these models, and any other model that served requests in it.
    pub fn new<'a>(
        now: Hour,
        models: impl IntoIterator<Item = &'a str>,
        buckets: &'a BTreeMap<Hour, ModelCounters>,
    ) -> Self {
        let in_window = |hour: Hour| buckets.get(&hour);
        let served = now.window().filter_map(in_window).flat_map(ModelCounters::keys);
        let names: BTreeSet<&str> = models.into_iter().chain(served.map(String::as_str)).collect();
        let model = |name: &str| {
            let counted = |hour: Hour| {
                let counters = in_window(hour).and_then(|bucket| bucket.get(name));
                (hour, counters.copied().unwrap_or_default())
            };
            let hours: Vec<(Hour, StabilityCounters)> = now.window().map(counted).collect();
            let mut total = StabilityCounters::default();
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

    /// The model of this name.
    pub fn find(&self, name: &str) -> Option<&ModelWindow> {
        let place = self.models.binary_search_by(|model| model.name.as_str().cmp(name));
        place.ok().and_then(|place| self.models.get(place))
    }
}
