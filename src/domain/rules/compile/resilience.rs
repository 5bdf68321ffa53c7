//! Checks and compiles the credentials, backends, retries, error rules and the fallback of a provider file.

use std::{collections::BTreeSet, time::Duration};

use toml::Spanned;

use crate::domain::{
    faults::RetryPolicy,
    rules::{
        endpoint::Origin,
        provider::{ErrorRule, ErrorRules, Fallback, WeightedOrigin},
        raw::{RawAuth, RawCredential, RawErrorRule, RawFallback, RawModel, RawOrigin, RawRetry, SecretRef},
    },
    strict_toml::Faults,
};

/// One credential of a provider, with a reference to its secret instead of the secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CredentialSource {
    /// The credential's name.
    pub name: String,
    /// The credential's share of the requests, relative to the other credentials.
    pub weight: u16,
    /// The reference to the credential's secret.
    pub secret: SecretRef,
}

/// The name of a provider's credential if the provider has only one.
pub(crate) const ONLY_CREDENTIAL: &str = "default";

/// The maximum number of credentials of one provider.
const CREDENTIALS_MAX: usize = 64;
/// The maximum number of backends of one provider.
const ORIGINS_MAX: usize = 16;
/// The maximum weight of a credential or backend.
const WEIGHT_MAX: u16 = 1000;
/// The maximum number of attempts at one provider for one request.
const ATTEMPTS_MAX: u8 = 10;
/// The maximum pause between two attempts, in milliseconds. The client waits during the pause.
const BACKOFF_MS_MAX: u32 = 30_000;
/// The maximum of `budget_percent`, the load that repeated attempts can add to a provider.
const BUDGET_PERCENT_MAX: u16 = 300;
/// The maximum number of `[[error]]` rules in one file.
const ERROR_RULES_MAX: usize = 32;
/// The maximum number of patterns of a fallback.
const PATTERNS_MAX: usize = 32;

pub(super) fn secrets(
    auth: &RawAuth,
    many: &[Spanned<RawCredential>],
    faults: &mut Faults<'_>,
) -> Vec<CredentialSource> {
    match (&auth.secret, many) {
        (Some(secret), []) => vec![CredentialSource {
            name: ONLY_CREDENTIAL.to_owned(),
            weight: 1,
            secret: secret.clone(),
        }],
        (Some(_), [first, ..]) => {
            faults.add_at(
                first,
                "credential",
                "give either `auth.secret` or [[credential]], not both",
            );
            Vec::new()
        }
        (None, []) => {
            faults.add_for_file("key `auth.secret` is missing: env:NAME, file:PATH or credential:NAME");
            Vec::new()
        }
        (None, many) => {
            check_count(many, "credential", CREDENTIALS_MAX, faults);
            let mut names = BTreeSet::new();
            for one in many {
                let name = &one.get_ref().name;
                let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte);
                if name.is_empty() || name.len() > 32 || !name.bytes().all(allowed) {
                    faults.add_at(
                        one,
                        "name",
                        "key `name`: a credential's name is 1 to 32 characters of a-z, 0-9, - and _",
                    );
                } else if !names.insert(name) {
                    faults.add_at(
                        one,
                        "name",
                        format!("key `name`: the credential `{name}` is listed twice"),
                    );
                }
            }
            let place = |one: &Spanned<RawCredential>, faults: &mut Faults<'_>| CredentialSource {
                name: one.get_ref().name.clone(),
                weight: checked_weight(one, one.get_ref().weight, faults),
                secret: one.get_ref().secret.clone(),
            };
            many.iter().map(|one| place(one, faults)).collect()
        }
    }
}

pub(super) fn origins(raw: &[Spanned<RawOrigin>], faults: &mut Faults<'_>) -> Vec<WeightedOrigin> {
    check_count(raw, "origin", ORIGINS_MAX, faults);
    let mut origins: Vec<WeightedOrigin> = Vec::new();
    for one in raw {
        let origin = match Origin::parse(&one.get_ref().url) {
            Ok(origin) if origins.iter().all(|other| other.origin != origin) => origin,
            Ok(_) => {
                faults.add_at(one, "url", "key `url`: this origin is listed twice");
                continue;
            }
            Err(error) => {
                faults.add_at(one, "url", format!("key `url`: {error}"));
                continue;
            }
        };
        let health_path = one.get_ref().health_path.clone();
        let is_path = |path: &String| path.starts_with('/') && path.bytes().all(|byte| byte.is_ascii_graphic());
        if health_path.as_ref().is_some_and(|path| !is_path(path)) {
            faults.add_at(
                one,
                "health_path",
                "key `health_path`: expected a path that begins with /",
            );
        }
        origins.push(WeightedOrigin {
            origin,
            weight: checked_weight(one, one.get_ref().weight, faults),
            health_path,
        });
    }
    origins
}

pub(super) fn retry(raw: &RawRetry, faults: &mut Faults<'_>) -> RetryPolicy {
    let defaults = RetryPolicy::default();
    let policy = RetryPolicy {
        statuses: checked_statuses(raw.statuses.as_ref(), "retry.statuses", faults).unwrap_or(defaults.statuses),
        attempts: checked_number(raw.attempts.as_ref(), "attempts", 1, ATTEMPTS_MAX, faults)
            .unwrap_or(defaults.attempts),
        backoff: checked_number(raw.backoff_ms.as_ref(), "backoff_ms", 1, BACKOFF_MS_MAX, faults)
            .map_or(defaults.backoff, |ms| Duration::from_millis(ms.into())),
        backoff_max: checked_number(raw.backoff_max_ms.as_ref(), "backoff_max_ms", 1, BACKOFF_MS_MAX, faults)
            .map_or(defaults.backoff_max, |ms| Duration::from_millis(ms.into())),
        budget_percent: checked_number(
            raw.budget_percent.as_ref(),
            "budget_percent",
            0,
            BUDGET_PERCENT_MAX,
            faults,
        )
        .unwrap_or(defaults.budget_percent),
    };
    if let Some(given) = &raw.backoff_max_ms
        && policy.backoff_max < policy.backoff
    {
        faults.add_at(
            given,
            "backoff_max_ms",
            "key `retry.backoff_max_ms` is less than `backoff_ms`",
        );
    }
    policy
}

pub(super) fn refused_statuses(auth: &RawAuth, faults: &mut Faults<'_>) -> Vec<u16> {
    checked_statuses(auth.refused_statuses.as_ref(), "auth.refused_statuses", faults)
        .unwrap_or_else(|| vec![401, 402, 403])
}

pub(super) fn error_rules(raw: &[Spanned<RawErrorRule>], faults: &mut Faults<'_>) -> ErrorRules {
    check_count(raw, "error", ERROR_RULES_MAX, faults);
    let rule = |one: &Spanned<RawErrorRule>| {
        let raw = one.get_ref();
        if !(400..=599).contains(&raw.status) {
            faults.add_at(one, "status", "key `status`: expected 400 to 599");
        }
        let marks = [
            ("code", &raw.code),
            ("message", &raw.message),
            ("contains", &raw.contains),
        ];
        for (key, mark) in marks {
            if mark.as_ref().is_some_and(|mark| mark.trim_matches('*').is_empty()) {
                faults.add_at(
                    one,
                    key,
                    format!("key `{key}` is empty or only `*`: give a text that the error contains"),
                );
            }
        }
        if marks.iter().all(|(_, mark)| mark.is_none()) {
            let message = "the rule matches every error with this status: add `code`, `message` or `contains`";
            faults.add_at(one, "error", message);
        }
        ErrorRule {
            status: raw.status,
            code: raw.code.clone(),
            message: raw.message.clone(),
            contains: raw.contains.clone(),
            means: raw.means,
        }
    };
    ErrorRules(raw.iter().map(rule).collect())
}

pub(super) fn fallback(
    raw: Option<&Spanned<RawFallback>>,
    models: &[Spanned<RawModel>],
    faults: &mut Faults<'_>,
) -> Option<Fallback> {
    let place = raw?;
    let raw = place.get_ref();
    if raw.patterns.is_empty() || raw.patterns.len() > PATTERNS_MAX {
        let message = format!("key `patterns`: expected 1 to {PATTERNS_MAX} model names, with `*` for any text");
        faults.add_at(place, "patterns", message);
    }
    if let Some(pattern) = raw.patterns.iter().find(|pattern| pattern.trim_matches('*').is_empty()) {
        let message = format!(
            "key `patterns`: `{pattern}` matches every name; begin the pattern with the name of a model family"
        );
        faults.add_at(place, "patterns", message);
    }
    if models.iter().all(|model| model.get_ref().name != raw.model) {
        let message = "key `model`: expected the `name` of a [[model]] of this file";
        faults.add_at(place, "model", message);
    }
    Some(Fallback {
        patterns: raw.patterns.iter().map(|pattern| pattern.to_lowercase()).collect(),
        model: raw.model.clone(),
        protocols: raw.protocols.clone(),
    })
}

fn check_count<T>(all: &[Spanned<T>], key: &str, most: usize, faults: &mut Faults<'_>) {
    if let Some(over) = all.get(most) {
        faults.add_at(
            over,
            key,
            format!(
                "the file has {} [[{key}]] entries, at most {most} are allowed",
                all.len()
            ),
        );
    }
}

fn checked_weight<T>(place: &Spanned<T>, given: Option<u16>, faults: &mut Faults<'_>) -> u16 {
    let weight = given.unwrap_or(1);
    if !(1..=WEIGHT_MAX).contains(&weight) {
        faults.add_at(
            place,
            "weight",
            format!("key `weight`: expected 1 to {WEIGHT_MAX}; to disable the entry, delete it"),
        );
    }
    weight.max(1)
}

fn checked_statuses(given: Option<&Spanned<Vec<u16>>>, key: &str, faults: &mut Faults<'_>) -> Option<Vec<u16>> {
    let given = given?;
    if given.get_ref().iter().any(|status| !(400..=599).contains(status)) {
        faults.add_at(given, key, format!("key `{key}`: expected statuses from 400 to 599"));
    }
    Some(given.get_ref().clone())
}

fn checked_number<T: Copy + PartialOrd + std::fmt::Display>(
    given: Option<&Spanned<T>>,
    key: &str,
    least: T,
    most: T,
    faults: &mut Faults<'_>,
) -> Option<T> {
    let given = given?;
    if *given.get_ref() < least || *given.get_ref() > most {
        faults.add_at(
            given,
            key,
            format!("key `retry.{key}`: expected a number from {least} to {most}"),
        );
    }
    Some(*given.get_ref())
}
