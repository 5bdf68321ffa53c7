//! Builds the catalogue from provider files and weir.toml. The builder continues after an error, so that one run reports all
//! errors.

use std::{collections::BTreeSet, sync::Arc};

use super::{
    Catalogue, CatalogueSettings, CatalogueWarning, MissingSecret, ProviderOverride, SecretRef, SettingLines,
    models::ModelCollector,
};
use crate::domain::{
    catalogue,
    keys::secret::Secret,
    money::price::PriceList,
    rules::{
        RuleFile,
        compile::{CompiledProvider, CredentialSource, ONLY_CREDENTIAL, compile},
        endpoint::Origin,
    },
    strict_toml::{self, FileError, suggestion},
};

type SecretLookup<'a> = &'a dyn Fn(&SecretRef) -> Result<Option<Secret>, String>;

impl Catalogue {
    /// Builds a catalogue from provider files and the settings of weir.toml, and returns it with its warnings. Every model must
    /// have `free = true`, or a price at each of its providers that is on. `secrets` looks up a secret, and returns `Ok(None)` if
    /// the secret is absent. A credential whose secret is absent or empty is not used, and a provider without credentials is off.
    /// Both cause warnings, not errors.
    ///
    /// # Errors
    /// All errors in files and settings, including secrets that exist but cannot be used.
    pub(crate) fn build(
        files: &[RuleFile],
        settings: &CatalogueSettings,
        prices: &PriceList,
        secrets: &dyn Fn(&SecretRef) -> Result<Option<Secret>, String>,
    ) -> Result<(Self, Vec<CatalogueWarning>), Vec<FileError>> {
        build(files, settings, Some(prices), secrets)
    }

    /// Returns the errors that [`Catalogue::build`] would return if every model had a price. It is used when the price list
    /// itself has errors.
    pub(crate) fn faults_but_for_prices(
        files: &[RuleFile],
        settings: &CatalogueSettings,
        secrets: &dyn Fn(&SecretRef) -> Result<Option<Secret>, String>,
    ) -> Vec<FileError> {
        build(files, settings, None, secrets).err().unwrap_or_default()
    }
}

/// Builds the catalogue as described for [`Catalogue::build`]. If `prices` is `None`, models need no price.
fn build(
    files: &[RuleFile],
    settings: &CatalogueSettings,
    prices: Option<&PriceList>,
    secrets: SecretLookup<'_>,
) -> Result<(Catalogue, Vec<CatalogueWarning>), Vec<FileError>> {
    let CompiledFiles {
        mut compiled,
        broken,
        mut errors,
    } = compile_all(files);
    errors.extend(unknown_overrides(&compiled, &broken, settings));
    let mut warnings = Vec::new();
    for (file, one) in &mut compiled {
        let own = ProviderOverride::default();
        let change = settings.overrides.get(&one.provider.name).unwrap_or(&own);
        let mut completion = ProviderCompletion {
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
    let mut models = ModelCollector::new(prices, &settings.places);
    let mut providers = Vec::new();
    for (file, one) in compiled {
        let provider = Arc::new(one.provider);
        for (line, raw) in &one.models {
            models.add_shipped(file, *line, raw, &provider);
        }
        providers.push(provider);
    }
    models.add_settings(&settings.models, &providers, &broken);
    let aliases = models.collect_aliases();
    errors.append(&mut models.errors);
    if !errors.is_empty() {
        return Err(errors);
    }
    let models = models.into_models();
    warnings.extend(
        prices
            .into_iter()
            .flat_map(|prices| catalogue::unused_prices(prices, &models)),
    );
    let catalogue = Catalogue {
        models,
        aliases,
        providers,
    };
    Ok((catalogue, warnings))
}

/// The result of compiling all provider files: the compiled providers, and the errors of the files that do not compile.
struct CompiledFiles<'f> {
    compiled: Vec<(&'f str, CompiledProvider)>,
    /// The names of the providers whose files do not compile.
    broken: BTreeSet<String>,
    errors: Vec<FileError>,
}

fn compile_all(files: &[RuleFile]) -> CompiledFiles<'_> {
    let mut all = CompiledFiles {
        compiled: Vec::new(),
        broken: BTreeSet::new(),
        errors: Vec::new(),
    };
    for file in files {
        match compile(file) {
            Ok(one) => match (all.compiled.iter()).find(|(_, other)| other.provider.name == one.provider.name) {
                Some((other, _)) => all.errors.push(FileError {
                    key: Some("name".to_owned()),
                    ..FileError::for_file(
                        &file.name,
                        format!("provider `{}` is already defined in {other}", one.provider.name),
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

/// Returns the name of the provider whose file does not compile: the file's `name`, or else the file name without `.toml`.
fn presumed_provider(file: &RuleFile) -> String {
    let document = toml::de::DeTable::parse(&file.text).ok();
    let name = document.and_then(|document| Some(document.get_ref().get("name")?.get_ref().as_str()?.to_owned()));
    name.unwrap_or_else(|| {
        let base = file.name.rsplit('/').next().unwrap_or_default();
        base.strip_suffix(".toml").unwrap_or(base).to_owned()
    })
}

fn unknown_overrides(
    compiled: &[(&str, CompiledProvider)],
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

/// Applies the settings of weir.toml and the secrets to one compiled provider, and collects warnings and errors.
struct ProviderCompletion<'c> {
    file: &'c str,
    text: &'c str,
    places: &'c SettingLines,
    secrets: SecretLookup<'c>,
    warnings: &'c mut Vec<CatalogueWarning>,
    errors: &'c mut Vec<FileError>,
}

impl ProviderCompletion<'_> {
    fn report_fault(&mut self, key: &str, message: &str) {
        self.errors.push(self.places.fault(key, format!("{key}: {message}")));
    }

    /// Applies the settings in `change` to a provider, looks up its secrets, and adds its credentials.
    fn complete(&mut self, one: &mut CompiledProvider, change: &ProviderOverride) {
        let provider = one.provider.name.clone();
        if let Some(base_url) = &change.base_url {
            match Origin::parse(base_url) {
                Ok(origin) => one.provider.endpoints.set_origin(&origin),
                Err(error) => self.report_fault(&format!("provider.{provider}.base_url"), &error.to_string()),
            }
            one.provider.origins.clear();
        }
        if change.enabled == Some(false) {
            self.warnings.push(CatalogueWarning::Disabled { provider });
            return;
        }
        if let Some(secret) = &change.secret {
            one.secrets = vec![CredentialSource {
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
                    let lacking = MissingSecret {
                        secret: secret.clone(),
                        is_empty: found.is_some(),
                    };
                    one.provider.missing_secrets.push(lacking.clone());
                    let provider = provider.clone();
                    self.warnings.push(match several {
                        true => CatalogueWarning::CredentialLacking {
                            provider,
                            name: place.name,
                            secret: lacking,
                        },
                        false => CatalogueWarning::SecretLacking {
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
                    self.report_fault(&format!("provider.{provider}.secret"), &format!("{secret}: {message}"));
                }
                (Some(message), None) => {
                    let lines = strict_toml::lines(self.text);
                    let place = [format!("credential.{number}.secret"), "auth.secret".to_owned()];
                    self.errors.push(FileError {
                        line: place.iter().find_map(|key| lines.get(key)).copied(),
                        key: Some("secret".to_owned()),
                        ..FileError::for_file(self.file, format!("key `auth.secret`: {secret}: {message}"))
                    });
                }
                (None, _) => {}
            }
        }
    }
}
