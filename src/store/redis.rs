//! The store that nodes share: one Redis (a server, a master with sentinels, or a cluster), every operation one script,
//! every call within a fixed time.
//!
//! All keys have one hash tag, `{<namespace>:keys}`, so that every script stays within one slot of a cluster:
//! - `:ids` digest to key id, `:digests` key id to digest, `:records` key id to record (JSON), `:used` key id to last use,
//! - `:order` key ids by time of creation,
//! - `:version` counts changes, `:feed` holds the last of them as `<version> <digest> [<digest>]`,
//! - `:former` digest to key id of texts that were replaced and stay good for a while: the record says until when,
//! - `:gone` the ids of deleted keys, so that no node that is behind puts one back,
//! - `:generation` a random word written by `weir store init`. A node remembers the one it has seen; a Redis without it was
//!   emptied or replaced, and then the answer is "unavailable", never "unknown key",
//! - `:sign-in:<digest>` a document of sign-ins, kept for a while; that of an access token is under the digest of its text,
//! - `:session:<digest>` who serves state at a provider that an account has made, kept for a while,
//! - `:web:<digest>` a person's session in a browser, `:web` all of them (see `web_sessions/head.lua`),
//! - `:stability:<hour>` what was counted in an hour (see `stability.rs`).
//!
//! Only SHA-256 digests are stored, never a key.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use once_cell::sync::OnceCell;
use tokio::sync::watch;

pub use self::generation::Adopt;
pub(crate) use self::generation::Init;
pub use self::ledger::RedisLedger;
pub use self::settings::{RedisMode, RedisSettings};

use self::ledger_scripts::LedgerScripts;
use self::link::{Effort, Keys, Link};
use self::reply::ScriptReply;
use self::script::{Script, ScriptCall};
use self::scripts::Scripts;
use crate::domain::keys::change::{KeyChange, MadeFrom};
use crate::domain::keys::key::{KeyId, KeyRecord, KeyState};
use crate::domain::keys::secret::KeyDigest;
use crate::store::{
    ChangeError, Changes, FEED_CHANGES_MAX, KeyStore, KeyView, LIST_KEYS_MAX, Lookup, StoreError, StoreMemory,
    StoreOpenError, StoreTrouble, StoreWarning,
};

mod address;
mod archive;
mod dialer;
mod examination;
mod generation;
mod healing;
mod ledger;
mod ledger_scripts;
mod link;
mod reply;
mod rights;
mod script;
mod scripts;
mod sessions;
mod settings;
mod sign_ins;
mod stability;
#[cfg(test)]
pub(crate) mod test_server;
#[cfg(test)]
mod tests;
mod time;
mod tracking;
mod web_sessions;

/// What a call may take that no request waits for.
const ADMIN_BUDGET: Duration = Duration::from_secs(2);
/// How often a change is tried anew because another one came between reading and writing.
const CONFLICTS_MAX: usize = 8;
/// How many uses one script notes, so that it does not hold up the server.
const TOUCH_KEYS_MAX: usize = 500;

/// The keys every script is given, in the order `prelude.lua` names them.
const KEY_NAMES: [&str; 8] = [
    "generation",
    "version",
    "feed",
    "ids",
    "digests",
    "records",
    "order",
    "used",
];

/// The Redis store. It connects, and stays connected, while [`KeyStore::run`] runs.
pub struct RedisStore {
    link: Link,
    scripts: Scripts,
    ledger_scripts: LedgerScripts,
    keys: Vec<String>,
    namespace: String,
    version_key: String,
    session_key: String,
    web_session_key: String,
    gone_key: String,
    former_key: String,
    stability_key: String,
    budget: Duration,
    /// The generation this node has seen first; kept for the life of the process.
    generation: OnceCell<String>,
    nudge: Arc<watch::Sender<u64>>,
    /// The epoch up to which the feed has been followed.
    followed: AtomicU64,
    /// Whether the last answer was that of a Redis without this installation's data.
    lost: AtomicBool,
    /// Whether the last hours that were read had parts that are not weir's.
    junk: AtomicBool,
}

impl RedisStore {
    /// Checks the settings. A server that is away is no error: it may come.
    pub fn open(settings: &RedisSettings) -> Result<Self, StoreOpenError> {
        let keys = KEY_NAMES
            .iter()
            .map(|name| settings.key(name))
            .collect::<Result<_, _>>()?;
        let (nudge, _) = watch::channel(0);
        let (scripts, ledger_scripts) = (Scripts::new(), LedgerScripts::new());
        Ok(Self {
            link: Link::new(settings, script::load(scripts.all().chain(ledger_scripts.all())))?,
            scripts,
            ledger_scripts,
            keys,
            namespace: settings.namespace.clone(),
            version_key: settings.key("version")?,
            session_key: settings.key("session")?,
            web_session_key: settings.key("web")?,
            gone_key: settings.key("gone")?,
            former_key: settings.key("former")?,
            stability_key: settings.key("stability")?,
            budget: settings.budget,
            generation: OnceCell::new(),
            nudge: Arc::new(nudge),
            followed: AtomicU64::new(0),
            lost: AtomicBool::new(false),
            junk: AtomicBool::new(false),
        })
    }

    /// A call of a script with the keys that each of them takes.
    fn keyed<'a>(&self, script: &'a Script) -> ScriptCall<'a> {
        let mut call = script.call();
        call.key(&self.keys);
        call
    }

    /// The same with the generation, which all scripts take that need one to be there.
    fn prepare<'a>(&self, script: &'a Script) -> ScriptCall<'a> {
        let mut call = self.keyed(script);
        call.arg(self.generation.get().map_or("", String::as_str));
        call
    }

    /// Calls a script that needs no generation.
    async fn call_alone(&self, call: &ScriptCall<'_>, effort: Effort) -> Result<ScriptReply, StoreError> {
        ScriptReply::read(self.link.call(call, effort, Keys::Named).await?)
    }

    async fn call(&self, call: &ScriptCall<'_>, effort: Effort) -> Result<ScriptReply, StoreError> {
        let reply = ScriptReply::read(self.link.call(call, effort, Keys::Named).await?);
        let lost = matches!(reply, Err(StoreError::Unavailable(_)));
        if self.lost.swap(lost, Ordering::Relaxed) && !lost {
            // Its data was put back, as far as a backup has it: the same server may have forgotten the rest.
            self.link.move_epoch();
        }
        let reply = reply?;
        if !reply.generation.is_empty() {
            self.generation.get_or_init(|| reply.generation.clone());
        }
        Ok(reply)
    }

    /// Says [`StoreError::Unavailable`] if the Redis was emptied or replaced since this node saw it first.
    async fn check_generation(&self) -> Result<(), StoreError> {
        let call = self.prepare(&self.scripts.generation);
        self.call(&call, Effort::Read(self.budget)).await.map(drop)
    }

    /// A key and the very text of its record, against which a change is checked.
    async fn read(&self, id: &KeyId) -> Result<Option<(String, KeyView)>, StoreError> {
        let mut call = self.prepare(&self.scripts.view);
        call.arg(id.as_str());
        let mut reply = self.call(&call, Effort::Read(ADMIN_BUDGET)).await?;
        let (text, used, digest) = (reply.text()?, reply.text()?, reply.text()?);
        if text.is_empty() {
            return Ok(None);
        }
        let view = reply::view(&text, &used, &digest)?;
        Ok(Some((text, view)))
    }

    /// Puts a key in place of the one before, whose record has this text; false if that text has changed.
    async fn replace(&self, text: &str, before: &KeyView, after: &KeyView) -> Result<bool, StoreError> {
        let (old, new) = (&before.record, &after.record);
        let withdraws = new.state != KeyState::Active || (old.former.is_some() && new.former.is_none());
        let mut call = self.prepare(&self.scripts.replace);
        call.key(&self.former_key);
        call.arg(FEED_CHANGES_MAX)
            .arg(new.id.as_str())
            .arg(text)
            .arg(reply::record_text(new)?)
            .arg(after.digest.to_hex())
            .arg(u8::from(withdraws));
        Ok(!self.call(&call, Effort::Write(ADMIN_BUDGET)).await?.is_conflict())
    }

    /// A call of a script that adds a key.
    fn adding<'a>(
        &self,
        script: &'a Script,
        digest: &KeyDigest,
        record: &KeyRecord,
    ) -> Result<ScriptCall<'a>, StoreError> {
        let mut call = self.prepare(script);
        call.key(&self.gone_key).key(&self.former_key);
        call.arg(FEED_CHANGES_MAX)
            .arg(digest.to_hex())
            .arg(record.id.as_str())
            .arg(reply::record_text(record)?)
            .arg(record.created_at)
            .arg(record.revision);
        Ok(call)
    }

    /// Deletes a key whose record has this text, empty for one that is deleted already; false if it has another one.
    async fn remove_record(&self, id: &KeyId, text: &str) -> Result<bool, StoreError> {
        let mut call = self.prepare(&self.scripts.delete);
        call.key(&self.gone_key).key(&self.former_key);
        call.arg(FEED_CHANGES_MAX).arg(id.as_str()).arg(text);
        Ok(!self.call(&call, Effort::Write(ADMIN_BUDGET)).await?.is_conflict())
    }
}

#[async_trait]
impl KeyStore for RedisStore {
    async fn find(&self, digest: &KeyDigest) -> Result<Lookup, StoreError> {
        let mut call = self.prepare(&self.scripts.find);
        call.key(self.document_key(digest)).key(&self.former_key);
        call.arg(digest.to_hex());
        let mut reply = self.call(&call, Effort::Read(self.budget)).await?;
        let version = reply.number()?;
        let (text, token) = (reply.text()?, reply.text()?);
        let record = if text.is_empty() {
            None
        } else {
            Some(reply::record(&text)?)
        };
        // What is no grant is another document of sign-ins.
        let token = serde_json::from_str(&token).ok();
        Ok(Lookup { record, token, version })
    }

    async fn create(&self, digest: &KeyDigest, record: &KeyRecord) -> Result<(), StoreError> {
        let call = self.adding(&self.scripts.create, digest, record)?;
        self.call(&call, Effort::Write(ADMIN_BUDGET)).await.map(drop)
    }

    async fn by_id(&self, id: &KeyId) -> Result<Option<KeyView>, StoreError> {
        Ok(self.read(id).await?.map(|(_, view)| view))
    }

    async fn list(&self, after: Option<&KeyId>, limit: usize) -> Result<Vec<KeyView>, StoreError> {
        let mut call = self.prepare(&self.scripts.list);
        call.arg(after.map_or("", KeyId::as_str)).arg(limit.min(LIST_KEYS_MAX));
        self.call(&call, Effort::Read(ADMIN_BUDGET)).await?.views()
    }

    async fn change(&self, id: &KeyId, change: &KeyChange, from: &MadeFrom) -> Result<KeyView, ChangeError> {
        for _ in 0..CONFLICTS_MAX {
            let (text, before) = self.read(id).await?.ok_or(StoreError::NotFound)?;
            let after = before.after(change, from)?;
            if after == before || self.replace(&text, &before, &after).await? {
                return Ok(after);
            }
        }
        Err(contended(id).into())
    }

    async fn delete(&self, id: &KeyId, from: &MadeFrom) -> Result<Option<KeyView>, ChangeError> {
        for _ in 0..CONFLICTS_MAX {
            let (text, view) = self.read(id).await?.unzip();
            view.as_ref().map_or(Ok(()), |view| view.check_made_from(from))?;
            if self.remove_record(id, text.as_deref().unwrap_or_default()).await? {
                return Ok(view);
            }
        }
        Err(contended(id).into())
    }

    async fn touch(&self, used: &[(KeyId, i64)]) -> Result<(), StoreError> {
        for batch in used.chunks(TOUCH_KEYS_MAX) {
            let mut call = self.prepare(&self.scripts.touch);
            for (id, at) in batch {
                call.arg(id.as_str()).arg(*at);
            }
            self.call(&call, Effort::Read(ADMIN_BUDGET)).await?;
        }
        Ok(())
    }

    async fn changes_since(&self, version: u64) -> Result<Changes, StoreError> {
        // Read before the call: what moves during it is found by the next one.
        let epoch = *self.link.epochs().borrow();
        let mut call = self.prepare(&self.scripts.changes);
        call.arg(version);
        let mut changes = self.call(&call, Effort::Read(self.budget)).await?.changes(version)?;
        // Another server may lack changes that were seen, and have others under the same numbers.
        if self.followed.fetch_max(epoch, Ordering::Relaxed) < epoch {
            changes.digests = None;
        }
        Ok(changes)
    }

    fn warnings(&self) -> BTreeSet<StoreWarning> {
        self.link.warnings()
    }

    fn trouble(&self) -> StoreTrouble {
        self.link.trouble()
    }

    fn memory(&self) -> Option<StoreMemory> {
        self.link.memory()
    }

    fn nudges(&self) -> watch::Receiver<u64> {
        self.nudge.subscribe()
    }

    async fn run(&self, mut shutdown: watch::Receiver<bool>) {
        tokio::select! {
            _ = shutdown.wait_for(|stop| *stop) => {}
            () = self.link.keep_up() => {}
            () = tracking::follow(&self.link, &self.version_key, &self.nudge) => {}
            () = tracking::follow_epochs(self.link.epochs(), &self.nudge) => {}
        }
    }
}

fn contended(id: &KeyId) -> StoreError {
    StoreError::Unavailable(format!("{id} is being changed by others all the time, try again"))
}
