//! Builds the catalogue's models from the `[[model]]` entries of provider files and weir.toml, and collects all errors in them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use smol_str::SmolStr;

use crate::domain::{
    catalogue::{self, Model, RawModel, SettingLines},
    money::price::{Price, PriceList},
    rules::Provider,
    strict_toml::{FileError, suggestion},
    wire::{
        operation::{self, Operation},
        protocol::Protocol,
    },
};

/// The models built so far and the errors found so far. Each model has the file and line of its definition.
pub(super) struct ModelCollector<'a> {
    prices: Option<&'a PriceList>,
    places: &'a SettingLines,
    found: BTreeMap<String, (SourceLine, Arc<Model>)>,
    pub(super) errors: Vec<FileError>,
}

/// The file and line in which a model is defined. The line is `None` if it is unknown.
#[derive(Clone)]
struct SourceLine {
    file: String,
    line: Option<usize>,
}

impl<'a> ModelCollector<'a> {
    pub(super) fn new(prices: Option<&'a PriceList>, places: &'a SettingLines) -> Self {
        Self {
            prices,
            places,
            found: BTreeMap::new(),
            errors: Vec::new(),
        }
    }

    /// Returns the models by their public names.
    pub(super) fn into_models(self) -> BTreeMap<String, Arc<Model>> {
        let found = self.found.into_iter();
        found.map(|(name, (_, model))| (name, model)).collect()
    }

    /// Returns all aliases, each with the public name of its model. Reports an alias that is also a model's name, is also an
    /// alias of another model, or is not a valid name.
    pub(super) fn collect_aliases(&mut self) -> BTreeMap<String, String> {
        let mut aliases: BTreeMap<String, String> = BTreeMap::new();
        for (name, (stand, model)) in &self.found {
            for alias in &model.aliases {
                let taken = match aliases.get(alias) {
                    _ if self.found.contains_key(alias) => Some("already the name of a model".to_owned()),
                    _ if !operation::is_plausible(alias) => Some("not a valid model name".to_owned()),
                    Some(other) => Some(format!("already an alias of `{other}`")),
                    None => None,
                };
                match taken {
                    None => {
                        aliases.insert(alias.clone(), name.clone());
                    }
                    Some(what) => self.errors.push(FileError {
                        line: stand.line,
                        key: Some("aliases".to_owned()),
                        ..FileError::for_file(
                            &stand.file,
                            format!("model `{name}`: key `aliases`: `{alias}` is {what}"),
                        )
                    }),
                }
            }
        }
        aliases
    }

    pub(super) fn add_shipped(&mut self, file: &str, line: usize, raw: &RawModel, provider: &Arc<Provider>) {
        let other = self.found.get(&raw.name).map(|(other, _)| other.file.clone());
        let result = match other {
            Some(other) => Err(vec![(
                "name",
                format!("model `{}` is already defined in {other}", raw.name),
            )]),
            None => build_model(raw, vec![Arc::clone(provider)], self.prices),
        };
        match result {
            Ok(model) => {
                let stand = SourceLine {
                    file: file.to_owned(),
                    line: Some(line),
                };
                self.found.insert(model.name.clone(), (stand, Arc::new(model)));
            }
            Err(faults) => self.errors.extend(faults.into_iter().map(|(key, message)| FileError {
                file: file.to_owned(),
                line: Some(line),
                key: Some(key.to_owned()),
                message: format!("[[model]]: {message}"),
            })),
        }
    }

    pub(super) fn add_settings(&mut self, models: &[RawModel], providers: &[Arc<Provider>], broken: &BTreeSet<String>) {
        for (index, raw) in models.iter().enumerate() {
            let mut faults = Vec::new();
            if models.iter().take(index).any(|earlier| earlier.name == raw.name) {
                faults.push(("name", format!("model `{}` is defined twice", raw.name)));
            }
            let all_known = raw.providers.iter().all(|name| !broken.contains(name));
            let served = find_providers(&raw.providers, providers, broken, &mut faults);
            if !all_known || served.is_empty() {
                // All other checks need the model's providers.
                check_spelling(raw, &mut faults);
            } else {
                match build_model(raw, served, self.prices) {
                    Ok(model) => {
                        let stand = SourceLine {
                            file: self.places.file().to_owned(),
                            line: self.places.lines.get(&format!("model.{}", index + 1)).copied(),
                        };
                        self.found.insert(model.name.clone(), (stand, Arc::new(model)));
                    }
                    Err(mut found) => faults.append(&mut found),
                }
            }
            let number = index + 1;
            for (key, message) in faults {
                let key = format!("model.{number}.{key}");
                if !self.places.unread.contains(&key) {
                    let message = format!("[[model]] number {number}: {message}");
                    self.errors.push(self.places.fault(&key, message));
                }
            }
        }
    }
}

/// The setting with the error, and the error message.
type ModelFault = (&'static str, String);

/// Returns the providers with these names. Reports a name that no provider has, unless it is in `broken`, which contains the
/// providers whose own files have errors.
fn find_providers(
    names: &[String],
    providers: &[Arc<Provider>],
    broken: &BTreeSet<String>,
    faults: &mut Vec<ModelFault>,
) -> Vec<Arc<Provider>> {
    if names.is_empty() {
        let message = "key `providers` is missing: give the providers that serve the model".to_owned();
        faults.push(("providers", message));
    }
    let mut found = Vec::new();
    for name in names {
        match providers.iter().find(|provider| provider.name == *name) {
            Some(provider) => found.push(Arc::clone(provider)),
            None if broken.contains(name) => {}
            None => {
                let near = suggestion(name, providers.iter().map(|provider| provider.name.as_str()));
                faults.push(("providers", format!("there is no provider `{name}`{near}")));
            }
        }
    }
    found
}

fn build_model(
    raw: &RawModel,
    providers: Vec<Arc<Provider>>,
    prices: Option<&PriceList>,
) -> Result<Model, Vec<ModelFault>> {
    let mut faults = Vec::new();
    let upstream_name = raw.upstream_name.as_ref().unwrap_or(&raw.name);
    let created_unix = check_spelling(raw, &mut faults);
    let is_wrong = |(provider, name): &(&String, &String)| {
        !operation::is_plausible(name) || providers.iter().all(|known| known.name != **provider)
    };
    for (provider, name) in raw.upstream_names.iter().filter(is_wrong) {
        let message = format!(
            "key `upstream_names`: `{provider}` is not one of the model's providers, or `{name}` is not a valid model name"
        );
        faults.push(("upstream_names", message));
    }
    let protocols = served_protocols(raw, &providers, &mut faults);
    let found = prices.map(|prices| catalogue::prices(raw, &providers, prices));
    let prices = found.unwrap_or_else(|| Ok(BTreeMap::new())).unwrap_or_else(|message| {
        faults.push(("price", message));
        BTreeMap::new()
    });
    if !faults.is_empty() {
        return Err(faults);
    }
    Ok(Model {
        name: raw.name.clone(),
        display_name: raw.display_name.as_ref().unwrap_or(&raw.name).clone(),
        aliases: raw.aliases.clone(),
        upstream_name: upstream_name.clone(),
        upstream_names: raw.upstream_names.clone(),
        prices,
        providers,
        protocols,
        translate: raw.translate,
        context_tokens: raw.context_tokens,
        output_tokens: raw.output_tokens,
        price: catalogue::price_name(raw).to_owned(),
        free: raw.free,
        hidden_reasoning: raw.hidden_reasoning,
        created_unix,
    })
}

/// Checks the names and the release date of a model, which do not depend on its providers. Returns the release date in seconds
/// since the Unix epoch; 0 if it is absent or invalid.
fn check_spelling(raw: &RawModel, faults: &mut Vec<ModelFault>) -> i64 {
    for (key, name) in [("name", Some(&raw.name)), ("upstream_name", raw.upstream_name.as_ref())] {
        if name.is_some_and(|name| !operation::is_plausible(name)) {
            faults.push((key, format!("key `{key}`: a model's name must be {}", operation::RULE)));
        }
    }
    if raw.name.contains(',') {
        let message = "key `name`: commas are not allowed, they separate the models that a key may use".to_owned();
        faults.push(("name", message));
    }
    let created = raw.created.as_deref().map_or(Ok(0), created_unix);
    created.unwrap_or_else(|fault| {
        faults.push(fault);
        0
    })
}

/// Returns the protocols in which a model is served. If the model's setting `protocols` contains a protocol that no provider of
/// the model serves, reports that protocol.
fn served_protocols(raw: &RawModel, providers: &[Arc<Provider>], faults: &mut Vec<ModelFault>) -> Vec<Protocol> {
    let served = |protocol: &Protocol| {
        providers.iter().any(|provider| {
            let is_translated = || raw.translate.is_some() && provider.translation_operation().is_some();
            provider.protocols().contains(protocol) || is_translated()
        })
    };
    let all = [Protocol::Messages, Protocol::Responses, Protocol::Gemini];
    let protocols: Vec<Protocol> = match &raw.protocols {
        None => all.into_iter().filter(served).collect(),
        Some(asked) => {
            for unserved in asked.iter().filter(|protocol| !served(protocol)) {
                let message = format!(
                    "key `protocols`: no provider of the model serves `{}`",
                    unserved.as_str()
                );
                faults.push(("protocols", message));
            }
            all.into_iter().filter(|protocol| asked.contains(protocol)).collect()
        }
    };
    if protocols.is_empty() {
        let message = "key `protocols`: the model is not served through any protocol; a model whose providers only speak chat/completions needs \
                       `translate`"
            .to_owned();
        faults.push(("protocols", message));
    }
    protocols
}

/// Parses a release date, and returns it in seconds since the Unix epoch. For a date without a time, this is the first second of
/// the day in UTC.
fn created_unix(text: &str) -> Result<i64, ModelFault> {
    let time = text.parse::<jiff::Timestamp>().or_else(|_| {
        let date = text.parse::<jiff::civil::Date>()?;
        date.to_zoned(jiff::tz::TimeZone::UTC)
            .map(|midnight| midnight.timestamp())
    });
    let fault = || {
        (
            "created",
            "key `created`: expected a date like 2026-11-21 or an RFC 3339 time".to_owned(),
        )
    };
    time.map(jiff::Timestamp::as_second).map_err(|_| fault())
}

/// A route with the price of each endpoint. Endpoints are identified by their index in the route.
#[derive(Clone, Debug)]
pub(crate) struct PricedRoute {
    /// The public name of the requested model.
    pub model: SmolStr,
    /// The preferred endpoint. Its index is 0.
    pub first: PricedEndpoint,
    /// The other endpoints in the route's order, beginning with index 1.
    pub others: Vec<PricedEndpoint>,
}

/// An endpoint of a route: a provider that can serve the request, and the model's price there.
#[derive(Clone, Debug)]
pub(crate) struct PricedEndpoint {
    /// The provider's name, for the request's row in the consumption log.
    pub provider: SmolStr,
    pub price: Arc<Price>,
}

impl PricedRoute {
    /// Returns the endpoint with this index. Returns the first endpoint if the index is out of range, which does not occur.
    pub(crate) fn endpoint(&self, index: usize) -> &PricedEndpoint {
        let other = index.checked_sub(1).and_then(|index| self.others.get(index));
        other.unwrap_or(&self.first)
    }

    /// Returns the prices of all endpoints of the route.
    pub(crate) fn prices(&self) -> impl Iterator<Item = &Price> {
        let endpoints = std::iter::once(&self.first).chain(&self.others);
        endpoints.map(|endpoint| &*endpoint.price)
    }
}

/// The reason why no endpoint can serve a request for a model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RouteError {
    /// None of the model's providers that are on serves the requested operation.
    #[error("the model is not served through this protocol")]
    ModelNotServed {
        /// The protocols in which clients can currently request the model.
        protocols: Vec<Protocol>,
    },
    /// The model is served in the requested protocol, but none of its providers has an endpoint for counting tokens.
    #[error("no provider of this model supports counting tokens")]
    CountTokensUnsupported,
    /// All providers of the model that serve the operation are off.
    #[error("the providers of the model are off")]
    ProviderOff,
}

impl RouteError {
    /// Returns the reason why no endpoint can serve `operation` of the model. If the catalogue has endpoints for the operation,
    /// the reason is that an operator has switched off their providers.
    pub(crate) fn of(model: &Model, operation: Operation) -> Self {
        let is_served = model.endpoints_for(operation).next().is_some();
        if is_served || !model.is_on() {
            return Self::ProviderOff;
        }
        if operation.is_token_count() && model.serves(operation.protocol()) {
            return Self::CountTokensUnsupported;
        }
        let served = |protocol: &Protocol| model.serves(*protocol);
        Self::ModelNotServed {
            protocols: Protocol::ALL.into_iter().filter(served).collect(),
        }
    }
}
