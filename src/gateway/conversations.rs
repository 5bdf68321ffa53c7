//! The conversations of this node's sockets, shared by all requests on them ([`ConversationStore`]).

use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;

use crate::{
    config::gateway::SocketsConfig,
    domain::wire::responses_socket::{ConversationLimits, ConversationOwner, ConversationStore, SocketLane},
};

/// The conversations of all sockets of this node.
#[derive(Debug)]
pub(crate) struct Conversations {
    store: Mutex<ConversationStore>,
    /// The number of sockets that this node has opened.
    sockets: AtomicU64,
}

impl Conversations {
    /// Creates an empty store with the limits in `config`.
    pub(crate) fn new(config: &SocketsConfig) -> Self {
        let limits = ConversationLimits {
            bytes_max: config.state_bytes_max,
            key_bytes_max: config.state_key_bytes_max(),
        };
        Self {
            store: Mutex::new(ConversationStore::new(limits)),
            sockets: AtomicU64::new(0),
        }
    }

    /// Returns the number of a new socket.
    pub(crate) fn open_socket(&self) -> u64 {
        self.sockets.fetch_add(1, Ordering::Relaxed)
    }

    /// Stores a conversation and replaces the lane's earlier one.
    pub(crate) fn insert(&self, at: SocketLane, owner: ConversationOwner, response_id: String, items: Bytes) {
        self.store.lock().insert(at, owner, response_id, items);
    }

    /// Finds this socket's conversation in which the last response has this id, and returns the conversation's items. Returns
    /// `None` if that conversation was dropped or has never existed.
    pub(crate) fn find(&self, socket: u64, response_id: &str) -> Option<Bytes> {
        self.store.lock().find(socket, response_id)
    }

    /// Drops the conversation of a lane.
    pub(crate) fn remove(&self, at: SocketLane) {
        self.store.lock().remove(at);
    }

    /// Drops the conversation of a lane if its last response has this id.
    pub(crate) fn remove_response(&self, at: SocketLane, response_id: &str) {
        self.store.lock().remove_response(at, response_id);
    }

    /// Drops all conversations of a socket that has ended.
    pub(crate) fn remove_socket(&self, socket: u64) {
        self.store.lock().remove_socket(socket);
    }

    /// The memory that all conversations occupy, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.store.lock().bytes()
    }

    /// The number of conversations that were dropped because of a limit.
    pub(crate) fn evicted(&self) -> u64 {
        self.store.lock().evicted()
    }
}
