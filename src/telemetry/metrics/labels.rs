//! The names that may be labels.

use std::collections::BTreeSet;

use super::maker::NONE;

/// Stands for a model or provider that the catalogue does not have.
pub(super) const OTHER: &str = "other";

/// The names that may be labels.
#[derive(Clone, Default)]
pub(super) struct Labels {
    pub(super) models: BTreeSet<String>,
    pub(super) providers: BTreeSet<String>,
}

impl Labels {
    pub(super) fn model<'a>(&'a self, name: Option<&str>) -> &'a str {
        bounded(&self.models, name)
    }

    pub(super) fn provider<'a>(&'a self, name: Option<&str>) -> &'a str {
        bounded(&self.providers, name)
    }
}

fn bounded<'a>(known: &'a BTreeSet<String>, name: Option<&str>) -> &'a str {
    name.map_or(NONE, |name| known.get(name).map_or(OTHER, String::as_str))
}
