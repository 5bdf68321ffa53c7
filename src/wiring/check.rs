//! `weir check`: reads everything that `weir serve` would read, and starts nothing. It reports every mistake, not only the first.
//! It contacts the store only on request.

use std::io::Write;

use serde_json::json;

use crate::{
    cli::CheckArgs,
    config::Config,
    domain::strict_toml::FileError,
    edges::clock,
    front::tls::certificate::Certificate,
    wiring::{
        catalogue, log_sinks, notices, output::print_result, sign_in, start_error::StartError, store_check, tls, trust,
    },
};

/// The result of checking a configuration without mistakes.
struct CheckedConfig {
    providers: usize,
    on: usize,
    models: usize,
    certificates: tls::Identities,
    warnings: Vec<String>,
    /// The providers that are off; printed last, since most operators have keys of only a few.
    off: Option<String>,
}

pub(super) fn run(args: &CheckArgs, out: &mut impl Write) -> Result<(), StartError> {
    let unreadable = |error: crate::config::ConfigError| StartError::Configuration(error.to_string());
    let (config, mut errors) = Config::examine(&args.conf).map_err(unreadable)?;
    if let Some(config) = &config {
        errors.extend(store_check::store_faults(config));
    }
    let sound = config.as_ref().and_then(|config| examine(config, &mut errors));
    match (sound, &config) {
        (Some(mut sound), Some(config)) if errors.is_empty() => {
            if args.store {
                sound.warnings.extend(store_check::store_advice(config)?);
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

/// Reads everything that the configuration names; `None` if there is a mistake.
fn examine(config: &Config, errors: &mut Vec<FileError>) -> Option<CheckedConfig> {
    let places = &config.catalogue.places;
    if let Some(ca_file) = &config.upstream.ca_file
        && let Err(message) = trust::joined_bundle(ca_file)
    {
        errors.push(places.fault("upstream.ca_file", message));
    }
    if let (true, Some(path)) = (config.sign_in.enabled, &config.sign_in.managed_settings)
        && let Err(message) = sign_in::read_managed_settings(path)
    {
        errors.push(places.fault("sign_in.managed_settings", message));
    }
    if let Some(reference) = config
        .console
        .openid
        .as_ref()
        .and_then(|openid| openid.client_secret.as_ref())
        && let Some(why) = store_check::secret_fault(reference)
    {
        let key = "console.openid.client_secret";
        errors.push(places.fault(key, format!("key `{key}`: {why}")));
    }
    if let Err(why) = notices::notice_secret(&config.notices) {
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
                off,
                warnings: others
                    .map(ToString::to_string)
                    .chain(log_sinks::warning(config).map(str::to_owned))
                    .chain(sign_in::template_warning(config))
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
        certificates,
        warnings,
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
    for warning in warnings {
        writeln!(out, "warning: {warning}")?;
    }
    let conf = args.conf.display();
    writeln!(
        out,
        "ok: {conf} with {} ({on} on) and {}",
        with_noun(*providers, "provider"),
        with_noun(*models, "model")
    )
}

/// A number with its noun in singular or plural.
fn with_noun(number: usize, noun: &str) -> String {
    let s = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{s}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_no_plural() {
        assert_eq!(
            [0, 1, 2].map(|number| with_noun(number, "model")),
            ["0 models", "1 model", "2 models"]
        );
    }
}
