//! The store that all nodes share, in one Redis: a server, a master with sentinels, or a cluster. Every operation is one script,
//! and every call has a fixed timeout.
//!
//! All Redis keys of this store have one hash tag, `{<namespace>:keys}`, so that every script stays within one hash slot of a
//! cluster:
//! - `:ids` maps a digest to a key id, `:digests` a key id to its digest, `:records` a key id to its record (JSON), `:used` a key
//!   id to its last use,
//! - `:order` contains the key ids, sorted by creation time,
//! - `:version` is the number of changes so far, `:feed` contains the last of them as `<version> <digest> [<digest>]`,
//! - `:former` maps the digest of a replaced secret to a key id. The secret stays valid until the time in the key's record,
//! - `:gone` contains the ids of deleted keys, so that a node with outdated data does not restore a deleted key,
//! - `:generation` is a random string written by `weir store init`. A node remembers the first generation that it reads. A Redis
//!   without this generation was emptied or replaced. In that case, the store returns "unavailable", never "unknown key",
//! - `:sign-in:<digest>` is a sign-in document, which expires. For an access token's document, `<digest>` is the digest of the
//!   token,
//! - `:session:<digest>` contains the provider and credential that serve a state, which a provider stores for an account. It expires,
//! - `:web:<digest>` is a browser session, `:web` contains all of them (see `web_sessions/head.lua`),
//! - `:stability:<hour>` contains the stability counters of an hour (see `stability.rs`),
//! - `:log-homes` maps each running node to its log backend ([`RedisStore::record_log_home`]).
//!
//! The store contains only the SHA-256 digests of API keys, never the keys themselves.

mod dialer;
mod ledger;
mod link;
mod recovery;
mod rights;
mod scripts;
mod settings;
mod sign_ins;
mod stability;
#[cfg(test)]
pub(crate) mod test_server;
#[cfg(test)]
mod tests;
mod tracking;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use once_cell::sync::OnceCell;
use tokio::sync::watch;

use crate::{
    domain::{
        keys::{
            KeyId, KeyRecord, KeyState,
            change::{ChangePrecondition, KeyChange},
            secret::KeyDigest,
        },
        ledger::{NodeId, ids::LEASE_MS, log_query::LogHomeMark},
        wire::{provider_state::StateKey, session_hint::ServedBy},
    },
    store::{
        ChangeError, Changes, FEED_CHANGES_MAX, KeyLookup, KeyStore, KeyView, LIST_KEYS_MAX, StoreError, StoreMemory,
        StoreOpenError, StoreTrouble, StoreWarning,
        redis::{
            link::{CallPolicy, KeyNaming, Link},
            scripts::{LedgerScripts, RedisScript, ScriptCall, ScriptReply, Scripts},
        },
        sessions::{self, SESSION_LIFETIME, SessionStore},
    },
};

pub use self::ledger::RedisLedger;
pub use self::settings::{RedisMode, RedisSettings};
pub use crate::store::redis::recovery::AdoptPolicy;
pub(crate) use crate::store::redis::recovery::InitOutcome;

/// The timeout of a call for which no request waits.
const ADMIN_BUDGET: Duration = Duration::from_secs(2);
/// Maximum number of attempts at a change. An attempt fails if another change is made after the attempt has read the record and
/// before it writes.
const CONFLICTS_MAX: usize = 8;
/// Maximum number of uses that one script records, so that it does not block the server for long.
const TOUCH_KEYS_MAX: usize = 500;

/// The Redis keys that every script gets, in the order in which `prelude.lua` names them.
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
    log_homes_key: String,
    budget: Duration,
    /// The first generation that this node has read. It does not change while the process runs.
    generation: OnceCell<String>,
    nudge: Arc<watch::Sender<u64>>,
    /// The latest epoch in which this node has read the feed.
    followed: AtomicU64,
    /// Whether the last answer came from a Redis without this installation's data.
    lost: AtomicBool,
    /// Whether the stability hours that were read last contained parts that weir did not write.
    junk: AtomicBool,
}

impl RedisStore {
    /// Checks the settings. An unreachable server is not an error, because it may become reachable later.
    pub fn open(settings: &RedisSettings) -> Result<Self, StoreOpenError> {
        let keys = KEY_NAMES
            .iter()
            .map(|name| settings.key(name))
            .collect::<Result<_, _>>()?;
        let (nudge, _) = watch::channel(0);
        let (scripts, ledger_scripts) = (Scripts::new(), LedgerScripts::new());
        Ok(Self {
            link: Link::new(settings, scripts::load(scripts.all().chain(ledger_scripts.all())))?,
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
            log_homes_key: settings.key("log-homes")?,
            budget: settings.budget,
            generation: OnceCell::new(),
            nudge: Arc::new(nudge),
            followed: AtomicU64::new(0),
            lost: AtomicBool::new(false),
            junk: AtomicBool::new(false),
        })
    }

    /// Prepares a call of a script, with the Redis keys that every script takes.
    fn call_with_keys<'a>(&self, script: &'a RedisScript) -> ScriptCall<'a> {
        let mut call = script.call();
        call.key(&self.keys);
        call
    }

    /// Like `call_with_keys`, but also adds the generation, for scripts that require it.
    fn prepare<'a>(&self, script: &'a RedisScript) -> ScriptCall<'a> {
        let mut call = self.call_with_keys(script);
        call.arg(self.generation.get().map_or("", String::as_str));
        call
    }

    /// Calls a script that needs no generation.
    async fn call_alone(&self, call: &ScriptCall<'_>, effort: CallPolicy) -> Result<ScriptReply, StoreError> {
        ScriptReply::read(self.link.call(call, effort, KeyNaming::Named).await?)
    }

    async fn call(&self, call: &ScriptCall<'_>, effort: CallPolicy) -> Result<ScriptReply, StoreError> {
        let reply = ScriptReply::read(self.link.call(call, effort, KeyNaming::Named).await?);
        let lost = matches!(reply, Err(StoreError::Unavailable(_)));
        if self.lost.swap(lost, Ordering::Relaxed) && !lost {
            // The data was restored, but only up to the time of the backup: the server may have lost later changes.
            self.link.advance_epoch();
        }
        let reply = reply?;
        if !reply.generation.is_empty() {
            self.generation.get_or_init(|| reply.generation.clone());
        }
        Ok(reply)
    }

    /// Checks the generation: returns [`StoreError::Unavailable`] if the Redis was emptied or replaced since this node first read
    /// it.
    async fn check_generation(&self) -> Result<(), StoreError> {
        let call = self.prepare(&self.scripts.generation);
        self.call(&call, CallPolicy::Read(self.budget)).await.map(drop)
    }

    /// Reads a key and the exact text of its record. A later change requires that the record still has this text.
    async fn read(&self, id: &KeyId) -> Result<Option<(String, KeyView)>, StoreError> {
        let mut call = self.prepare(&self.scripts.view);
        call.arg(id.as_str());
        let mut reply = self.call(&call, CallPolicy::Read(ADMIN_BUDGET)).await?;
        let (text, used, digest) = (reply.text()?, reply.text()?, reply.text()?);
        if text.is_empty() {
            return Ok(None);
        }
        let view = scripts::view(&text, &used, &digest)?;
        Ok(Some((text, view)))
    }

    /// Replaces a key if the text of its record is still `text`. Returns `false` if the record has changed.
    async fn replace(&self, text: &str, before: &KeyView, after: &KeyView) -> Result<bool, StoreError> {
        let (old, new) = (&before.record, &after.record);
        let withdraws = new.state != KeyState::Active || (old.former.is_some() && new.former.is_none());
        let mut call = self.prepare(&self.scripts.replace);
        call.key(&self.former_key);
        call.arg(FEED_CHANGES_MAX)
            .arg(new.id.as_str())
            .arg(text)
            .arg(scripts::record_text(new)?)
            .arg(after.digest.to_hex())
            .arg(u8::from(withdraws));
        Ok(!self.call(&call, CallPolicy::Write(ADMIN_BUDGET)).await?.is_conflict())
    }

    /// Prepares a call of a script that adds a key.
    fn creation_call<'a>(
        &self,
        script: &'a RedisScript,
        digest: &KeyDigest,
        record: &KeyRecord,
    ) -> Result<ScriptCall<'a>, StoreError> {
        let mut call = self.prepare(script);
        call.key(&self.gone_key).key(&self.former_key);
        call.arg(FEED_CHANGES_MAX)
            .arg(digest.to_hex())
            .arg(record.id.as_str())
            .arg(scripts::record_text(record)?)
            .arg(record.created_at)
            .arg(record.revision);
        Ok(call)
    }

    /// Deletes a key if the text of its record is still `text`. `text` is empty for a key that is already deleted. Returns
    /// `false` if the record has another text.
    async fn remove_record(&self, id: &KeyId, text: &str) -> Result<bool, StoreError> {
        let mut call = self.prepare(&self.scripts.delete);
        call.key(&self.gone_key).key(&self.former_key);
        call.arg(FEED_CHANGES_MAX).arg(id.as_str()).arg(text);
        Ok(!self.call(&call, CallPolicy::Write(ADMIN_BUDGET)).await?.is_conflict())
    }
}

#[async_trait]
impl KeyStore for RedisStore {
    async fn find(&self, digest: &KeyDigest) -> Result<KeyLookup, StoreError> {
        let mut call = self.prepare(&self.scripts.find);
        call.key(self.document_key(digest)).key(&self.former_key);
        call.arg(digest.to_hex());
        let mut reply = self.call(&call, CallPolicy::Read(self.budget)).await?;
        let version = reply.number()?;
        let (text, token) = (reply.text()?, reply.text()?);
        let record = if text.is_empty() {
            None
        } else {
            Some(scripts::record(&text)?)
        };
        // A text that is not a grant belongs to another sign-in document.
        let token = serde_json::from_str(&token).ok();
        Ok(KeyLookup { record, token, version })
    }

    async fn create(&self, digest: &KeyDigest, record: &KeyRecord) -> Result<(), StoreError> {
        let call = self.creation_call(&self.scripts.create, digest, record)?;
        self.call(&call, CallPolicy::Write(ADMIN_BUDGET)).await.map(drop)
    }

    async fn by_id(&self, id: &KeyId) -> Result<Option<KeyView>, StoreError> {
        Ok(self.read(id).await?.map(|(_, view)| view))
    }

    async fn list(&self, after: Option<&KeyId>, limit: usize) -> Result<Vec<KeyView>, StoreError> {
        let mut call = self.prepare(&self.scripts.list);
        call.arg(after.map_or("", KeyId::as_str)).arg(limit.min(LIST_KEYS_MAX));
        self.call(&call, CallPolicy::Read(ADMIN_BUDGET)).await?.views()
    }

    async fn change(&self, id: &KeyId, change: &KeyChange, from: &ChangePrecondition) -> Result<KeyView, ChangeError> {
        for _ in 0..CONFLICTS_MAX {
            let (text, before) = self.read(id).await?.ok_or(StoreError::NotFound)?;
            let after = before.apply_change(change, from)?;
            if after == before || self.replace(&text, &before, &after).await? {
                return Ok(after);
            }
        }
        Err(contention_error(id).into())
    }

    async fn delete(&self, id: &KeyId, from: &ChangePrecondition) -> Result<Option<KeyView>, ChangeError> {
        for _ in 0..CONFLICTS_MAX {
            let (text, view) = self.read(id).await?.unzip();
            view.as_ref().map_or(Ok(()), |view| view.check_precondition(from))?;
            if self.remove_record(id, text.as_deref().unwrap_or_default()).await? {
                return Ok(view);
            }
        }
        Err(contention_error(id).into())
    }

    async fn record_uses(&self, used: &[(KeyId, i64)]) -> Result<(), StoreError> {
        for batch in used.chunks(TOUCH_KEYS_MAX) {
            let mut call = self.prepare(&self.scripts.touch);
            for (id, at) in batch {
                call.arg(id.as_str()).arg(*at);
            }
            self.call(&call, CallPolicy::Read(ADMIN_BUDGET)).await?;
        }
        Ok(())
    }

    async fn changes_since(&self, version: u64) -> Result<Changes, StoreError> {
        // The epoch is read before the call, so that the next call notices a change during this one.
        let epoch = *self.link.epochs().borrow();
        let mut call = self.prepare(&self.scripts.changes);
        call.arg(version);
        let mut changes = self
            .call(&call, CallPolicy::Read(self.budget))
            .await?
            .changes(version)?;
        // Another server may lack changes that this node has seen, and may have other changes with the same numbers.
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
            () = self.link.maintain() => {}
            () = tracking::follow(&self.link, &self.version_key, &self.nudge) => {}
            () = tracking::follow_epochs(self.link.epochs(), &self.nudge) => {}
        }
    }
}

fn contention_error(id: &KeyId) -> StoreError {
    StoreError::Unavailable(format!(
        "cannot change key {id}, because other calls keep changing the key; try again"
    ))
}

impl RedisStore {
    /// Returns the server's time in milliseconds since the Unix epoch. In a cluster, that is the time of the master that owns the
    /// hash slot of the store's keys.
    async fn now_ms(&self) -> Result<i64, StoreError> {
        let call = self.call_with_keys(&self.scripts.time);
        let told = self.call_alone(&call, CallPolicy::Read(ADMIN_BUDGET)).await?.text()?;
        told.parse()
            .map_err(|_| StoreError::Corrupt("redis did not return its time".to_owned()))
    }
}

#[async_trait]
impl SessionStore for RedisStore {
    async fn recall(&self, states: &[StateKey]) -> Result<Vec<Option<ServedBy>>, StoreError> {
        let mut call = self.prepare(&self.scripts.recall);
        for state in states {
            call.key(format!("{}:{}", self.session_key, state.to_hex()));
        }
        let mut reply = self.call(&call, CallPolicy::Read(self.budget)).await?;
        let texts = states.iter().map(|_| reply.text());
        texts.map(|text| Ok(sessions::from_text(&text?))).collect()
    }

    async fn remember(&self, served: &[(StateKey, ServedBy)], _now: i64) -> Result<(), StoreError> {
        let mut call = self.prepare(&self.scripts.remember);
        call.arg(SESSION_LIFETIME.as_secs());
        for (state, served_by) in served {
            call.key(format!("{}:{}", self.session_key, state.to_hex()));
            call.arg(sessions::to_text(served_by));
        }
        self.call(&call, CallPolicy::Write(ADMIN_BUDGET)).await.map(drop)
    }
}

impl RedisStore {
    /// Records the log backend of a node for [`LEASE_MS`], and returns those of all nodes.
    pub(crate) async fn record_log_home(
        &self,
        node: &NodeId,
        home: &LogHomeMark,
    ) -> Result<BTreeMap<NodeId, LogHomeMark>, StoreError> {
        let mut call = self.prepare(&self.scripts.log_homes);
        call.key(&self.log_homes_key);
        call.arg(node.as_str()).arg(home.as_str()).arg(LEASE_MS);
        Ok(read_log_homes(self.call(&call, CallPolicy::Write(ADMIN_BUDGET)).await?))
    }

    /// Returns the log backends of all nodes that run.
    pub(crate) async fn log_homes(&self) -> Result<BTreeMap<NodeId, LogHomeMark>, StoreError> {
        let mut call = self.prepare(&self.scripts.log_homes);
        call.key(&self.log_homes_key);
        call.arg("").arg("").arg(0);
        Ok(read_log_homes(self.call(&call, CallPolicy::Read(ADMIN_BUDGET)).await?))
    }
}

/// Reads the reply. Records that weir did not write are skipped.
fn read_log_homes(reply: ScriptReply) -> BTreeMap<NodeId, LogHomeMark> {
    let mut texts = reply.texts();
    let mut homes = BTreeMap::new();
    while let (Some(node), Some(home)) = (texts.next(), texts.next()) {
        if let (Some(node), Some(home)) = (NodeId::parse(&node), LogHomeMark::parse(&home)) {
            homes.insert(node, home);
        }
    }
    homes
}

#[cfg(test)]
mod log_homes_tests {
    use super::*;
    use crate::store::{ledger::contract::node, redis::test_server::TestServer};

    #[tokio::test]
    async fn each_node_finds_the_log_backends_of_those_that_run() {
        let Some(server) = TestServer::start().await else {
            return;
        };
        let (one, other) = (server.join("weir").await, server.join("weir").await);
        let (folder, postgres) = (
            LogHomeMark::new("files (folder)", "/log"),
            LogHomeMark::new("postgres", "db"),
        );
        assert_eq!(one.store.log_homes().await, Ok(BTreeMap::new()));
        one.store.record_log_home(&node(1), &folder).await.unwrap();
        let both = BTreeMap::from([(node(1), folder.clone()), (node(2), postgres.clone())]);
        let found = other.store.record_log_home(&node(2), &postgres).await;
        assert_eq!(found, Ok(both.clone()));
        assert_eq!(one.store.log_homes().await, Ok(both));
        let ends: i64 = server.ask(&["PEXPIRETIME", "{weir:keys}:log-homes"]).await;
        assert!(ends > 0, "{ends}");
        // A node that has not renewed its record, and a field that weir did not write.
        let text = format!("1 {}", folder.as_str());
        let () = server
            .ask(&["HSET", "{weir:keys}:log-homes", node(1).as_str(), &text, "x", "y"])
            .await;
        let left = BTreeMap::from([(node(2), postgres.clone())]);
        assert_eq!(other.store.log_homes().await, Ok(left.clone()));
        assert_eq!(other.store.record_log_home(&node(2), &postgres).await, Ok(left));
        let fields: Vec<String> = server.ask(&["HKEYS", "{weir:keys}:log-homes"]).await;
        assert_eq!(fields, [node(2).to_string()]);
    }
}
