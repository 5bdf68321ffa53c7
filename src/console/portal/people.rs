//! What the portal knows of people whom the OpenID provider vouches for: the provider, and what their keys are made of.

use crate::{
    console::{ask::Ask, openid::OpenId},
    domain::keys::template::KeyTemplate,
};

/// Where the provider sends the browser back to.
pub(super) const RETURN: &str = "/portal/openid/return";

/// How people sign in, and what they get.
pub(crate) struct People {
    pub(super) openid: OpenId,
    pub(super) template: KeyTemplate,
}

impl People {
    /// Those of a provider, with keys of this template.
    pub(crate) fn new(openid: OpenId, template: KeyTemplate) -> Self {
        Self { openid, template }
    }

    /// Where the provider sends the browser of this request back to.
    pub(super) fn back(ask: &Ask) -> String {
        format!("{}{RETURN}", ask.base())
    }
}
