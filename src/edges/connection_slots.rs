//! A listener's slots for connections. When all are taken, an idle connection is closed to make room for a new one.
//!
//! This keeps a listener reachable without waiting for the timeouts of idle connections. The listener closes the connection that
//! has been without a complete request for the longest time. If all connections have a complete request, it closes the one whose
//! client has not read its answer for the longest time. A connection whose request weir is processing is never closed.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::edges::limiter::ClientAddress;

/// The connection slots of one listener.
#[derive(Debug)]
pub(crate) struct ConnectionSlots {
    max: usize,
    taken: Mutex<TakenSlots>,
}

#[derive(Debug, Default)]
struct TakenSlots {
    /// A counter that orders the events of connections: an earlier event has a lower number.
    moment: u64,
    connections: HashMap<u64, SlotConnection>,
}

#[derive(Debug)]
struct SlotConnection {
    /// The address of the connection's client; `None` until it has been determined.
    client: Option<ClientAddress>,
    /// Number of complete requests on this connection that are not answered yet.
    requests: usize,
    /// Whether bytes wait to be sent because the client does not read.
    is_untaken: bool,
    /// The value of `moment` at this connection's last change.
    since: u64,
    gives_way: Arc<Notify>,
}

/// The slot of a connection. It becomes free when this is dropped, or when the connection gives way to another one.
#[derive(Debug)]
pub(crate) struct ConnectionSlot {
    slots: Arc<ConnectionSlots>,
    number: u64,
    gives_way: Arc<Notify>,
}

impl ConnectionSlots {
    /// Creates slots for at most `max` connections.
    pub(crate) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self {
            max,
            taken: Mutex::default(),
        })
    }

    /// Returns a slot for a new connection, which has no complete request yet. Returns `None` if all slots are taken and no
    /// connection can give way.
    pub(crate) fn acquire(self: &Arc<Self>) -> Option<ConnectionSlot> {
        let mut taken = self.taken.lock();
        if taken.connections.len() >= self.max && !taken.close_first(|_| true) {
            return None;
        }
        let number = taken.next_moment();
        let gives_way = Arc::<Notify>::default();
        let connection = SlotConnection {
            client: None,
            requests: 0,
            is_untaken: false,
            since: number,
            gives_way: Arc::clone(&gives_way),
        };
        taken.connections.insert(number, connection);
        Some(ConnectionSlot {
            slots: Arc::clone(self),
            number,
            gives_way,
        })
    }

    /// Closes one of the client's connections that can give way, to make room. Returns false if none can give way.
    pub(crate) fn make_way(&self, client: ClientAddress) -> bool {
        self.taken
            .lock()
            .close_first(|connection| connection.client == Some(client))
    }

    /// The number of taken slots.
    #[cfg(test)]
    pub(crate) fn taken(&self) -> usize {
        self.taken.lock().connections.len()
    }

    /// The number of connections with a complete request that is not answered yet.
    #[cfg(test)]
    pub(crate) fn at_work(&self) -> usize {
        let taken = self.taken.lock();
        taken.connections.values().filter(|one| one.requests > 0).count()
    }
}

impl TakenSlots {
    fn next_moment(&mut self) -> u64 {
        self.moment += 1;
        self.moment
    }

    /// Of the connections that match `of` and can give way, closes the one that has waited longest. Returns false if there is
    /// none.
    fn close_first(&mut self, of: impl Fn(&SlotConnection) -> bool) -> bool {
        let waiting = self.connections.iter();
        let waiting = waiting.filter(|(_, one)| of(one) && (one.requests == 0 || one.is_untaken));
        let first = waiting.min_by_key(|(_, one)| (one.is_untaken, one.since));
        let first = first.map(|(number, _)| *number);
        let leaving = first.and_then(|number| self.connections.remove(&number));
        if let Some(leaving) = &leaving {
            leaving.gives_way.notify_one();
        }
        leaving.is_some()
    }
}

impl ConnectionSlot {
    /// Sets the address of the connection's client.
    pub(crate) fn set_client(&self, client: ClientAddress) {
        self.change(|connection| connection.client = Some(client));
    }

    /// Records that a complete request has arrived on this connection.
    pub(crate) fn on_request(&self) {
        self.change(|connection| connection.requests += 1);
    }

    /// Records that a request of this connection has been answered.
    pub(crate) fn on_answered(&self) {
        self.change(|connection| connection.requests = connection.requests.saturating_sub(1));
    }

    /// Does the same as [`ConnectionSlot::on_request`]. The request is recorded as answered when the returned guard is dropped.
    pub(crate) fn begin_request(self: &Arc<Self>) -> RequestGuard {
        self.on_request();
        RequestGuard(Arc::clone(self))
    }

    /// Records whether bytes wait to be sent because the client does not read.
    pub(crate) fn set_untaken(&self, untaken: bool) {
        self.change(|connection| connection.is_untaken = untaken);
    }

    /// Waits until this connection has given way to another one and must therefore be closed.
    pub(crate) fn given_way(&self) -> impl Future<Output = ()> + Send + use<> {
        let gives_way = Arc::clone(&self.gives_way);
        async move { gives_way.notified().await }
    }

    fn change(&self, to: impl FnOnce(&mut SlotConnection)) {
        let mut taken = self.slots.taken.lock();
        let moment = taken.next_moment();
        // A connection that has given way is no longer in the map.
        if let Some(connection) = taken.connections.get_mut(&self.number) {
            to(connection);
            connection.since = moment;
        }
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.slots.taken.lock().connections.remove(&self.number);
    }
}

/// A request of a connection that is not answered yet. It is recorded as answered when this is dropped.
#[derive(Debug)]
pub(crate) struct RequestGuard(Arc<ConnectionSlot>);

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.0.on_answered();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use proptest::prelude::*;

    use super::*;

    /// Whether the connection has given way to another one.
    fn is_gone(slot: &ConnectionSlot) -> bool {
        slot.given_way().now_or_never().is_some()
    }

    #[test]
    fn slots_come_back_when_connections_end() {
        let slots = ConnectionSlots::new(2);
        let held = [slots.acquire().expect("a slot"), slots.acquire().expect("a slot")];
        held.iter().for_each(ConnectionSlot::on_request);
        assert!(slots.acquire().is_none(), "nobody gives way");
        drop(held);
        assert_eq!(slots.taken(), 0);
        assert!(slots.acquire().is_some());
    }

    #[test]
    fn the_one_goes_that_has_been_without_a_request_for_the_longest_time() {
        let slots = ConnectionSlots::new(3);
        let [first, second, third] = std::array::from_fn(|_| slots.acquire().expect("a slot"));
        second.on_request();
        // The first connection has had a request, so it has been idle for less time than the third.
        first.on_request();
        first.on_answered();
        let _fourth = slots.acquire().expect("the third's");
        assert!(is_gone(&third) && !is_gone(&first) && !is_gone(&second));
        drop(third);
        assert_eq!(slots.taken(), 3, "what has given way frees nothing when it ends");
        let _fifth = slots.acquire().expect("the first's");
        assert!(is_gone(&first) && !is_gone(&second));
    }

    #[test]
    fn an_answer_that_is_not_taken_gives_way_when_nothing_idle_is_left() {
        let slots = ConnectionSlots::new(3);
        let [idle, slow, busy] = std::array::from_fn(|_| slots.acquire().expect("a slot"));
        slow.on_request();
        slow.set_untaken(true);
        busy.on_request();
        let next = slots.acquire().expect("the idle one's");
        next.on_request();
        assert!(is_gone(&idle) && !is_gone(&slow));
        let last = slots.acquire().expect("the slow one's");
        last.on_request();
        assert!(is_gone(&slow) && !is_gone(&busy) && !is_gone(&next));
        assert!(slots.acquire().is_none());
        // A connection keeps its slot if its client reads again.
        busy.set_untaken(true);
        busy.set_untaken(false);
        assert!(slots.acquire().is_none());
    }

    #[test]
    fn a_clients_own_connections_give_way_to_its_next_one() {
        let slots = ConnectionSlots::new(9);
        let client = |last: u8| ClientAddress::from(std::net::IpAddr::from([192, 0, 2, last]));
        let [theirs, own, busy] = [1, 2, 2].map(|last| {
            let slot = slots.acquire().expect("a slot");
            slot.set_client(client(last));
            slot
        });
        busy.on_request();
        assert!(slots.make_way(client(2)) && is_gone(&own));
        assert!(!slots.make_way(client(2)) && !is_gone(&busy) && !is_gone(&theirs));
        // An HTTP/2 connection can have several requests.
        let busy = Arc::new(busy);
        let second = busy.begin_request();
        busy.on_answered();
        assert!(!slots.make_way(client(2)), "one is not answered");
        drop(second);
        assert!(slots.make_way(client(2)) && is_gone(&busy));
    }

    proptest! {
        /// Whatever the connections do: there are never more of them than the maximum, connections with a request stay, and a new
        /// connection gets a slot whenever another one waits for its client.
        #[test]
        fn who_is_at_work_stays_and_who_waits_gives_way(steps in prop::collection::vec((0_u8..6, 0_usize..8), 0..200)) {
            const MAX: usize = 5;
            let slots = ConnectionSlots::new(MAX);
            let mut open: Vec<(ConnectionSlot, bool, bool)> = Vec::new();
            for (step, which) in steps {
                let at = which.min(open.len().saturating_sub(1));
                match (step, open.get_mut(at)) {
                    (0 | 1, _) => {
                        let has_room = open.len() < MAX || open.iter().any(|(_, request, untaken)| !request || *untaken);
                        let slot = slots.acquire();
                        prop_assert_eq!(slot.is_some(), has_room);
                        let before = open.len();
                        let is_full = before == MAX;
                        open.retain(|(slot, request, untaken)| {
                            let gone = is_gone(slot);
                            assert!(!gone || !request || *untaken, "one at work was closed");
                            !gone
                        });
                        prop_assert_eq!(before - open.len(), usize::from(is_full && has_room));
                        open.extend(slot.map(|slot| (slot, false, false)));
                    }
                    (2, Some(one)) if !one.1 => { one.0.on_request(); one.1 = true; }
                    (3, Some(one)) if one.1 => { one.0.on_answered(); one.1 = false; }
                    (4, Some(one)) => { one.2 = !one.2; one.0.set_untaken(one.2); }
                    (5, Some(_)) => { open.swap_remove(at); }
                    _ => {}
                }
                prop_assert_eq!(slots.taken(), open.len());
            }
        }
    }
}
