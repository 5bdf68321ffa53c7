//! The endpoints at which an agent signs in: the OAuth device flow (RFC 8628), tokens (RFC 6749), their revocation (RFC 7009), and
//! the document that says where they are (RFC 8414). Their clients are programs without a secret.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use http::{HeaderValue, Method, StatusCode, header};
use ipnet::IpNet;
use serde_json::{Value, json};

use super::{answer::Answer, ask::Ask};
use crate::{
    domain::{
        keys::secret::KeyPrefix,
        sign_in::{
            device_request::{DeviceCode, REQUEST_SECONDS},
            refresh_token::RefreshToken,
            sign_ins::Tokens,
        },
    },
    edges::limiter::{Allowance, Limiter, client::Client},
    sign_in::{AgentSignIns, INTERVAL_SECONDS, NotIssued},
};

const DISCOVERY: &str = "/.well-known/oauth-authorization-server";
const DEVICE: &str = "/oauth/device_authorization";
const TOKEN: &str = "/oauth/token";
const REVOKE: &str = "/oauth/revoke";
/// Where people decide, below the portal.
pub(super) const VERIFICATION: &str = "/portal/device";

const DEVICE_GRANT: &str = "urn:ietf:params:oauth:grant-type:device_code";
const REFRESH_GRANT: &str = "refresh_token";

/// How often one address may begin to sign in.
const BEGINNINGS: Allowance = Allowance {
    per_minute: 10,
    burst: 10,
    clients_max: 100_000,
};
/// How often one address may ask for tokens, or end them: an agent that waits asks every five seconds, and many may be behind one
/// address.
const QUESTIONS: Allowance = Allowance {
    per_minute: 600,
    burst: 100,
    clients_max: 100_000,
};

/// The endpoints.
pub(crate) struct OAuth {
    pub(super) sign_ins: Arc<AgentSignIns>,
    prefix: KeyPrefix,
    beginnings: Limiter<Client>,
    questions: Limiter<Client>,
}

impl fmt::Debug for OAuth {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("OAuth").finish_non_exhaustive()
    }
}

/// Why a request is refused: an error code of OAuth, what is wrong, and the status.
struct Fault(StatusCode, &'static str, String);

impl OAuth {
    /// For agents that sign in to get tokens of this prefix. `start` is a time before the first request.
    pub(crate) fn new(sign_ins: Arc<AgentSignIns>, prefix: KeyPrefix, start: Instant) -> Self {
        Self {
            sign_ins,
            prefix,
            beginnings: Limiter::new(BEGINNINGS, start),
            questions: Limiter::new(QUESTIONS, start),
        }
    }

    /// Whether a path is one of these.
    pub(super) fn has(path: &str) -> bool {
        matches!(path, DISCOVERY | DEVICE | TOKEN | REVOKE)
    }

    /// The answer to a request whose path is one of these. `trusted` are proxies in front.
    pub(super) async fn answer(&self, ask: &Ask, trusted: &[IpNet]) -> Answer {
        let client = Client::of(ask.peer, &ask.headers, trusted);
        let (limiter, method) = match ask.path.as_str() {
            DISCOVERY => (None, Method::GET),
            DEVICE => (Some(&self.beginnings), Method::POST),
            _ => (Some(&self.questions), Method::POST),
        };
        if ask.method != method {
            let allow = if method == Method::GET { "GET, HEAD" } else { "POST" };
            let why = format!("this address is asked with {allow}");
            return refused(Fault(StatusCode::METHOD_NOT_ALLOWED, "invalid_request", why)).allowing(allow);
        }
        if let Some(Err(wait)) = limiter.map(|limiter| limiter.try_acquire(client, ask.now)) {
            return too_many(wait);
        }
        let answered = match ask.path.as_str() {
            DISCOVERY => Ok(discovery(&ask.base())),
            DEVICE => self.begin(ask).await,
            TOKEN => self.tokens(ask).await,
            _ => self.revoke(ask).await,
        };
        answered.map_or_else(refused, |body| Answer::json(StatusCode::OK, &body))
    }

    async fn begin(&self, ask: &Ask) -> Result<Value, Fault> {
        Form::read(ask)?;
        let code = self.sign_ins.begin().await?;
        let (user_code, base) = (code.user_code().to_string(), ask.base());
        Ok(json!({
            "device_code": code.as_str(),
            "user_code": user_code,
            "verification_uri": format!("{base}{VERIFICATION}"),
            "verification_uri_complete": format!("{base}{VERIFICATION}?user_code={user_code}"),
            "expires_in": REQUEST_SECONDS,
            "interval": INTERVAL_SECONDS,
        }))
    }

    async fn tokens(&self, ask: &Ask) -> Result<Value, Fault> {
        let form = Form::read(ask)?;
        let tokens = match form.needed("grant_type")? {
            DEVICE_GRANT => {
                let code = DeviceCode::parse(form.needed("device_code")?).ok_or(NotIssued::InvalidGrant)?;
                self.sign_ins.redeem(&code).await?
            }
            REFRESH_GRANT => {
                let token = RefreshToken::parse(&self.prefix, form.needed(REFRESH_GRANT)?);
                self.sign_ins.refresh(&token.ok_or(NotIssued::InvalidGrant)?).await?
            }
            _ => {
                let why = format!("grant_type is {DEVICE_GRANT} or {REFRESH_GRANT}");
                return Err(Fault(StatusCode::BAD_REQUEST, "unsupported_grant_type", why));
            }
        };
        Ok(issued(&tokens))
    }

    async fn revoke(&self, ask: &Ask) -> Result<Value, Fault> {
        let form = Form::read(ask)?;
        let ended = self.sign_ins.revoke(form.needed("token")?).await;
        ended.map_err(NotIssued::Store)?;
        Ok(json!({}))
    }
}

/// The fields of a request, none of them twice (RFC 6749, section 3.2).
struct Form(Vec<(String, String)>);

impl Form {
    fn read(ask: &Ask) -> Result<Self, Fault> {
        let kind = ask
            .headers
            .get(header::CONTENT_TYPE)
            .and_then(|kind| kind.to_str().ok());
        let kind = kind.and_then(|kind| kind.split(';').next()).unwrap_or_default().trim();
        if !kind.eq_ignore_ascii_case("application/x-www-form-urlencoded") {
            return Err(invalid("content-type is application/x-www-form-urlencoded".to_owned()));
        }
        let mut fields: Vec<(String, String)> = Vec::new();
        for (name, value) in form_urlencoded::parse(&ask.body) {
            if fields.iter().any(|(known, _)| *known == name) {
                return Err(invalid("a parameter is there twice".to_owned()));
            }
            fields.push((name.into_owned(), value.into_owned()));
            if fields.len() > FIELDS_MAX {
                return Err(invalid(format!("there are more than {FIELDS_MAX} parameters")));
            }
        }
        Ok(Self(fields))
    }

    /// A parameter without a value counts as left out (RFC 6749, section 3.2).
    fn needed(&self, name: &str) -> Result<&str, Fault> {
        let found = self.0.iter().find(|(known, value)| known == name && !value.is_empty());
        let missing = || invalid(format!("{name} is missing"));
        found.map(|(_, value)| value.as_str()).ok_or_else(missing)
    }
}

/// The most parameters of one request.
const FIELDS_MAX: usize = 32;

fn discovery(base: &str) -> Value {
    json!({
        "issuer": base,
        "device_authorization_endpoint": format!("{base}{DEVICE}"),
        "token_endpoint": format!("{base}{TOKEN}"),
        "revocation_endpoint": format!("{base}{REVOKE}"),
        "grant_types_supported": [DEVICE_GRANT, REFRESH_GRANT],
        "response_types_supported": [],
        "token_endpoint_auth_methods_supported": ["none"],
        "revocation_endpoint_auth_methods_supported": ["none"],
        "gateway_protocol_version": 1,
    })
}

fn issued(tokens: &Tokens) -> Value {
    json!({
        "access_token": tokens.access.as_str(),
        "token_type": "Bearer",
        "expires_in": tokens.lasts_seconds,
        "refresh_token": tokens.refresh.text(),
    })
}

fn invalid(why: String) -> Fault {
    Fault(StatusCode::BAD_REQUEST, "invalid_request", why)
}

impl From<NotIssued> for Fault {
    fn from(why: NotIssued) -> Self {
        let (status, code) = match &why {
            NotIssued::Pending => (StatusCode::BAD_REQUEST, "authorization_pending"),
            NotIssued::SlowDown => (StatusCode::BAD_REQUEST, "slow_down"),
            NotIssued::TooMany => (StatusCode::TOO_MANY_REQUESTS, "slow_down"),
            NotIssued::Denied => (StatusCode::BAD_REQUEST, "access_denied"),
            NotIssued::Expired => (StatusCode::BAD_REQUEST, "expired_token"),
            NotIssued::InvalidGrant => (StatusCode::BAD_REQUEST, "invalid_grant"),
            // Not an error of the grant: the agent keeps its tokens and comes again.
            NotIssued::Store(error) => {
                tracing::warn!(%error, "the store does not answer an agent that signs in");
                let why = "the service's store does not answer: try again in a moment".to_owned();
                return Self(StatusCode::SERVICE_UNAVAILABLE, "temporarily_unavailable", why);
            }
        };
        Self(status, code, why.to_string())
    }
}

fn refused(Fault(status, code, why): Fault) -> Answer {
    Answer::json(status, &json!({ "error": code, "error_description": why }))
}

fn too_many(wait: Duration) -> Answer {
    let seconds = wait.as_secs() + 1;
    let why = format!("too many requests from this address: try again in {seconds} seconds");
    let mut answer = refused(Fault(StatusCode::TOO_MANY_REQUESTS, "slow_down", why));
    answer.headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    answer
}
