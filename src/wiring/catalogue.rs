//! Builds the catalogue from the shipped provider files, the operator's provider files, the secrets that these files name, and
//! the price lists.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use crate::{
    config::{Config, secret_source},
    domain::{
        catalogue::{Catalogue, CatalogueWarning, SecretRef},
        money::price::PriceList,
        rules::{RuleFile, compile::compile, shipped},
        strict_toml::FileError,
    },
    telemetry::metrics::Metrics,
    wiring::StartError,
};

/// The maximum size of a provider file, in bytes. A larger file is not read.
const RULE_FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Reads, checks and compiles provider files, secrets and prices. Logs the warnings and returns the catalogue.
pub(crate) fn build(config: &Config) -> Result<Catalogue, StartError> {
    let (catalogue, warnings) = check(config).map_err(|errors| config_error(&errors))?;
    for warning in warnings.iter().filter(|warning| !warning.is_provider_off()) {
        tracing::warn!("{warning}");
    }
    let off = providers_off(&warnings, catalogue.providers().any(|provider| provider.is_on()));
    for line in off.into_iter().chain(no_model(&catalogue)) {
        tracing::warn!("{line}");
    }
    Ok(catalogue)
}

/// Returns the warning that no model can be used although a provider is on. `None` if a model can be used or no provider is on.
pub(super) fn no_model(catalogue: &Catalogue) -> Option<String> {
    let is_on = catalogue.providers().any(|provider| provider.is_on());
    let is_empty = catalogue.served_models().next().is_none();
    (is_on && is_empty).then(|| "no model can be used, because the providers that are on have no [[model]]".to_owned())
}

/// Returns one line that names the providers that are off. It is one line because most operators have keys of only a few
/// providers.
pub(super) fn providers_off(warnings: &[CatalogueWarning], any_on: bool) -> Option<String> {
    let (mut lacking, mut disabled) = (Vec::new(), Vec::new());
    for warning in warnings {
        match warning {
            CatalogueWarning::SecretLacking { provider, secret } if secret.is_empty => {
                lacking.push(format!("{provider} ({secret})"));
            }
            CatalogueWarning::SecretLacking { provider, secret } => {
                lacking.push(format!("{provider} ({})", secret.secret))
            }
            CatalogueWarning::Disabled { provider } => disabled.push(provider.as_str()),
            CatalogueWarning::CredentialLacking { .. } | CatalogueWarning::PriceUnused { .. } => {}
        }
    }
    let (lacking, disabled) = (lacking.join(", "), disabled.join(", "));
    let by_file = match disabled.as_str() {
        "" => String::new(),
        disabled => format!("; disabled in weir.toml: {disabled}"),
    };
    match (lacking.as_str(), any_on) {
        ("", true) if disabled.is_empty() => None,
        ("", true) => Some(format!(
            "these providers are off, because weir.toml disables them, and their models are not listed: {disabled}"
        )),
        ("", false) => {
            Some("no provider is on, so no model can be used: all providers have `enabled = false`".to_owned())
        }
        (lacking, true) => Some(format!(
            "these providers are off and their models are not listed, because a secret is missing or empty: {lacking}{by_file}"
        )),
        (lacking, false) => Some(format!(
            "no provider is on, so no model can be used; set the secret of at least one provider: {lacking}{by_file}"
        )),
    }
}

/// Returns the warning that this process cannot read providers' secrets because systemd has not started it. `None` if no
/// provider's secret is a systemd credential, or if systemd has started this process.
pub(super) fn unread_credentials(warnings: &[CatalogueWarning]) -> Option<String> {
    let is_credential = |warning: &CatalogueWarning| match warning {
        CatalogueWarning::SecretLacking { secret, .. } | CatalogueWarning::CredentialLacking { secret, .. } => {
            matches!(secret.secret, SecretRef::Credential(_))
        }
        CatalogueWarning::PriceUnused { .. } | CatalogueWarning::Disabled { .. } => false,
    };
    let is_unread = !secret_source::has_credentials() && warnings.iter().any(is_credential);
    is_unread.then(|| {
        format!(
            "secrets with `credential:` were not checked: {}",
            secret_source::NO_CREDENTIALS
        )
    })
}

/// Builds the catalogue like [`build`], but does not log. Returns the warnings with the catalogue, or all errors.
pub(crate) fn check(config: &Config) -> Result<(Catalogue, Vec<CatalogueWarning>), Vec<FileError>> {
    let (settings, mut errors) = (&config.catalogue, Vec::new());
    let files = rule_files(config).unwrap_or_else(|error| {
        errors.push(settings.places.fault("rules.folder", error));
        if config.rules.shipped { shipped() } else { Vec::new() }
    });
    match price_list(config) {
        Ok(prices) => match Catalogue::build(&files, settings, &prices, &secret_source::read_or_empty) {
            Ok(checked) if errors.is_empty() => return Ok(checked),
            Ok(_) => {}
            // Some of these errors may only be consequences of the files that could not be read, so they are not reported.
            Err(_) if !errors.is_empty() => {}
            Err(found) => errors.extend(found),
        },
        Err(found) => {
            let judged = errors.is_empty();
            errors.extend(found);
            if judged {
                errors.extend(Catalogue::faults_but_for_prices(
                    &files,
                    settings,
                    &secret_source::read_or_empty,
                ));
            }
        }
    }
    Err(errors)
}

/// Joins errors to one error with one line for each of them.
pub(super) fn config_error(errors: &[FileError]) -> StartError {
    let lines: Vec<String> = errors.iter().map(FileError::to_string).collect();
    StartError::Configuration(lines.join("\n"))
}

/// Returns the host names and ports of all providers that are on, which must be resolved.
pub(crate) fn hosts(catalogue: &Catalogue) -> Vec<(String, u16)> {
    let hosts: BTreeSet<(String, u16)> = catalogue
        .providers()
        .filter(|provider| provider.is_on())
        .flat_map(|provider| provider.hosts())
        .collect();
    hosts.into_iter().collect()
}

/// Returns the shipped provider files and those in the operator's folder. A file in the folder replaces a shipped one with the
/// same name.
pub(crate) fn rule_files(config: &Config) -> Result<Vec<RuleFile>, String> {
    let mut files = if config.rules.shipped { shipped() } else { Vec::new() };
    let Some(folder) = &config.rules.folder else {
        return Ok(files);
    };
    let mut own =
        read_folder(folder).map_err(|error| format!("[rules] folder: cannot read {}: {error}", folder.display()))?;
    own.sort_by(|left, right| left.name.cmp(&right.name));
    files.retain(|file| own.iter().all(|own| base_name(&own.name) != base_name(&file.name)));
    files.extend(own);
    Ok(files)
}

/// Returns the paths of all files except weir.toml that affect models and providers: provider files and their folder, the price
/// list, and secrets. The files need not exist.
pub(crate) fn files(config: &Config) -> BTreeSet<PathBuf> {
    let mut files = BTreeSet::new();
    if let Some(folder) = &config.rules.folder {
        files.insert(folder.clone());
        files.extend(folder_files(folder).into_iter().flatten());
    }
    files.extend(config.prices.file.clone());
    let overrides = config.catalogue.overrides.values();
    let mut secrets: Vec<SecretRef> = overrides.filter_map(|one| one.secret.clone()).collect();
    // The secrets that a provider file names are only known if the file has no error.
    for compiled in rule_files(config)
        .iter()
        .flatten()
        .filter_map(|file| compile(file).ok())
    {
        secrets.extend(compiled.secrets.into_iter().map(|place| place.secret));
    }
    files.extend(secrets.iter().filter_map(secret_source::secret_path));
    files
}

/// Returns the paths of all provider files in a folder.
pub(crate) fn folder_files(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            files.push(path);
        }
    }
    Ok(files)
}

fn read_folder(folder: &Path) -> std::io::Result<Vec<RuleFile>> {
    let mut files = Vec::new();
    for path in folder_files(folder)? {
        let named = |error: std::io::Error| std::io::Error::other(format!("{}: {error}", path.display()));
        if fs::metadata(&path).map_err(named)?.len() > RULE_FILE_BYTES_MAX {
            return Err(std::io::Error::other(format!("{}: larger than 1 MiB", path.display())));
        }
        let text = fs::read_to_string(&path).map_err(named)?;
        files.push(RuleFile {
            name: path.to_string_lossy().into_owned(),
            text,
        });
    }
    Ok(files)
}

fn base_name(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

/// Adds the names of a catalogue's models and providers to the labels of metrics. Labels of removed models and providers remain.
pub(crate) fn add_metric_labels(metrics: &Metrics, catalogue: &Catalogue) {
    metrics.add_labels(
        catalogue.served_models().map(|model| model.name.as_str()),
        catalogue.providers().map(|provider| provider.name.as_str()),
    );
}

/// The maximum size of a price list, in bytes. A larger file is not read.
const PRICE_FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Reads the price lists of `[prices]`: the shipped list and the operator's own file.
///
/// # Errors
/// All errors in the lists.
pub(crate) fn price_list(config: &Config) -> Result<PriceList, Vec<FileError>> {
    let list = if config.prices.shipped {
        PriceList::shipped()?
    } else {
        PriceList::default()
    };
    let Some(path) = &config.prices.file else {
        return Ok(list);
    };
    let name = path.display().to_string();
    let text = read_price_list(path).map_err(|error| {
        let message = format!("[prices] file: cannot read {name}: {error}; name a readable price list");
        vec![config.catalogue.places.fault("prices.file", message)]
    })?;
    Ok(list.extended_by(PriceList::read(&name, &text)?))
}

fn read_price_list(path: &Path) -> std::io::Result<String> {
    if fs::metadata(path)?.len() > PRICE_FILE_BYTES_MAX {
        return Err(std::io::Error::other("the file is larger than 1 MiB"));
    }
    fs::read_to_string(path)
}
