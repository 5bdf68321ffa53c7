//! A client of a gateway's sign-in endpoints: the device flow (RFC 8628), refreshing of tokens (RFC 6749, section 6) and their
//! revocation (RFC 7009). The endpoints' URLs come from the gateway's metadata document (RFC 8414).

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, StatusCode, header};
use serde_json::Value;

use crate::{
    domain::{keys::secret::Secret, sign_in::SecureUrl},
    edges::{
        clock,
        web_client::{RootsError, WebClient, WebError, WebLimits},
    },
};

const DISCOVERY: &str = "/.well-known/oauth-authorization-server";
const DEVICE_GRANT: &str = "urn:ietf:params:oauth:grant-type:device_code";
const LIMITS: WebLimits = WebLimits {
    connect: Duration::from_secs(5),
    total: Some(Duration::from_secs(10)),
    answer_bytes_max: 64 * 1024,
    idle_max: 0,
};
/// The increase of the polling interval after a poll that was too early (RFC 8628, section 3.5).
const SLOWER_BY: Duration = Duration::from_secs(5);
/// The minimum and maximum of the polling interval. The interval that the gateway requests is limited to this range.
const INTERVAL: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];
/// The maximum lifetime of a code, which applies if the gateway states a longer one.
const LASTS_MAX: Duration = Duration::from_secs(3600);

/// A client of the sign-in endpoints of a gateway.
pub(super) struct SignInGateway {
    base: String,
    client: WebClient,
}

/// The URLs of the gateway's sign-in endpoints.
#[derive(Clone, Debug)]
pub(super) struct SignInEndpoints {
    device: String,
    token: String,
    revocation: String,
}

/// A sign-in that waits until a user approves it.
pub(super) struct DeviceSignIn {
    device_code: Secret,
    /// The code that the user compares with the code on the gateway's page.
    pub(super) user_code: String,
    /// The URL at which the user approves the sign-in.
    pub(super) open: String,
    interval: Duration,
    /// The lifetime of the code.
    pub(super) lasts: Duration,
}

/// The tokens of a machine that is signed in.
#[derive(Debug)]
pub(super) struct MachineTokens {
    pub(super) access: Secret,
    pub(super) lasts_seconds: i64,
    pub(super) refresh: Secret,
}

/// The reason why a gateway did not issue or revoke tokens. Messages never contain codes or tokens.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TokenError {
    /// The server has no metadata document for sign-ins.
    #[error(
        "the server does not offer sign-in: it is not a weir gateway, or its setting [sign_in] enabled is not true"
    )]
    Closed,
    /// The gateway refused the request. Contains the error code of OAuth.
    #[error("{}", error_text(.0))]
    Refused(String),
    /// The user did not approve the code before it expired.
    #[error("the code expired before it was approved: run weir login again")]
    Late,
    /// The response does not follow the standards. Contains a description of its fault.
    #[error("unexpected response ({0}): check that the URL is that of a weir gateway")]
    Odd(String),
    /// There was no response.
    #[error(transparent)]
    Web(#[from] WebError),
}

fn error_text(word: &str) -> &str {
    match word {
        "access_denied" => "the sign-in was refused",
        "expired_token" => "the code expired before it was approved: run weir login again",
        "slow_down" => "too many sign-ins at the moment: try again in a few minutes",
        "temporarily_unavailable" => "the gateway cannot check the sign-in at the moment: try again later",
        other => other,
    }
}

impl SignInGateway {
    /// Creates a client of the gateway at `base`, such as `https://HOST`. Trusts the CA certificates `ca` in PEM; `None` for the
    /// machine's CA certificates.
    pub(super) fn new(base: &str, ca: Option<&[u8]>) -> Result<Self, RootsError> {
        Ok(Self {
            base: base.to_owned(),
            client: WebClient::new(ca, LIMITS)?,
        })
    }

    /// Fetches the gateway's metadata document and returns the endpoints in it. Refuses endpoints on another server, because
    /// tokens must not be sent there.
    pub(super) async fn discover(&self) -> Result<SignInEndpoints, TokenError> {
        let request = Request::get(format!("{}{DISCOVERY}", self.base));
        let (status, document) = self.send(request, Bytes::new()).await?;
        if status == StatusCode::NOT_FOUND {
            return Err(TokenError::Closed);
        }
        let address = |name: &str| {
            let text = document.get(name).and_then(Value::as_str)?;
            let endpoint = SecureUrl::parse(text).filter(|endpoint| endpoint.origin() == self.base)?;
            Some(format!("{}{}", self.base, endpoint.path))
        };
        let odd = || TokenError::Odd(format!("status {status} without sign-in endpoints on this server"));
        Ok(SignInEndpoints {
            device: address("device_authorization_endpoint").ok_or_else(odd)?,
            token: address("token_endpoint").ok_or_else(odd)?,
            revocation: address("revocation_endpoint").ok_or_else(odd)?,
        })
    }

    /// Begins a sign-in. Returns its codes and the URL at which a user approves it.
    pub(super) async fn begin(&self, at: &SignInEndpoints) -> Result<DeviceSignIn, TokenError> {
        let told = self.post(&at.device, &[("surface", "weir")]).await?;
        let seconds = |name: &str| told.get(name).and_then(Value::as_u64).map(Duration::from_secs);
        let text = |name: &str| told.get(name).and_then(Value::as_str).map(printable);
        let open = text("verification_uri_complete").or_else(|| text("verification_uri"));
        let begun = || {
            Some(DeviceSignIn {
                device_code: Secret::new(told.get("device_code")?.as_str()?),
                user_code: text("user_code")?,
                open: open?,
                interval: seconds("interval")?.clamp(INTERVAL[0], INTERVAL[1]),
                lasts: seconds("expires_in")?.min(LASTS_MAX),
            })
        };
        begun().ok_or_else(|| TokenError::Odd("no code".to_owned()))
    }

    /// Waits until a user approves the code, whose lifetime began at `began`. Returns the tokens.
    pub(super) async fn wait_for_approval(
        &self,
        at: &SignInEndpoints,
        begun: &DeviceSignIn,
        began: Instant,
    ) -> Result<MachineTokens, TokenError> {
        let (code, mut interval) = (begun.device_code.expose(), begun.interval);
        loop {
            tokio::time::sleep(interval).await;
            let answer = self
                .post(&at.token, &[("grant_type", DEVICE_GRANT), ("device_code", code)])
                .await;
            match answer {
                Ok(told) => return read(&told),
                Err(TokenError::Refused(word)) => match word.as_str() {
                    "authorization_pending" | "temporarily_unavailable" => {}
                    "slow_down" => interval += SLOWER_BY,
                    _ => return Err(TokenError::Refused(word)),
                },
                // A failed connection is ignored, because a later poll may succeed while the code is valid.
                Err(TokenError::Web(_)) => {}
                Err(other) => return Err(other),
            }
            if clock::instant().saturating_duration_since(began) >= begun.lasts {
                return Err(TokenError::Late);
            }
        }
    }

    /// Exchanges a refresh token for new tokens.
    pub(super) async fn refresh(&self, at: &SignInEndpoints, token: &str) -> Result<MachineTokens, TokenError> {
        let form = [("grant_type", "refresh_token"), ("refresh_token", token)];
        read(&self.post(&at.token, &form).await?)
    }

    /// Ends the sign-in to which a refresh token belongs.
    pub(super) async fn revoke(&self, at: &SignInEndpoints, token: &str) -> Result<(), TokenError> {
        self.post(&at.revocation, &[("token", token)]).await.map(drop)
    }

    async fn post(&self, address: &str, form: &[(&str, &str)]) -> Result<Value, TokenError> {
        let body = form_urlencoded::Serializer::new(String::new())
            .extend_pairs(form)
            .finish();
        let request = Request::post(address).header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        let (status, told) = self.send(request, Bytes::from(body)).await?;
        if status == StatusCode::OK {
            return Ok(told);
        }
        match told.get("error").and_then(Value::as_str) {
            // Only the protocol's error code is used, because the rest of a response may quote the request with its tokens.
            Some(word) if word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_') => {
                Err(TokenError::Refused(word.to_owned()))
            }
            _ => Err(TokenError::Odd(status.to_string())),
        }
    }

    async fn send(&self, request: http::request::Builder, body: Bytes) -> Result<(StatusCode, Value), TokenError> {
        let request = request.header(header::ACCEPT, "application/json").body(body);
        let request = request.map_err(|_| TokenError::Web(WebError::Address))?;
        let answer = self.client.send(request).await?;
        let json = serde_json::from_slice(answer.body());
        Ok((answer.status(), json.unwrap_or(Value::Null)))
    }
}

fn read(told: &Value) -> Result<MachineTokens, TokenError> {
    let text = |name: &str| told.get(name).and_then(Value::as_str).map(Secret::new);
    let tokens = || {
        Some(MachineTokens {
            access: text("access_token").filter(|token| token.expose().bytes().all(|byte| byte.is_ascii_graphic()))?,
            lasts_seconds: told.get("expires_in")?.as_i64()?,
            refresh: text("refresh_token")?,
        })
    };
    tokens().ok_or_else(|| TokenError::Odd("no tokens".to_owned()))
}

/// Removes control characters from a text, because they could change the state of a terminal, and shortens the text.
fn printable(text: &str) -> String {
    text.chars().filter(|char| !char.is_control()).take(500).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn tokens_are_read_whole_or_not_at_all() {
        let whole = json!({ "access_token": "weir-a", "expires_in": 3600, "refresh_token": "weir-r" });
        let tokens = read(&whole).unwrap();
        assert_eq!(
            (tokens.access.expose(), tokens.lasts_seconds, tokens.refresh.expose()),
            ("weir-a", 3600, "weir-r")
        );
        assert!(!format!("{tokens:?}").contains("weir-"));
        for name in ["access_token", "expires_in", "refresh_token"] {
            let mut part = whole.clone();
            part.as_object_mut().unwrap().remove(name);
            assert!(matches!(read(&part), Err(TokenError::Odd(_))), "{name}");
        }
        let two_lines = json!({ "access_token": "a\nb", "expires_in": 1, "refresh_token": "r" });
        assert!(read(&two_lines).is_err());
    }

    #[test]
    fn nothing_of_a_terminals_language_is_printed() {
        assert_eq!(printable("BCDF-GHJK"), "BCDF-GHJK");
        assert_eq!(printable("a\u{1b}[2Jb\r\nc"), "a[2Jbc");
    }
}
