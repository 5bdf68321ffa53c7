//! Limits clients' connections, in total and per address.

use std::{collections::HashMap, net::IpAddr, sync::Arc};

use parking_lot::{Mutex, MutexGuard};

use ipnet::IpNet;

use crate::edges::{
    connection_slots::{ConnectionSlot, ConnectionSlots},
    limiter::ClientAddress,
};

/// The connection permits of a listener.
#[derive(Debug)]
pub(crate) struct ConnectionPermits {
    max: usize,
    per_client_max: usize,
    trusted: Vec<IpNet>,
    /// The slots of the connections, if connections that wait for their client have to give way to new ones; `None` if
    /// connections never give way.
    slots: Option<Arc<ConnectionSlots>>,
    taken: Mutex<ConnectionCounts>,
}

#[derive(Debug, Default)]
struct ConnectionCounts {
    all: usize,
    /// The number of connections of each client. A client without a connection has no entry, so the map has at most `all`
    /// entries.
    by_client: HashMap<ClientAddress, usize>,
}

/// The permit of one connection, returned on drop.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    places: Arc<ConnectionPermits>,
    client: Option<ClientAddress>,
    slot: Option<Arc<ConnectionSlot>>,
}

impl ConnectionPermits {
    /// Creates `max` permits, at most `per_client_max` of them for one client. Peers in `trusted` represent many clients and are
    /// not counted. A connection keeps its permit until it ends.
    pub(crate) fn fixed(max: usize, per_client_max: usize, trusted: Vec<IpNet>) -> Arc<Self> {
        Self::new((max, None), per_client_max, trusted)
    }

    /// Does the same as [`Self::fixed`], but a connection that waits for its client may have to give way to a new one.
    pub(crate) fn revocable(max: usize, per_client_max: usize, trusted: Vec<IpNet>) -> Arc<Self> {
        Self::new((max, Some(ConnectionSlots::new(max))), per_client_max, trusted)
    }

    fn new(
        (max, slots): (usize, Option<Arc<ConnectionSlots>>),
        per_client_max: usize,
        trusted: Vec<IpNet>,
    ) -> Arc<Self> {
        Arc::new(Self {
            max,
            per_client_max,
            trusted,
            slots,
            taken: Mutex::default(),
        })
    }

    /// Acquires a permit; returns `None` if no permit is free.
    pub(crate) fn acquire(self: &Arc<Self>) -> Option<ConnectionPermit> {
        let slot = match &self.slots {
            Some(slots) => Some(Arc::new(slots.acquire()?)),
            None => None,
        };
        let mut taken = self.lock();
        // A connection that has given way stays counted until it is closed, a moment later.
        if slot.is_none() && taken.all >= self.max {
            return None;
        }
        taken.all += 1;
        Some(ConnectionPermit {
            places: Arc::clone(self),
            client: None,
            slot,
        })
    }

    fn lock(&self) -> MutexGuard<'_, ConnectionCounts> {
        self.taken.lock()
    }
}

impl ConnectionPermit {
    /// The client for which the permit is counted; `None` for a peer that represents many clients or has no address.
    pub(crate) fn client(&self) -> Option<ClientAddress> {
        self.client
    }

    /// Counts the permit for its client. Returns false if the client already has its maximum of permits.
    pub(crate) fn claim(&mut self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        if self.places.trusted.iter().any(|network| network.contains(&address)) {
            return true;
        }
        let client = ClientAddress::from(address);
        let mut taken = self.places.lock();
        let count = taken.by_client.entry(client).or_default();
        let slots = self.places.slots.as_ref();
        if *count >= self.places.per_client_max && !slots.is_some_and(|slots| slots.make_way(client)) {
            return false;
        }
        *count += 1;
        drop(taken);
        self.client = Some(client);
        if let Some(slot) = &self.slot {
            slot.set_client(client);
        }
        true
    }

    /// The slot whose connection may have to give way to a new one; `None` if this connection never gives way.
    pub(crate) fn slot(&self) -> Option<&Arc<ConnectionSlot>> {
        self.slot.as_ref()
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut taken = self.places.lock();
        taken.all = taken.all.saturating_sub(1);
        let Some(client) = self.client else { return };
        if let Some(count) = taken.by_client.get_mut(&client) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                taken.by_client.remove(&client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn places_come_back_when_connections_end() {
        let places = ConnectionPermits::fixed(2, 2, Vec::new());
        let (first, second) = (places.acquire(), places.acquire());
        assert!(first.is_some() && second.is_some() && places.acquire().is_none());
        drop(first);
        assert!(places.acquire().is_some());
    }

    #[test]
    fn a_client_has_its_share_and_an_ipv6_network_is_one_client() {
        let places = ConnectionPermits::fixed(9, 2, Vec::new());
        let claim = |address: &str| {
            let mut place = places.acquire()?;
            place.claim(ip(address)).then_some(place)
        };
        let first = claim("2001:db8::1").expect("a place");
        let second = claim("2001:db8::2").expect("a place");
        assert!(claim("2001:db8::3").is_none());
        assert!(claim("2001:db8:0:1::1").is_some() && claim("192.0.2.1").is_some());
        drop(first);
        assert!(claim("2001:db8::3").is_some());
        drop(second);
        let taken = places.lock();
        assert!(taken.all == 0 && taken.by_client.is_empty(), "nothing is remembered");
    }

    #[test]
    fn who_has_asked_for_nothing_gives_way_to_others_and_to_its_own_next() {
        let places = ConnectionPermits::revocable(4, 2, Vec::new());
        let claim = |address: &str| {
            let mut place = places.acquire()?;
            place.claim(ip(address)).then_some(place)
        };
        let busy = claim("192.0.2.1").expect("a place");
        busy.slot().expect("one that may give way").on_request();
        let mut own: Vec<ConnectionPermit> = (0..10).map(|_| claim("192.0.2.1").expect("its own one's")).collect();
        // Dropping the permits has the same effect as closing the connections that have given way.
        own.drain(..9);
        let others = [claim("192.0.2.2"), claim("192.0.2.2"), claim("192.0.2.3")];
        assert!(others.iter().all(Option::is_some));
        own.iter().chain(others.iter().flatten()).for_each(|place| {
            place.slot().expect("one that may give way").on_request();
        });
        // The last connection of 192.0.2.1 has given way to the third of the others.
        assert!(places.acquire().is_none(), "all that are left are at work");
        drop((own, others, busy));
        let taken = places.lock();
        assert!(taken.all == 0 && taken.by_client.is_empty(), "nothing is remembered");
    }

    #[test]
    fn a_trusted_proxy_has_all_places() {
        let places = ConnectionPermits::fixed(3, 1, vec!["10.0.0.0/8".parse().unwrap()]);
        let mut held: Vec<ConnectionPermit> = (0..3).map(|_| places.acquire().expect("a place")).collect();
        assert!(held.iter_mut().all(|place| place.claim(ip("::ffff:10.1.2.3"))));
        assert!(places.acquire().is_none());
    }
}
