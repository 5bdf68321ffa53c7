//! The names that may be labels.

use std::collections::BTreeSet;

use super::kinds::Label;

/// Stands for a label that a request never had, such as the provider of a refused one.
pub(super) const NONE: &str = "none";
/// Stands for a model or provider that the catalogue does not have.
pub(super) const OTHER: &str = "other";

/// The names that may be labels.
#[derive(Clone, Debug, Default)]
pub(super) struct Labels {
    pub(super) models: BTreeSet<String>,
    pub(super) providers: BTreeSet<String>,
}

impl Labels {
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
