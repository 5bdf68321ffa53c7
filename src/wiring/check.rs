//! `weir check`: reads everything that `weir serve` would read, but starts nothing. Reports all mistakes, not only the first one.
//! Connects to the store only if that is requested.

use std::{collections::BTreeSet, fs, io::Write, path::Path, sync::Arc, time::Duration};

use serde_json::json;
use tokio::sync::watch;

use crate::{
    cli::CheckArgs,
    config::{Config, RedisConfig, RedisModeConfig, StoreConfig, log::LogBackendConfig, secret_source},
    domain::{
        catalogue::{Catalogue, Model, SecretRef},
        ledger::log_query::NodeLogHomes,
        strict_toml::FileError,
        translation::losses::TranslationMode,
        wire::{Protocol, UpstreamProtocol, operation::Operation},
    },
    edges::clock,
    front::tls::Certificate,
    store::{KeyStore, StoreWarning, redis::RedisStore},
    wiring::{StartError, catalogue, client_runtime, log_sinks, money, parts, print_result, store, tls},
};

/// The findings of `weir check` in a configuration without mistakes.
struct CheckedConfig {
    providers: usize,
    on: usize,
    models: usize,
    translations: Vec<ModelTranslations>,
    certificates: tls::Identities,
    warnings: Vec<String>,
    /// The result of connecting to the store, as a phrase for the output. `None` without `--store`.
    store: Option<&'static str>,
    /// The line that names the providers that are off. It is printed last, because most operators have keys of only a few
    /// providers. `None` if every provider is on.
    off: Option<String>,
}

/// The translations of a model with `translate`.
struct ModelTranslations {
    /// The model's public name.
    model: String,
    mode: TranslationMode,
    /// Pairs of protocols: a client's protocol, and the provider's protocol to which the client's requests are translated. Empty
    /// if the model's providers support every protocol in which the model is served.
    pairs: BTreeSet<(Protocol, UpstreamProtocol)>,
}

impl ModelTranslations {
    /// Returns the translations that the model's enabled providers need; `None` if the model does not have the setting
    /// `translate`.
    fn for_model(model: &Arc<Model>) -> Option<Self> {
        let mode = model.translate?;
        let mut pairs = BTreeSet::new();
        for operation in Operation::ALL {
            let client = operation.protocol();
            let upstream = model
                .endpoints_for(operation)
                .map(|endpoint| endpoint.operation.protocol());
            let translated = upstream.filter(|upstream| *upstream != UpstreamProtocol::from(client));
            pairs.extend(translated.map(|upstream| (client, upstream)));
        }
        Some(Self {
            model: model.name.clone(),
            mode,
            pairs,
        })
    }

    /// Formats the model's line of the text output.
    fn line(&self) -> String {
        let pair =
            |(client, upstream): &(Protocol, UpstreamProtocol)| format!("{}->{}", client.as_str(), upstream.as_str());
        let pairs: Vec<String> = self.pairs.iter().map(pair).collect();
        let pairs = match pairs.is_empty() {
            true => "none, because the model's providers speak all of its protocols".to_owned(),
            false => pairs.join(", "),
        };
        format!("translations of {} ({}): {pairs}", self.model, self.mode.as_str())
    }

    /// Returns the model's entry of the JSON output.
    fn json(&self) -> serde_json::Value {
        let pair = |(client, upstream): &(Protocol, UpstreamProtocol)| json!({ "from": client.as_str(), "to": upstream.as_str() });
        json!({
            "model": self.model,
            "mode": self.mode.as_str(),
            "pairs": self.pairs.iter().map(pair).collect::<Vec<_>>(),
        })
    }
}

/// Returns the translations of each model that has an enabled provider.
fn translations(catalogue: &Catalogue) -> Vec<ModelTranslations> {
    catalogue
        .served_models()
        .filter_map(ModelTranslations::for_model)
        .collect()
}

pub(super) fn run(args: &CheckArgs, out: &mut impl Write) -> Result<(), StartError> {
    let unreadable = |error: crate::config::ConfigError| StartError::Configuration(error.to_string());
    let (config, mut errors) = Config::examine(&args.conf).map_err(unreadable)?;
    if let Some(config) = &config {
        errors.extend(store_faults(config));
        errors.extend(log_faults(config));
    }
    let sound = config.as_ref().and_then(|config| examine(config, &mut errors));
    match (sound, &config) {
        (Some(mut sound), Some(config)) if errors.is_empty() => {
            if args.store {
                sound.warnings.extend(store_advice(config)?);
                sound.store = Some(match &config.store {
                    StoreConfig::Redis(_) => "Redis answered",
                    StoreConfig::Embedded(_) => "embedded, nothing to connect to",
                });
            }
            sound.warnings.extend(sound.off.take());
            print_result(print_check(args, &sound, out))
        }
        _ => {
            errors.sort_by(|one, other| (&one.file, one.line).cmp(&(&other.file, other.line)));
            if args.json {
                let told = json!({ "ok": false, "errors": errors.iter().map(error_json).collect::<Vec<_>>() });
                print_result(writeln!(out, "{told}"))?;
            }
            let lines: Vec<String> = errors.iter().map(ToString::to_string).collect();
            Err(StartError::Configuration(lines.join("\n")))
        }
    }
}

/// Reads everything that the configuration names, and adds each mistake to `errors`. Returns `None` if there is a mistake.
fn examine(config: &Config, errors: &mut Vec<FileError>) -> Option<CheckedConfig> {
    let places = &config.catalogue.places;
    if let Some(ca_file) = &config.upstream.ca_file
        && let Err(message) = tls::joined_bundle(ca_file)
    {
        errors.push(places.fault("upstream.ca_file", message));
    }
    if let (true, Some(path)) = (config.sign_in.enabled, &config.sign_in.managed_settings)
        && let Err(message) = parts::read_managed_settings(path)
    {
        let key = "sign_in.managed_settings";
        errors.push(places.fault(key, format!("key `{key}`: cannot read {message}")));
    }
    if let Some(reference) = config
        .console
        .openid
        .as_ref()
        .and_then(|openid| openid.client_secret.as_ref())
        && let Some(why) = secret_fault(reference)
    {
        let key = "console.openid.client_secret";
        errors.push(places.fault(key, format!("key `{key}`: {why}")));
    }
    if let Err(why) = money::notice_secret(&config.notices) {
        errors.push(places.fault("notices.secret", format!("key `notices.secret`: {why}")));
    }
    let certificates = tls::read(config)
        .map_err(|found| errors.extend(found))
        .unwrap_or_default();
    match catalogue::check(config) {
        Ok((catalogue, warnings)) => {
            let expiring = tls::warnings(&certificates, clock::unix_seconds());
            let on = catalogue.providers().filter(|provider| provider.is_on()).count();
            let off = catalogue::providers_off(&warnings, on > 0);
            let others = warnings.iter().filter(|warning| !warning.is_provider_off());
            Some(CheckedConfig {
                providers: catalogue.providers().count(),
                on,
                models: catalogue.served_models().count(),
                translations: translations(&catalogue),
                off,
                store: None,
                warnings: others
                    .map(ToString::to_string)
                    .chain(catalogue::no_model(&catalogue))
                    .chain(log_sinks::warning(config).map(str::to_owned))
                    .chain(unused_sections(config))
                    .chain(catalogue::unread_credentials(&warnings))
                    .chain(parts::template_warning(config))
                    .chain(expiring)
                    .collect(),
                certificates,
            })
        }
        Err(found) => {
            errors.extend(found);
            None
        }
    }
}

fn error_json(error: &FileError) -> serde_json::Value {
    json!({ "file": error.file, "line": error.line, "key": error.key, "message": error.message })
}

fn print_check(args: &CheckArgs, sound: &CheckedConfig, out: &mut impl Write) -> std::io::Result<()> {
    let CheckedConfig {
        providers,
        on,
        models,
        translations,
        certificates,
        warnings,
        store,
        off: _,
    } = sound;
    let certificates = certificates.iter().flat_map(|(listener, identity)| {
        let certificates = identity.certificates.iter();
        certificates.map(move |certificate| (listener, certificate))
    });
    if args.json {
        let certificate = |(listener, one): (&str, &Certificate)| {
            json!({
                "listener": listener,
                "names": one.names().all().collect::<Vec<_>>(),
                "key": one.kind(),
                "valid_from": tls::day(one.valid_from()),
                "valid_until": tls::day(one.valid_until()),
            })
        };
        let result = json!({
            "ok": true,
            "providers": providers,
            "providers_on": on,
            "models": models,
            "translations": translations.iter().map(ModelTranslations::json).collect::<Vec<_>>(),
            "certificates": certificates.map(certificate).collect::<Vec<_>>(),
            "warnings": warnings,
        });
        return writeln!(out, "{result}");
    }
    for (listener, one) in certificates {
        let until = tls::day(one.valid_until());
        writeln!(
            out,
            "certificate: [{listener}] valid for {} until {until} ({} key)",
            one.names(),
            one.kind()
        )?;
    }
    for translations in translations {
        writeln!(out, "{}", translations.line())?;
    }
    for warning in warnings {
        writeln!(out, "warning: {warning}")?;
    }
    if let Some(store) = store {
        writeln!(out, "store: {store}")?;
    }
    let conf = args.conf.display();
    writeln!(
        out,
        "ok: {conf} with {} ({on} on) and {}",
        with_noun(*providers, "provider"),
        with_noun(*models, "model")
    )
}

/// Formats a number with a noun in the singular or plural, such as `2 models`.
fn with_noun(number: usize, noun: &str) -> String {
    let s = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{s}")
}

/// The timeout for connecting to the servers of the store.
const CONNECT_WAIT: Duration = Duration::from_secs(5);
/// The interval at which the connection to the store is polled.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Returns the errors in files and secrets that the store's settings name.
pub(super) fn store_faults(config: &Config) -> Vec<FileError> {
    let StoreConfig::Redis(redis) = &config.store else {
        return Vec::new();
    };
    let mut secrets = vec![("password", redis.password.as_ref())];
    if let RedisModeConfig::Sentinel { password, .. } = &redis.mode {
        secrets.push(("sentinel_password", password.as_ref()));
    }
    let fault = |key: &str, why: &str| {
        let key = format!("store.redis.{key}");
        config.catalogue.places.fault(&key, format!("key `{key}`: {why}"))
    };
    let mut faults: Vec<FileError> = secrets
        .into_iter()
        .filter_map(|(key, reference)| Some(fault(key, &secret_fault(reference?)?)))
        .collect();
    if let Some(why) = redis.ca_file.as_deref().and_then(ca_file_fault) {
        faults.push(fault("ca_file", &why));
    }
    if faults.is_empty()
        && let Err(StartError::Configuration(why)) = open_redis(redis)
    {
        faults.push(fault("tls", &why));
    }
    faults
}

/// Returns the errors in secrets and files that the settings of the log name.
fn log_faults(config: &Config) -> Vec<FileError> {
    let log = &config.log;
    let (mut secrets, mut ca_files) = (Vec::new(), Vec::new());
    for backend in [Some(&log.home), log.former_home.as_ref()].into_iter().flatten() {
        match backend {
            LogBackendConfig::Store => {}
            LogBackendConfig::Files(files) => {
                if let Some(bucket) = &files.bucket {
                    secrets.push(("files.bucket.access_key_id", &bucket.access_key_id));
                    secrets.push(("files.bucket.secret_access_key", &bucket.secret_access_key));
                    ca_files.push(("files.bucket.ca_file", bucket.ca_file.as_deref()));
                }
            }
            LogBackendConfig::Postgres(postgres) => {
                secrets.push(("postgres.url", &postgres.url));
                ca_files.push(("postgres.ca_file", postgres.ca_file.as_deref()));
            }
        }
    }
    if let Some(events) = &log.events {
        secrets.push(("events.secret", &events.secret));
        secrets.extend(events.authorization.as_ref().map(|one| ("events.authorization", one)));
        ca_files.push(("events.ca_file", events.ca_file.as_deref()));
    }
    let fault = |key: &str, why: String| {
        let key = format!("log.{key}");
        config.catalogue.places.fault(&key, format!("key `{key}`: {why}"))
    };
    let secrets = secrets
        .into_iter()
        .filter_map(|(key, reference)| Some(fault(key, secret_fault(reference)?)));
    let ca_files = ca_files
        .into_iter()
        .filter_map(|(key, path)| Some(fault(key, ca_file_fault(path?)?)));
    secrets.chain(ca_files).collect()
}

/// Returns a warning for each section that has no effect, because the configuration selects another store or log backend.
fn unused_sections(config: &Config) -> impl Iterator<Item = String> {
    let is_set = |section: &str| {
        let mut settings = config.catalogue.places.lines.keys();
        settings.any(|key| key.strip_prefix(section).is_some_and(|rest| rest.starts_with('.')))
    };
    let log = &config.log;
    let is_postgres = [Some(&log.home), log.former_home.as_ref()]
        .into_iter()
        .flatten()
        .any(|backend| matches!(backend, LogBackendConfig::Postgres(_)));
    let redis = matches!(config.store, StoreConfig::Embedded(_)) && is_set("store.redis");
    let postgres = !is_postgres && is_set("log.postgres");
    let warnings = [
        (
            redis,
            "[store.redis] has no effect: set [store] engine = \"redis\", or remove the section",
        ),
        (
            postgres,
            "[log.postgres] has no effect: set [log] home = \"postgres\", or remove the section",
        ),
    ];
    let warnings = warnings.into_iter().filter(|(is_unused, _)| *is_unused);
    warnings.map(|(_, warning)| warning.to_owned())
}

/// Returns why a secret cannot be read, and what the operator can do. `None` if the secret can be read.
pub(super) fn secret_fault(reference: &SecretRef) -> Option<String> {
    match secret_source::read(reference) {
        Ok(Some(_)) => None,
        Ok(None) => Some(secret_source::missing(reference)),
        Err(why) => Some(why),
    }
}

fn ca_file_fault(path: &Path) -> Option<String> {
    match fs::read(path) {
        Err(error) => Some(format!("{}: {error}; name a readable PEM file", path.display())),
        Ok(bytes) if !String::from_utf8_lossy(&bytes).contains("-----BEGIN CERTIFICATE-----") => {
            Some(format!("{}: the file contains no PEM certificate", path.display()))
        }
        Ok(_) => None,
    }
}

fn open_redis(redis: &RedisConfig) -> Result<RedisStore, StartError> {
    let settings = store::redis_settings(redis)?;
    RedisStore::open(&settings).map_err(|error| StartError::Configuration(error.to_string()))
}

/// Connects to the store and returns advice for the operator.
///
/// # Errors
/// The store cannot be reached, or its servers have settings that weir does not accept.
pub(super) fn store_advice(config: &Config) -> Result<Vec<String>, StartError> {
    let StoreConfig::Redis(redis) = &config.store else {
        return Ok(Vec::new());
    };
    let store = Arc::new(open_redis(redis)?);
    let homes = log_sinks::configured_homes(config);
    client_runtime()?.block_on(async {
        let (_go_on, stop) = watch::channel(false);
        tokio::select! {
            () = store.run(stop) => Err(StartError::failed("cannot use the store", "the connection was closed")),
            said = read_advice(&store, homes) => said,
        }
    })
}

async fn read_advice(store: &RedisStore, homes: Result<NodeLogHomes, StartError>) -> Result<Vec<String>, StartError> {
    let settled = async {
        while !store.is_connected() && !store.trouble().refused {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    let in_time = tokio::time::timeout(CONNECT_WAIT, settled).await.is_ok();
    let trouble = store.trouble();
    if trouble.refused || !in_time {
        return Err(StartError::failed("cannot use the store", trouble.details.join("; ")));
    }
    let mut said = trouble.details;
    // The details already name the missing rights and the evicted data, so the two general warnings about them are left out.
    let warnings = store.warnings().into_iter();
    let general = warnings.filter(|warning| !matches!(warning, StoreWarning::MissingRights | StoreWarning::Evicted));
    said.extend(general.map(|warning| warning.advice().to_owned()));
    if let Err(error) = store.known_generation().await {
        said.push(error.to_string());
    }
    said.extend(store.advice().await.into_iter().map(str::to_owned));
    match homes {
        Ok(homes) => {
            // A store that is not set up has no nodes. The missing setup was reported above.
            let nodes = store.log_homes().await.unwrap_or_default();
            said.extend(homes.warning("this configuration", &nodes));
        }
        Err(error) => said.push(format!(
            "cannot compare the log backend with the log backends of the nodes: {error}"
        )),
    }
    Ok(said)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::catalogue::{CatalogueSettings, RawModel, tests::with_secrets};

    #[test]
    fn the_translations_of_a_model_are_those_that_its_providers_need() {
        let model = |name: &str, provider: &str, translate| RawModel {
            name: name.to_owned(),
            providers: vec![provider.to_owned()],
            translate,
            free: true,
            ..RawModel::default()
        };
        let (strict, lossy) = (Some(TranslationMode::Strict), Some(TranslationMode::Lossy));
        let settings = CatalogueSettings {
            models: vec![
                model("both", "deepseek", strict),
                RawModel {
                    protocols: Some(vec![Protocol::Responses]),
                    ..model("native", "openai", strict)
                },
                model("one", "openai", lossy),
                model("without", "openai", None),
            ],
            ..CatalogueSettings::default()
        };
        let (catalogue, _) = with_secrets(&["DEEPSEEK_API_KEY", "OPENAI_API_KEY"], &settings);
        let lines: Vec<String> = translations(&catalogue).iter().map(ModelTranslations::line).collect();
        assert_eq!(
            lines,
            [
                "translations of both (strict): gemini->messages",
                "translations of native (strict): none, because the model's providers speak all of its protocols",
                "translations of one (lossy): messages->responses, gemini->responses",
            ]
        );
    }

    #[test]
    fn one_is_no_plural() {
        assert_eq!(
            [0, 1, 2].map(|number| with_noun(number, "model")),
            ["0 models", "1 model", "2 models"]
        );
    }
}
