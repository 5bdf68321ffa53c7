//! The slots of a cluster and their owners, and keys of weir at a master which does not own their slot.

use std::collections::BTreeSet;

use ::redis::Value;

use crate::store::redis::address::RedisAddress;

/// A slot of a cluster, 0 to 16383.
pub(super) type HashSlot = u16;

/// The number of slots.
pub(super) const SLOTS: u16 = 16_384;

/// The slot of a key: CRC16 of the text in its first braces, or of the whole key
/// (<https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/#hash-tags>).
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

/// The masters and their slots, as one of the nodes sees them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SlotMap {
    /// First slot, last slot and owner, in order.
    ranges: Vec<(HashSlot, HashSlot, RedisAddress)>,
}

impl SlotMap {
    /// Reads the answer of the node `asked` to CLUSTER SLOTS.
    pub(super) fn read(answer: &Value, asked: &RedisAddress) -> Option<Self> {
        let Value::Array(entries) = answer else { return None };
        let mut ranges = entries
            .iter()
            .map(|entry| read_range(entry, asked))
            .collect::<Option<Vec<_>>>()?;
        ranges.sort();
        Some(Self { ranges })
    }

    /// The owner of a slot, if it has one.
    pub(super) fn owner(&self, slot: HashSlot) -> Option<&RedisAddress> {
        let behind = self.ranges.partition_point(|(first, ..)| *first <= slot);
        let (_, last, address) = self.ranges.get(behind.checked_sub(1)?)?;
        (slot <= *last).then_some(address)
    }

    pub(super) fn masters(&self) -> BTreeSet<&RedisAddress> {
        self.ranges.iter().map(|(.., address)| address).collect()
    }

    /// Whether a slot that had a master has another one in `next`.
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
    // A node that does not know its own name leaves it out.
    let host = host.filter(|host| !host.is_empty() && host != "?");
    let address = RedisAddress::new(host.as_deref().unwrap_or(&asked.host), u16::try_from(*port).ok()?)?;
    let slot = |number: &i64| u16::try_from(*number).ok().filter(|slot| *slot < SLOTS);
    Some((slot(first)?, slot(last)?, address))
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
