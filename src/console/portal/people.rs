//! The portal's configuration of sign-in by the OpenID provider.

use crate::{
    console::{ask::PageRequest, openid::OpenId},
    domain::keys::template::KeyTemplate,
};

/// The path to which the provider sends the browser back.
pub(super) const RETURN: &str = "/portal/openid/return";

/// The OpenID provider, and the template of its users' keys.
pub(crate) struct OidcSignIn {
    pub(super) openid: OpenId,
    pub(super) template: KeyTemplate,
}

impl OidcSignIn {
    /// Sign-in by `openid`, with keys made from `template`.
    pub(crate) fn new(openid: OpenId, template: KeyTemplate) -> Self {
        Self { openid, template }
    }

    /// The URL to which the provider sends the browser of this request back.
    pub(super) fn return_url(request: &PageRequest) -> String {
        format!("{}{RETURN}", request.base())
    }
}
