//! The names that may be labels.

use std::collections::BTreeSet;

use super::kinds::Label;

/// The label of a missing value, such as the provider of a refused request.
pub(super) const NONE: &str = "none";
/// The label of a model or provider that is not in the catalogue.
pub(super) const OTHER: &str = "other";

/// The models and providers whose names may be labels.
#[derive(Clone, Debug, Default)]
pub(super) struct KnownLabels {
    pub(super) models: BTreeSet<String>,
    pub(super) providers: BTreeSet<String>,
}

impl KnownLabels {
    pub(super) fn model<'a>(&self, name: Option<&'a str>) -> Label<'a> {
        bounded(&self.models, name)
    }

    pub(super) fn provider<'a>(&self, name: Option<&'a str>) -> Label<'a> {
        bounded(&self.providers, name)
    }
}

fn bounded<'a>(known: &BTreeSet<String>, name: Option<&'a str>) -> Label<'a> {
    match name {
        None => NONE.into(),
        Some(name) if known.contains(name) => Label::configured(name),
        Some(_) => OTHER.into(),
    }
}
