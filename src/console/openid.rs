//! The sign-in of users by OpenID Connect, with the authorization code flow (OpenID Connect Core 1.0, section 3.1) and PKCE (RFC
//! 7636).
//!
//! The state, the nonce and the PKCE verifier of a sign-in are derived from a random string in the browser's cookie. The store
//! only records that the sign-in is in progress. Therefore any node can finish a sign-in, but only once and within its lifetime.

mod id_token;
mod provider;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use http::StatusCode;
use maud::{Markup, html};
use serde_json::Value;
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;

use crate::{
    admin::AdminPeer,
    console::{
        layout::Operator,
        openid::{
            id_token::{ExpectedClaims, IdTokenFault},
            provider::{OpenIdClient, OpenIdMetadata, OpenIdProvider},
        },
        request::{self, FormFields},
    },
    domain::{
        keys::secret::{Secret, random_base62},
        sign_in::Role,
    },
    edges::{
        clock,
        limiter::{Limiter, RateAllowance},
        web_client::RootsError,
    },
    store::{
        StoreError,
        sessions::{SessionDigest, SessionLifetime, WebSessionStore},
    },
};

pub(super) use crate::console::openid::id_token::Person;

/// The lifetime of a sign-in that is in progress.
const SIGN_IN_LIFETIME: SessionLifetime = SessionLifetime {
    idle: Duration::from_secs(600),
    whole: Duration::from_secs(600),
};
/// The rate at which sign-ins can begin at one node. Together with the lifetime of a sign-in, this limits the number of sign-ins
/// in progress to 6,000.
const BEGIN_ALLOWANCE: RateAllowance = RateAllowance {
    per_minute: 600,
    burst: 100,
    clients_max: 1,
};
/// The maximum number of sign-ins that send requests to the provider concurrently.
const CONCURRENT_MAX: usize = 16;
/// The number of characters of the random string in the cookie. 43 random characters from an alphabet of 62 have 256 bits of
/// entropy.
const TEXT_CHARS: usize = 43;

/// The configuration of the OpenID provider, from `[console.openid]`.
#[derive(Clone, Debug)]
pub(crate) struct OpenIdSettings {
    /// The provider's issuer URL. weir appends a path to it to get the URL of the provider's metadata document.
    pub(crate) issuer: String,
    /// The client id with which weir is registered at the provider.
    pub(crate) client_id: String,
    /// The client secret with which weir is registered at the provider. `None` for a public client, which is protected by PKCE
    /// alone.
    pub(crate) client_secret: Option<Secret>,
    /// The scopes to request, including `openid`.
    pub(crate) scopes: Vec<String>,
    /// The name of the claim that contains the groups of a user.
    pub(crate) groups_claim: String,
    /// The groups that have a role, each with its role.
    pub(crate) roles: Vec<(String, Role)>,
    /// CA certificates in PEM that are trusted in addition to the platform's.
    pub(crate) ca: Option<Vec<u8>>,
}

/// Signs users in at the console or the portal with an OpenID provider.
pub(crate) struct OpenId {
    settings: OpenIdSettings,
    provider: OpenIdProvider,
    store: Arc<dyn WebSessionStore>,
    begun: Limiter<()>,
    asking: Semaphore,
}

/// A sign-in that has begun.
#[derive(Debug)]
pub(super) struct StartedSignIn {
    /// The random string to be stored in the browser's cookie.
    pub(super) text: String,
    /// The provider's URL to which the browser is sent.
    pub(super) to: String,
}

/// The secrets of a sign-in. All of them are derived from the random string in the cookie, which only the browser has.
struct SignInSecrets<'t>(&'t str);

impl SignInSecrets<'_> {
    fn state(&self) -> String {
        self.derive("state")
    }

    fn nonce(&self) -> String {
        self.derive("nonce")
    }

    /// Returns the PKCE verifier, which has 43 characters (RFC 7636, section 4.1).
    fn verifier(&self) -> String {
        self.derive("verifier")
    }

    /// Returns the PKCE challenge (RFC 7636, section 4.2).
    fn challenge(&self) -> String {
        URL_SAFE_NO_PAD.encode(Sha256::digest(self.verifier()))
    }

    fn id(&self) -> SessionDigest {
        SessionDigest::of("openid", self.0)
    }

    fn derive(&self, kind: &str) -> String {
        let mut hash = Sha256::new();
        hash.update(Sha256::digest(kind));
        hash.update(self.0);
        URL_SAFE_NO_PAD.encode(hash.finalize())
    }
}

impl OpenId {
    /// Creates this value without sending a request to the provider. `start` is a time before the first sign-in.
    ///
    /// # Errors
    /// There are no usable CA certificates.
    pub(crate) fn new(
        settings: OpenIdSettings,
        store: Arc<dyn WebSessionStore>,
        start: Instant,
    ) -> Result<Self, RootsError> {
        let fetch = OpenIdClient::new(settings.ca.as_deref())?;
        Ok(Self {
            provider: OpenIdProvider::new(settings.issuer.clone(), fetch),
            settings,
            store,
            begun: Limiter::new(BEGIN_ALLOWANCE, start),
            asking: Semaphore::new(CONCURRENT_MAX),
        })
    }

    /// Returns the issuer of the provider.
    pub(super) fn issuer(&self) -> &str {
        &self.settings.issuer
    }

    /// Returns the name of the provider for display, which is its host name.
    pub(super) fn name(&self) -> &str {
        let issuer = &self.settings.issuer;
        let rest = issuer.split_once("://").map_or(issuer.as_str(), |(_, rest)| rest);
        rest.split('/').next().unwrap_or(rest)
    }

    /// Begins a sign-in. `back` is weir's URL to which the provider sends the browser afterwards.
    pub(super) async fn begin(&self, back: &str, now: Instant) -> Result<StartedSignIn, SignInFailure> {
        let _place = self.asking.try_acquire().map_err(|_| SignInFailure::Busy)?;
        if self.begun.try_acquire((), now).is_err() {
            return Err(SignInFailure::Busy);
        }
        let metadata = self.provider.metadata(now).await.map_err(SignInFailure::Provider)?;
        let text = random_base62(TEXT_CHARS, &mut rand::rng());
        let words = SignInSecrets(&text);
        self.store
            .begin(&words.id(), "openid", SIGN_IN_LIFETIME)
            .await
            .map_err(SignInFailure::Store)?;
        let query = request::to_query(&[
            ("response_type", "code"),
            ("client_id", &self.settings.client_id),
            ("redirect_uri", back),
            ("scope", &self.settings.scopes.join(" ")),
            ("state", &words.state()),
            ("nonce", &words.nonce()),
            ("code_challenge", &words.challenge()),
            ("code_challenge_method", "S256"),
        ]);
        let to = metadata.authorization_endpoint.with_query(&query);
        Ok(StartedSignIn { text, to })
    }

    /// Finishes a sign-in and returns the user. This can succeed only once for each sign-in. `back` must be the URL with which
    /// the sign-in began. `returned` are the parameters with which the provider sent the browser back; `text` is the random
    /// string in the cookie.
    pub(super) async fn finish(
        &self,
        back: &str,
        (returned, text): (&FormFields, Option<&str>),
        now: Instant,
    ) -> Result<Person, SignInFailure> {
        let words = SignInSecrets(text.ok_or(SignInFailure::NotUnderWay)?);
        // Digests are compared, so that the time taken reveals nothing about the state.
        if Sha256::digest(returned.text("state")) != Sha256::digest(words.state()) {
            return Err(SignInFailure::NotUnderWay);
        }
        let _place = self.asking.try_acquire().map_err(|_| SignInFailure::Busy)?;
        let known = self.store.end(&words.id()).await.map_err(SignInFailure::Store)?;
        known.ok_or(SignInFailure::NotUnderWay)?;
        let metadata = self.provider.metadata(now).await.map_err(SignInFailure::Provider)?;
        let sender = returned.non_empty("iss");
        if sender.map_or(metadata.iss_in_answers, |sender| sender != self.settings.issuer) {
            return Err(SignInFailure::OtherProvider);
        }
        if let Some(error) = returned.non_empty("error") {
            return Err(SignInFailure::denied(error));
        }
        let code = returned.non_empty("code").ok_or(SignInFailure::NotUnderWay)?;
        let tokens = self.exchange(&metadata, code, (&words, back)).await?;
        let claims = self.claims(&metadata, &tokens, &words, now).await?;
        Ok(Person::from_claims(&claims, &self.settings.groups_claim))
    }

    /// Converts a user to an operator of the console.
    ///
    /// # Errors
    /// None of the user's groups has a role.
    pub(super) fn operator(&self, person: Person) -> Result<Operator, SignInFailure> {
        let role = person.role(&self.settings.roles).ok_or_else(|| SignInFailure::NoRole {
            name: person.name.clone(),
            needed: self.settings.roles.clone(),
        })?;
        let opened_by = AdminPeer::Person {
            subject: person.subject.into(),
            name: person.name.into(),
        };
        Ok(Operator { opened_by, role })
    }

    /// Returns the URL of the provider's sign-out page, which sends users back to the console at the URL `console`. `None` if the
    /// provider has no such page, or if its metadata has not been fetched yet.
    pub(super) fn sign_out_url(&self, console: &str) -> Option<String> {
        let metadata = self.provider.last_metadata()?;
        let query = request::to_query(&[
            ("client_id", &self.settings.client_id),
            ("post_logout_redirect_uri", &format!("{console}/open")),
        ]);
        Some(metadata.end_session_endpoint.as_ref()?.with_query(&query))
    }

    /// Exchanges the authorization code for tokens (OpenID Connect Core 1.0, section 3.1.3).
    async fn exchange(
        &self,
        metadata: &OpenIdMetadata,
        code: &str,
        (words, back): (&SignInSecrets<'_>, &str),
    ) -> Result<Value, SignInFailure> {
        let settings = &self.settings;
        let verifier = words.verifier();
        let mut form = vec![
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", back),
            ("code_verifier", &verifier),
        ];
        let mut authorization = None;
        match &settings.client_secret {
            Some(secret) if metadata.accepts_basic => {
                authorization = Some(provider::basic_credentials(&settings.client_id, secret.expose()));
            }
            Some(secret) => form.extend([("client_id", &*settings.client_id), ("client_secret", secret.expose())]),
            None => form.push(("client_id", &settings.client_id)),
        }
        let body = request::to_query(&form);
        let body = body.strip_prefix('?').unwrap_or_default();
        let fetch = self.provider.client();
        let answer = fetch
            .post(&metadata.token_endpoint, body, authorization.as_deref())
            .await;
        answer.map_err(|why| match why.error {
            // The provider rejects the code (`invalid_grant`) or weir's client credentials (`invalid_client`); see RFC 6749,
            // section 5.2.
            Some(error) if error == "invalid_grant" => SignInFailure::CodeRefused,
            Some(error) if error == "invalid_client" => SignInFailure::ClientRefused,
            _ => SignInFailure::Provider(why.message),
        })
    }

    /// Returns the provider's claims about the user. They come from the ID token and, if necessary, from the userinfo endpoint.
    async fn claims(
        &self,
        metadata: &OpenIdMetadata,
        tokens: &Value,
        words: &SignInSecrets<'_>,
        now: Instant,
    ) -> Result<Value, SignInFailure> {
        let text = |name: &str| tokens.get(name).and_then(Value::as_str);
        let token = text("id_token")
            .ok_or_else(|| SignInFailure::Provider("its response to the code has no ID token".to_owned()))?;
        let nonce = words.nonce();
        let expected = ExpectedClaims {
            issuer: &self.settings.issuer,
            client_id: &self.settings.client_id,
            nonce: &nonce,
            now: clock::unix_seconds(),
        };
        let claims = self.provider.verify(metadata, token, &expected, now).await?;
        let (Some(endpoint), Some(access_token)) = (&metadata.userinfo_endpoint, text("access_token")) else {
            return Ok(claims);
        };
        if claims.get(&self.settings.groups_claim).is_some() {
            return Ok(claims);
        }
        // Many providers return the groups only at the userinfo endpoint (section 5.3).
        let bearer = format!("Bearer {access_token}");
        let told = self.provider.client().get(endpoint, Some(&bearer)).await;
        let told = told.map_err(|why| SignInFailure::Provider(why.message))?;
        id_token::merge_claims(claims, &told).ok_or(SignInFailure::OtherProvider)
    }
}

/// Renders a form that contains the page's query and is submitted to `action` with the button `opens`. Only this form finishes
/// the sign-in. The provider's redirect cannot finish it, because a GET request must not change anything, and because the browser
/// sends no cookie with a request from another site.
pub(in crate::console) fn return_form(said: &FormFields, action: &str, opens: &str) -> Markup {
    html! {
        form method="post" action=(action) class="card" autocomplete="off" {
            @for name in ["code", "state", "iss", "error"] {
                @if let Some(value) = said.non_empty(name) { input type="hidden" name=(name) value=(value); }
            }
            p { "The provider has answered." }
            button autofocus { (opens) }
        }
    }
}

/// The reason why a sign-in failed. Of the data that the browser and the provider have sent, it contains only the user's name.
#[derive(Debug)]
pub(crate) enum SignInFailure {
    /// Too many sign-ins are in progress.
    Busy,
    /// A call of the store failed.
    Store(StoreError),
    /// The provider cannot be reached, or its response is not valid. Contains the reason.
    Provider(String),
    /// The browser has no sign-in in progress with the returned state.
    NotUnderWay,
    /// The response is not from the configured provider.
    OtherProvider,
    /// The provider refused the user or weir. Contains a message for the user.
    Denied(&'static str),
    /// The provider rejected the authorization code.
    CodeRefused,
    /// The provider rejected weir's client id and client secret.
    ClientRefused,
    /// The ID token is not valid.
    Token(IdTokenFault),
    /// None of the user's groups has a role.
    NoRole { name: String, needed: Vec<(String, Role)> },
}

impl SignInFailure {
    /// Converts the error with which the provider has sent the browser back (RFC 6749, section 4.1.2.1; OpenID Connect Core 1.0,
    /// section 3.1.2.6).
    fn denied(error: &str) -> Self {
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

    /// Returns the HTTP status of the answer.
    pub(crate) const fn status(&self) -> StatusCode {
        match self {
            Self::Busy | Self::Store(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Provider(_) | Self::ClientRefused | Self::Token(_) => StatusCode::BAD_GATEWAY,
            Self::NotUnderWay | Self::OtherProvider | Self::Denied(_) | Self::CodeRefused | Self::NoRole { .. } => {
                StatusCode::FORBIDDEN
            }
        }
    }

    /// Returns the message for the log. `None` if the failure concerns only this browser and is not logged.
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

    /// Renders the message for the user.
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
                    p { "Ask the administrator of these groups to add you to one, and sign in again." }
                },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_sign_in_goes_by_comes_of_its_cookie_and_is_of_one_use_each() {
        let (one, other) = (SignInSecrets("one"), SignInSecrets("other"));
        let all = |words: &SignInSecrets<'_>| [words.state(), words.nonce(), words.verifier(), words.challenge()];
        let mut words = [all(&one), all(&other)].concat();
        assert!(words.iter().all(|word| word.len() == 43), "{words:?}");
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), 8);
        assert_eq!(all(&one), all(&SignInSecrets("one")));
    }

    #[test]
    fn the_challenge_is_that_of_rfc_7636() {
        // The example in RFC 7636, appendix B.
        let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"));
        assert_eq!(challenge, "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
    }
}
