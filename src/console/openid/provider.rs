//! The provider as it is known here: its document and its keys, asked for when they are needed.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use arc_swap::ArcSwapOption;
use serde_json::Value;
use tokio::sync::Mutex;

use crate::domain::sign_in::endpoint::Endpoint;

use super::{
    failure::Failure,
    fetch::Fetch,
    id_token::{self, Expected, Fault},
    keys::Keys,
    metadata::{self, Metadata},
};

/// How long the document is good without being read again.
const FRESH: Duration = Duration::from_secs(3600);
/// How long it is good while the provider does not say anything newer.
const USABLE: Duration = Duration::from_secs(24 * 3600);
/// How long nobody asks again after a failure.
const REST: Duration = Duration::from_secs(2);

/// What is known of it, and the way to ask it.
pub(super) struct Provider {
    issuer: String,
    fetch: Fetch,
    document: ArcSwapOption<Document>,
    /// Held by whoever asks for the document, so that it is asked for once; when that failed last, and why.
    asking: Mutex<Option<(Instant, String)>>,
    keys: ArcSwapOption<KeySet>,
}

struct Document {
    metadata: Arc<Metadata>,
    read: Instant,
}

struct KeySet {
    keys: Keys,
    read: Instant,
}

impl Provider {
    pub(super) fn new(issuer: String, fetch: Fetch) -> Self {
        Self {
            issuer,
            fetch,
            document: ArcSwapOption::empty(),
            asking: Mutex::default(),
            keys: ArcSwapOption::empty(),
        }
    }

    /// The way to it.
    pub(super) fn fetch(&self) -> &Fetch {
        &self.fetch
    }

    /// What it said of itself last, however long ago.
    pub(super) fn known(&self) -> Option<Arc<Metadata>> {
        Some(Arc::clone(&self.document.load_full()?.metadata))
    }

    /// What it says of itself.
    ///
    /// # Errors
    /// It cannot be asked, or says nothing usable.
    pub(super) async fn metadata(&self, now: Instant) -> Result<Arc<Metadata>, String> {
        let within = |limit: Duration| {
            let known = self.document.load_full()?;
            (now.saturating_duration_since(known.read) < limit).then(|| Arc::clone(&known.metadata))
        };
        if let Some(fresh) = within(FRESH) {
            return Ok(fresh);
        }
        let mut failed = self.asking.lock().await;
        // Somebody may have asked meanwhile.
        if let Some(fresh) = within(FRESH) {
            return Ok(fresh);
        }
        let rests = failed
            .as_ref()
            .filter(|(at, _)| now.saturating_duration_since(*at) < REST);
        let asked = match rests {
            Some((_, why)) => Err(why.clone()),
            None => self.ask().await.inspect_err(|why| *failed = Some((now, why.clone()))),
        };
        match asked {
            Ok(metadata) => {
                let metadata = Arc::new(metadata);
                let document = Document {
                    metadata: Arc::clone(&metadata),
                    read: now,
                };
                self.document.store(Some(Arc::new(document)));
                *failed = None;
                Ok(metadata)
            }
            Err(why) => {
                let known = within(USABLE).ok_or_else(|| why.clone())?;
                tracing::warn!(%why, "the OpenID provider's document is that of before");
                Ok(known)
            }
        }
    }

    /// The claims of a token that is signed by a key of the provider and says what is expected. The provider is asked for its keys
    /// anew where none of the known ones has signed it, once, for it changes them when it likes; and as often as for its document,
    /// for it may have withdrawn one that somebody else has, too.
    pub(super) async fn verified(
        &self,
        metadata: &Metadata,
        token: &str,
        expected: &Expected<'_>,
        now: Instant,
    ) -> Result<Value, Failure> {
        let known = self.keys.load_full();
        let within = |limit: Duration| {
            let known = known.as_ref()?;
            (now.saturating_duration_since(known.read) < limit).then_some(&known.keys)
        };
        let fresh = within(FRESH).map(|keys| id_token::check(token, keys, expected));
        if let Some(checked) = fresh.filter(|checked| *checked != Err(Fault::Signature)) {
            return checked.map_err(Failure::Token);
        }
        let set = match self.fetch.get(&metadata.jwks_uri, None).await {
            Ok(set) => set,
            Err(why) => {
                // Those that were fresh have been tried.
                let usable = within(USABLE).filter(|_| within(FRESH).is_none());
                let keys = usable.ok_or_else(|| Failure::Provider(why.message.clone()))?;
                tracing::warn!(why = %why.message, "the OpenID provider's keys are those of before");
                return id_token::check(token, keys, expected).map_err(Failure::Token);
            }
        };
        let keys = Keys::read(&set);
        let checked = id_token::check(token, &keys, expected);
        self.keys.store(Some(Arc::new(KeySet { keys, read: now })));
        checked.map_err(Failure::Token)
    }

    async fn ask(&self) -> Result<Metadata, String> {
        let address = metadata::address(&self.issuer);
        let endpoint = Endpoint::parse(&address).ok_or_else(|| format!("{address} is no address with https"))?;
        let document = self.fetch.get(&endpoint, None).await.map_err(|why| why.message)?;
        Metadata::read(&document, &self.issuer)
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
    const EXPECTED: Expected<'_> = Expected {
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
        let metadata = Metadata::read(&document, ISSUER).unwrap();
        let provider = Provider::new(ISSUER.to_owned(), Fetch::new(None).unwrap());
        let start = clock::instant();
        let believed = async |seed, after| {
            let checked = provider
                .verified(&metadata, &token(seed), &EXPECTED, start + after)
                .await;
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
