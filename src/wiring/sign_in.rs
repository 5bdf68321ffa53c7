//! Builds what signs agents in, and what those that are signed in are told.

use std::{path::Path, sync::Arc};

use serde_json::{Map, Value};

use crate::{
    config::Config,
    domain::sign_in::{managed_settings::ManagedSettings, sign_ins::Lifetimes},
    gateway::reply::agent_settings::Agents,
    sign_in::{AgentSignIns, SignInSettings},
    store::{KeyStore, sign_ins::SignInStore, time::StoreTime},
    wiring::StartError,
};

/// The largest file of settings for agents.
const SETTINGS_BYTES_MAX: u64 = 256 * 1024;

/// What signs agents in; `None`: it is off.
pub(super) fn build(
    config: &Config,
    documents: Arc<dyn SignInStore>,
    keys: &Arc<dyn KeyStore>,
    time: &Arc<StoreTime>,
) -> Option<Arc<AgentSignIns>> {
    let section = &config.sign_in;
    let settings = SignInSettings {
        lifetimes: Lifetimes {
            access_seconds: section.access_seconds,
            sign_in_seconds: section.sign_in_seconds,
        },
        codes_max: section.codes_max,
    };
    let build = || {
        let (keys, time) = (Arc::clone(keys), Arc::clone(time));
        AgentSignIns::new(documents, keys, time, config.gateway.key_prefix.clone(), settings)
    };
    section.enabled.then(|| Arc::new(build()))
}

/// What agents that are signed in are told; `None`: none can sign in.
///
/// # Errors
/// The file of their settings cannot be used.
pub(super) fn agents(config: &Config) -> Result<Option<Agents>, StartError> {
    let section = &config.sign_in;
    if !section.enabled {
        return Ok(None);
    }
    let settings = section.managed_settings.as_deref().map(settings).transpose();
    let wrong = |why| StartError::Configuration(format!("[sign_in] managed_settings: {why}"));
    let settings = settings.map_err(wrong)?;
    Ok(Some(Agents { settings }))
}

/// Providers where everybody has an account, or can make one.
const OPEN_TO_EVERYBODY: [&str; 14] = [
    "accounts.google.com",
    "login.microsoftonline.com/common/v2.0",
    "login.microsoftonline.com/consumers/v2.0",
    "login.microsoftonline.com/organizations/v2.0",
    // The tenant of all private accounts.
    "login.microsoftonline.com/9188040d-6c67-4c5b-b112-36a304b66dad/v2.0",
    "appleid.apple.com",
    "www.facebook.com",
    "www.linkedin.com/oauth",
    "gitlab.com",
    "id.twitch.tv/oauth2",
    "api.login.yahoo.com",
    "access.line.me",
    "kauth.kakao.com",
    "www.paypal.com",
];

/// Why a template may give keys to people whom nobody meant.
pub(super) fn warning(config: &Config) -> Option<String> {
    let template = config
        .sign_in
        .template
        .as_ref()
        .filter(|template| template.groups.is_none())?;
    let issuer = &config.console.openid.as_ref()?.issuer;
    let place = issuer.strip_prefix("https://")?.trim_end_matches('/');
    let is_open = OPEN_TO_EVERYBODY.iter().any(|open| open.eq_ignore_ascii_case(place));
    is_open.then(|| {
        format!(
            "[sign_in.template] gives a key that account `{}` pays for to everybody with an account at {issuer}, where everybody can \
             have one: name `groups` whose members get one",
            template.account
        )
    })
}

/// Reads a file of settings. `Err` says which one and what is wrong with it.
pub(super) fn settings(path: &Path) -> Result<ManagedSettings, String> {
    let wrong = |why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
    let bytes = std::fs::metadata(path).map_err(|error| wrong(&error))?.len();
    if bytes > SETTINGS_BYTES_MAX {
        let why = format!("it has {bytes} bytes, at most {SETTINGS_BYTES_MAX} are read");
        return Err(wrong(&why));
    }
    let text = std::fs::read_to_string(path).map_err(|error| wrong(&error))?;
    let object: Map<String, Value> =
        serde_json::from_str(&text).map_err(|error| wrong(&format_args!("give a JSON object: {error}")))?;
    Ok(ManagedSettings::new(&object))
}
