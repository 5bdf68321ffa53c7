//! Why a sign-in failed, and what to do.

use http::StatusCode;
use maud::{Markup, html};

use super::id_token::IdTokenFault;
use crate::{domain::role::Role, store::StoreError};

/// Why a sign-in failed. Contains nothing that the browser or the provider sent, except the person's name.
#[derive(Debug)]
pub(crate) enum SignInFailure {
    /// Too many sign-ins at the same time.
    Busy,
    /// The store is unreachable.
    Store(StoreError),
    /// The provider is unreachable, or its response is not that of an OpenID provider.
    Provider(String),
    /// This browser has no such sign-in in progress.
    NotUnderWay,
    /// The response is not from the configured provider.
    OtherProvider,
    /// The provider refused the person, or weir.
    Denied(&'static str),
    /// The provider rejected the code.
    CodeRefused,
    /// The provider rejected weir's client id and secret.
    ClientRefused,
    /// The ID token is not valid.
    Token(IdTokenFault),
    /// The person is in none of the groups that have a role.
    NoRole { name: String, needed: Vec<(String, Role)> },
}

impl SignInFailure {
    /// The provider sent the browser back with this error (RFC 6749, section 4.1.2.1; OpenID Connect Core 1.0, section 3.1.2.6).
    pub(super) fn denied(error: &str) -> Self {
        Self::Denied(match error {
            "access_denied" => "The provider has refused: it does not let you use this console, or you have declined.",
            "login_required" | "interaction_required" | "account_selection_required" | "consent_required" => {
                "The provider needs an answer from you first. Sign in there, and try again."
            }
            "server_error" | "temporarily_unavailable" => "The provider cannot sign anybody in now. Try again later.",
            "invalid_scope" => {
                "The provider does not know the requested scopes: an operator has to check `scopes` of [console.openid]."
            }
            _ => {
                "The provider rejected this console's request: an operator has to compare client, redirect address and \
                 scopes at the provider with [console.openid]."
            }
        })
    }

    /// The status of the answer.
    pub(crate) const fn status(&self) -> StatusCode {
        match self {
            Self::Busy | Self::Store(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Provider(_) | Self::ClientRefused | Self::Token(_) => StatusCode::BAD_GATEWAY,
            Self::NotUnderWay | Self::OtherProvider | Self::Denied(_) | Self::CodeRefused | Self::NoRole { .. } => {
                StatusCode::FORBIDDEN
            }
        }
    }

    /// The text for the log; `None` if the failure concerns only this browser.
    pub(crate) fn log_text(&self) -> Option<String> {
        match self {
            Self::Provider(why) => Some(why.clone()),
            Self::ClientRefused => Some("it rejects client_id and client_secret of [console.openid]".to_owned()),
            Self::Token(fault) => Some(format!("its ID token is not valid: {}", fault.as_str())),
            Self::OtherProvider => Some("an answer came from another provider".to_owned()),
            Self::Denied(why) => Some((*why).to_owned()),
            Self::Busy | Self::Store(_) | Self::NotUnderWay | Self::CodeRefused | Self::NoRole { .. } => None,
        }
    }

    /// The text for people.
    pub(crate) fn markup(&self) -> Markup {
        html! {
            @match self {
                Self::Busy => p { "Too many people are signing in right now. Try again in a minute." },
                Self::Store(error) => p { "Signing in this way is not possible now: " (error) ". Try again in a moment." },
                Self::Provider(why) => {
                    p { "The OpenID provider cannot be used now: " (why) "." }
                    p { "Try again in a moment. If the problem persists, an operator has to check the provider and [console.openid]." }
                },
                Self::NotUnderWay => p {
                    "This sign-in was finished or abandoned, was started in another browser or tab, or took longer than 10 minutes. \
                     Start again."
                },
                Self::OtherProvider => p { "This response is not from the provider that was asked. Nobody was signed in. Start again." },
                Self::Denied(why) => p { (why) },
                Self::CodeRefused => p { "The provider no longer accepts this sign-in: it was used, or is too old. Start again." },
                Self::ClientRefused => p {
                    "The provider does not know this console: an operator has to compare client_id and client_secret of \
                     [console.openid] with the provider."
                },
                Self::Token(fault) => {
                    p { "The provider's ID token is not valid: " (fault.as_str()) ". Nobody was signed in." }
                    p { "Start again. If the problem persists, an operator has to check the provider and [console.openid]." }
                },
                Self::NoRole { name, needed } => {
                    p { "The provider knows you as " bdi { (name) } ", and you are in none of the groups that may use this console:" }
                    ul { @for (group, role) in needed { li { bdi { (group) } ": " (role.as_str()) } } }
                    p { "Ask whoever manages these groups to add you to one, and sign in again." }
                },
            }
        }
    }
}
