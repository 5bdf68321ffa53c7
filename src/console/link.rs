//! Links that open a session of the console. A link can be opened once, within a minute. So there is no password that could be
//! guessed or lost.

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
    admin::{AdminPeer, ConsoleLinks},
    api::sessions::ConsoleLink,
    domain::{keys::secret::random_base62, sign_in::Role},
    edges::clock,
    side::service::BoundAddress,
};

/// How long a link is valid.
const GOOD_FOR: Duration = Duration::from_secs(60);
/// The maximum number of links that have not been opened. When it is reached, the oldest link becomes invalid.
const LINKS_MAX: usize = 64;
/// The length of a link's code. 43 characters out of 62 have 256 bits of entropy.
const CODE_CHARS: usize = 43;

/// The user of a session of the console.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Operator {
    /// Who requested the link, or who signed in at the OpenID provider.
    pub(super) opened_by: AdminPeer,
    /// The role of the session, which limits what the user can change.
    pub(super) role: Role,
}

impl Operator {
    /// Returns the caller that the admin API records for this user.
    pub(super) fn peer(&self) -> AdminPeer {
        AdminPeer::Console {
            opened_by: Box::new(self.opened_by.clone()),
            role: self.role,
        }
    }

    /// Returns whether the user signed in at the OpenID provider.
    pub(super) fn came_from_openid(&self) -> bool {
        self.name().is_some()
    }

    /// Returns the user's name at the OpenID provider. `None` if the user opened a link.
    pub(super) fn name(&self) -> Option<&str> {
        match &self.opened_by {
            AdminPeer::Person { name, .. } => Some(name),
            AdminPeer::Process { .. } | AdminPeer::Certified(_) | AdminPeer::Console { .. } | AdminPeer::Owner(_) => {
                None
            }
        }
    }
}

/// The links that have been issued and not been opened yet.
#[derive(Debug)]
pub(crate) struct Links {
    waiting: Mutex<LruCache<[u8; 32], UnopenedLink>>,
    /// The address in links. It is set once, when the listener exists.
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
struct UnopenedLink {
    operator: Operator,
    until: Instant,
}

/// The address of a site, as it is written into links.
#[derive(Debug)]
pub(crate) enum LinkAddress {
    /// The configured address, without a trailing slash.
    Configured(String),
    /// The address of the listener itself.
    Listener {
        /// Whether the listener uses TLS.
        tls: bool,
        /// The address on which the listener listens.
        bound: watch::Receiver<BoundAddress>,
    },
}

impl LinkAddress {
    /// Returns the address, such as `http://127.0.0.1:8082`. `None` until the listener is bound.
    pub(crate) fn base(&self) -> Option<String> {
        match self {
            Self::Configured(base) => Some(base.clone()),
            Self::Listener { tls, bound } => match &*bound.borrow() {
                BoundAddress::Tcp(address) => {
                    let mut address = *address;
                    // A listener on all addresses can be reached on the loopback address.
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
                BoundAddress::Waiting | BoundAddress::Unix(_) | BoundAddress::Failed(_) => None,
            },
        }
    }
}

impl Links {
    /// Sets the address in links. Only the first call has an effect.
    pub(crate) fn set_address(&self, at: LinkAddress) {
        let _ = self.at.set(at);
    }

    /// Returns the console's address for browsers. `None` until its listener is bound.
    pub(super) fn base(&self) -> Option<String> {
        self.at.get().and_then(LinkAddress::base)
    }

    fn create(&self, operator: Operator, now: Instant) -> String {
        let code = random_base62(CODE_CHARS, &mut rand::rng());
        let until = now + GOOD_FOR;
        let mut waiting = self.waiting.lock();
        waiting.put(digest(&code), UnopenedLink { operator, until });
        if waiting.len() > LINKS_MAX {
            waiting.pop_lru();
        }
        code
    }

    /// Redeems the code of a link. Returns the user for whom a session is to be opened. A code can be redeemed once.
    pub(super) fn redeem(&self, code: &str, now: Instant) -> Option<Operator> {
        let waiting = self.waiting.lock().pop(&digest(code))?;
        (now < waiting.until).then_some(waiting.operator)
    }
}

impl ConsoleLinks for Links {
    fn issue(&self, opener: &AdminPeer, role: Role) -> Result<ConsoleLink, String> {
        let base = self
            .base()
            .ok_or("cannot create a link: the console is not listening yet; try again")?;
        let operator = Operator {
            opened_by: opener.clone(),
            role,
        };
        let code = self.create(operator, clock::instant());
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
        let opened_by = AdminPeer::Process {
            uid: Some(7),
            pid: None,
        };
        Operator { opened_by, role }
    }

    fn links() -> Links {
        let links = Links::default();
        links.set_address(LinkAddress::Configured("https://console.example".to_owned()));
        links
    }

    #[test]
    fn a_link_opens_one_session_within_a_minute() {
        let (links, now) = (links(), clock::instant());
        let code = links.create(operator(Role::Viewer), now);
        assert!(links.redeem("x", now).is_none());
        assert_eq!(links.redeem(&code, now).unwrap().role, Role::Viewer);
        assert!(links.redeem(&code, now).is_none(), "used");
        let late = links.create(operator(Role::Owner), now);
        assert!(links.redeem(&late, now + GOOD_FOR).is_none(), "expired");
        let last = links.create(operator(Role::Owner), now);
        let moment = Duration::from_millis(1);
        assert!(links.redeem(&last, now + GOOD_FOR - moment).is_some());
    }

    #[test]
    fn links_that_nobody_opens_do_not_gather() {
        let (links, now) = (links(), clock::instant());
        let codes: Vec<String> = (0..=LINKS_MAX)
            .map(|_| links.create(operator(Role::Owner), now))
            .collect();
        assert!(links.redeem(&codes[0], now).is_none());
        assert!(links.redeem(&codes[1], now).is_some());
    }

    #[test]
    fn a_link_leads_to_the_configured_address_or_to_the_listener() {
        let issued = links().issue(&operator(Role::Owner).opened_by, Role::Viewer).unwrap();
        assert!(
            issued.url.starts_with("https://console.example/open?code="),
            "{issued:?}"
        );
        let (sender, bound) = watch::channel(BoundAddress::Waiting);
        let at = LinkAddress::Listener { tls: false, bound };
        assert_eq!(at.base(), None);
        for (listens, reached) in [
            ("127.0.0.1:8082", "http://127.0.0.1:8082"),
            ("0.0.0.0:8082", "http://127.0.0.1:8082"),
            ("[::]:8082", "http://[::1]:8082"),
        ] {
            sender.send_replace(BoundAddress::Tcp(listens.parse().unwrap()));
            assert_eq!(at.base().as_deref(), Some(reached));
        }
    }
}
