//! `[console.openid]`: the OpenID provider that operators sign in with.

use std::collections::BTreeMap;

use http::Uri;
use serde::Deserialize;

use super::raw_secret::RawSecret;
use super::values::Values;
use crate::domain::{catalogue::SecretRef, role::Role};

const SCOPES: [&str; 3] = ["openid", "profile", "email"];

/// The section as in the file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawOpenId {
    issuer: Option<String>,
    client_id: Option<String>,
    client_secret: Option<RawSecret>,
    scopes: Option<Vec<String>>,
    groups_claim: Option<String>,
    roles: BTreeMap<String, String>,
}

/// The section, checked and with defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OpenIdConfig {
    /// The provider's own name for itself: an address, below which its document is.
    pub issuer: String,
    /// What weir is called there.
    pub client_id: String,
    /// Where the secret is; `None`: there is none.
    pub client_secret: Option<SecretRef>,
    /// What is asked for, `openid` among it.
    pub scopes: Vec<String>,
    /// The claim with a person's groups.
    pub groups_claim: String,
    /// What the members of groups may do.
    pub roles: Vec<(String, Role)>,
}

pub(super) fn resolve(values: &mut Values<'_>, raw: &RawOpenId) -> OpenIdConfig {
    let section = ["console", "openid"];
    let at = |key: &'static str| [section[0], section[1], key];
    let issuer = raw.issuer.clone().unwrap_or_default();
    if !is_issuer(&issuer) {
        values.wrong(
            &at("issuer"),
            "this has to be the provider's address as its document says it, with https unless it is on this machine, such as \
             https://login.example.com",
        );
    }
    let client_id = raw.client_id.clone().unwrap_or_default();
    if client_id.is_empty() || client_id.chars().any(char::is_control) {
        values.wrong(&at("client_id"), "this has to be what weir is called at the provider");
    }
    let client_secret = values.secret(&at("client_secret"), raw.client_secret.as_ref());
    let mut scopes = raw.scopes.clone().unwrap_or_else(|| SCOPES.map(str::to_owned).to_vec());
    // RFC 6749, section 3.3.
    let is_scope = |scope: &String| {
        let fits = |byte: u8| matches!(byte, 0x21 | 0x23..=0x5b | 0x5d..=0x7e);
        !scope.is_empty() && scope.bytes().all(fits)
    };
    if !scopes.iter().all(is_scope) {
        values.wrong(&at("scopes"), "a scope is one word, such as \"groups\"");
    }
    if !scopes.iter().any(|scope| scope == "openid") {
        scopes.insert(0, "openid".to_owned());
    }
    if raw.roles.is_empty() {
        values.wrong(
            &section,
            "nobody may sign in: name groups in [console.openid.roles], such as weir-owners = \"owner\"",
        );
    }
    let mut roles = Vec::new();
    for (group, name) in &raw.roles {
        match Role::named(name) {
            Ok(role) => roles.push((group.clone(), role)),
            Err(_) => values.wrong(
                &["console", "openid", "roles", group],
                format_args!("`{name}` is no role, give viewer, operator or owner"),
            ),
        }
    }
    OpenIdConfig {
        issuer,
        client_id,
        client_secret,
        scopes,
        groups_claim: raw.groups_claim.clone().unwrap_or_else(|| "groups".to_owned()),
        roles,
    }
}

fn is_issuer(text: &str) -> bool {
    let Ok(uri) = text.parse::<Uri>() else { return false };
    let Some(authority) = uri.authority() else {
        return false;
    };
    let host = authority.host().trim_start_matches('[').trim_end_matches(']');
    let is_here = host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
    let is_safe = uri.scheme_str() == Some("https") || (uri.scheme_str() == Some("http") && is_here);
    is_safe && !authority.as_str().contains('@') && !text.contains(['?', '#'])
}
