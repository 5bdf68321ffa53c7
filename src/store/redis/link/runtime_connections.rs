//! Additional connections, one for each runtime that calls often.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::runtime::{Handle, Id};
use tokio::time::timeout;

use super::connecting::CONNECT_WAIT_MAX;
use super::live_connection::{LiveConnection, Wire};

/// The number of calls after which a runtime gets its own connection. Also the number of calls between a failed attempt and
/// the next one.
pub(in crate::store::redis) const CALLS_MIN: u32 = 64;
/// The maximum number of runtimes with their own connection.
const RUNTIMES_MAX: usize = 16;

/// Additional connections of a lane, one for each runtime that calls often, so that a call stays in its runtime.
///
/// Such a connection goes to the lane's server and is dropped with the lane's connection. While it is being established, when
/// it is closed, and after a call that waited in vain, calls use the lane's connection. The lane's supervisor watches only
/// that one.
#[derive(Clone, Default)]
pub(super) struct RuntimeConnections(Arc<Mutex<HashMap<Id, RuntimeConnection>>>);

struct RuntimeConnection {
    /// The number of the lane's connection to which it belongs.
    number: u64,
    state: DialState,
}

enum DialState {
    /// There is none yet; this many calls were made.
    Counting(u32),
    Dialing,
    Ready(Arc<Wire>),
}

impl RuntimeConnections {
    /// The connection for a call from this runtime.
    pub(super) fn wire(&self, live: &Arc<LiveConnection>) -> Arc<Wire> {
        self.own_wire(live).unwrap_or_else(|| Arc::clone(&live.wire))
    }

    /// The connection of this runtime, if it has one.
    fn own_wire(&self, live: &Arc<LiveConnection>) -> Option<Arc<Wire>> {
        let here = Handle::try_current().ok()?;
        if here.id() == live.runtime {
            return None;
        }
        let mut all = self.0.lock();
        if !all.contains_key(&here.id()) && all.len() >= RUNTIMES_MAX {
            return None;
        }
        let entry = all
            .entry(here.id())
            .or_insert_with(|| RuntimeConnection::counting(live.number));
        if entry.number != live.number || entry.is_closed() {
            *entry = RuntimeConnection::counting(live.number);
        }
        match &mut entry.state {
            DialState::Ready(wire) => return Some(Arc::clone(wire)),
            DialState::Dialing => {}
            DialState::Counting(calls) if *calls < CALLS_MIN => *calls += 1,
            DialState::Counting(_) => {
                entry.state = DialState::Dialing;
                drop(all);
                here.spawn(self.clone().dial(Arc::clone(live), here.id()));
            }
        }
        None
    }

    /// Drops the connection of this runtime, on which a call waited in vain.
    pub(super) fn drop_own(&self) {
        if let Ok(here) = Handle::try_current() {
            self.0.lock().remove(&here.id());
        }
    }

    /// The number of connections in use.
    #[cfg(test)]
    pub(super) fn ready(&self) -> usize {
        let all = self.0.lock();
        all.values()
            .filter(|entry| matches!(entry.state, DialState::Ready(_)) && !entry.is_closed())
            .count()
    }

    async fn dial(self, live: Arc<LiveConnection>, runtime: Id) {
        let connected = timeout(CONNECT_WAIT_MAX, Wire::connect(&live.client, || {})).await;
        let mut all = self.0.lock();
        // Unless it belongs to a connection of the lane that has been given up meanwhile.
        if let Some(entry) = all.get_mut(&runtime).filter(|entry| entry.number == live.number) {
            entry.state = match connected {
                Ok(Ok(wire)) => DialState::Ready(Arc::new(wire)),
                Ok(Err(_)) | Err(_) => DialState::Counting(0),
            };
        }
    }
}

impl RuntimeConnection {
    fn counting(number: u64) -> Self {
        Self {
            number,
            state: DialState::Counting(0),
        }
    }

    fn is_closed(&self) -> bool {
        matches!(&self.state, DialState::Ready(wire) if wire.is_closed())
    }
}
