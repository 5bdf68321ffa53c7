//! The hash slots of a cluster and their owners, and the search for keys of weir on a master that does not own their slot.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use ::redis::{ErrorKind, RedisError, RedisResult, ServerErrorKind, Value, aio::MultiplexedConnection};
use parking_lot::Mutex;
use tokio::time::{sleep, timeout};

use crate::store::{
    StoreWarning,
    redis::{link::connection::LiveConnection, settings::RedisAddress},
};

/// The number of a hash slot of a cluster, 0 to 16383.
pub(super) type HashSlot = u16;

/// The number of hash slots of a cluster.
pub(super) const SLOTS: u16 = 16_384;

/// Returns the hash slot of a key. It is computed from the CRC16 of the text in the key's first braces, or of the complete key if
/// there is no such text (<https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/#hash-tags>).
pub(super) fn of_key(key: &[u8]) -> HashSlot {
    let tag = || {
        let open = key.iter().position(|byte| *byte == b'{')?;
        let rest = key.get(open + 1..)?;
        let close = rest.iter().position(|byte| *byte == b'}')?;
        rest.get(..close).filter(|tag| !tag.is_empty())
    };
    crc16(tag().unwrap_or(key)) % SLOTS
}

/// CRC16/XMODEM: polynomial 0x1021, initial value 0.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 {
                crc << 1
            } else {
                (crc << 1) ^ 0x1021
            }
        })
    })
}

/// The masters of a cluster and their hash slots, as one of the nodes reports them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SlotMap {
    /// First hash slot, last hash slot and owner of each range, in order.
    ranges: Vec<(HashSlot, HashSlot, RedisAddress)>,
}

impl SlotMap {
    /// Reads the answer of the node `asked` to CLUSTER SLOTS. Returns `None` if the answer is malformed.
    pub(super) fn read(answer: &Value, asked: &RedisAddress) -> Option<Self> {
        let Value::Array(entries) = answer else { return None };
        let mut ranges = entries
            .iter()
            .map(|entry| read_range(entry, asked))
            .collect::<Option<Vec<_>>>()?;
        ranges.sort();
        Some(Self { ranges })
    }

    /// Returns the owner of a hash slot; `None` if it has none.
    pub(super) fn owner(&self, slot: HashSlot) -> Option<&RedisAddress> {
        let behind = self.ranges.partition_point(|(first, ..)| *first <= slot);
        let (_, last, address) = self.ranges.get(behind.checked_sub(1)?)?;
        (slot <= *last).then_some(address)
    }

    pub(super) fn masters(&self) -> BTreeSet<&RedisAddress> {
        self.ranges.iter().map(|(.., address)| address).collect()
    }

    /// Whether any hash slot has one master in this map and a different master in `next`.
    pub(super) fn hands_over_to(&self, next: &Self) -> bool {
        self != next
            && self.ranges.iter().any(|(first, last, address)| {
                next.ranges.iter().any(|(next_first, next_last, next_address)| {
                    first <= next_last && next_first <= last && address != next_address
                })
            })
    }
}

fn read_range(entry: &Value, asked: &RedisAddress) -> Option<(HashSlot, HashSlot, RedisAddress)> {
    let Value::Array(fields) = entry else { return None };
    let [Value::Int(first), Value::Int(last), Value::Array(master), ..] = fields.as_slice() else {
        return None;
    };
    let [host, Value::Int(port), ..] = master.as_slice() else {
        return None;
    };
    let host: Option<String> = ::redis::from_redis_value_ref(host).ok()?;
    // A node that does not know its own name omits it.
    let host = host.filter(|host| !host.is_empty() && host != "?");
    let address = RedisAddress::new(host.as_deref().unwrap_or(&asked.host), u16::try_from(*port).ok()?)?;
    let slot = |number: &i64| u16::try_from(*number).ok().filter(|slot| *slot < SLOTS);
    Some((slot(first)?, slot(last)?, address))
}

/// The interval at which the masters are searched for misplaced keys. A search takes some ten milliseconds of a master's time in
/// total, divided among many short queries.
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// The time until the masters are searched again if there are misplaced keys. By then, most slots have been moved completely.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// The time until weir checks again whether all masters are connected.
const WHOLE_WAIT: Duration = Duration::from_millis(200);
/// Maximum number of hash slots in one query of a master. It is limited so that later calls do not wait long for the query.
const SLOTS_AT_ONCE: usize = 256;
/// The timeout of the answer to a query in the search for misplaced keys.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(1);
/// Maximum number of keys that are examined per hash slot. If a master has keys in a slot that it does not own, either most of
/// these keys are weir's, or none are.
const KEYS_AT_ONCE: usize = 100;
/// Maximum number of hash slots about which one search logs an error.
const NAMED_MAX: usize = 5;

type MisplacedBySlot = BTreeMap<HashSlot, MisplacedKey>;

/// Searches each master for keys of weir in hash slots that the master does not own. While a slot is being moved, such keys exist
/// for a moment. If the move is interrupted, or if a failover happens during the move, they remain. The data of an account may
/// then be divided between two masters. No call sees both parts, so the operator must be notified.
pub(super) struct MisplacedKeys {
    /// The prefix of the names of weir's keys.
    prefix: String,
    found: Mutex<MisplacedBySlot>,
}

/// A misplaced key, the master that has it, and the master that owns its hash slot.
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

    /// Whether two searches in a row found keys in the same hash slot.
    pub(super) fn has_any(&self) -> bool {
        !self.found.lock().is_empty()
    }

    /// Searches repeatedly. Never returns. `whole` returns the slot map and all masters in it if all of them are connected,
    /// otherwise `None`.
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
                            "cannot check whether a redis master has keys of a hash slot that belongs to another master"
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
            tracing::info!("the redis masters no longer have keys of hash slots that belong to other masters");
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

/// Returns those of `slots` for which the server has keys.
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
    // Some names are not weir's, so they can contain any bytes.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_specification() {
        assert_eq!(crc16(b"123456789"), 0x31C3);
        assert_eq!(of_key(b"foo"), 12_182);
        assert_eq!(of_key(b"{user1000}.following"), of_key(b"{user1000}.followers"));
        assert_eq!(of_key(b"foo{}{bar}"), crc16(b"foo{}{bar}") % SLOTS);
        assert_eq!(of_key(b"foo{{bar}}zap"), crc16(b"{bar") % SLOTS);
        assert_eq!(of_key(b"foo{bar}{zap}"), crc16(b"bar") % SLOTS);
    }

    fn map(ranges: &[(i64, i64, &str, i64)]) -> SlotMap {
        let node = |host: &str, port| {
            let host = if host.is_empty() {
                Value::Nil
            } else {
                Value::BulkString(host.into())
            };
            Value::Array(vec![host, Value::Int(port), Value::BulkString("id".into())])
        };
        let entry = |(first, last, host, port): &(i64, i64, &str, i64)| {
            let replica = node("replica", 1);
            Value::Array(vec![Value::Int(*first), Value::Int(*last), node(host, *port), replica])
        };
        let asked = RedisAddress::parse("asked:1").unwrap();
        SlotMap::read(&Value::Array(ranges.iter().map(entry).collect()), &asked).unwrap()
    }

    #[test]
    fn a_map_knows_the_master_of_each_slot() {
        let map = map(&[(5461, 10_922, "b", 2), (0, 5460, "a", 1), (10_923, 16_000, "", 3)]);
        let owner = |slot| map.owner(slot).map(ToString::to_string);
        assert_eq!(owner(0).as_deref(), Some("a:1"));
        assert_eq!(owner(5460).as_deref(), Some("a:1"));
        assert_eq!(owner(5461).as_deref(), Some("b:2"));
        assert_eq!(owner(16_000).as_deref(), Some("asked:3"));
        assert_eq!(owner(16_001), None);
        assert_eq!(map.masters().len(), 3);
    }

    #[test]
    fn only_a_slot_with_another_master_is_handed_over() {
        let whole = map(&[(0, 16_383, "a", 1)]);
        let part = map(&[(0, 99, "a", 1)]);
        let split = map(&[(0, 99, "a", 1), (100, 16_383, "b", 1)]);
        assert!(!whole.hands_over_to(&whole));
        assert!(!whole.hands_over_to(&part));
        assert!(!part.hands_over_to(&split));
        assert!(whole.hands_over_to(&split));
        assert!(split.hands_over_to(&whole));
    }

    #[test]
    fn an_answer_of_another_shape_is_no_map() {
        let asked = RedisAddress::parse("asked:1").unwrap();
        for odd in [Value::Nil, Value::Array(vec![Value::Int(1)])] {
            assert_eq!(SlotMap::read(&odd, &asked), None);
        }
    }
}
