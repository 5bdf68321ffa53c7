//! What a program asks a gateway to be signed in: the device flow (RFC 8628), refreshing (RFC 6749, section 6) and revocation
//! (RFC 7009), at the addresses that the gateway's document names (RFC 8414).

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, StatusCode, header};
use serde_json::Value;

use crate::{
    domain::{keys::secret::Secret, sign_in::endpoint::Endpoint},
    edges::{
        clock,
        roots::RootsError,
        web_client::{WebClient, WebError, WebLimits},
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
/// How much longer to wait between two questions after one that came too soon (RFC 8628, section 3.5).
const SLOWER_BY: Duration = Duration::from_secs(5);
/// The bounds of what a gateway may name: the time between two questions, and how long a code lasts.
const INTERVAL: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];
const LASTS_MAX: Duration = Duration::from_secs(3600);

/// The way to a gateway.
pub(super) struct Gateway {
    base: String,
    client: WebClient,
}

/// Where the gateway is asked.
#[derive(Clone, Debug)]
pub(super) struct Endpoints {
    device: String,
    token: String,
    revocation: String,
}

/// A sign-in that waits for its person.
pub(super) struct Begun {
    device_code: Secret,
    /// What the person compares.
    pub(super) user_code: String,
    /// Where the person decides.
    pub(super) open: String,
    interval: Duration,
    /// How long the code is good.
    pub(super) lasts: Duration,
}

/// What a machine that is signed in has.
#[derive(Debug)]
pub(super) struct Tokens {
    pub(super) access: Secret,
    pub(super) lasts_seconds: i64,
    pub(super) refresh: Secret,
}

/// Why a gateway gives no tokens. The texts have nothing that was sent or kept.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoTokens {
    /// It has no document of sign-ins.
    #[error("nobody can sign in there: it is no weir, or has no [sign_in] enabled = true")]
    Closed,
    /// The sign-in was refused, in OAuth's words.
    #[error("{}", told(.0))]
    Refused(String),
    /// Nobody has approved the code in its time.
    #[error("nobody has approved the code in time: begin anew")]
    Late,
    /// It answers something else than the standards say.
    #[error("it answers {0}, which no weir does")]
    Odd(String),
    /// There is no answer.
    #[error(transparent)]
    Web(#[from] WebError),
}

fn told(word: &str) -> &str {
    match word {
        "access_denied" => "the sign-in was refused",
        "expired_token" => "nobody has approved the code in time: begin anew",
        "slow_down" => "too many sign-ins at this time: try again in some minutes",
        "temporarily_unavailable" => "it cannot look it up at this moment: try again",
        other => other,
    }
}

impl Gateway {
    /// The gateway at `https://host`, verified by these authorities or else by those of the machine.
    pub(super) fn new(base: &str, ca: Option<&[u8]>) -> Result<Self, RootsError> {
        Ok(Self {
            base: base.to_owned(),
            client: WebClient::new(ca, LIMITS)?,
        })
    }

    /// Where it is asked. Addresses of another server are not taken: the tokens are for this one.
    pub(super) async fn discover(&self) -> Result<Endpoints, NoTokens> {
        let request = Request::get(format!("{}{DISCOVERY}", self.base));
        let (status, document) = self.send(request, Bytes::new()).await?;
        if status == StatusCode::NOT_FOUND {
            return Err(NoTokens::Closed);
        }
        let address = |name: &str| {
            let text = document.get(name).and_then(Value::as_str)?;
            let endpoint = Endpoint::parse(text).filter(|endpoint| endpoint.origin() == self.base)?;
            Some(format!("{}{}", self.base, endpoint.path))
        };
        let odd = || NoTokens::Odd(format!("{status} without addresses of its own"));
        Ok(Endpoints {
            device: address("device_authorization_endpoint").ok_or_else(odd)?,
            token: address("token_endpoint").ok_or_else(odd)?,
            revocation: address("revocation_endpoint").ok_or_else(odd)?,
        })
    }

    /// Begins to sign in.
    pub(super) async fn begin(&self, at: &Endpoints) -> Result<Begun, NoTokens> {
        let told = self.post(&at.device, &[("surface", "weir")]).await?;
        let seconds = |name: &str| told.get(name).and_then(Value::as_u64).map(Duration::from_secs);
        let text = |name: &str| told.get(name).and_then(Value::as_str).map(printable);
        let open = text("verification_uri_complete").or_else(|| text("verification_uri"));
        let begun = || {
            Some(Begun {
                device_code: Secret::new(told.get("device_code")?.as_str()?),
                user_code: text("user_code")?,
                open: open?,
                interval: seconds("interval")?.clamp(INTERVAL[0], INTERVAL[1]),
                lasts: seconds("expires_in")?.min(LASTS_MAX),
            })
        };
        begun().ok_or_else(|| NoTokens::Odd("without a code".to_owned()))
    }

    /// The tokens, as soon as a person has approved the code that began then.
    pub(super) async fn wait(&self, at: &Endpoints, begun: &Begun, began: Instant) -> Result<Tokens, NoTokens> {
        let (code, mut interval) = (begun.device_code.expose(), begun.interval);
        loop {
            tokio::time::sleep(interval).await;
            let answer = self
                .post(&at.token, &[("grant_type", DEVICE_GRANT), ("device_code", code)])
                .await;
            match answer {
                Ok(told) => return read(&told),
                Err(NoTokens::Refused(word)) => match word.as_str() {
                    "authorization_pending" | "temporarily_unavailable" => {}
                    "slow_down" => interval += SLOWER_BY,
                    _ => return Err(NoTokens::Refused(word)),
                },
                // The network may come back while the code is good.
                Err(NoTokens::Web(_)) => {}
                Err(other) => return Err(other),
            }
            if clock::instant().saturating_duration_since(began) >= begun.lasts {
                return Err(NoTokens::Late);
            }
        }
    }

    /// New tokens in the place of those that a refresh token is of.
    pub(super) async fn refresh(&self, at: &Endpoints, token: &str) -> Result<Tokens, NoTokens> {
        let form = [("grant_type", "refresh_token"), ("refresh_token", token)];
        read(&self.post(&at.token, &form).await?)
    }

    /// Ends the sign-in of a refresh token.
    pub(super) async fn revoke(&self, at: &Endpoints, token: &str) -> Result<(), NoTokens> {
        self.post(&at.revocation, &[("token", token)]).await.map(drop)
    }

    async fn post(&self, address: &str, form: &[(&str, &str)]) -> Result<Value, NoTokens> {
        let body = form_urlencoded::Serializer::new(String::new())
            .extend_pairs(form)
            .finish();
        let request = Request::post(address).header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        let (status, told) = self.send(request, Bytes::from(body)).await?;
        if status == StatusCode::OK {
            return Ok(told);
        }
        match told.get("error").and_then(Value::as_str) {
            // Only words of the protocol: an answer may quote what it was sent.
            Some(word) if word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_') => {
                Err(NoTokens::Refused(word.to_owned()))
            }
            _ => Err(NoTokens::Odd(status.to_string())),
        }
    }

    async fn send(&self, request: http::request::Builder, body: Bytes) -> Result<(StatusCode, Value), NoTokens> {
        let request = request.header(header::ACCEPT, "application/json").body(body);
        let request = request.map_err(|_| NoTokens::Web(WebError::Address))?;
        let answer = self.client.send(request).await?;
        let json = serde_json::from_slice(answer.body());
        Ok((answer.status(), json.unwrap_or(Value::Null)))
    }
}

fn read(told: &Value) -> Result<Tokens, NoTokens> {
    let text = |name: &str| told.get(name).and_then(Value::as_str).map(Secret::new);
    let tokens = || {
        Some(Tokens {
            access: text("access_token").filter(|token| token.expose().bytes().all(|byte| byte.is_ascii_graphic()))?,
            lasts_seconds: told.get("expires_in")?.as_i64()?,
            refresh: text("refresh_token")?,
        })
    };
    tokens().ok_or_else(|| NoTokens::Odd("without tokens".to_owned()))
}

/// Without what could move a terminal's cursor.
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
            assert!(matches!(read(&part), Err(NoTokens::Odd(_))), "{name}");
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
