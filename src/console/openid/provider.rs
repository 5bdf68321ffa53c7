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
    keys: ArcSwapOption<Keys>,
}

struct Document {
    metadata: Arc<Metadata>,
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

    /// The claims of a token that is signed by a key of the provider and says what is expected. Where none of the known keys
    /// has signed it the provider is asked for its keys anew, once: it changes them when it likes.
    pub(super) async fn verified(
        &self,
        metadata: &Metadata,
        token: &str,
        expected: &Expected<'_>,
    ) -> Result<Value, Failure> {
        if let Some(keys) = self.keys.load_full() {
            match id_token::check(token, &keys, expected) {
                Err(Fault::Signature) => {}
                checked => return checked.map_err(Failure::Token),
            }
        }
        let set = self.fetch.get(&metadata.jwks_uri, None).await;
        let set = set.map_err(|why| Failure::Provider(why.message))?;
        let keys = Arc::new(Keys::read(&set));
        self.keys.store(Some(Arc::clone(&keys)));
        id_token::check(token, &keys, expected).map_err(Failure::Token)
    }

    async fn ask(&self) -> Result<Metadata, String> {
        let address = metadata::address(&self.issuer);
        let endpoint = Endpoint::parse(&address).ok_or_else(|| format!("{address} is no address with https"))?;
        let document = self.fetch.get(&endpoint, None).await.map_err(|why| why.message)?;
        Metadata::read(&document, &self.issuer)
    }
}
