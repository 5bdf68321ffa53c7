//! Finds keys of weir at a master which does not own their slot.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use ::redis::{ErrorKind, RedisError, RedisResult, ServerErrorKind};
use parking_lot::Mutex;
use tokio::time::{sleep, timeout};

use super::live_connection::LiveConnection;
use super::slots::{HashSlot, SLOTS, SlotMap};
use crate::store::StoreWarning;
use crate::store::redis::address::RedisAddress;

/// How often the masters are asked. A master takes some ten milliseconds for it in all, a little at a time.
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// How soon they are asked again if there are such keys: most slots have been moved by then.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// How soon it is checked again whether the cluster is complete.
const WHOLE_WAIT: Duration = Duration::from_millis(200);
/// For how many slots a master is asked at a time, so that calls behind it do not wait.
const SLOTS_AT_ONCE: usize = 256;
/// The timeout of that answer.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(1);
/// How many keys of a slot are examined: at a master that does not own the slot, most are weir's, or none.
const KEYS_AT_ONCE: usize = 100;
/// How many slots the log names.
const NAMED_MAX: usize = 5;

type MisplacedBySlot = BTreeMap<HashSlot, MisplacedKey>;

/// Searches the masters for keys of weir in slots that they do not own. While a slot is being moved there are some for a
/// moment. If a move was interrupted, or a failover came in between, they stay, and an account may have a part at each of two
/// masters. No call sees both, so the operator must be told.
pub(super) struct MisplacedKeys {
    /// The prefix of the names of weir's keys.
    prefix: String,
    found: Mutex<MisplacedBySlot>,
}

/// A key, and the master that has it although the slot is another's.
#[derive(Clone, PartialEq, Eq)]
struct MisplacedKey {
    key: String,
    with: RedisAddress,
    owner: Option<RedisAddress>,
}

impl MisplacedKeys {
    pub(super) fn new(namespace: &str) -> Self {
        Self {
            prefix: format!("{{{namespace}:"),
            found: Mutex::default(),
        }
    }

    /// Whether keys were found in one slot by two searches in a row.
    pub(super) fn has_any(&self) -> bool {
        !self.found.lock().is_empty()
    }

    /// Searches again and again. Never returns. `whole` returns the map and all masters in it while all of them are
    /// connected.
    pub(super) async fn search_repeatedly(&self, whole: impl Fn() -> Option<(Arc<SlotMap>, Vec<Arc<LiveConnection>>)>) {
        let mut suspected = MisplacedBySlot::new();
        let mut was_refused = false;
        loop {
            let Some((map, masters)) = whole() else {
                sleep(WHOLE_WAIT).await;
                continue;
            };
            match self.search(&map, &masters).await {
                Ok(found) => {
                    was_refused = false;
                    let stay = found.iter().filter(|(slot, _)| suspected.contains_key(slot));
                    self.record(&stay.map(|(slot, key)| (*slot, key.clone())).collect());
                    suspected = found;
                }
                Err(error) => {
                    if !std::mem::replace(&mut was_refused, true) {
                        tracing::warn!(
                            reason = error.0,
                            "cannot check whether slots of the redis cluster are split"
                        );
                    }
                }
            }
            sleep(if suspected.is_empty() { LOOK_EVERY } else { LOOK_AGAIN }).await;
        }
    }

    fn record(&self, found: &MisplacedBySlot) {
        let before = std::mem::replace(&mut *self.found.lock(), found.clone());
        let new = found.iter().filter(|(slot, _)| !before.contains_key(slot));
        for (slot, MisplacedKey { key, with, owner }) in new.take(NAMED_MAX) {
            let owner = owner.as_ref().map(ToString::to_string).unwrap_or_default();
            tracing::error!(
                slot,
                key,
                with = %with,
                master = owner,
                slots = found.len(),
                "{}",
                StoreWarning::SplitSlot.advice()
            );
        }
        if found.is_empty() && !before.is_empty() {
            tracing::info!("no slot of the redis cluster is split any more");
        }
    }

    async fn search(&self, map: &SlotMap, masters: &[Arc<LiveConnection>]) -> Result<MisplacedBySlot, SlotQueryError> {
        let mut found = MisplacedBySlot::new();
        for live in masters {
            let mut connection = live.wire.connection.clone();
            let of_others: Vec<HashSlot> = (0..SLOTS)
                .filter(|slot| map.owner(*slot) != Some(&live.address))
                .collect();
            for slots in of_others.chunks(SLOTS_AT_ONCE) {
                for slot in slots_with_keys(&mut connection, slots).await? {
                    let keys = keys_in_slot(&mut connection, slot).await?;
                    if let Some(key) = keys.into_iter().find(|key| key.starts_with(&self.prefix)) {
                        let (with, owner) = (live.address.clone(), map.owner(slot).cloned());
                        found.insert(slot, MisplacedKey { key, with, owner });
                    }
                }
            }
        }
        Ok(found)
    }
}

struct SlotQueryError(String);

impl From<RedisError> for SlotQueryError {
    fn from(error: RedisError) -> Self {
        let hint = if error.kind() == ErrorKind::Server(ServerErrorKind::NoPerm) {
            "; grant the user +cluster|countkeysinslot and +cluster|getkeysinslot"
        } else {
            ""
        };
        Self(format!("redis: {error}{hint}"))
    }
}

/// Those slots of which the server has keys.
async fn slots_with_keys(
    connection: &mut MultiplexedConnection,
    slots: &[HashSlot],
) -> Result<Vec<HashSlot>, SlotQueryError> {
    let mut pipe = ::redis::pipe();
    for slot in slots {
        pipe.cmd("CLUSTER").arg("COUNTKEYSINSLOT").arg(*slot);
    }
    let counts: Vec<u64> = within_timeout(pipe.query_async(connection)).await?;
    let counted = slots.iter().zip(counts);
    Ok(counted.filter(|(_, count)| *count > 0).map(|(slot, _)| *slot).collect())
}

async fn keys_in_slot(connection: &mut MultiplexedConnection, slot: HashSlot) -> Result<Vec<String>, SlotQueryError> {
    let mut command = ::redis::cmd("CLUSTER");
    command.arg("GETKEYSINSLOT").arg(slot).arg(KEYS_AT_ONCE);
    // Names may be any bytes: some are not weir's.
    let names: Vec<Vec<u8>> = within_timeout(command.query_async(connection)).await?;
    Ok(names
        .iter()
        .map(|name| String::from_utf8_lossy(name).into_owned())
        .collect())
}

async fn within_timeout<T>(answer: impl Future<Output = RedisResult<T>>) -> Result<T, SlotQueryError> {
    match timeout(ANSWER_WAIT_MAX, answer).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(SlotQueryError("a master does not answer".to_owned())),
    }
}
