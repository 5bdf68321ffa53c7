//! `[sign_in]`: agents sign in by the OAuth device flow, and a person approves it in the portal; `[sign_in.template]`: people whom
//! the OpenID provider vouches for get a key of their own.

use std::path::PathBuf;

use serde::Deserialize;

use super::console::ConsoleConfig;
use super::values::Values;
use crate::domain::{
    keys::{
        template::KeyTemplate,
        terms::{KeyTerms, Rates, Reset},
    },
    money::NanoUsd,
};

const DAY_SECONDS: u64 = 86_400;

/// The section as in the file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawSignIn {
    enabled: Option<bool>,
    access_seconds: Option<u64>,
    days: Option<u64>,
    codes_max: Option<u64>,
    managed_settings: Option<String>,
    template: Option<RawTemplate>,
}

/// The template as in the file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawTemplate {
    account: Option<String>,
    quota_usd: Option<String>,
    reset: Option<String>,
    models: Option<Vec<String>>,
    rpm: Option<u64>,
    tpm: Option<u64>,
    concurrency: Option<u64>,
    groups: Option<Vec<String>>,
}

/// The section, checked and with defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SignInConfig {
    /// Whether agents can sign in at all.
    pub enabled: bool,
    /// How long an access token is good, in seconds.
    pub access_seconds: i64,
    /// How long a sign-in lasts, however often it is refreshed, in seconds.
    pub sign_in_seconds: i64,
    /// The most codes that wait for a decision at one node.
    pub codes_max: usize,
    /// The settings that agents are given, JSON; `None`: none.
    pub managed_settings: Option<PathBuf>,
    /// What people get who sign in at the portal by the OpenID provider; `None`: they come with a key.
    pub template: Option<KeyTemplate>,
}

pub(super) fn resolve(values: &mut Values<'_>, raw: &RawSignIn, console: &ConsoleConfig) -> SignInConfig {
    let enabled = raw.enabled.unwrap_or(false);
    if enabled && !console.portal {
        values.wrong(
            &["sign_in", "enabled"],
            "needs the portal, where people approve it: take [console] portal = false out",
        );
    }
    let seconds = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let access = values.number(
        &["sign_in", "access_seconds"],
        raw.access_seconds,
        3600,
        60..=DAY_SECONDS,
    );
    let days = values.number(&["sign_in", "days"], raw.days, 30, 1..=365);
    let template = raw.template.as_ref().map(|raw| template(values, raw));
    if template.is_some() && !(console.portal && console.openid.is_some()) {
        values.wrong(
            &["sign_in", "template"],
            "is for people who sign in at the portal by the OpenID provider: set [console.openid], and leave the portal on",
        );
    }
    SignInConfig {
        enabled,
        access_seconds: seconds(access),
        sign_in_seconds: seconds(days * DAY_SECONDS),
        codes_max: values.count(&["sign_in", "codes_max"], raw.codes_max, 1000, 1..=100_000),
        template,
        managed_settings: values.optional_path(&["sign_in", "managed_settings"], raw.managed_settings.as_deref()),
    }
}

fn template(values: &mut Values<'_>, raw: &RawTemplate) -> KeyTemplate {
    let at = |key: &'static str| ["sign_in", "template", key];
    let account = raw.account.clone().unwrap_or_default();
    if account.is_empty() {
        values.wrong(&["sign_in", "template"], "needs an account that pays: set account");
    }
    let quota = raw.quota_usd.as_deref().map(NanoUsd::parse_usd).transpose();
    let quota = match quota {
        Ok(quota) if quota.is_none_or(|quota| quota >= NanoUsd::ZERO) => quota,
        Ok(_) => {
            values.wrong(&at("quota_usd"), "zero or more, or leave it out for no limit");
            None
        }
        Err(error) => {
            values.wrong(&at("quota_usd"), error);
            None
        }
    };
    let reset = raw.reset.as_deref().map(str::parse::<Reset>).transpose();
    let reset = reset.unwrap_or_else(|_| {
        values.wrong(&at("reset"), "none, daily, weekly or monthly");
        None
    });
    if quota.is_none() && reset.is_some_and(|reset| reset != Reset::None) {
        values.wrong_combination(
            &[&at("quota_usd")[..]],
            &at("reset"),
            "only a quota begins anew: set quota_usd, or take this out",
        );
    }
    let mut rate = |key, given: Option<u64>| {
        let given = given?;
        Some(values.number(&at(key), Some(given), 1, 1..=Rates::MAX))
    };
    let rates = Rates {
        rpm: rate("rpm", raw.rpm),
        tpm: rate("tpm", raw.tpm),
        concurrency: rate("concurrency", raw.concurrency),
    };
    KeyTemplate {
        account,
        models: raw.models.clone(),
        terms: KeyTerms {
            quota,
            reset: reset.unwrap_or_default(),
            rates,
            ..KeyTerms::default()
        },
        groups: raw.groups.clone(),
    }
}
