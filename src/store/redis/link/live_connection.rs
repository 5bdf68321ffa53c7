//! Connections to a master: the lane's own, additional ones of runtimes, the limits of attempts, and a server's report about
//! itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ::redis::{Client, PushKind, RedisResult, aio::MultiplexedConnection};
use tokio::runtime::Id;

use super::call_timeout::LastAnswer;
use crate::edges::clock;
use crate::store::redis::address::RedisAddress;
use crate::store::redis::dialer::connect;

/// A lane's connection.
pub(super) struct LiveConnection {
    pub(super) wire: Arc<Wire>,
    /// Its number among the lane's connections.
    pub(super) number: u64,
    pub(super) address: RedisAddress,
    /// Creates other connections to the same server.
    pub(super) client: Client,
    /// The runtime that reads its answers.
    pub(super) runtime: Id,
}

/// A connection on which calls are sent.
pub(super) struct Wire {
    pub(super) connection: MultiplexedConnection,
    /// When something was last answered on it.
    pub(super) last_answer: LastAnswer,
    closed: Arc<AtomicBool>,
}

impl Wire {
    /// Connects. `at_end` is called when the connection is closed.
    pub(super) async fn connect(client: &Client, at_end: impl Fn() + Send + Sync + 'static) -> RedisResult<Self> {
        let closed = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&closed);
        let connection = connect(client, move |kind| {
            if kind == PushKind::Disconnection {
                flag.store(true, Ordering::Release);
                at_end();
            }
        })
        .await?;
        Ok(Self {
            connection,
            last_answer: LastAnswer::new(clock::instant()),
            closed,
        })
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }
}
