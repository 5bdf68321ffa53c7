//! People sign in by OpenID Connect: the authorization code flow with PKCE (OpenID Connect Core 1.0, section 3.1; RFC 7636).
//!
//! What a sign-in under way needs, its state, nonce and PKCE verifier, comes of a random text in the browser's cookie. The
//! store knows only that such a sign-in is under way, so that each is finished once, at whichever node, and soon.

mod failure;
mod fetch;
mod id_token;
mod keys;
mod metadata;
mod person;
mod provider;
pub(super) mod returned;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::Value;
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;

use self::{fetch::Fetch, id_token::Expected, metadata::Metadata, provider::Provider};
use super::{fields, fields::Fields, link::Operator};
use crate::{
    admin::Peer,
    domain::{
        keys::secret::{Secret, random_base62},
        role::Role,
    },
    edges::{
        clock,
        limiter::{Allowance, Limiter},
        roots::RootsError,
    },
    store::web_sessions::{Lifetime, SessionDigest, WebSessionStore},
};

pub(super) use self::{failure::Failure, person::Person};

/// How long a sign-in may take a person.
const UNDER_WAY: Lifetime = Lifetime {
    idle: Duration::from_secs(600),
    whole: Duration::from_secs(600),
};
/// How many sign-ins may begin at one node: with their time this bounds how many are under way, at 6,000.
const BEGUN: Allowance = Allowance {
    per_minute: 600,
    burst: 100,
    clients_max: 1,
};
/// How many sign-ins may ask the provider at one time; each takes a few answers of it.
const ASKING_MAX: usize = 16;
/// 43 characters of 62 carry 256 bits.
const TEXT_CHARS: usize = 43;

/// What the configuration says of the provider.
#[derive(Clone, Debug)]
pub(crate) struct OpenIdSettings {
    /// Who the provider is: the address below which its document is.
    pub(crate) issuer: String,
    /// What weir is called there.
    pub(crate) client_id: String,
    /// What weir shows there; `None`: it is a public client, PKCE has to do.
    pub(crate) client_secret: Option<Secret>,
    /// What is asked for, `openid` among it.
    pub(crate) scopes: Vec<String>,
    /// The claim that has a person's groups.
    pub(crate) groups_claim: String,
    /// What the members of groups may do.
    pub(crate) roles: Vec<(String, Role)>,
    /// The certificate authorities that are trusted besides the platform's, as a PEM file has them.
    pub(crate) ca: Option<Vec<u8>>,
}

/// The provider, as people sign in with it at one door.
pub(crate) struct OpenId {
    settings: OpenIdSettings,
    provider: Provider,
    store: Arc<dyn WebSessionStore>,
    begun: Limiter<()>,
    asking: Semaphore,
}

/// A sign-in that has begun.
#[derive(Debug)]
pub(super) struct Begun {
    /// For the browser's cookie.
    pub(super) text: String,
    /// Where the browser goes.
    pub(super) to: String,
}

/// What a sign-in under way goes by: all of it comes of the cookie's text, so nobody else has it.
struct Words<'t>(&'t str);

impl Words<'_> {
    fn state(&self) -> String {
        self.word("state")
    }

    fn nonce(&self) -> String {
        self.word("nonce")
    }

    /// RFC 7636, section 4.1: 43 characters.
    fn verifier(&self) -> String {
        self.word("verifier")
    }

    /// RFC 7636, section 4.2.
    fn challenge(&self) -> String {
        URL_SAFE_NO_PAD.encode(Sha256::digest(self.verifier()))
    }

    fn id(&self) -> SessionDigest {
        SessionDigest::of("openid", self.0)
    }

    fn word(&self, kind: &str) -> String {
        let mut hash = Sha256::new();
        hash.update(Sha256::digest(kind));
        hash.update(self.0);
        URL_SAFE_NO_PAD.encode(hash.finalize())
    }
}

impl OpenId {
    /// Asks nobody before somebody signs in. `start` is a time before that.
    ///
    /// # Errors
    /// No certificate of the provider's could be verified.
    pub(crate) fn new(
        settings: OpenIdSettings,
        store: Arc<dyn WebSessionStore>,
        start: Instant,
    ) -> Result<Self, RootsError> {
        let fetch = Fetch::new(settings.ca.as_deref())?;
        Ok(Self {
            provider: Provider::new(settings.issuer.clone(), fetch),
            settings,
            store,
            begun: Limiter::new(BEGUN, start),
            asking: Semaphore::new(ASKING_MAX),
        })
    }

    /// The provider's own name for itself.
    pub(super) fn issuer(&self) -> &str {
        &self.settings.issuer
    }

    /// What people know the provider by: its host.
    pub(super) fn name(&self) -> &str {
        let issuer = &self.settings.issuer;
        let rest = issuer.split_once("://").map_or(issuer.as_str(), |(_, rest)| rest);
        rest.split('/').next().unwrap_or(rest)
    }

    /// Begins a sign-in from which the provider sends the browser back to this address.
    pub(super) async fn begin(&self, back: &str, now: Instant) -> Result<Begun, Failure> {
        let _place = self.asking.try_acquire().map_err(|_| Failure::Busy)?;
        if self.begun.try_acquire((), now).is_err() {
            return Err(Failure::Busy);
        }
        let metadata = self.provider.metadata(now).await.map_err(Failure::Provider)?;
        let text = random_base62(TEXT_CHARS, &mut rand::rng());
        let words = Words(&text);
        self.store
            .begin(&words.id(), "openid", UNDER_WAY)
            .await
            .map_err(Failure::Store)?;
        let query = fields::query(&[
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
        Ok(Begun { text, to })
    }

    /// Finishes a sign-in that has begun with the same address, which succeeds once: `returned` is what the provider has sent
    /// the browser back with, `text` what its cookie has.
    pub(super) async fn finish(
        &self,
        back: &str,
        (returned, text): (&Fields, Option<&str>),
        now: Instant,
    ) -> Result<Person, Failure> {
        let words = Words(text.ok_or(Failure::NotUnderWay)?);
        // In a time that does not tell how much of it is right.
        if Sha256::digest(returned.text("state")) != Sha256::digest(words.state()) {
            return Err(Failure::NotUnderWay);
        }
        let _place = self.asking.try_acquire().map_err(|_| Failure::Busy)?;
        let known = self.store.end(&words.id()).await.map_err(Failure::Store)?;
        known.ok_or(Failure::NotUnderWay)?;
        let metadata = self.provider.metadata(now).await.map_err(Failure::Provider)?;
        let sender = returned.given("iss");
        if sender.map_or(metadata.iss_in_answers, |sender| sender != self.settings.issuer) {
            return Err(Failure::OtherProvider);
        }
        if let Some(error) = returned.given("error") {
            return Err(Failure::denied(error));
        }
        let code = returned.given("code").ok_or(Failure::NotUnderWay)?;
        let tokens = self.exchange(&metadata, code, (&words, back)).await?;
        let claims = self.claims(&metadata, &tokens, &words, now).await?;
        Ok(Person::of(&claims, &self.settings.groups_claim))
    }

    /// The person as an operator of the console.
    ///
    /// # Errors
    /// None of their groups has a role.
    pub(super) fn operator(&self, person: Person) -> Result<Operator, Failure> {
        let role = person.role(&self.settings.roles).ok_or_else(|| Failure::NoRole {
            name: person.name.clone(),
            needed: self.settings.roles.clone(),
        })?;
        let opened_by = Peer::Person {
            subject: person.subject.into(),
            name: person.name.into(),
        };
        Ok(Operator { opened_by, role })
    }

    /// Where people sign out at the provider, and come back to the console of this address from; `None` where it has no such
    /// page, or is not known now.
    pub(super) fn end_of_session(&self, console: &str) -> Option<String> {
        let metadata = self.provider.known()?;
        let query = fields::query(&[
            ("client_id", &self.settings.client_id),
            ("post_logout_redirect_uri", &format!("{console}/open")),
        ]);
        Some(metadata.end_session_endpoint.as_ref()?.with_query(&query))
    }

    /// The code for the tokens (OpenID Connect Core 1.0, section 3.1.3).
    async fn exchange(
        &self,
        metadata: &Metadata,
        code: &str,
        (words, back): (&Words<'_>, &str),
    ) -> Result<Value, Failure> {
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
            Some(secret) if metadata.takes_basic => {
                authorization = Some(fetch::basic(&settings.client_id, secret.expose()));
            }
            Some(secret) => form.extend([("client_id", &*settings.client_id), ("client_secret", secret.expose())]),
            None => form.push(("client_id", &settings.client_id)),
        }
        let body = fields::query(&form);
        let body = body.strip_prefix('?').unwrap_or_default();
        let fetch = self.provider.fetch();
        let answer = fetch
            .post(&metadata.token_endpoint, body, authorization.as_deref())
            .await;
        answer.map_err(|why| match why.error {
            // RFC 6749, section 5.2: the code, or weir itself.
            Some(error) if error == "invalid_grant" => Failure::CodeRefused,
            Some(error) if error == "invalid_client" => Failure::ClientRefused,
            _ => Failure::Provider(why.message),
        })
    }

    /// What the provider says of the person.
    async fn claims(
        &self,
        metadata: &Metadata,
        tokens: &Value,
        words: &Words<'_>,
        now: Instant,
    ) -> Result<Value, Failure> {
        let text = |name: &str| tokens.get(name).and_then(Value::as_str);
        let token = text("id_token").ok_or_else(|| Failure::Provider("its answer has no ID token".to_owned()))?;
        let nonce = words.nonce();
        let expected = Expected {
            issuer: &self.settings.issuer,
            client_id: &self.settings.client_id,
            nonce: &nonce,
            now: clock::unix_seconds(),
        };
        let claims = self.provider.verified(metadata, token, &expected, now).await?;
        let (Some(endpoint), Some(access_token)) = (&metadata.userinfo_endpoint, text("access_token")) else {
            return Ok(claims);
        };
        if claims.get(&self.settings.groups_claim).is_some() {
            return Ok(claims);
        }
        // Many providers tell the groups there only (section 5.3).
        let bearer = format!("Bearer {access_token}");
        let told = self.provider.fetch().get(endpoint, Some(&bearer)).await;
        let told = told.map_err(|why| Failure::Provider(why.message))?;
        person::joined(claims, &told).ok_or(Failure::OtherProvider)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_sign_in_goes_by_comes_of_its_cookie_and_is_of_one_use_each() {
        let (one, other) = (Words("one"), Words("other"));
        let all = |words: &Words<'_>| [words.state(), words.nonce(), words.verifier(), words.challenge()];
        let mut words = [all(&one), all(&other)].concat();
        assert!(words.iter().all(|word| word.len() == 43), "{words:?}");
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), 8);
        assert_eq!(all(&one), all(&Words("one")));
    }

    #[test]
    fn the_challenge_is_that_of_rfc_7636() {
        // Appendix B.
        let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"));
        assert_eq!(challenge, "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
    }
}
