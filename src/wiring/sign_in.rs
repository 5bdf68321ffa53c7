//! Builds the sign-in of agents, and the settings for signed-in agents.

use std::{path::Path, sync::Arc};

use serde_json::{Map, Value};

use crate::{
    config::Config,
    domain::sign_in::{managed_settings::ManagedSettings, sign_ins::TokenLifetimes},
    gateway::reply::agent_settings::SignedInAgents,
    sign_in::{AgentSignIns, SignInSettings},
    store::{KeyStore, sign_ins::SignInStore, time::StoreTime},
    wiring::StartError,
};

/// Maximum size of the file with settings for agents.
const SETTINGS_BYTES_MAX: u64 = 256 * 1024;

/// The sign-in of agents; `None` if it is off.
pub(super) fn build_sign_ins(
    config: &Config,
    documents: Arc<dyn SignInStore>,
    keys: &Arc<dyn KeyStore>,
    time: &Arc<StoreTime>,
) -> Option<Arc<AgentSignIns>> {
    let section = &config.sign_in;
    let settings = SignInSettings {
        lifetimes: TokenLifetimes {
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

/// The settings for signed-in agents; `None` if agents cannot sign in.
///
/// # Errors
/// The file with their settings cannot be used.
pub(super) fn agent_settings(config: &Config) -> Result<Option<SignedInAgents>, StartError> {
    let section = &config.sign_in;
    if !section.enabled {
        return Ok(None);
    }
    let settings = section
        .managed_settings
        .as_deref()
        .map(read_managed_settings)
        .transpose();
    let wrong = |why| StartError::Configuration(format!("[sign_in] managed_settings: {why}"));
    let settings = settings.map_err(wrong)?;
    Ok(Some(SignedInAgents { settings }))
}

/// OpenID providers at which everybody has an account, or can create one.
const OPEN_TO_EVERYBODY: [&str; 14] = [
    "accounts.google.com",
    "login.microsoftonline.com/common/v2.0",
    "login.microsoftonline.com/consumers/v2.0",
    "login.microsoftonline.com/organizations/v2.0",
    // The tenant of personal accounts.
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

/// A warning if a template may give keys to people who should not get one.
pub(super) fn template_warning(config: &Config) -> Option<String> {
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
            "[sign_in.template] gives a key, paid by account `{}`, to everybody with an account at {issuer}, and everybody can create \
             an account there: set `groups` to limit it to their members",
            template.account
        )
    })
}

/// Reads the file with settings for agents. The error names the file and says what is wrong with it.
pub(super) fn read_managed_settings(path: &Path) -> Result<ManagedSettings, String> {
    let wrong = |why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
    let bytes = std::fs::metadata(path).map_err(|error| wrong(&error))?.len();
    if bytes > SETTINGS_BYTES_MAX {
        let why = format!("has {bytes} bytes, more than {SETTINGS_BYTES_MAX}");
        return Err(wrong(&why));
    }
    let text = std::fs::read_to_string(path).map_err(|error| wrong(&error))?;
    let object: Map<String, Value> =
        serde_json::from_str(&text).map_err(|error| wrong(&format_args!("give a JSON object: {error}")))?;
    Ok(ManagedSettings::new(&object))
}
