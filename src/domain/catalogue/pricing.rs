//! Finds each model's price at each provider that is on. A model without a price is never served.

use std::{collections::BTreeMap, sync::Arc};

use super::{Catalogue, Model, RawModel, Warning};
use crate::domain::{
    money::price::{Price, PriceList, SHIPPED_FILE},
    rules::Provider,
    strict_toml::suggestion,
    wire::model_name,
};

/// The model's price at each provider that is on, by the provider's name.
///
/// # Errors
/// One has none: what to write, and the nearest name there is.
pub(super) fn prices(
    raw: &RawModel,
    providers: &[Arc<Provider>],
    list: &PriceList,
) -> Result<BTreeMap<String, Arc<Price>>, String> {
    if raw.free && raw.price.is_some() {
        return Err(format!(
            "model `{}`: give either `price` or `free = true`, not both",
            raw.name
        ));
    }
    let name = price_name(raw);
    let free = raw.free.then(|| Arc::new(Price::free()));
    let mut prices = BTreeMap::new();
    let mut without = Vec::new();
    for provider in providers.iter().filter(|provider| provider.is_on()) {
        match free.as_ref().or_else(|| list.find(name, &provider.name)) {
            Some(price) => {
                prices.insert(provider.name.clone(), Arc::clone(price));
            }
            None => without.push(format!("`{}`", provider.name)),
        }
    }
    if without.is_empty() {
        return Ok(prices);
    }
    let near = raw
        .price
        .as_ref()
        .map(|name| suggestion(name, list.iter().map(|(name, ..)| name)));
    Err(format!(
        "model `{}` has no price at {}: write a [[price]] with name = \"{name}\" into the file of `[prices] file`, or \
         `free = true` into the [[model]]{}",
        raw.name,
        without.join(", "),
        near.unwrap_or_default()
    ))
}

/// The name of a model's price.
pub(super) fn price_name(raw: &RawModel) -> &str {
    raw.price.as_ref().unwrap_or(&raw.name)
}

impl Catalogue {
    /// The models that a provider runs for a name that stands in a body, which reaches it as it is: those of which it is the
    /// name there, or would be without the mark of a context window or the date of a snapshot.
    pub(crate) fn run_as<'a>(&'a self, provider: &'a str, name: &'a str) -> impl Iterator<Item = &'a Arc<Model>> {
        let is_meant = move |model: &&Arc<Model>| {
            let upstream = model.upstream_name_by(provider);
            let is_served = model.providers.iter().any(|served| served.name == provider);
            is_served && model_name::meanings(name).any(|name| name == upstream)
        };
        self.models.values().filter(is_meant)
    }

    /// The model that a provider names so in its answers, with what it costs there: by what it is called at the provider, by
    /// its own name or an alias, or by one of these with a date behind it.
    pub(crate) fn served_as(&self, provider: &str, name: &str) -> Option<(&Arc<Model>, &Arc<Price>)> {
        let undated = model_name::without_date(name);
        let is_called = |model: &Model, name: &str| {
            let upstream = model.upstream_name_by(provider);
            upstream == name || model.name == name || model.aliases.iter().any(|alias| alias == name)
        };
        let mut found: Option<(&Arc<Model>, &Arc<Price>)> = None;
        for model in self.models.values() {
            let Some(price) = model.prices.get(provider) else {
                continue;
            };
            if is_called(model, name) {
                return Some((model, price));
            }
            if found.is_none() && is_called(model, undated) {
                found = Some((model, price));
            }
        }
        found
    }
}

/// The operator's prices that no model has, on or off: their names may be mistyped.
pub(super) fn unused(list: &PriceList, models: &BTreeMap<String, Arc<Model>>) -> Vec<Warning> {
    let named = |model: &&Arc<Model>, name: &str| !model.free && model.price == name;
    let mut warnings = Vec::new();
    for (name, provider, entry) in list.iter().filter(|(.., entry)| entry.file != SHIPPED_FILE) {
        let mut models = models.values().filter(|model| named(model, name));
        let used = models
            .any(|model| provider.is_none_or(|only| model.providers.iter().any(|provider| provider.name == only)));
        if !used {
            warnings.push(Warning::PriceUnused {
                file: entry.file.clone(),
                line: entry.line,
                name: name.to_owned(),
                provider: provider.map(str::to_owned),
            });
        }
    }
    warnings
}
