//! The logic of Responses over WebSocket. This module does not access the network. A client's frame becomes the body of a `POST
//! /v1/responses` ([`client_frame`]), and the answer's events and errors become frames ([`server_frame`]). Conversations that
//! clients continue by the id of a response are stored within limits ([`ConversationStore`]). On a WebSocket to a provider, the
//! body of a POST becomes a frame, and the provider's frames become the answer to the POST ([`provider_frame`]).

pub(crate) mod client_frame;
pub(crate) mod provider_frame;
pub(crate) mod server_frame;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use crate::domain::QuickMap;

/// The memory in bytes that a conversation occupies in addition to its text.
const ENTRY_BYTES: u64 = 256;

/// The digest of the API key to which a conversation belongs.
pub(crate) type ConversationOwner = [u8; 32];

/// The memory limits for conversations, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ConversationLimits {
    /// The limit for all conversations.
    pub bytes_max: u64,
    /// The limit for the conversations of one API key.
    pub key_bytes_max: u64,
}

/// A lane of a socket. It has at most one conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SocketLane {
    /// The socket's number on this node.
    pub socket: u64,
    /// The lane's number on its socket; 0 is the default lane.
    pub lane: u8,
}

/// The state of a conversation after its last response.
#[derive(Clone, Debug)]
struct StoredConversation {
    response_id: String,
    /// All items so far, input and output, as the elements of a JSON array without its brackets.
    items: Bytes,
    owner: ConversationOwner,
    /// The number of the conversation's last use. The uses of all conversations are numbered in one sequence.
    used: u64,
}

impl StoredConversation {
    fn bytes(&self) -> u64 {
        self.items.len() as u64 + self.response_id.len() as u64 + ENTRY_BYTES
    }
}

/// The conversations of all sockets of this node. A client continues a conversation with the id of the conversation's last
/// response. weir stores the conversation, because the provider does not store that response. The total memory is limited, and so
/// is the memory for the conversations of each API key. When a limit is exceeded, the least recently used conversation is
/// dropped.
#[derive(Debug)]
pub(crate) struct ConversationStore {
    limits: ConversationLimits,
    conversations: BTreeMap<SocketLane, StoredConversation>,
    /// The lane of each conversation, by the number of the conversation's last use.
    by_use: BTreeMap<u64, SocketLane>,
    /// The owner of each conversation, with the number of the conversation's last use.
    by_owner_and_use: BTreeSet<(ConversationOwner, u64)>,
    owner_bytes: QuickMap<ConversationOwner, u64>,
    bytes: u64,
    /// The number of uses so far.
    uses: u64,
    /// The number of conversations that were dropped because of a limit.
    evicted: u64,
}

impl ConversationStore {
    /// Creates an empty store.
    pub(crate) fn new(limits: ConversationLimits) -> Self {
        Self {
            limits,
            conversations: BTreeMap::new(),
            by_use: BTreeMap::new(),
            by_owner_and_use: BTreeSet::new(),
            owner_bytes: QuickMap::default(),
            bytes: 0,
            uses: 0,
            evicted: 0,
        }
    }

    /// Stores the conversation of a lane and replaces the lane's earlier one. Drops other conversations if the limits require it,
    /// or the new one if it alone exceeds a limit.
    pub(crate) fn insert(&mut self, at: SocketLane, owner: ConversationOwner, response_id: String, items: Bytes) {
        self.remove(at);
        let conversation = StoredConversation {
            response_id,
            items,
            owner,
            used: self.next_use(),
        };
        let (bytes, limits) = (conversation.bytes(), self.limits);
        if bytes > limits.bytes_max.min(limits.key_bytes_max) {
            self.evicted += 1;
            return;
        }
        while self.bytes_of(&owner) + bytes > limits.key_bytes_max {
            let range = (owner, 0)..=(owner, u64::MAX);
            let Some((_, used)) = self.by_owner_and_use.range(range).next().copied() else {
                break;
            };
            self.evict(used);
        }
        while self.bytes + bytes > limits.bytes_max {
            let Some(used) = self.by_use.keys().next().copied() else {
                break;
            };
            self.evict(used);
        }
        self.bytes += bytes;
        *self.owner_bytes.entry(owner).or_default() += bytes;
        self.by_use.insert(conversation.used, at);
        self.by_owner_and_use.insert((owner, conversation.used));
        self.conversations.insert(at, conversation);
    }

    /// Returns the items of the conversation whose last response has this id, on any lane of the socket. `None` if the socket
    /// never had this conversation, or if it has been dropped.
    pub(crate) fn find(&mut self, socket: u64, response_id: &str) -> Option<Bytes> {
        let lanes = SocketLane { socket, lane: 0 }..=SocketLane { socket, lane: u8::MAX };
        let mut found = self.conversations.range(lanes);
        let (at, _) = found.find(|(_, conversation)| conversation.response_id == response_id)?;
        let (at, used) = (*at, self.next_use());
        let conversation = self.conversations.get_mut(&at)?;
        self.by_use.remove(&conversation.used);
        self.by_owner_and_use.remove(&(conversation.owner, conversation.used));
        conversation.used = used;
        self.by_use.insert(used, at);
        self.by_owner_and_use.insert((conversation.owner, used));
        Some(conversation.items.clone())
    }

    /// Drops the conversation of a lane.
    pub(crate) fn remove(&mut self, at: SocketLane) {
        let Some(conversation) = self.conversations.remove(&at) else {
            return;
        };
        self.by_use.remove(&conversation.used);
        self.by_owner_and_use.remove(&(conversation.owner, conversation.used));
        let bytes = conversation.bytes();
        self.bytes = self.bytes.saturating_sub(bytes);
        if let Some(of_owner) = self.owner_bytes.get_mut(&conversation.owner) {
            *of_owner = of_owner.saturating_sub(bytes);
            if *of_owner == 0 {
                self.owner_bytes.remove(&conversation.owner);
            }
        }
    }

    /// Drops the conversation of a lane if its last response has this id.
    pub(crate) fn remove_response(&mut self, at: SocketLane, response_id: &str) {
        let conversation = self.conversations.get(&at);
        if conversation.is_some_and(|conversation| conversation.response_id == response_id) {
            self.remove(at);
        }
    }

    /// Drops all conversations of a socket that has ended.
    pub(crate) fn remove_socket(&mut self, socket: u64) {
        let lanes = SocketLane { socket, lane: 0 }..=SocketLane { socket, lane: u8::MAX };
        let all: Vec<SocketLane> = self.conversations.range(lanes).map(|(at, _)| *at).collect();
        for at in all {
            self.remove(at);
        }
    }

    /// Returns the memory that all conversations occupy, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the number of conversations that were dropped because of a limit.
    pub(crate) fn evicted(&self) -> u64 {
        self.evicted
    }

    fn bytes_of(&self, owner: &ConversationOwner) -> u64 {
        self.owner_bytes.get(owner).copied().unwrap_or(0)
    }

    fn next_use(&mut self) -> u64 {
        self.uses += 1;
        self.uses
    }

    /// Drops the conversation whose last use has this number.
    fn evict(&mut self, used: u64) {
        if let Some(at) = self.by_use.get(&used).copied() {
            self.remove(at);
            self.evicted += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const OWNER: ConversationOwner = [1; 32];
    const OTHER: ConversationOwner = [2; 32];

    fn store(bytes_max: u64, key_bytes_max: u64) -> ConversationStore {
        ConversationStore::new(ConversationLimits {
            bytes_max,
            key_bytes_max,
        })
    }

    fn at(socket: u64, lane: u8) -> SocketLane {
        SocketLane { socket, lane }
    }

    fn text(length: usize) -> Bytes {
        Bytes::from(vec![b'x'; length])
    }

    #[test]
    fn a_response_is_continued_on_its_own_socket_only() {
        let mut store = store(10_000, 10_000);
        store.insert(at(1, 0), OWNER, "a".to_owned(), text(3));
        assert_eq!(store.find(1, "a"), Some(text(3)));
        assert_eq!((store.find(2, "a"), store.find(1, "b")), (None, None));
        store.insert(at(1, 4), OWNER, "b".to_owned(), text(5));
        assert_eq!(store.find(1, "b"), Some(text(5)), "a fork may come from another lane");
        store.remove_response(at(1, 0), "b");
        assert!(
            store.find(1, "b").is_some(),
            "a fork that fails drops nothing of another lane"
        );
        store.remove_response(at(1, 4), "b");
        assert_eq!(store.find(1, "b"), None);
        store.insert(at(1, 0), OWNER, "c".to_owned(), text(1));
        assert_eq!(store.find(1, "a"), None, "a lane has its latest response");
        store.remove_socket(1);
        assert_eq!((store.find(1, "c"), store.bytes(), store.evicted()), (None, 0, 0));
        assert!(store.owner_bytes.is_empty() && store.by_use.is_empty() && store.by_owner_and_use.is_empty());
    }

    #[test]
    fn what_was_not_used_for_longest_goes_first() {
        let one = ENTRY_BYTES + 1 + 100;
        let mut store = store(3 * one, 3 * one);
        for (socket, id) in [(1, "a"), (2, "b"), (3, "c")] {
            store.insert(at(socket, 0), OWNER, id.to_owned(), text(100));
        }
        assert!(store.find(1, "a").is_some());
        store.insert(at(4, 0), OTHER, "d".to_owned(), text(100));
        assert!(store.find(2, "b").is_none() && store.find(1, "a").is_some() && store.find(4, "d").is_some());
        assert_eq!((store.bytes(), store.evicted()), (3 * one, 1));
    }

    #[test]
    fn a_key_drives_out_its_own_beyond_its_share() {
        let one = ENTRY_BYTES + 1 + 100;
        let mut store = store(9 * one, 2 * one);
        store.insert(at(1, 0), OTHER, "o".to_owned(), text(100));
        for (socket, id) in [(2, "a"), (3, "b"), (4, "c")] {
            store.insert(at(socket, 0), OWNER, id.to_owned(), text(100));
        }
        assert!(store.find(2, "a").is_none() && store.find(3, "b").is_some() && store.find(1, "o").is_some());
        store.insert(at(5, 0), OWNER, "d".to_owned(), text(1000));
        assert!(
            store.find(5, "d").is_none() && store.find(3, "b").is_some(),
            "it alone is too large"
        );
        assert_eq!(store.evicted(), 2);
    }

    proptest! {
        /// After any operations, the limits hold, and the stored sums are equal to the sums over the conversations.
        #[test]
        fn the_limits_hold(steps in prop::collection::vec((0_u8..4, 0_u64..4, 0_u8..3, 0_usize..900), 0..120)) {
            let (bytes_max, key_bytes_max) = (3000, 1500);
            let mut store = store(bytes_max, key_bytes_max);
            for (step, socket, lane, length) in steps {
                let owner = if socket % 2 == 0 { OWNER } else { OTHER };
                match step {
                    0 | 1 => store.insert(at(socket, lane), owner, format!("{lane}"), text(length)),
                    2 => {
                        store.find(socket, &format!("{lane}"));
                    }
                    _ if length % 5 == 0 => store.remove_socket(socket),
                    _ => store.remove(at(socket, lane)),
                }
                let sum: u64 = store.conversations.values().map(StoredConversation::bytes).sum();
                prop_assert_eq!(sum, store.bytes());
                prop_assert!(sum <= bytes_max);
                for owner in [OWNER, OTHER] {
                    let own = store.conversations.values().filter(|one| one.owner == owner);
                    let own: u64 = own.map(StoredConversation::bytes).sum();
                    prop_assert_eq!(own, store.bytes_of(&owner));
                    prop_assert!(own <= key_bytes_max);
                }
                prop_assert_eq!(store.by_use.len(), store.conversations.len());
                prop_assert_eq!(store.by_owner_and_use.len(), store.conversations.len());
            }
        }
    }
}
