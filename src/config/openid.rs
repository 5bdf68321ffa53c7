//! `[console.openid]`: the OpenID provider that operators sign in with.

use std::collections::BTreeMap;

use http::Uri;

use super::kinds::{is_unencrypted, is_web_url, names_user};
use crate::domain::{
    catalogue::{SecretRef, secret},
    role::Role,
    settings::{Section, list_of, map_of, one_of, settings, text},
};

settings! {
    /// `[console.openid]`
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct OpenIdConfig {
        /// The provider's issuer, exactly as it names itself; its document is at this URL, /.well-known/openid-configuration.
        issuer: String = text()
            .fits(
                "must be the provider's URL as in its document, with https unless it is on this machine, such as \
                 https://login.example.com",
                |issuer| is_issuer(issuer),
            )
            .example("https://login.example.com"),
        /// weir's client id at the provider.
        client_id: String = text()
            .fits("must be weir's client id at the provider", |id| {
                !id.is_empty() && !id.chars().any(char::is_control)
            })
            .example("weir"),
        /// The client's secret. Without it weir is a public client.
        client_secret: Option<SecretRef> = secret().optional("file:console-openid"),
        /// The scopes to request; many providers send groups only with a scope for them. `openid` is always requested.
        scopes: Vec<String> = list_of(text().fits("a scope is one word, such as \"groups\"", |scope| is_scope(scope)))
            .map(with_openid)
            .or(vec!["openid", "profile", "email"]),
        /// The claim with a person's groups, in the ID token or else in the response of the userinfo endpoint.
        groups_claim: String = text().or("groups"),
        /// The role of a group's members: viewer, operator or owner. A person's highest role counts; without any, the person
        /// cannot sign in.
        roles: Vec<(String, Role)> = map_of(one_of("role", Role::ALL.map(|role| (role.as_str(), role))))
            .map(|roles| roles.into_iter().collect())
            .unset(Vec::new())
            .example(BTreeMap::from([("weir-owners".to_owned(), "owner"), ("weir-operators".to_owned(), "operator")])),
    } checked by somebody_may_sign_in
}

/// RFC 6749, section 3.3.
fn is_scope(scope: &str) -> bool {
    let fits = |byte: u8| matches!(byte, 0x21 | 0x23..=0x5b | 0x5d..=0x7e);
    !scope.is_empty() && scope.bytes().all(fits)
}

fn with_openid(mut scopes: Vec<String>) -> Vec<String> {
    if !scopes.iter().any(|scope| scope == "openid") {
        scopes.insert(0, "openid".to_owned());
    }
    scopes
}

fn is_issuer(text: &str) -> bool {
    let Ok(url) = text.parse::<Uri>() else { return false };
    let host = url.host().unwrap_or_default().trim_matches(['[', ']']);
    let is_here = host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
    is_web_url(&url) && (is_here || !is_unencrypted(&url)) && !names_user(&url) && !text.contains(['?', '#'])
}

fn somebody_may_sign_in(read: OpenIdConfig, from: &Section<'_>) -> OpenIdConfig {
    if read.roles.is_empty() {
        let message = "nobody may sign in: name groups in [console.openid.roles], such as weir-owners = \"owner\"";
        from.report_fault("roles", &[], message);
    }
    read
}
