//! Finds each model's price at each provider that is on. A model without a price is never served.

use std::{collections::BTreeMap, sync::Arc};

use super::{Catalogue, CatalogueWarning, Model, RawModel};
use crate::domain::{
    money::price::{Price, PriceList, SHIPPED_FILE},
    rules::Provider,
    strict_toml::suggestion,
    wire::operation,
};

/// Returns the model's price at each of `providers` that is on, by the provider's name.
///
/// # Errors
/// The model has both `price` and `free = true`, or a provider that is on has no price for it. The message says what to write,
/// and suggests the nearest name in the price list.
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
        "model `{}` has no price at {}: add a [[price]] with name = \"{name}\" to the file of `[prices] file`, or \
         `free = true` to the [[model]]{}",
        raw.name,
        without.join(", "),
        near.unwrap_or_default()
    ))
}

/// Returns the name of a model's price in the price list: its `price`, or else its own name.
pub(super) fn price_name(raw: &RawModel) -> &str {
    raw.price.as_ref().unwrap_or(&raw.name)
}

impl Catalogue {
    /// Returns the models that `provider` can run for `name`, which is a model name in a body that weir forwards unchanged. They
    /// are the models whose name at the provider is `name`, or `name` without its context-window mark or snapshot date.
    pub(crate) fn models_run_as<'a>(
        &'a self,
        provider: &'a str,
        name: &'a str,
    ) -> impl Iterator<Item = &'a Arc<Model>> {
        let is_meant = move |model: &&Arc<Model>| {
            let upstream = model.upstream_name_by(provider);
            let is_served = model.providers.iter().any(|served| served.name == provider);
            is_served && operation::name_candidates(name).any(|name| name == upstream)
        };
        self.models.values().filter(is_meant)
    }

    /// Returns the model that a provider means by `name` in its answers, and the model's price there. `name` is the model's name
    /// at the provider, its public name or an alias, or one of these followed by a date.
    pub(crate) fn find_served(&self, provider: &str, name: &str) -> Option<(&Arc<Model>, &Arc<Price>)> {
        let undated = operation::without_date(name);
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

/// Returns a warning for each price of the operator's own list that no model uses, on or off. Its name is probably mistyped.
pub(super) fn unused_prices(list: &PriceList, models: &BTreeMap<String, Arc<Model>>) -> Vec<CatalogueWarning> {
    let named = |model: &&Arc<Model>, name: &str| !model.free && model.price == name;
    let mut warnings = Vec::new();
    for (name, provider, entry) in list.iter().filter(|(.., entry)| entry.file != SHIPPED_FILE) {
        let mut models = models.values().filter(|model| named(model, name));
        let used = models
            .any(|model| provider.is_none_or(|only| model.providers.iter().any(|provider| provider.name == only)));
        if !used {
            warnings.push(CatalogueWarning::PriceUnused {
                file: entry.file.clone(),
                line: entry.line,
                name: name.to_owned(),
                provider: provider.map(str::to_owned),
            });
        }
    }
    warnings
}
