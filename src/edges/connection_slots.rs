//! Slots for connections of which some wait for their client: when all are taken, one of those gives way to a new one.
//!
//! A listener that is to answer whatever others hold cannot wait for their time limits. First to go is the connection that
//! has been without a whole request for the longest time; if each has one, that whose client has left its answer for the
//! longest time. One that weir is at work for never gives way.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::edges::limiter::client::Client;

/// The slots of a listener.
#[derive(Debug)]
pub(crate) struct ConnectionSlots {
    max: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    /// Counts what happens to connections: what happened earlier has the lower number.
    moment: u64,
    connections: HashMap<u64, Connection>,
}

#[derive(Debug)]
struct Connection {
    /// Whose it is, as far as that is known.
    client: Option<Client>,
    /// Requests that have come as a whole and are not answered.
    requests: usize,
    /// Its client does not take what is written.
    is_untaken: bool,
    /// When it came to be as it is.
    since: u64,
    gives_way: Arc<Notify>,
}

/// A connection's slot, free again when it has given way or is dropped.
#[derive(Debug)]
pub(crate) struct ConnectionSlot {
    slots: Arc<ConnectionSlots>,
    number: u64,
    gives_way: Arc<Notify>,
}

impl ConnectionSlots {
    /// At most `max` connections at a time.
    pub(crate) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self {
            max,
            taken: Mutex::default(),
        })
    }

    /// A slot for a new connection, which has no whole request yet; `None` if no other gives way.
    pub(crate) fn take(self: &Arc<Self>) -> Option<ConnectionSlot> {
        let mut taken = self.taken.lock();
        if taken.connections.len() >= self.max && !taken.close_first(|_| true) {
            return None;
        }
        let number = taken.next_moment();
        let gives_way = Arc::<Notify>::default();
        let connection = Connection {
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

    /// Has one of a client's connections give way, if one waits for it.
    pub(crate) fn make_way(&self, client: Client) -> bool {
        self.taken
            .lock()
            .close_first(|connection| connection.client == Some(client))
    }

    /// How many are taken.
    #[cfg(test)]
    pub(crate) fn taken(&self) -> usize {
        self.taken.lock().connections.len()
    }

    /// How many of them have a whole request.
    #[cfg(test)]
    pub(crate) fn at_work(&self) -> usize {
        let taken = self.taken.lock();
        taken.connections.values().filter(|one| one.requests > 0).count()
    }
}

impl Taken {
    fn next_moment(&mut self) -> u64 {
        self.moment += 1;
        self.moment
    }

    /// Has the first of these to go give way; false if none does.
    fn close_first(&mut self, of: impl Fn(&Connection) -> bool) -> bool {
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
    /// Says whose the connection is.
    pub(crate) fn belongs_to(&self, client: Client) {
        self.change(|connection| connection.client = Some(client));
    }

    /// A request of this connection has come as a whole.
    pub(crate) fn has_request(&self) {
        self.change(|connection| connection.requests += 1);
    }

    /// That request is answered.
    pub(crate) fn has_answered(&self) {
        self.change(|connection| connection.requests = connection.requests.saturating_sub(1));
    }

    /// The same until the guard is dropped.
    pub(crate) fn request(self: &Arc<Self>) -> RequestGuard {
        self.has_request();
        RequestGuard(Arc::clone(self))
    }

    /// Whether its client leaves what is written.
    pub(crate) fn is_untaken(&self, untaken: bool) {
        self.change(|connection| connection.is_untaken = untaken);
    }

    /// Returns when the slot belongs to another connection, and this one is to be closed.
    pub(crate) fn given_way(&self) -> impl Future<Output = ()> + Send + use<> {
        let gives_way = Arc::clone(&self.gives_way);
        async move { gives_way.notified().await }
    }

    fn change(&self, to: impl FnOnce(&mut Connection)) {
        let mut taken = self.slots.taken.lock();
        let moment = taken.next_moment();
        // One that has given way has nothing to tell any more.
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

/// A request of a connection that is not answered yet.
#[derive(Debug)]
pub(crate) struct RequestGuard(Arc<ConnectionSlot>);

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.0.has_answered();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use proptest::prelude::*;

    use super::*;

    /// Whether it has given way; asked once.
    fn is_gone(slot: &ConnectionSlot) -> bool {
        slot.given_way().now_or_never().is_some()
    }

    #[test]
    fn slots_come_back_when_connections_end() {
        let slots = ConnectionSlots::new(2);
        let held = [slots.take().expect("a slot"), slots.take().expect("a slot")];
        held.iter().for_each(ConnectionSlot::has_request);
        assert!(slots.take().is_none(), "nobody gives way");
        drop(held);
        assert_eq!(slots.taken(), 0);
        assert!(slots.take().is_some());
    }

    #[test]
    fn the_one_goes_that_has_been_without_a_request_for_the_longest_time() {
        let slots = ConnectionSlots::new(3);
        let [first, second, third] = std::array::from_fn(|_| slots.take().expect("a slot"));
        second.has_request();
        // It was asked something, so it waits for less long than the third.
        first.has_request();
        first.has_answered();
        let _fourth = slots.take().expect("the third's");
        assert!(is_gone(&third) && !is_gone(&first) && !is_gone(&second));
        drop(third);
        assert_eq!(slots.taken(), 3, "what has given way frees nothing when it ends");
        let _fifth = slots.take().expect("the first's");
        assert!(is_gone(&first) && !is_gone(&second));
    }

    #[test]
    fn an_answer_that_is_not_taken_gives_way_when_nothing_idle_is_left() {
        let slots = ConnectionSlots::new(3);
        let [idle, slow, busy] = std::array::from_fn(|_| slots.take().expect("a slot"));
        slow.has_request();
        slow.is_untaken(true);
        busy.has_request();
        let next = slots.take().expect("the idle one's");
        next.has_request();
        assert!(is_gone(&idle) && !is_gone(&slow));
        let last = slots.take().expect("the slow one's");
        last.has_request();
        assert!(is_gone(&slow) && !is_gone(&busy) && !is_gone(&next));
        assert!(slots.take().is_none());
        // Who goes on taking its answer keeps its slot.
        busy.is_untaken(true);
        busy.is_untaken(false);
        assert!(slots.take().is_none());
    }

    #[test]
    fn a_clients_own_connections_give_way_to_its_next_one() {
        let slots = ConnectionSlots::new(9);
        let client = |last: u8| Client::from(std::net::IpAddr::from([192, 0, 2, last]));
        let [theirs, own, busy] = [1, 2, 2].map(|last| {
            let slot = slots.take().expect("a slot");
            slot.belongs_to(client(last));
            slot
        });
        busy.has_request();
        assert!(slots.make_way(client(2)) && is_gone(&own));
        assert!(!slots.make_way(client(2)) && !is_gone(&busy) && !is_gone(&theirs));
        // Over HTTP/2 a connection has several.
        let busy = Arc::new(busy);
        let second = busy.request();
        busy.has_answered();
        assert!(!slots.make_way(client(2)), "one is not answered");
        drop(second);
        assert!(slots.make_way(client(2)) && is_gone(&busy));
    }

    proptest! {
        /// Whatever connections do: there are never more than there may be, those at work stay, and a new one gets a slot
        /// whenever one waits for its client.
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
                        let slot = slots.take();
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
                    (2, Some(one)) if !one.1 => { one.0.has_request(); one.1 = true; }
                    (3, Some(one)) if one.1 => { one.0.has_answered(); one.1 = false; }
                    (4, Some(one)) => { one.2 = !one.2; one.0.is_untaken(one.2); }
                    (5, Some(_)) => { open.swap_remove(at); }
                    _ => {}
                }
                prop_assert_eq!(slots.taken(), open.len());
            }
        }
    }
}
