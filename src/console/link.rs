//! Links that open a session in the console: good once, and soon. There is no password that could be guessed or lost.

use std::{
    sync::OnceLock,
    time::{Duration, Instant},
};

use lru::LruCache;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio::sync::watch;

use crate::{
    admin::{ConsoleLinks, Peer},
    api::sessions::ConsoleLink,
    domain::{keys::secret::random_base62, role::Role},
    edges::clock,
    side::service::Bound,
};

/// How long a link is good.
const GOOD_FOR: Duration = Duration::from_secs(60);
/// The most links that wait to be opened; beyond it the oldest ends.
const LINKS_MAX: usize = 64;
/// 43 characters of 62 carry 256 bits.
const CODE_CHARS: usize = 43;

/// Who has a session in the console.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Operator {
    /// Who has asked for the link, or whom the OpenID provider has vouched for.
    pub(super) opened_by: Peer,
    /// What the session may do.
    pub(super) role: Role,
}

impl Operator {
    /// Who calls the admin API in the session's name.
    pub(super) fn peer(&self) -> Peer {
        Peer::Console {
            opened_by: Box::new(self.opened_by.clone()),
            role: self.role,
        }
    }

    /// Whether the OpenID provider has said who it is.
    pub(super) fn is_vouched_for(&self) -> bool {
        self.name().is_some()
    }

    /// What the OpenID provider calls them.
    pub(super) fn name(&self) -> Option<&str> {
        match &self.opened_by {
            Peer::Person { name, .. } => Some(name),
            Peer::Process { .. } | Peer::Certified(_) | Peer::Console { .. } | Peer::Owner(_) => None,
        }
    }
}

/// The links that have not been opened yet.
#[derive(Debug)]
pub(crate) struct Links {
    waiting: Mutex<LruCache<[u8; 32], Waiting>>,
    /// Set once, when the listener is there to be asked.
    at: OnceLock<LinkAddress>,
}

impl Default for Links {
    fn default() -> Self {
        Self {
            waiting: Mutex::new(LruCache::unbounded()),
            at: OnceLock::new(),
        }
    }
}

#[derive(Debug)]
struct Waiting {
    operator: Operator,
    until: Instant,
}

/// Where links lead.
#[derive(Debug)]
pub(crate) enum LinkAddress {
    /// The address that the configuration has, without a slash at its end.
    Configured(String),
    /// The listener's own.
    Listener {
        /// Whether it speaks TLS.
        tls: bool,
        /// Tells where it listens.
        bound: watch::Receiver<Bound>,
    },
}

impl LinkAddress {
    /// The address, `http://127.0.0.1:8082`; `None` while the listener is not there.
    pub(crate) fn base(&self) -> Option<String> {
        match self {
            Self::Configured(base) => Some(base.clone()),
            Self::Listener { tls, bound } => match &*bound.borrow() {
                Bound::Tcp(address) => {
                    let mut address = *address;
                    // Whoever listens everywhere is reached at this machine.
                    if address.ip().is_unspecified() {
                        address.set_ip(if address.is_ipv4() {
                            std::net::Ipv4Addr::LOCALHOST.into()
                        } else {
                            std::net::Ipv6Addr::LOCALHOST.into()
                        });
                    }
                    let scheme = if *tls { "https" } else { "http" };
                    Some(format!("{scheme}://{address}"))
                }
                Bound::Waiting | Bound::Unix(_) | Bound::Failed(_) => None,
            },
        }
    }
}

impl Links {
    /// Says where they lead to. Only the first word counts.
    pub(crate) fn lead_to(&self, at: LinkAddress) {
        let _ = self.at.set(at);
    }

    /// Where browsers reach the console; `None` while its listener is not there.
    pub(super) fn base(&self) -> Option<String> {
        self.at.get().and_then(LinkAddress::base)
    }

    fn make(&self, operator: Operator, now: Instant) -> String {
        let code = random_base62(CODE_CHARS, &mut rand::rng());
        let until = now + GOOD_FOR;
        let mut waiting = self.waiting.lock();
        waiting.put(digest(&code), Waiting { operator, until });
        if waiting.len() > LINKS_MAX {
            waiting.pop_lru();
        }
        code
    }

    /// Who opens a session with this code; nobody does twice.
    pub(super) fn take(&self, code: &str, now: Instant) -> Option<Operator> {
        let waiting = self.waiting.lock().pop(&digest(code))?;
        (now < waiting.until).then_some(waiting.operator)
    }
}

impl ConsoleLinks for Links {
    fn issue(&self, opener: &Peer, role: Role) -> Result<ConsoleLink, String> {
        let base = self.base().ok_or("the console does not listen yet, ask again")?;
        let operator = Operator {
            opened_by: opener.clone(),
            role,
        };
        let code = self.make(operator, clock::instant());
        Ok(ConsoleLink {
            url: format!("{base}/open?code={code}"),
            good_for_seconds: GOOD_FOR.as_secs(),
        })
    }
}

fn digest(code: &str) -> [u8; 32] {
    Sha256::digest(code).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operator(role: Role) -> Operator {
        let opened_by = Peer::Process {
            uid: Some(7),
            pid: None,
        };
        Operator { opened_by, role }
    }

    fn links() -> Links {
        let links = Links::default();
        links.lead_to(LinkAddress::Configured("https://console.example".to_owned()));
        links
    }

    #[test]
    fn a_link_opens_one_session_within_a_minute() {
        let (links, now) = (links(), clock::instant());
        let code = links.make(operator(Role::Viewer), now);
        assert!(links.take("x", now).is_none());
        assert_eq!(links.take(&code, now).unwrap().role, Role::Viewer);
        assert!(links.take(&code, now).is_none(), "used");
        let late = links.make(operator(Role::Owner), now);
        assert!(links.take(&late, now + GOOD_FOR).is_none(), "expired");
        let last = links.make(operator(Role::Owner), now);
        let moment = Duration::from_millis(1);
        assert!(links.take(&last, now + GOOD_FOR - moment).is_some());
    }

    #[test]
    fn links_that_nobody_opens_do_not_gather() {
        let (links, now) = (links(), clock::instant());
        let codes: Vec<String> = (0..=LINKS_MAX)
            .map(|_| links.make(operator(Role::Owner), now))
            .collect();
        assert!(links.take(&codes[0], now).is_none());
        assert!(links.take(&codes[1], now).is_some());
    }

    #[test]
    fn a_link_leads_to_the_configured_address_or_to_the_listener() {
        let issued = links().issue(&operator(Role::Owner).opened_by, Role::Viewer).unwrap();
        assert!(
            issued.url.starts_with("https://console.example/open?code="),
            "{issued:?}"
        );
        let (sender, bound) = watch::channel(Bound::Waiting);
        let at = LinkAddress::Listener { tls: false, bound };
        assert_eq!(at.base(), None);
        for (listens, reached) in [
            ("127.0.0.1:8082", "http://127.0.0.1:8082"),
            ("0.0.0.0:8082", "http://127.0.0.1:8082"),
            ("[::]:8082", "http://[::1]:8082"),
        ] {
            sender.send_replace(Bound::Tcp(listens.parse().unwrap()));
            assert_eq!(at.base().as_deref(), Some(reached));
        }
    }
}
