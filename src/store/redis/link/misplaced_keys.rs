//! Finds keys of weir that lie with a master which does not own their slot. While a slot is being moved there are some
//! for a moment. If a move was interrupted, or a failover came between, they stay, and an account may have a part with
//! each of two masters. No call sees both, so the operator must be told.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use ::redis::{ErrorKind, RedisError, RedisResult, ServerErrorKind};
use parking_lot::Mutex;
use tokio::time::{sleep, timeout};

use super::live_connection::LiveConnection;
use super::slots::{SLOTS, Slot, SlotMap};
use crate::store::StoreWarning;
use crate::store::redis::address::Address;

/// How often the masters are asked. A master takes some ten milliseconds for it in all, a little at a time.
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// How soon they are asked again where there are such keys: most slots have been moved by then.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// How soon it is looked again whether the cluster is whole.
const WHOLE_WAIT: Duration = Duration::from_millis(200);
/// Of how many slots a master is asked at a time, so that calls behind it do not wait.
const SLOTS_AT_ONCE: usize = 256;
/// How long it may take to answer that.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(1);
/// How many keys of a slot are looked at: with a master that does not have the slot most are weir's, or none.
const KEYS_AT_ONCE: usize = 100;
/// How many slots the log names.
const NAMED_MAX: usize = 5;

type Found = BTreeMap<Slot, MisplacedKey>;

/// Searches the masters for keys in slots that they do not own.
pub(super) struct MisplacedKeys {
    /// What the names of weir's keys begin with.
    prefix: String,
    found: Mutex<Found>,
}

/// A key, and who has it although the slot is another's.
#[derive(Clone, PartialEq, Eq)]
struct MisplacedKey {
    key: String,
    with: Address,
    owner: Option<Address>,
}

impl MisplacedKeys {
    pub(super) fn new(namespace: &str) -> Self {
        Self {
            prefix: format!("{{{namespace}:"),
            found: Mutex::default(),
        }
    }

    /// Whether there are any that were there when it was looked twice.
    pub(super) fn are_there(&self) -> bool {
        !self.found.lock().is_empty()
    }

    /// Looks again and again. Never returns. `whole` gives the map and all masters in it while all of them are there.
    pub(super) async fn keep_looking(&self, whole: impl Fn() -> Option<(Arc<SlotMap>, Vec<Arc<LiveConnection>>)>) {
        let mut suspected = Found::new();
        let mut was_refused = false;
        loop {
            let Some((map, masters)) = whole() else {
                sleep(WHOLE_WAIT).await;
                continue;
            };
            match self.look(&map, &masters).await {
                Ok(found) => {
                    was_refused = false;
                    let stay = found.iter().filter(|(slot, _)| suspected.contains_key(slot));
                    self.note(&stay.map(|(slot, key)| (*slot, key.clone())).collect());
                    suspected = found;
                }
                Err(error) => {
                    if !std::mem::replace(&mut was_refused, true) {
                        tracing::warn!(
                            reason = error.0,
                            "it cannot be told whether slots of the redis cluster are split"
                        );
                    }
                }
            }
            sleep(if suspected.is_empty() { LOOK_EVERY } else { LOOK_AGAIN }).await;
        }
    }

    fn note(&self, found: &Found) {
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

    async fn look(&self, map: &SlotMap, masters: &[Arc<LiveConnection>]) -> Result<Found, SlotQueryError> {
        let mut found = Found::new();
        for live in masters {
            let mut connection = live.wire.connection.clone();
            let of_others: Vec<Slot> = (0..SLOTS)
                .filter(|slot| map.owner(*slot) != Some(&live.address))
                .collect();
            for slots in of_others.chunks(SLOTS_AT_ONCE) {
                for slot in with_keys(&mut connection, slots).await? {
                    let keys = keys_of(&mut connection, slot).await?;
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
            "; give the user +cluster|countkeysinslot and +cluster|getkeysinslot"
        } else {
            ""
        };
        Self(format!("redis: {error}{hint}"))
    }
}

/// Those of the slots of which the server has keys.
async fn with_keys(connection: &mut MultiplexedConnection, slots: &[Slot]) -> Result<Vec<Slot>, SlotQueryError> {
    let mut pipe = ::redis::pipe();
    for slot in slots {
        pipe.cmd("CLUSTER").arg("COUNTKEYSINSLOT").arg(*slot);
    }
    let counts: Vec<u64> = within(pipe.query_async(connection)).await?;
    let counted = slots.iter().zip(counts);
    Ok(counted.filter(|(_, count)| *count > 0).map(|(slot, _)| *slot).collect())
}

async fn keys_of(connection: &mut MultiplexedConnection, slot: Slot) -> Result<Vec<String>, SlotQueryError> {
    let mut command = ::redis::cmd("CLUSTER");
    command.arg("GETKEYSINSLOT").arg(slot).arg(KEYS_AT_ONCE);
    // Names may be any bytes, also such as are none of weir's.
    let names: Vec<Vec<u8>> = within(command.query_async(connection)).await?;
    Ok(names
        .iter()
        .map(|name| String::from_utf8_lossy(name).into_owned())
        .collect())
}

async fn within<T>(answer: impl Future<Output = RedisResult<T>>) -> Result<T, SlotQueryError> {
    match timeout(ANSWER_WAIT_MAX, answer).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(SlotQueryError("a master does not answer".to_owned())),
    }
}
