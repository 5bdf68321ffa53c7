//! The OpenID provider's metadata and keys, fetched when they are needed.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use arc_swap::ArcSwapOption;
use serde_json::Value;
use tokio::sync::Mutex;

use crate::domain::sign_in::endpoint::SecureUrl;

use super::{
    failure::SignInFailure,
    fetch::OpenIdClient,
    id_token::{self, ExpectedClaims, IdTokenFault},
    keys::IdTokenKeys,
    metadata::{self, OpenIdMetadata},
};

/// How long metadata and keys are used without fetching them again.
const FRESH: Duration = Duration::from_secs(3600);
/// How long they are used while they cannot be fetched again.
const USABLE: Duration = Duration::from_secs(24 * 3600);
/// The pause after a failed fetch.
const REST: Duration = Duration::from_secs(2);

/// An OpenID provider, with what is known of it.
pub(super) struct OpenIdProvider {
    issuer: String,
    fetch: OpenIdClient,
    document: ArcSwapOption<CachedMetadata>,
    /// Held while the metadata is fetched, so that it is fetched once. Holds the time and reason of the last failure.
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

    /// The client for its endpoints.
    pub(super) fn client(&self) -> &OpenIdClient {
        &self.fetch
    }

    /// Its last known metadata, of any age.
    pub(super) fn last_metadata(&self) -> Option<Arc<OpenIdMetadata>> {
        Some(Arc::clone(&self.document.load_full()?.metadata))
    }

    /// Its metadata.
    ///
    /// # Errors
    /// The metadata cannot be fetched, or is not usable.
    pub(super) async fn metadata(&self, now: Instant) -> Result<Arc<OpenIdMetadata>, String> {
        let within = |limit: Duration| {
            let known = self.document.load_full()?;
            (now.saturating_duration_since(known.read) < limit).then(|| Arc::clone(&known.metadata))
        };
        if let Some(fresh) = within(FRESH) {
            return Ok(fresh);
        }
        let mut failed = self.asking.lock().await;
        // Another task may have fetched it in the meantime.
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
                tracing::warn!(%why, "cannot fetch the OpenID provider's metadata: the previous metadata is used");
                Ok(known)
            }
        }
    }

    /// The claims of a token that is signed by one of the provider's keys and matches `expected`. The keys are fetched again,
    /// once, if none of the known ones has signed the token, because the provider may change them at any time; and as often as
    /// the metadata, because it may have withdrawn a key that somebody else knows.
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
                // Fresh keys have been tried already.
                let usable = within(USABLE).filter(|_| within(FRESH).is_none());
                let keys = usable.ok_or_else(|| SignInFailure::Provider(why.message.clone()))?;
                tracing::warn!(why = %why.message, "cannot fetch the OpenID provider's keys: the previous keys are used");
                return id_token::check(token, keys, expected).map_err(SignInFailure::Token);
            }
        };
        let keys = IdTokenKeys::read(&set);
        let checked = id_token::check(token, &keys, expected);
        self.keys.store(Some(Arc::new(CachedKeys { keys, read: now })));
        checked.map_err(SignInFailure::Token)
    }

    async fn fetch_metadata(&self) -> Result<OpenIdMetadata, String> {
        let address = metadata::document_url(&self.issuer);
        let endpoint = SecureUrl::parse(&address).ok_or_else(|| format!("{address} is not an https URL"))?;
        let document = self.fetch.get(&endpoint, None).await.map_err(|why| why.message)?;
        OpenIdMetadata::read(&document, &self.issuer)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

    use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
    use ring::signature::{Ed25519KeyPair, KeyPair};
    use serde_json::json;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
    };

    use super::*;
    use crate::edges::clock;

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

    /// What a provider's address for keys is asked, and what it has: the key of a seed, or nothing that anybody could read.
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
        // The provider has another key from now on, and nobody comes with a token of that one.
        site.seed.store(2, Ordering::SeqCst);
        assert_eq!(believed(1, FRESH - moment).await, (true, 1), "not asked each time");
        assert_eq!(believed(1, FRESH).await, (false, 2), "somebody else may have it");
        assert_eq!(believed(2, FRESH).await, (true, 2));
        // A provider that is away keeps nobody out for a day, and after that it does.
        site.seed.store(0, Ordering::SeqCst);
        assert_eq!(believed(2, 2 * FRESH).await, (true, 3));
        assert_eq!(believed(1, 2 * FRESH).await, (false, 4), "it is not back again");
        assert_eq!(believed(2, FRESH + USABLE - moment).await, (true, 5));
        assert_eq!(believed(2, FRESH + USABLE).await, (false, 6));
    }
}
