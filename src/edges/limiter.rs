//! Rate limits per client with the generic cell rate algorithm (ITU-T I.371): a token bucket that stores only one time per
//! client. It computes with integers, without rounding.

#[cfg(test)]
mod tests;

use std::{
    hash::{Hash, RandomState},
    net::{IpAddr, Ipv6Addr, SocketAddr},
    time::{Duration, Instant},
};

use http::HeaderMap;
use ipnet::IpNet;
use lru::LruCache;
use parking_lot::Mutex;

const MINUTE_NANOS: u128 = 60_000_000_000;
/// Maximum number of idle clients that are removed at each event, so that memory shrinks as gradually as it grew.
const SWEPT_MAX: usize = 2;

/// A rate limit for each client, and the maximum number of clients for which it is tracked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RateAllowance {
    /// Maximum sustained rate of a client's events, per minute; at least 1.
    pub per_minute: u32,
    /// Maximum number of events that a client can cause at once after it has been idle; at least 1.
    pub burst: u32,
    /// Maximum number of clients for which the rate is tracked; at least 1.
    pub clients_max: usize,
}

/// Limits the event rate of each client. Times are nanoseconds since `start`, multiplied by `per_minute`, so that one event takes
/// exactly `MINUTE_NANOS`. If all clients share one limit, the limiter has the single client `()`.
#[derive(Debug)]
pub(crate) struct Limiter<C: Hash + Eq> {
    start: Instant,
    per_minute: u128,
    /// The maximum time by which a client may be ahead of its sustained rate, in the unit of all times here (nanoseconds times
    /// `per_minute`).
    ahead: u128,
    clients_max: usize,
    /// For each client, the earliest time by which its sustained rate allows all of its events so far. The most recent client is
    /// first. The hash function is SipHash, because untrusted clients choose the addresses.
    clients: Mutex<ClientRates<C>>,
}

impl<C: Copy + Hash + Eq> Limiter<C> {
    /// Creates a limiter without events. `start` is a time before the first use.
    pub(crate) fn new(allowance: RateAllowance, start: Instant) -> Self {
        let burst = u128::from(allowance.burst.max(1));
        Self {
            start,
            per_minute: u128::from(allowance.per_minute.max(1)),
            ahead: (burst - 1) * MINUTE_NANOS,
            clients_max: allowance.clients_max.max(1),
            // The cache is unbounded, so that it does not allocate memory for `clients_max` entries in advance.
            clients: Mutex::new(LruCache::unbounded_with_hasher(RandomState::new())),
        }
    }

    /// Counts an event of a client if the limit allows it.
    ///
    /// # Errors
    /// The limit is reached. The error is the time until the event would be allowed. A refused event is not counted.
    pub(crate) fn try_acquire(&self, client: C, now: Instant) -> Result<(), Duration> {
        let now = self.scaled(now);
        let mut clients = self.clients.lock();
        let until = self.allowed(&mut clients, client, now)?;
        self.insert(&mut clients, client, until, now);
        Ok(())
    }

    /// Checks whether an event of a client would be allowed, without counting it.
    ///
    /// # Errors
    /// As for [`Limiter::try_acquire`].
    pub(crate) fn check(&self, client: C, now: Instant) -> Result<(), Duration> {
        self.allowed(&mut self.clients.lock(), client, self.scaled(now))
            .map(drop)
    }

    /// Counts an event of a client even if it exceeds the limit, so that the client has to wait longer.
    pub(crate) fn count(&self, client: C, now: Instant) {
        let now = self.scaled(now);
        let mut clients = self.clients.lock();
        let until = client_time(&mut clients, &client, now);
        self.insert(&mut clients, client, until, now);
    }

    /// Returns the result of `client_time` if the client is allowed to cause another event now.
    ///
    /// # Errors
    /// The time until another event is allowed.
    fn allowed(&self, clients: &mut ClientRates<C>, client: C, now: u128) -> Result<u128, Duration> {
        let until = client_time(clients, &client, now);
        match (until - now).saturating_sub(self.ahead) {
            0 => Ok(until),
            early => Err(nanos(early.div_ceil(self.per_minute))),
        }
    }

    fn insert(&self, clients: &mut ClientRates<C>, client: C, until: u128, now: u128) {
        clients.put(client, until + MINUTE_NANOS);
        for _ in 0..SWEPT_MAX {
            // An idle client is treated like an unknown one, so removing it changes nothing.
            if clients.peek_lru().is_some_and(|(_, until)| *until <= now) {
                clients.pop_lru();
            }
        }
        if clients.len() > self.clients_max {
            clients.pop_lru();
        }
    }

    fn scaled(&self, now: Instant) -> u128 {
        now.saturating_duration_since(self.start).as_nanos() * self.per_minute
    }
}

type ClientRates<C> = LruCache<C, u128, RandomState>;

/// Returns the time that `clients` contains for this client (see [`Limiter`]). Returns `now` if `now` is later or the client is
/// unknown.
fn client_time<C: Hash + Eq>(clients: &mut ClientRates<C>, client: &C, now: u128) -> u128 {
    clients.get(client).map_or(now, |until| now.max(*until))
}

fn nanos(count: u128) -> Duration {
    Duration::from_nanos(u64::try_from(count).unwrap_or(u64::MAX))
}

/// A client's IP address. An IPv6 address is reduced to its /64 network, because one household or machine owns the whole network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ClientAddress(IpAddr);

impl ClientAddress {
    /// Returns the peer's address, or the client's address in `x-forwarded-for` if the peer is trusted. The header is read from
    /// its end, past trusted addresses, to the first address that is not trusted. Reading stops at an entry that is not an
    /// address, because no trusted proxy wrote the entries before it.
    pub(crate) fn from_headers(peer: IpAddr, headers: &HeaderMap, trusted: &[IpNet]) -> Self {
        Self::from(forwarded_address(peer, headers, trusted))
    }

    /// Like [`ClientAddress::from_headers`], but returns `None` if the result is the address of a trusted proxy, which many
    /// clients share.
    pub(crate) fn single_from_headers(peer: IpAddr, headers: &HeaderMap, trusted: &[IpNet]) -> Option<Self> {
        let last = forwarded_address(peer, headers, trusted);
        (!is_trusted(&last, trusted)).then(|| Self::from(last))
    }
}

fn is_trusted(address: &IpAddr, trusted: &[IpNet]) -> bool {
    trusted.iter().any(|network| network.contains(address))
}

fn forwarded_address(peer: IpAddr, headers: &HeaderMap, trusted: &[IpNet]) -> IpAddr {
    let mut last = peer.to_canonical();
    let lines = headers.get_all("x-forwarded-for").iter().rev();
    let mut entries = lines.flat_map(|line| line.to_str().unwrap_or_default().rsplit(','));
    while is_trusted(&last, trusted)
        && let Some(before) = entries.next().and_then(parse_entry)
    {
        last = before;
    }
    last
}

impl From<IpAddr> for ClientAddress {
    fn from(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V6(address) => {
                let network = u128::from(address) >> 64 << 64;
                Self(IpAddr::V6(Ipv6Addr::from(network)))
            }
            four @ IpAddr::V4(_) => Self(four),
        }
    }
}

/// Parses an entry of `x-forwarded-for`: an address, which some proxies write in brackets or with a port.
fn parse_entry(entry: &str) -> Option<IpAddr> {
    let entry = entry.trim();
    let bare = entry.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let parsed = bare.unwrap_or(entry).parse::<IpAddr>().ok();
    let address = parsed.or_else(|| entry.parse::<SocketAddr>().ok().map(|socket| socket.ip()));
    address.map(|address| address.to_canonical())
}

#[cfg(test)]
mod client_tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn trusted() -> Vec<IpNet> {
        ["10.0.0.0/8", "127.0.0.1/32", "fd00::/8"]
            .map(|network| network.parse().unwrap())
            .to_vec()
    }

    fn client(peer: &str, lines: &[&str]) -> ClientAddress {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append("x-forwarded-for", line.parse().unwrap());
        }
        ClientAddress::from_headers(ip(peer), &headers, &trusted())
    }

    #[test]
    fn an_untrusted_peer_speaks_for_itself() {
        assert_eq!(client("192.0.2.1", &["203.0.113.5"]), ClientAddress(ip("192.0.2.1")));
        assert_eq!(client("192.0.2.1", &[]), ClientAddress(ip("192.0.2.1")));
    }

    #[test]
    fn a_trusted_peer_names_the_last_address_that_is_not_trusted() {
        for (lines, named) in [
            (&["203.0.113.5"][..], "203.0.113.5"),
            (&["6.6.6.6, 203.0.113.5, 10.1.1.1"], "203.0.113.5"),
            (&["6.6.6.6", "203.0.113.5", "10.1.1.1,10.2.2.2"], "203.0.113.5"),
            (&["10.3.3.3, 10.1.1.1"], "10.3.3.3"),
            (&["6.6.6.6, nonsense, 10.1.1.1"], "10.1.1.1"),
            (&["203.0.113.5, "], "10.0.0.1"),
            (&["unknown"], "10.0.0.1"),
            (&[], "10.0.0.1"),
            (&["203.0.113.5:4711"], "203.0.113.5"),
            (&["[2001:db8::7]:4711"], "2001:db8::"),
            (&["[2001:db8::7]"], "2001:db8::"),
            (&["::ffff:203.0.113.5"], "203.0.113.5"),
        ] {
            assert_eq!(client("10.0.0.1", lines), ClientAddress(ip(named)), "{lines:?}");
        }
        assert_eq!(
            client("::ffff:10.0.0.1", &["203.0.113.5"]),
            ClientAddress(ip("203.0.113.5"))
        );
        assert_eq!(client("fd00::1", &["203.0.113.5"]), ClientAddress(ip("203.0.113.5")));
    }

    #[test]
    fn a_proxy_that_names_nobody_speaks_for_many() {
        let alone = |peer: &str, line: &'static str| {
            let headers = HeaderMap::from_iter([("x-forwarded-for".parse().unwrap(), line.parse().unwrap())]);
            ClientAddress::single_from_headers(ip(peer), &headers, &trusted())
        };
        assert_eq!(alone("10.0.0.1", "203.0.113.5"), Some(ClientAddress(ip("203.0.113.5"))));
        assert_eq!(alone("192.0.2.1", ""), Some(ClientAddress(ip("192.0.2.1"))));
        for (peer, line) in [
            ("10.0.0.1", ""),
            ("::ffff:10.0.0.1", "10.1.1.1"),
            ("fd00::1", "nonsense"),
        ] {
            assert_eq!(alone(peer, line), None, "{peer} {line}");
        }
    }

    #[test]
    fn an_ipv6_network_is_one_client_and_a_mapped_address_is_ipv4() {
        assert_eq!(client("2001:db8:1:2:3::4", &[]), client("2001:db8:1:2:ffff::", &[]));
        assert_ne!(client("2001:db8:1:2::", &[]), client("2001:db8:1:3::", &[]));
        assert_eq!(client("::ffff:192.0.2.1", &[]), client("192.0.2.1", &[]));
        assert_ne!(client("::ffff:192.0.2.1", &[]), client("::ffff:192.0.2.2", &[]));
    }
}
