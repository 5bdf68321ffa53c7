//! Fetches the metadata and the keys of the OpenID provider when they are needed, and caches them.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use arc_swap::ArcSwapOption;
use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use serde_json::Value;
use tokio::sync::Mutex;

use crate::{
    console::openid::{
        SignInFailure,
        id_token::{self, ExpectedClaims, IdTokenFault, IdTokenKeys},
    },
    domain::sign_in::SecureUrl,
    edges::web_client::{RootsError, WebClient, WebLimits, roots_with_platform},
};

/// The age up to which metadata and keys are used without fetching them again.
const FRESH: Duration = Duration::from_secs(3600);
/// The age up to which metadata and keys are used while they cannot be fetched again.
const USABLE: Duration = Duration::from_secs(24 * 3600);
/// The pause after a failed fetch.
const REST: Duration = Duration::from_secs(2);

/// An OpenID provider, with its cached metadata and keys.
pub(super) struct OpenIdProvider {
    issuer: String,
    fetch: OpenIdClient,
    document: ArcSwapOption<CachedMetadata>,
    /// Contains the time and the reason of the most recent failure; `None` if no fetch has failed since the last success. Locked
    /// during a fetch, so that concurrent tasks fetch the metadata only once.
    asking: Mutex<Option<(Instant, String)>>,
    keys: ArcSwapOption<CachedKeys>,
}

struct CachedMetadata {
    metadata: Arc<OpenIdMetadata>,
    read: Instant,
}

struct CachedKeys {
    keys: IdTokenKeys,
    read: Instant,
}

impl OpenIdProvider {
    pub(super) fn new(issuer: String, fetch: OpenIdClient) -> Self {
        Self {
            issuer,
            fetch,
            document: ArcSwapOption::empty(),
            asking: Mutex::default(),
            keys: ArcSwapOption::empty(),
        }
    }

    /// Returns the client for requests to the provider.
    pub(super) fn client(&self) -> &OpenIdClient {
        &self.fetch
    }

    /// Returns the most recently fetched metadata, whatever its age. `None` if none has been fetched.
    pub(super) fn last_metadata(&self) -> Option<Arc<OpenIdMetadata>> {
        Some(Arc::clone(&self.document.load_full()?.metadata))
    }

    /// Returns the provider's metadata.
    ///
    /// # Errors
    /// The metadata cannot be fetched, or is not valid.
    pub(super) async fn metadata(&self, now: Instant) -> Result<Arc<OpenIdMetadata>, String> {
        let within = |limit: Duration| {
            let known = self.document.load_full()?;
            (now.saturating_duration_since(known.read) < limit).then(|| Arc::clone(&known.metadata))
        };
        if let Some(fresh) = within(FRESH) {
            return Ok(fresh);
        }
        let mut failed = self.asking.lock().await;
        // Another task may have fetched the metadata while this one waited.
        if let Some(fresh) = within(FRESH) {
            return Ok(fresh);
        }
        let rests = failed
            .as_ref()
            .filter(|(at, _)| now.saturating_duration_since(*at) < REST);
        let asked = match rests {
            Some((_, why)) => Err(why.clone()),
            None => self
                .fetch_metadata()
                .await
                .inspect_err(|why| *failed = Some((now, why.clone()))),
        };
        match asked {
            Ok(metadata) => {
                let metadata = Arc::new(metadata);
                let document = CachedMetadata {
                    metadata: Arc::clone(&metadata),
                    read: now,
                };
                self.document.store(Some(Arc::new(document)));
                *failed = None;
                Ok(metadata)
            }
            Err(why) => {
                let known = within(USABLE).ok_or_else(|| why.clone())?;
                tracing::warn!(%why, "cannot fetch the OpenID provider's metadata; weir continues to use the previous metadata");
                Ok(known)
            }
        }
    }

    /// Verifies an ID token: it must be signed by one of the provider's keys and match `expected`. Returns the token's claims. If
    /// none of the cached keys has signed the token, the keys are fetched again, because the provider may replace them at any
    /// time. The keys are also fetched as often as the metadata, because the provider may have withdrawn a compromised key.
    pub(super) async fn verify(
        &self,
        metadata: &OpenIdMetadata,
        token: &str,
        expected: &ExpectedClaims<'_>,
        now: Instant,
    ) -> Result<Value, SignInFailure> {
        let known = self.keys.load_full();
        let within = |limit: Duration| {
            let known = known.as_ref()?;
            (now.saturating_duration_since(known.read) < limit).then_some(&known.keys)
        };
        let fresh = within(FRESH).map(|keys| id_token::check(token, keys, expected));
        if let Some(checked) = fresh.filter(|checked| *checked != Err(IdTokenFault::Signature)) {
            return checked.map_err(SignInFailure::Token);
        }
        let set = match self.fetch.get(&metadata.jwks_uri, None).await {
            Ok(set) => set,
            Err(why) => {
                // Keys that are still fresh have been tried already.
                let usable = within(USABLE).filter(|_| within(FRESH).is_none());
                let keys = usable.ok_or_else(|| SignInFailure::Provider(why.message.clone()))?;
                tracing::warn!(why = %why.message, "cannot fetch the OpenID provider's keys; weir continues to use the previous keys");
                return id_token::check(token, keys, expected).map_err(SignInFailure::Token);
            }
        };
        let keys = IdTokenKeys::read(&set);
        let checked = id_token::check(token, &keys, expected);
        self.keys.store(Some(Arc::new(CachedKeys { keys, read: now })));
        checked.map_err(SignInFailure::Token)
    }

    async fn fetch_metadata(&self) -> Result<OpenIdMetadata, String> {
        let address = document_url(&self.issuer);
        let endpoint = SecureUrl::parse(&address).ok_or_else(|| format!("{address} is not an https URL"))?;
        let document = self.fetch.get(&endpoint, None).await.map_err(|why| why.message)?;
        OpenIdMetadata::read(&document, &self.issuer)
    }
}

/// The path of the metadata document, which is appended to the issuer.
const DOCUMENT: &str = "/.well-known/openid-configuration";

/// The parts of the provider's metadata that weir uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OpenIdMetadata {
    pub(super) authorization_endpoint: SecureUrl,
    pub(super) token_endpoint: SecureUrl,
    pub(super) jwks_uri: SecureUrl,
    pub(super) userinfo_endpoint: Option<SecureUrl>,
    pub(super) end_session_endpoint: Option<SecureUrl>,
    /// Whether the provider accepts the client secret by HTTP basic authentication. False only if the provider lists its methods
    /// and this one is not in the list.
    pub(super) accepts_basic: bool,
    /// Whether every authorization response contains the provider's issuer (RFC 9207).
    pub(super) iss_in_answers: bool,
}

/// Returns the URL of the metadata document of an issuer.
pub(super) fn document_url(issuer: &str) -> String {
    format!("{}{DOCUMENT}", issuer.trim_end_matches('/'))
}

impl OpenIdMetadata {
    /// Reads the metadata document of an issuer.
    ///
    /// # Errors
    /// A description of the document's fault.
    pub(super) fn read(document: &Value, issuer: &str) -> Result<Self, String> {
        if document.get("issuer").and_then(Value::as_str) != Some(issuer) {
            return Err("its document is from another issuer: `issuer` of [console.openid] must equal the document's, to the last character".to_owned());
        }
        let optional = |name: &str| SecureUrl::parse(document.get(name)?.as_str()?);
        let endpoint = |name: &str| {
            optional(name).ok_or_else(|| format!("its document has no usable {name}: it must be an https URL"))
        };
        let methods = document
            .get("token_endpoint_auth_methods_supported")
            .and_then(Value::as_array);
        let takes = |method: &str| methods.is_none_or(|methods| methods.iter().any(|one| one == method));
        Ok(Self {
            authorization_endpoint: endpoint("authorization_endpoint")?,
            token_endpoint: endpoint("token_endpoint")?,
            jwks_uri: endpoint("jwks_uri")?,
            userinfo_endpoint: optional("userinfo_endpoint"),
            end_session_endpoint: optional("end_session_endpoint"),
            accepts_basic: takes("client_secret_basic"),
            iss_in_answers: document.get("authorization_response_iss_parameter_supported") == Some(&Value::Bool(true)),
        })
    }
}

/// The limits of a request to the provider. The total time includes name resolution. A large provider's key set has about 10,000
/// bytes.
const LIMITS: WebLimits = WebLimits {
    connect: Duration::from_secs(5),
    total: Some(Duration::from_secs(5)),
    answer_bytes_max: 256 * 1024,
    idle_max: 0,
};

/// A client that sends requests to the provider and always verifies the provider's certificate.
pub(super) struct OpenIdClient {
    client: WebClient,
}

/// The reason why a request to the provider failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OpenIdRequestError {
    /// The provider's error code (RFC 6749, section 5.2). `None` if the provider sent none.
    pub(super) error: Option<String>,
    /// A description for operators. It contains no part of the request.
    pub(super) message: String,
}

impl OpenIdRequestError {
    fn because(message: impl Into<String>) -> Self {
        Self {
            error: None,
            message: message.into(),
        }
    }
}

impl OpenIdClient {
    /// Creates the client. It trusts the platform's CA certificates and those in `ca`, the content of a PEM file.
    ///
    /// # Errors
    /// There are no usable CA certificates.
    pub(super) fn new(ca: Option<&[u8]>) -> Result<Self, RootsError> {
        let client = WebClient::with_roots(roots_with_platform(ca)?, LIMITS)?;
        Ok(Self { client })
    }

    pub(super) async fn get(&self, from: &SecureUrl, authorization: Option<&str>) -> Result<Value, OpenIdRequestError> {
        self.send(Method::GET, from, authorization, None).await
    }

    /// Sends a form to an endpoint, and returns the JSON in the response.
    pub(super) async fn post(
        &self,
        to: &SecureUrl,
        form: &str,
        authorization: Option<&str>,
    ) -> Result<Value, OpenIdRequestError> {
        self.send(Method::POST, to, authorization, Some(form)).await
    }

    async fn send(
        &self,
        method: Method,
        at: &SecureUrl,
        authorization: Option<&str>,
        form: Option<&str>,
    ) -> Result<Value, OpenIdRequestError> {
        let place = at.with_query("");
        let about = |why: OpenIdRequestError| OpenIdRequestError {
            message: format!("{place}: {}", why.message),
            ..why
        };
        let request = build_request((method, &place), authorization, form)
            .map_err(|error| OpenIdRequestError::because(error.to_string()))
            .map_err(about)?;
        let answer = self.client.send(request).await;
        let answer = answer
            .map_err(|error| OpenIdRequestError::because(error.to_string()))
            .map_err(about)?;
        read_response(answer.status(), answer.body()).map_err(about)
    }
}

fn build_request(
    (method, at): (Method, &str),
    authorization: Option<&str>,
    form: Option<&str>,
) -> http::Result<Request<Bytes>> {
    let mut request = Request::builder()
        .method(method)
        .uri(at)
        .header(header::ACCEPT, "application/json");
    if let Some(authorization) = authorization {
        request = request.header(header::AUTHORIZATION, authorization);
    }
    if form.is_some() {
        request = request.header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
    }
    request.body(Bytes::copy_from_slice(form.unwrap_or_default().as_bytes()))
}

fn read_response(status: StatusCode, body: &[u8]) -> Result<Value, OpenIdRequestError> {
    let json = serde_json::from_slice::<Value>(body).ok();
    if status != StatusCode::OK {
        let error = json.as_ref().and_then(|json| json.get("error")?.as_str());
        // Only the protocol's error codes are used, because other text may quote the request.
        let error = error
            .filter(|error| error.len() <= 64 && error.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'));
        let said = error.map(|error| format!(" and the error {error}")).unwrap_or_default();
        return Err(OpenIdRequestError {
            error: error.map(str::to_owned),
            message: format!("it responded with status {}{said}", status.as_u16()),
        });
    }
    json.ok_or_else(|| OpenIdRequestError::because("its response is not JSON"))
}

/// Returns the `Basic` credentials of a client. The client id and the secret are form-encoded first (RFC 6749, section 2.3.1).
pub(super) fn basic_credentials(id: &str, secret: &str) -> String {
    let encoded = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
    format!(
        "Basic {}",
        STANDARD.encode(format!("{}:{}", encoded(id), encoded(secret)))
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edges::clock;
    use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
    use ring::signature::{Ed25519KeyPair, KeyPair};
    use serde_json::json;
    use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
    };

    const ISSUER: &str = "https://login.example";
    const EXPECTED: ExpectedClaims<'_> = ExpectedClaims {
        issuer: ISSUER,
        client_id: "weir",
        nonce: "n",
        now: 1_800_000_000,
    };

    fn pair(seed: u8) -> Ed25519KeyPair {
        Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap()
    }

    fn token(seed: u8) -> String {
        let encode = |part: Value| URL_SAFE_NO_PAD.encode(part.to_string());
        let now = EXPECTED.now;
        let claims = json!({"iss": ISSUER, "aud": "weir", "sub": "7", "nonce": "n", "iat": now, "exp": now + 300});
        let message = format!("{}.{}", encode(json!({"alg": "EdDSA"})), encode(claims));
        let signature = pair(seed).sign(message.as_bytes());
        format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature))
    }

    /// A provider's endpoint for keys. It counts requests. It returns the key that is derived from a seed, or an invalid
    /// response.
    #[derive(Default)]
    struct Site {
        seed: AtomicU8,
        asked: AtomicUsize,
    }

    impl Site {
        async fn serve(self: Arc<Self>, listener: TcpListener) {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut head = [0; 4096];
                let _ = stream.read(&mut head).await;
                self.asked.fetch_add(1, Ordering::SeqCst);
                let body = match self.seed.load(Ordering::SeqCst) {
                    0 => "away".to_owned(),
                    seed => {
                        let key = URL_SAFE_NO_PAD.encode(pair(seed).public_key());
                        json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "x": key}]}).to_string()
                    }
                };
                let length = body.len();
                let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}");
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        }
    }

    #[tokio::test]
    async fn a_key_that_was_withdrawn_is_forgotten_when_the_keys_are_read_again() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let site = Arc::new(Site::default());
        tokio::spawn(Arc::clone(&site).serve(listener));
        let endpoint = |name: &str| format!("http://{address}/{name}");
        let document = json!({
            "issuer": ISSUER, "authorization_endpoint": endpoint("auth"), "token_endpoint": endpoint("token"),
            "jwks_uri": endpoint("keys"),
        });
        let metadata = OpenIdMetadata::read(&document, ISSUER).unwrap();
        let provider = OpenIdProvider::new(ISSUER.to_owned(), OpenIdClient::new(None).unwrap());
        let start = clock::instant();
        let believed = async |seed, after| {
            let checked = provider.verify(&metadata, &token(seed), &EXPECTED, start + after).await;
            (checked.is_ok(), site.asked.load(Ordering::SeqCst))
        };
        let moment = Duration::from_secs(1);
        site.seed.store(1, Ordering::SeqCst);
        assert_eq!(believed(1, Duration::ZERO).await, (true, 1));
        // The provider replaces its key, but no token that the new key has signed is verified yet.
        site.seed.store(2, Ordering::SeqCst);
        assert_eq!(believed(1, FRESH - moment).await, (true, 1), "not asked each time");
        assert_eq!(believed(1, FRESH).await, (false, 2), "somebody else may have it");
        assert_eq!(believed(2, FRESH).await, (true, 2));
        // If the provider is unreachable, users can sign in for another day, and nobody can after that.
        site.seed.store(0, Ordering::SeqCst);
        assert_eq!(believed(2, 2 * FRESH).await, (true, 3));
        assert_eq!(believed(1, 2 * FRESH).await, (false, 4), "it is not back again");
        assert_eq!(believed(2, FRESH + USABLE - moment).await, (true, 5));
        assert_eq!(believed(2, FRESH + USABLE).await, (false, 6));
    }

    #[test]
    fn the_document_is_the_issuers_own_and_has_what_is_needed() {
        let issuer = "https://login.example/realm";
        assert_eq!(
            document_url(issuer),
            "https://login.example/realm/.well-known/openid-configuration"
        );
        assert_eq!(document_url("https://a/"), "https://a/.well-known/openid-configuration");
        let document = json!({
            "issuer": issuer,
            "authorization_endpoint": "https://login.example/auth",
            "token_endpoint": "https://login.example/token",
            "jwks_uri": "https://login.example/keys",
        });
        let read = |document: &Value| OpenIdMetadata::read(document, issuer);
        let metadata = read(&document).unwrap();
        assert!(metadata.accepts_basic && !metadata.iss_in_answers && metadata.userinfo_endpoint.is_none());
        for (member, value) in [
            ("issuer", json!("https://login.example/realm/")),
            ("token_endpoint", json!("http://login.example/token")),
            ("jwks_uri", json!(null)),
        ] {
            let mut wrong = document.clone();
            wrong[member] = value;
            let said = read(&wrong).unwrap_err();
            assert!(said.contains(member), "{said}");
        }
        let mut post = document;
        post["token_endpoint_auth_methods_supported"] = json!(["client_secret_post"]);
        assert!(!read(&post).unwrap().accepts_basic);
    }

    #[test]
    fn a_refusal_is_told_in_the_words_of_the_protocol_alone() {
        let refused = |body: &str| read_response(StatusCode::BAD_REQUEST, body.as_bytes()).unwrap_err();
        let told = refused(r#"{"error":"invalid_grant","error_description":"canary"}"#);
        assert_eq!(told.error.as_deref(), Some("invalid_grant"));
        assert_eq!(told.message, "it responded with status 400 and the error invalid_grant");
        for body in ["canary", r#"{"error":"Canary!"}"#, r#"{"error":7}"#] {
            assert_eq!(
                (refused(body).error, refused(body).message.as_str()),
                (None, "it responded with status 400")
            );
        }
        assert!(read_response(StatusCode::FOUND, b"{}").is_err() && read_response(StatusCode::OK, b"canary").is_err());
    }

    #[test]
    fn a_client_is_encoded_as_in_a_form() {
        assert_eq!(
            basic_credentials("a b", "c:d"),
            format!("Basic {}", STANDARD.encode("a+b:c%3Ad"))
        );
    }
}
