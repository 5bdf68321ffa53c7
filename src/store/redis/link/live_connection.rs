//! An established connection, as those who call see it.

use std::sync::Arc;

use ::redis::{Client, aio::MultiplexedConnection};
use tokio::runtime::Id;

use super::last_answer::LastAnswer;
use crate::store::redis::address::Address;

/// An established connection.
#[derive(Clone)]
pub(super) struct LiveConnection {
    pub(super) connection: MultiplexedConnection,
    pub(super) last_answer: LastAnswer,
    /// Which of the lane's connections it is.
    pub(super) number: u64,
    pub(super) address: Address,
    pub(super) origin: Arc<Origin>,
}

/// The connection that a call uses.
pub(super) struct Wire {
    pub(super) connection: MultiplexedConnection,
    /// When something was last answered there.
    pub(super) last_answer: LastAnswer,
}

/// How a connection was made.
pub(super) struct Origin {
    pub(super) client: Client,
    /// The runtime that reads its answers.
    pub(super) runtime: Id,
}
