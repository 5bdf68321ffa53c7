//! `[sign_in]`: agents sign in by the OAuth device flow, and a person approves it in the portal.

use std::path::PathBuf;

use serde::Deserialize;

use super::console::ConsoleConfig;
use super::values::Values;

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
    SignInConfig {
        enabled,
        access_seconds: seconds(access),
        sign_in_seconds: seconds(days * DAY_SECONDS),
        codes_max: values.count(&["sign_in", "codes_max"], raw.codes_max, 1000, 1..=100_000),
        managed_settings: values.optional_path(&["sign_in", "managed_settings"], raw.managed_settings.as_deref()),
    }
}
