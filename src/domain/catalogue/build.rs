//! Provider files and weir.toml become a catalogue; every fault is gathered, so that one look is enough.

use std::{collections::BTreeMap, sync::Arc};

use super::{Catalogue, CatalogueSettings, Model, ProviderOverride, RawModel, SecretRef, Warning, pricing};
use crate::domain::{
    json_scan::is_plausible_model,
    price::PriceList,
    protocol::Protocol,
    rules::{
        Provider, RuleFile,
        compile::{Compiled, ONLY_CREDENTIAL, SecretPlace, compile},
        endpoint::Origin,
    },
    secret::Secret,
    strict_toml::{FileError, suggestion},
};

/// What faults of the settings are reported as.
const SETTINGS_FILE: &str = "weir.toml";

type Secrets<'a> = &'a dyn Fn(&SecretRef) -> Result<Option<Secret>, String>;

pub(super) fn build(
    files: &[RuleFile],
    settings: &CatalogueSettings,
    prices: &PriceList,
    secrets: Secrets<'_>,
) -> Result<(Catalogue, Vec<Warning>), Vec<FileError>> {
    let mut compiled = compile_all(files)?;
    let mut errors = unknown_overrides(&compiled, settings);
    let mut warnings = Vec::new();
    for (file, one) in &mut compiled {
        let own = ProviderOverride::default();
        let change = settings.overrides.get(&one.provider.name).unwrap_or(&own);
        match complete(file, one, change, secrets) {
            Ok(warning) => warnings.extend(warning),
            Err(error) => errors.push(error),
        }
    }
    let mut models = Models::new(prices);
    let mut providers = Vec::new();
    for (file, one) in compiled {
        let provider = Arc::new(one.provider);
        for (line, raw) in &one.models {
            models.add_shipped(file, *line, raw, &provider);
        }
        providers.push(provider);
    }
    models.add_settings(&settings.models, &providers);
    errors.append(&mut models.errors);
    if !errors.is_empty() {
        return Err(errors);
    }
    let aliases = models.aliases();
    if !models.errors.is_empty() {
        return Err(models.errors);
    }
    let models = models
        .found
        .into_iter()
        .map(|(name, (_, model))| (name, model))
        .collect();
    warnings.extend(pricing::unused(prices, &models));
    let catalogue = Catalogue {
        models,
        aliases,
        providers,
    };
    Ok((catalogue, warnings))
}

fn compile_all(files: &[RuleFile]) -> Result<Vec<(&str, Compiled)>, Vec<FileError>> {
    let mut all: Vec<(&str, Compiled)> = Vec::new();
    let mut errors = Vec::new();
    for file in files {
        match compile(file) {
            Ok(one) => match all.iter().find(|(_, other)| other.provider.name == one.provider.name) {
                Some((other, _)) => errors.push(FileError {
                    key: Some("name".to_owned()),
                    ..FileError::whole(
                        &file.name,
                        format!("provider `{}` is also in {other}", one.provider.name),
                    )
                }),
                None => all.push((&file.name, one)),
            },
            Err(mut found) => errors.append(&mut found),
        }
    }
    if errors.is_empty() { Ok(all) } else { Err(errors) }
}

fn settings_fault(key: String, message: impl Into<String>) -> FileError {
    let message = format!("{key}: {}", message.into());
    FileError {
        key: Some(key),
        ..FileError::whole(SETTINGS_FILE, message)
    }
}

fn unknown_overrides(compiled: &[(&str, Compiled)], settings: &CatalogueSettings) -> Vec<FileError> {
    let names = || compiled.iter().map(|(_, one)| one.provider.name.as_str());
    let unknown = settings
        .overrides
        .keys()
        .filter(|name| names().all(|known| known != name.as_str()));
    unknown
        .map(|name| {
            let near = suggestion(name, names());
            settings_fault(
                format!("[provider.{name}]"),
                format!("there is no provider `{name}`{near}"),
            )
        })
        .collect()
}

/// Applies the settings to a provider and looks its secrets up.
fn complete(
    file: &str,
    one: &mut Compiled,
    change: &ProviderOverride,
    secrets: Secrets<'_>,
) -> Result<Vec<Warning>, FileError> {
    let provider = one.provider.name.clone();
    if let Some(base_url) = &change.base_url {
        let origin = Origin::parse(base_url)
            .map_err(|error| settings_fault(format!("provider.{provider}.base_url"), error.to_string()))?;
        one.provider.endpoints.move_to(&origin);
        one.provider.origins.clear();
    }
    if change.enabled == Some(false) {
        return Ok(vec![Warning::Disabled { provider }]);
    }
    if let Some(secret) = &change.secret {
        one.secrets = vec![SecretPlace {
            name: ONLY_CREDENTIAL.to_owned(),
            weight: 1,
            secret: secret.clone(),
        }];
    }
    let mut warnings = Vec::new();
    let several = one.secrets.len() > 1;
    for place in one.secrets.clone() {
        let secret = place.secret.clone();
        let fault = |message: &str| match &change.secret {
            Some(_) => settings_fault(format!("provider.{provider}.secret"), format!("{secret}: {message}")),
            None => FileError {
                key: Some("secret".to_owned()),
                ..FileError::whole(file, format!("key `auth.secret`: {secret}: {message}"))
            },
        };
        match secrets(&secret) {
            Ok(Some(found)) => one.authorize(&place, found).map_err(fault)?,
            Ok(None) => {
                one.provider.absent_secrets.push(secret.clone());
                let provider = provider.clone();
                warnings.push(match several {
                    true => Warning::CredentialAbsent {
                        provider,
                        name: place.name,
                        secret,
                    },
                    false => Warning::SecretAbsent { provider, secret },
                });
            }
            Err(message) => return Err(fault(&message)),
        }
    }
    Ok(warnings)
}

/// The models found so far, each with the file it is from.
struct Models<'a> {
    prices: &'a PriceList,
    found: BTreeMap<String, (String, Arc<Model>)>,
    errors: Vec<FileError>,
}

impl<'a> Models<'a> {
    fn new(prices: &'a PriceList) -> Self {
        Self {
            prices,
            found: BTreeMap::new(),
            errors: Vec::new(),
        }
    }

    /// Every alias with the model it stands for; one that is a model's name or another's alias is a fault.
    fn aliases(&mut self) -> BTreeMap<String, String> {
        let mut aliases: BTreeMap<String, String> = BTreeMap::new();
        for (name, (file, model)) in &self.found {
            for alias in &model.aliases {
                let taken = match aliases.get(alias) {
                    _ if self.found.contains_key(alias) => Some("a model's name".to_owned()),
                    _ if !is_plausible_model(alias) => Some("not a model's name".to_owned()),
                    Some(other) => Some(format!("an alias of `{other}` too")),
                    None => None,
                };
                match taken {
                    None => {
                        aliases.insert(alias.clone(), name.clone());
                    }
                    Some(what) => self.errors.push(FileError {
                        key: Some("aliases".to_owned()),
                        ..FileError::whole(file, format!("model `{name}`: key `aliases`: `{alias}` is {what}"))
                    }),
                }
            }
        }
        aliases
    }

    fn add_shipped(&mut self, file: &str, line: usize, raw: &RawModel, provider: &Arc<Provider>) {
        let other = self.found.get(&raw.name).map(|(other, _)| other.clone());
        let result = match other {
            Some(other) => Err(("name", format!("model `{}` is also in {other}", raw.name))),
            None => model(raw, vec![Arc::clone(provider)], self.prices),
        };
        match result {
            Ok(model) => {
                self.found
                    .insert(model.name.clone(), (file.to_owned(), Arc::new(model)));
            }
            Err((key, message)) => self.errors.push(FileError {
                file: file.to_owned(),
                line: Some(line),
                key: Some(key.to_owned()),
                message: format!("[[model]]: {message}"),
            }),
        }
    }

    fn add_settings(&mut self, models: &[RawModel], providers: &[Arc<Provider>]) {
        for (index, raw) in models.iter().enumerate() {
            let twice = models.iter().take(index).any(|earlier| earlier.name == raw.name);
            let result = if twice {
                Err(("name", format!("model `{}` is there twice", raw.name)))
            } else {
                named(&raw.providers, providers).and_then(|providers| model(raw, providers, self.prices))
            };
            match result {
                Ok(model) => {
                    self.found
                        .insert(model.name.clone(), (SETTINGS_FILE.to_owned(), Arc::new(model)));
                }
                Err((_, message)) => {
                    self.errors
                        .push(settings_fault(format!("[[model]] number {}", index + 1), message));
                }
            }
        }
    }
}

/// The key at fault and the message.
type Fault = (&'static str, String);

fn named(names: &[String], providers: &[Arc<Provider>]) -> Result<Vec<Arc<Provider>>, Fault> {
    if names.is_empty() {
        return Err((
            "providers",
            "key `providers` is missing: who serves the model".to_owned(),
        ));
    }
    let find = |name: &String| {
        providers
            .iter()
            .find(|provider| provider.name == *name)
            .cloned()
            .ok_or_else(|| {
                let near = suggestion(name, providers.iter().map(|provider| provider.name.as_str()));
                ("providers", format!("there is no provider `{name}`{near}"))
            })
    };
    names.iter().map(find).collect()
}

fn model(raw: &RawModel, providers: Vec<Arc<Provider>>, prices: &PriceList) -> Result<Model, Fault> {
    let upstream_name = raw.upstream_name.as_ref().unwrap_or(&raw.name);
    for (key, name) in [("name", &raw.name), ("upstream_name", upstream_name)] {
        if !is_plausible_model(name) {
            return Err((
                key,
                format!("key `{key}`: a model's name is 1 to 128 characters of A-Z, a-z, 0-9 and ._:/@-"),
            ));
        }
    }
    if let Some((provider, name)) = raw
        .upstream_names
        .iter()
        .find(|(provider, name)| !is_plausible_model(name) || providers.iter().all(|known| known.name != **provider))
    {
        let message = format!(
            "key `upstream_names`: `{provider}` is not one of the model's providers, or `{name}` no model's name"
        );
        return Err(("upstream_names", message));
    }
    let served = |protocol: &Protocol| providers.iter().any(|provider| provider.protocols().contains(protocol));
    let all = [Protocol::Messages, Protocol::Responses, Protocol::Gemini];
    let protocols: Vec<Protocol> = match &raw.protocols {
        None => all.into_iter().filter(served).collect(),
        Some(asked) => {
            if let Some(unserved) = asked.iter().find(|protocol| !served(protocol)) {
                let message = format!(
                    "key `protocols`: no provider of the model serves `{}`",
                    unserved.as_str()
                );
                return Err(("protocols", message));
            }
            all.into_iter().filter(|protocol| asked.contains(protocol)).collect()
        }
    };
    if protocols.is_empty() {
        return Err((
            "protocols",
            "key `protocols`: the model is served through none".to_owned(),
        ));
    }
    Ok(Model {
        name: raw.name.clone(),
        display_name: raw.display_name.as_ref().unwrap_or(&raw.name).clone(),
        aliases: raw.aliases.clone(),
        upstream_name: upstream_name.clone(),
        upstream_names: raw.upstream_names.clone(),
        prices: pricing::prices(raw, &providers, prices).map_err(|message| ("price", message))?,
        providers,
        protocols,
        context_tokens: raw.context_tokens,
        output_tokens: raw.output_tokens,
        price: pricing::price_name(raw).to_owned(),
        free: raw.free,
        hidden_reasoning: raw.hidden_reasoning,
        created_unix: raw.created.as_deref().map_or(Ok(0), created_unix)?,
    })
}

/// A date means its first second in UTC.
fn created_unix(text: &str) -> Result<i64, Fault> {
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
