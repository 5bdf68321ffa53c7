//! Why somebody is not signed in, and what to do.

use http::StatusCode;
use maud::{Markup, html};

use super::id_token::Fault;
use crate::{domain::role::Role, store::StoreError};

/// Why a sign-in has failed. None of it has what the browser or the provider has sent, but for the name of a person.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Too many at one time.
    Busy,
    /// The store is away.
    Store(StoreError),
    /// The provider cannot be asked, or answers something else than an OpenID provider does.
    Provider(String),
    /// No such sign-in is under way in this browser.
    NotUnderWay,
    /// The answer is not the configured provider's.
    OtherProvider,
    /// The provider has refused the person, or weir.
    Denied(&'static str),
    /// The provider does not take the code.
    CodeRefused,
    /// The provider does not take weir's own credentials.
    ClientRefused,
    /// The ID token is not believed.
    Token(Fault),
    /// The person is in none of the groups that may.
    NoRole { name: String, needed: Vec<(String, Role)> },
}

impl Failure {
    /// The provider has sent the browser back with this error (RFC 6749, section 4.1.2.1; OpenID Connect Core 1.0, section
    /// 3.1.2.6).
    pub(super) fn denied(error: &str) -> Self {
        Self::Denied(match error {
            "access_denied" => "The provider has refused: it does not let you use this console, or you have declined.",
            "login_required" | "interaction_required" | "account_selection_required" | "consent_required" => {
                "The provider wants to ask you something first. Sign in there, and try again."
            }
            "server_error" | "temporarily_unavailable" => "The provider cannot sign anybody in now. Try again later.",
            "invalid_scope" => {
                "The provider does not know what it was asked for: an operator has to look at `scopes` of [console.openid]."
            }
            _ => {
                "The provider does not take this console's question: an operator has to compare client, redirect address and \
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

    /// For the log; `None` where only a browser is concerned.
    pub(crate) fn told(&self) -> Option<String> {
        match self {
            Self::Provider(why) => Some(why.clone()),
            Self::ClientRefused => Some("it does not take client_id and client_secret of [console.openid]".to_owned()),
            Self::Token(fault) => Some(format!("its ID token is not believed: {}", fault.as_str())),
            Self::OtherProvider => Some("an answer came from another provider".to_owned()),
            Self::Denied(why) => Some((*why).to_owned()),
            Self::Busy | Self::Store(_) | Self::NotUnderWay | Self::CodeRefused | Self::NoRole { .. } => None,
        }
    }

    /// What people are told.
    pub(crate) fn page(&self) -> Markup {
        html! {
            @match self {
                Self::Busy => p { "Too many people sign in at this moment. Try again in a minute." },
                Self::Store(error) => p { "Nobody can sign in this way now: " (error) ". Try again in a moment." },
                Self::Provider(why) => {
                    p { "The OpenID provider cannot be used now: " (why) "." }
                    p { "Try again in a moment. If it stays so, an operator has to look at the provider, and at [console.openid]." }
                },
                Self::NotUnderWay => p {
                    "This sign-in was finished or given up, was begun in another browser or tab, or took longer than 10 minutes. \
                     Begin again."
                },
                Self::OtherProvider => p { "This answer is not the provider's that was asked. Nobody was signed in. Begin again." },
                Self::Denied(why) => p { (why) },
                Self::CodeRefused => p { "The provider does not take this sign-in any more: it was used, or is too old. Begin again." },
                Self::ClientRefused => p {
                    "The provider does not know this console: an operator has to compare client_id and client_secret of \
                     [console.openid] with the provider."
                },
                Self::Token(fault) => {
                    p { "The provider's answer is not believed: " (fault.as_str()) ". Nobody was signed in." }
                    p { "Begin again. If it stays so, an operator has to look at the provider, and at [console.openid]." }
                },
                Self::NoRole { name, needed } => {
                    p { "The provider knows you as " bdi { (name) } ", and has you in none of the groups that may use this console:" }
                    ul { @for (group, role) in needed { li { bdi { (group) } ": " (role.as_str()) } } }
                    p { "Ask whoever keeps these groups to put you into one, and sign in again." }
                },
            }
        }
    }
}
