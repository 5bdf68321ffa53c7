//! The catalogue from the shipped rule files, those of the operator's folder, and the secrets they refer to.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use crate::{
    config::{Config, secret_source},
    domain::{
        catalogue::{Catalogue, SecretRef, Warning},
        rules::{RuleFile, compile::compile, shipped},
        strict_toml::FileError,
    },
    telemetry::metrics::Metrics,
    wiring::{StartError, prices},
};

/// A rule file larger than this is refused unread.
const RULE_FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Reads, checks and compiles everything that says which models there are and who serves them.
pub(crate) fn build(config: &Config) -> Result<Catalogue, StartError> {
    let (catalogue, warnings) = check(config).map_err(|errors| refused(&errors))?;
    for warning in warnings
        .iter()
        .filter(|warning| !warning.is_of_a_provider_that_is_off())
    {
        tracing::warn!("{warning}");
    }
    if let Some(line) = providers_off(&warnings, catalogue.providers().any(|provider| provider.is_on())) {
        tracing::warn!("{line}");
    }
    Ok(catalogue)
}

/// The providers that are off, in one line: most operators have keys of a few only.
pub(super) fn providers_off(warnings: &[Warning], any_on: bool) -> Option<String> {
    let (mut lacking, mut disabled) = (Vec::new(), Vec::new());
    for warning in warnings {
        match warning {
            Warning::SecretLacking { provider, secret } if secret.is_empty => {
                lacking.push(format!("{provider} ({secret})"));
            }
            Warning::SecretLacking { provider, secret } => lacking.push(format!("{provider} ({})", secret.secret)),
            Warning::Disabled { provider } => disabled.push(provider.as_str()),
            Warning::CredentialLacking { .. } | Warning::PriceUnused { .. } => {}
        }
    }
    let (lacking, disabled) = (lacking.join(", "), disabled.join(", "));
    let by_file = match disabled.as_str() {
        "" => String::new(),
        disabled => format!("; because weir.toml says so: {disabled}"),
    };
    match (lacking.as_str(), any_on) {
        ("", true) if disabled.is_empty() => None,
        ("", true) => Some(format!("off, and their models not listed{by_file}")),
        ("", false) => Some("no provider is on, so no model can be asked: every one has `enabled = false`".to_owned()),
        (lacking, true) => Some(format!(
            "off, and their models not listed, because a secret is absent or empty: {lacking}{by_file}"
        )),
        (lacking, false) => Some(format!(
            "no provider is on, so no model can be asked; set one of their secrets: {lacking}{by_file}"
        )),
    }
}

/// As [`build`], with the warnings returned instead of logged, and with every fault.
pub(crate) fn check(config: &Config) -> Result<(Catalogue, Vec<Warning>), Vec<FileError>> {
    let (settings, mut errors) = (&config.catalogue, Vec::new());
    let files = rule_files(config).unwrap_or_else(|error| {
        errors.push(settings.places.fault("rules.folder", error));
        if config.rules.shipped { shipped() } else { Vec::new() }
    });
    match prices::list(config) {
        Ok(prices) => match Catalogue::build(&files, settings, &prices, &secret_source::read_or_empty) {
            Ok(checked) if errors.is_empty() => return Ok(checked),
            Ok(_) => {}
            // Where the files of the folder are not known, what they are needed for is not judged.
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

/// All of them, as one that ends the start.
pub(super) fn refused(errors: &[FileError]) -> StartError {
    let lines: Vec<String> = errors.iter().map(FileError::to_string).collect();
    StartError::Configuration(lines.join("\n"))
}

/// The hosts that have to be resolved.
pub(crate) fn hosts(catalogue: &Catalogue) -> Vec<(String, u16)> {
    let hosts: BTreeSet<(String, u16)> = catalogue
        .providers()
        .filter(|provider| provider.is_on())
        .flat_map(|provider| provider.hosts())
        .collect();
    hosts.into_iter().collect()
}

/// The shipped files and the folder's; a file of the same name replaces a shipped one.
pub(crate) fn rule_files(config: &Config) -> Result<Vec<RuleFile>, String> {
    let mut files = if config.rules.shipped { shipped() } else { Vec::new() };
    let Some(folder) = &config.rules.folder else {
        return Ok(files);
    };
    let mut own = read_folder(folder).map_err(|error| format!("[rules] folder {}: {error}", folder.display()))?;
    own.sort_by(|left, right| left.name.cmp(&right.name));
    files.retain(|file| own.iter().all(|own| base_name(&own.name) != base_name(&file.name)));
    files.extend(own);
    Ok(files)
}

/// Every file beside weir.toml that says something about models and providers, whether or not it is there: rule files and
/// their folder, prices, secrets.
pub(crate) fn files(config: &Config) -> BTreeSet<PathBuf> {
    let mut files = BTreeSet::new();
    if let Some(folder) = &config.rules.folder {
        files.insert(folder.clone());
        files.extend(folder_files(folder).into_iter().flatten());
    }
    files.extend(config.prices.file.clone());
    let overrides = config.catalogue.overrides.values();
    let mut secrets: Vec<SecretRef> = overrides.filter_map(|one| one.secret.clone()).collect();
    // What is wrong with a rule file is in that file: its secrets are known once it is mended.
    for compiled in rule_files(config)
        .iter()
        .flatten()
        .filter_map(|file| compile(file).ok())
    {
        secrets.extend(compiled.secrets.into_iter().map(|place| place.secret));
    }
    files.extend(secrets.iter().filter_map(secret_source::path));
    files
}

/// The paths of a folder's rule files.
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
        if fs::metadata(&path)?.len() > RULE_FILE_BYTES_MAX {
            return Err(std::io::Error::other(format!("{}: larger than 1 MiB", path.display())));
        }
        let text = fs::read_to_string(&path)?;
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

/// Has the metrics know a catalogue's names; those of a provider or model that went stay known.
pub(crate) fn tell_metrics(metrics: &Metrics, catalogue: &Catalogue) {
    metrics.know(
        catalogue.models().map(|model| model.name.as_str()),
        catalogue.providers().map(|provider| provider.name.as_str()),
    );
}
