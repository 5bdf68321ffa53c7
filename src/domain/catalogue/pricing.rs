//! Finds each model's price at each provider that is on. A model without a price is never served.

use std::{collections::BTreeMap, sync::Arc};

use super::{Catalogue, CatalogueWarning, Model, RawModel};
use crate::domain::{
    money::price::{Price, PriceList, SHIPPED_FILE},
    rules::Provider,
    strict_toml::suggestion,
    wire::operation,
};

/// The model's price at each provider that is on, by the provider's name.
///
/// # Errors
/// A provider has no price for the model: says what to write, and the nearest existing name.
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

/// The name of a model's price.
pub(super) fn price_name(raw: &RawModel) -> &str {
    raw.price.as_ref().unwrap_or(&raw.name)
}

impl Catalogue {
    /// The models that a provider runs for a name in a body, which is forwarded unchanged: those with that name at the provider,
    /// or with that name without the mark of a context window or the date of a snapshot.
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

    /// The model that a provider means by a name in its answers, with its price there: by its name at the provider, its public
    /// name or an alias, or one of these with a date appended.
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

/// The operator's prices that no model uses, whether on or off: their names may be mistyped.
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
