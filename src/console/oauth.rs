//! The endpoints at which agents sign in: the OAuth device flow (RFC 8628), tokens (RFC 6749) and their revocation (RFC 7009). A
//! metadata document (RFC 8414) lists the addresses of these endpoints. The clients are programs without a client secret.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use http::{HeaderValue, Method, StatusCode, header};
use ipnet::IpNet;
use serde_json::{Value, json};

use crate::console::{layout::PageResponse, request::PageRequest};
use crate::{
    domain::{
        keys::secret::KeyPrefix,
        sign_in::{
            IssuedTokens,
            device_request::{DeviceCode, REQUEST_SECONDS, RefreshToken},
        },
    },
    edges::limiter::{ClientAddress, Limiter, RateAllowance},
    sign_in::{AgentSignIns, INTERVAL_SECONDS, SignInError},
};

const DISCOVERY: &str = "/.well-known/oauth-authorization-server";
const DEVICE: &str = "/oauth/device_authorization";
const TOKEN: &str = "/oauth/token";
const REVOKE: &str = "/oauth/revoke";
/// The path of the portal's page on which users approve or refuse the sign-in of an agent.
pub(super) const VERIFICATION: &str = "/portal/device";

const DEVICE_GRANT: &str = "urn:ietf:params:oauth:grant-type:device_code";
const REFRESH_GRANT: &str = "refresh_token";

/// The rate at which one client address can begin sign-ins.
const BEGIN_ALLOWANCE: RateAllowance = RateAllowance {
    per_minute: 10,
    burst: 10,
    clients_max: 100_000,
};
/// The rate at which one client address can request or revoke tokens. A waiting agent sends a request every five seconds, and
/// many agents may share an address.
const TOKEN_ALLOWANCE: RateAllowance = RateAllowance {
    per_minute: 600,
    burst: 100,
    clients_max: 100_000,
};

/// The endpoints of the OAuth device flow.
pub(crate) struct OAuth {
    pub(super) sign_ins: Arc<AgentSignIns>,
    prefix: KeyPrefix,
    beginnings: Limiter<ClientAddress>,
    token_requests: Limiter<ClientAddress>,
}

impl fmt::Debug for OAuth {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("OAuth").finish_non_exhaustive()
    }
}

/// The refusal of a request: the HTTP status, the OAuth error code and a description.
struct OAuthError(StatusCode, &'static str, String);

impl OAuth {
    /// Creates the endpoints, which issue tokens with the prefix `prefix`. `start` is a time before the first request.
    pub(crate) fn new(sign_ins: Arc<AgentSignIns>, prefix: KeyPrefix, start: Instant) -> Self {
        Self {
            sign_ins,
            prefix,
            beginnings: Limiter::new(BEGIN_ALLOWANCE, start),
            token_requests: Limiter::new(TOKEN_ALLOWANCE, start),
        }
    }

    /// Returns whether a path belongs to a sign-in endpoint.
    pub(super) fn is_endpoint(path: &str) -> bool {
        matches!(path, DISCOVERY | DEVICE | TOKEN | REVOKE)
    }

    /// Answers a request to a sign-in endpoint. `trusted` are the networks of the proxies in front of weir.
    pub(super) async fn answer(&self, request: &PageRequest, trusted: &[IpNet]) -> PageResponse {
        let client = ClientAddress::from_headers(request.peer, &request.headers, trusted);
        let (limiter, method) = match request.path.as_str() {
            DISCOVERY => (None, Method::GET),
            DEVICE => (Some(&self.beginnings), Method::POST),
            _ => (Some(&self.token_requests), Method::POST),
        };
        if request.method != method {
            let allow = if method == Method::GET { "GET, HEAD" } else { "POST" };
            let why = format!("this endpoint supports {allow} only");
            return error_response(OAuthError(StatusCode::METHOD_NOT_ALLOWED, "invalid_request", why))
                .with_allow(allow);
        }
        if let Some(Err(wait)) = limiter.map(|limiter| limiter.try_acquire(client, request.now)) {
            return too_many(wait);
        }
        let answered = match request.path.as_str() {
            DISCOVERY => Ok(metadata_json(&request.base())),
            DEVICE => self.begin(request).await,
            TOKEN => self.issue_tokens(request).await,
            _ => self.revoke(request).await,
        };
        answered.map_or_else(error_response, |body| PageResponse::json(StatusCode::OK, &body))
    }

    async fn begin(&self, request: &PageRequest) -> Result<Value, OAuthError> {
        OAuthForm::read(request)?;
        let code = self.sign_ins.begin().await?;
        let (user_code, base) = (code.user_code().to_string(), request.base());
        Ok(json!({
            "device_code": code.as_str(),
            "user_code": user_code,
            "verification_uri": format!("{base}{VERIFICATION}"),
            "verification_uri_complete": format!("{base}{VERIFICATION}?user_code={user_code}"),
            "expires_in": REQUEST_SECONDS,
            "interval": INTERVAL_SECONDS,
        }))
    }

    async fn issue_tokens(&self, request: &PageRequest) -> Result<Value, OAuthError> {
        let form = OAuthForm::read(request)?;
        let tokens = match form.required("grant_type")? {
            DEVICE_GRANT => {
                let code = DeviceCode::parse(form.required("device_code")?).ok_or(SignInError::InvalidGrant)?;
                self.sign_ins.redeem(&code).await?
            }
            REFRESH_GRANT => {
                let token = RefreshToken::parse(&self.prefix, form.required(REFRESH_GRANT)?);
                self.sign_ins.refresh(&token.ok_or(SignInError::InvalidGrant)?).await?
            }
            _ => {
                let why = format!("grant_type must be {DEVICE_GRANT} or {REFRESH_GRANT}");
                return Err(OAuthError(StatusCode::BAD_REQUEST, "unsupported_grant_type", why));
            }
        };
        Ok(tokens_json(&tokens))
    }

    async fn revoke(&self, request: &PageRequest) -> Result<Value, OAuthError> {
        let form = OAuthForm::read(request)?;
        let ended = self.sign_ins.revoke(form.required("token")?).await;
        ended.map_err(SignInError::Store)?;
        Ok(json!({}))
    }
}

/// The parameters of a request. Each parameter occurs at most once (RFC 6749, section 3.2).
struct OAuthForm(Vec<(String, String)>);

impl OAuthForm {
    fn read(request: &PageRequest) -> Result<Self, OAuthError> {
        let kind = request
            .headers
            .get(header::CONTENT_TYPE)
            .and_then(|kind| kind.to_str().ok());
        let kind = kind.and_then(|kind| kind.split(';').next()).unwrap_or_default().trim();
        if !kind.eq_ignore_ascii_case("application/x-www-form-urlencoded") {
            return Err(invalid(
                "content-type must be application/x-www-form-urlencoded".to_owned(),
            ));
        }
        let mut fields: Vec<(String, String)> = Vec::new();
        for (name, value) in form_urlencoded::parse(&request.body) {
            if fields.iter().any(|(known, _)| *known == name) {
                return Err(invalid("a parameter is repeated".to_owned()));
            }
            fields.push((name.into_owned(), value.into_owned()));
            if fields.len() > FIELDS_MAX {
                return Err(invalid(format!("a request may have at most {FIELDS_MAX} parameters")));
            }
        }
        Ok(Self(fields))
    }

    /// Returns the value of a required parameter. A parameter without a value counts as missing (RFC 6749, section 3.2).
    fn required(&self, name: &str) -> Result<&str, OAuthError> {
        let found = self.0.iter().find(|(known, value)| known == name && !value.is_empty());
        let missing = || invalid(format!("{name} is missing"));
        found.map(|(_, value)| value.as_str()).ok_or_else(missing)
    }
}

/// The maximum number of parameters of a request.
const FIELDS_MAX: usize = 32;

fn metadata_json(base: &str) -> Value {
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

fn tokens_json(tokens: &IssuedTokens) -> Value {
    json!({
        "access_token": tokens.access.as_str(),
        "token_type": "Bearer",
        "expires_in": tokens.lasts_seconds,
        "refresh_token": tokens.refresh.text(),
    })
}

fn invalid(why: String) -> OAuthError {
    OAuthError(StatusCode::BAD_REQUEST, "invalid_request", why)
}

impl From<SignInError> for OAuthError {
    fn from(why: SignInError) -> Self {
        let (status, code) = match &why {
            SignInError::Pending => (StatusCode::BAD_REQUEST, "authorization_pending"),
            SignInError::SlowDown => (StatusCode::BAD_REQUEST, "slow_down"),
            SignInError::TooMany => (StatusCode::TOO_MANY_REQUESTS, "slow_down"),
            SignInError::Denied => (StatusCode::BAD_REQUEST, "access_denied"),
            SignInError::Expired => (StatusCode::BAD_REQUEST, "expired_token"),
            SignInError::InvalidGrant => (StatusCode::BAD_REQUEST, "invalid_grant"),
            // This error says nothing about the token, so the agent retains its tokens and tries again.
            SignInError::Store(error) => {
                tracing::warn!(%error, "cannot process an agent's sign-in request, because a call to the store failed; the agent gets status 503");
                let why = "the service's store is unavailable: try again in a moment".to_owned();
                return Self(StatusCode::SERVICE_UNAVAILABLE, "temporarily_unavailable", why);
            }
        };
        Self(status, code, why.to_string())
    }
}

fn error_response(OAuthError(status, code, why): OAuthError) -> PageResponse {
    PageResponse::json(status, &json!({ "error": code, "error_description": why }))
}

fn too_many(wait: Duration) -> PageResponse {
    let seconds = wait.as_secs() + 1;
    let why = format!("too many requests from this address: try again in {seconds} seconds");
    let mut answer = error_response(OAuthError(StatusCode::TOO_MANY_REQUESTS, "slow_down", why));
    answer.headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    answer
}
