//! Builds the catalogue from provider files and weir.toml. All faults are collected, so one run reports them all.

use std::{collections::BTreeSet, sync::Arc};

use super::{
    Catalogue, CatalogueSettings, LackingSecret, Places, ProviderOverride, SecretRef, Warning, models::Models, pricing,
};
use crate::domain::{
    keys::secret::Secret,
    money::price::PriceList,
    rules::{
        RuleFile,
        compile::{Compiled, ONLY_CREDENTIAL, SecretPlace, compile},
        endpoint::Origin,
    },
    strict_toml::{self, FileError, suggestion},
};

type Secrets<'a> = &'a dyn Fn(&SecretRef) -> Result<Option<Secret>, String>;

impl Catalogue {
    /// Compiles provider files and the settings of weir.toml. Every model needs a price at each of its providers that is on,
    /// or `free = true`; a provider that is off needs none, because nothing is served by it. `secrets` looks a secret up: `Ok(None)` means that it is
    /// not there, which switches the provider off with a warning, as an empty one does.
    ///
    /// # Errors
    /// All faults found: in files, in settings, in secrets that are there but unusable.
    pub(crate) fn build(
        files: &[RuleFile],
        settings: &CatalogueSettings,
        prices: &PriceList,
        secrets: &dyn Fn(&SecretRef) -> Result<Option<Secret>, String>,
    ) -> Result<(Self, Vec<Warning>), Vec<FileError>> {
        build(files, settings, Some(prices), secrets)
    }

    /// The faults that [`Catalogue::build`] would find, where the price list itself has faults: as if everything had a price.
    pub(crate) fn faults_but_for_prices(
        files: &[RuleFile],
        settings: &CatalogueSettings,
        secrets: &dyn Fn(&SecretRef) -> Result<Option<Secret>, String>,
    ) -> Vec<FileError> {
        build(files, settings, None, secrets).err().unwrap_or_default()
    }
}

/// Without `prices` no model lacks one.
fn build(
    files: &[RuleFile],
    settings: &CatalogueSettings,
    prices: Option<&PriceList>,
    secrets: Secrets<'_>,
) -> Result<(Catalogue, Vec<Warning>), Vec<FileError>> {
    let Files {
        mut compiled,
        broken,
        mut errors,
    } = compile_all(files);
    errors.extend(unknown_overrides(&compiled, &broken, settings));
    let mut warnings = Vec::new();
    for (file, one) in &mut compiled {
        let own = ProviderOverride::default();
        let change = settings.overrides.get(&one.provider.name).unwrap_or(&own);
        let mut completion = Completion {
            file,
            text: files
                .iter()
                .find(|known| known.name == *file)
                .map_or("", |known| &known.text),
            places: &settings.places,
            secrets,
            warnings: &mut warnings,
            errors: &mut errors,
        };
        completion.complete(one, change);
    }
    let mut models = Models::new(prices, &settings.places);
    let mut providers = Vec::new();
    for (file, one) in compiled {
        let provider = Arc::new(one.provider);
        for (line, raw) in &one.models {
            models.add_shipped(file, *line, raw, &provider);
        }
        providers.push(provider);
    }
    models.add_settings(&settings.models, &providers, &broken);
    let aliases = models.aliases();
    errors.append(&mut models.errors);
    if !errors.is_empty() {
        return Err(errors);
    }
    let models = models.found();
    warnings.extend(prices.into_iter().flat_map(|prices| pricing::unused(prices, &models)));
    let catalogue = Catalogue {
        models,
        aliases,
        providers,
    };
    Ok((catalogue, warnings))
}

/// The files that compile, the providers of those that do not, and why.
struct Files<'f> {
    compiled: Vec<(&'f str, Compiled)>,
    /// Names of providers that are there, and of which nothing more is known.
    broken: BTreeSet<String>,
    errors: Vec<FileError>,
}

fn compile_all(files: &[RuleFile]) -> Files<'_> {
    let mut all = Files {
        compiled: Vec::new(),
        broken: BTreeSet::new(),
        errors: Vec::new(),
    };
    for file in files {
        match compile(file) {
            Ok(one) => match (all.compiled.iter()).find(|(_, other)| other.provider.name == one.provider.name) {
                Some((other, _)) => all.errors.push(FileError {
                    key: Some("name".to_owned()),
                    ..FileError::whole(
                        &file.name,
                        format!("provider `{}` is also in {other}", one.provider.name),
                    )
                }),
                None => all.compiled.push((&file.name, one)),
            },
            Err(mut found) => {
                all.errors.append(&mut found);
                all.broken.insert(presumed_provider(file));
            }
        }
    }
    all
}

/// The provider of a file that does not compile: by its `name`, or else by the file's own.
fn presumed_provider(file: &RuleFile) -> String {
    let document = toml::de::DeTable::parse(&file.text).ok();
    let name = document.and_then(|document| Some(document.get_ref().get("name")?.get_ref().as_str()?.to_owned()));
    name.unwrap_or_else(|| {
        let base = file.name.rsplit('/').next().unwrap_or_default();
        base.strip_suffix(".toml").unwrap_or(base).to_owned()
    })
}

fn unknown_overrides(
    compiled: &[(&str, Compiled)],
    broken: &BTreeSet<String>,
    settings: &CatalogueSettings,
) -> Vec<FileError> {
    let names = || {
        let names = compiled.iter().map(|(_, one)| one.provider.name.as_str());
        names.chain(broken.iter().map(String::as_str))
    };
    let unknown = settings
        .overrides
        .keys()
        .filter(|name| names().all(|known| known != name.as_str()));
    unknown
        .map(|name| {
            let near = suggestion(name, names());
            let message = format!("[provider.{name}]: there is no provider `{name}`{near}");
            settings.places.fault(&format!("provider.{name}"), message)
        })
        .collect()
}

/// A provider of a file is being completed.
struct Completion<'c> {
    file: &'c str,
    text: &'c str,
    places: &'c Places,
    secrets: Secrets<'c>,
    warnings: &'c mut Vec<Warning>,
    errors: &'c mut Vec<FileError>,
}

impl Completion<'_> {
    fn wrong(&mut self, key: &str, message: &str) {
        self.errors.push(self.places.fault(key, format!("{key}: {message}")));
    }

    /// Applies the settings to a provider and looks its secrets up.
    fn complete(&mut self, one: &mut Compiled, change: &ProviderOverride) {
        let provider = one.provider.name.clone();
        if let Some(base_url) = &change.base_url {
            match Origin::parse(base_url) {
                Ok(origin) => one.provider.endpoints.move_to(&origin),
                Err(error) => self.wrong(&format!("provider.{provider}.base_url"), &error.to_string()),
            }
            one.provider.origins.clear();
        }
        if change.enabled == Some(false) {
            self.warnings.push(Warning::Disabled { provider });
            return;
        }
        if let Some(secret) = &change.secret {
            one.secrets = vec![SecretPlace {
                name: ONLY_CREDENTIAL.to_owned(),
                weight: 1,
                secret: secret.clone(),
            }];
        }
        let several = one.secrets.len() > 1;
        for (number, place) in (1_usize..).zip(one.secrets.clone()) {
            let secret = place.secret.clone();
            let refused = match (self.secrets)(&secret) {
                Ok(Some(found)) if !found.is_empty() => one.authorize(&place, found).err(),
                Ok(found) => {
                    let lacking = LackingSecret {
                        secret: secret.clone(),
                        is_empty: found.is_some(),
                    };
                    one.provider.lacking_secrets.push(lacking.clone());
                    let provider = provider.clone();
                    self.warnings.push(match several {
                        true => Warning::CredentialLacking {
                            provider,
                            name: place.name,
                            secret: lacking,
                        },
                        false => Warning::SecretLacking {
                            provider,
                            secret: lacking,
                        },
                    });
                    None
                }
                Err(message) => Some(message),
            };
            match (refused, &change.secret) {
                (Some(message), Some(_)) => {
                    self.wrong(&format!("provider.{provider}.secret"), &format!("{secret}: {message}"));
                }
                (Some(message), None) => {
                    let lines = strict_toml::lines(self.text);
                    let place = [format!("credential.{number}.secret"), "auth.secret".to_owned()];
                    self.errors.push(FileError {
                        line: place.iter().find_map(|key| lines.get(key)).copied(),
                        key: Some("secret".to_owned()),
                        ..FileError::whole(self.file, format!("key `auth.secret`: {secret}: {message}"))
                    });
                }
                (None, _) => {}
            }
        }
    }
}
