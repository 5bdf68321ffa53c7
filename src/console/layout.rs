//! Responses of the console and the portal, and the layout of their pages. The headers of a response forbid caching and framing,
//! and restrict the resources that a page can load.

use std::{
    sync::OnceLock,
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use jiff::Timestamp;
use lru::LruCache;
use maud::{Markup, html};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use tokio::sync::watch;

use crate::{
    admin::{AdminPeer, ConsoleLinks},
    api::{
        sessions::ConsoleLink,
        values::{Moment, Usd},
    },
    console::session::ConnectionSecurity,
    domain::{keys::secret::random_base62, money::NanoUsd, sign_in::Role},
    edges::clock,
    side::service::BoundAddress,
    stability::public::{PublicResponse, page},
};

/// The content security policy: a page can load its site's style sheet and the inline icon, and can submit its forms to its own
/// site.
const CSP: &str = "default-src 'none'; style-src 'self'; img-src data:; base-uri 'none'; form-action 'self'; \
     frame-ancestors 'none'";

/// A complete response. The header `content-length` is added when the response is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PageResponse {
    /// The status of the response.
    pub(crate) status: StatusCode,
    /// All headers except `content-length`.
    pub(crate) headers: HeaderMap,
    /// The body. A response to HEAD has the same body as a response to GET; the body is left out when the response is written.
    pub(crate) body: Bytes,
}

impl PageResponse {
    /// Creates a response with an HTML page.
    pub(super) fn page(status: StatusCode, page: Markup) -> Self {
        Self::new(status, "text/html; charset=utf-8", page.into_string().into())
    }

    /// Creates a response with one line of text.
    pub(super) fn text(status: StatusCode, text: &str) -> Self {
        Self::new(status, "text/plain; charset=utf-8", format!("{text}\n").into())
    }

    /// Creates a response with a JSON object.
    pub(super) fn json(status: StatusCode, body: &Value) -> Self {
        Self::new(status, "application/json", body.to_string().into())
    }

    /// Creates a response that the browser saves as the file `name`. The name must not need quoting.
    pub(super) fn download(name: &str, kind: &'static str, bytes: Vec<u8>) -> Self {
        let mut answer = Self::new(StatusCode::OK, kind, bytes.into());
        let kept = HeaderValue::from_str(&format!("attachment; filename=\"{name}\""));
        let kept = kept.unwrap_or(HeaderValue::from_static("attachment"));
        answer.headers.insert(header::CONTENT_DISPOSITION, kept);
        answer
    }

    /// Creates a response with the style sheet, which is the only response that a browser is allowed to cache.
    pub(super) fn style_sheet(sheet: &'static str) -> Self {
        let mut answer = Self::new(
            StatusCode::OK,
            "text/css; charset=utf-8",
            Bytes::from_static(sheet.as_bytes()),
        );
        let kept = HeaderValue::from_static("private, max-age=300");
        answer.headers.insert(header::CACHE_CONTROL, kept);
        answer
    }

    /// Creates a redirect to another page of the same site, which the browser requests with GET.
    pub(super) fn redirect(path: &str) -> Self {
        let mut answer = Self::new(StatusCode::SEE_OTHER, "text/plain; charset=utf-8", Bytes::new());
        let to = HeaderValue::from_str(path).unwrap_or(HeaderValue::from_static("/"));
        answer.headers.insert(header::LOCATION, to);
        answer
    }

    /// Adds a cookie to the response.
    pub(super) fn with_cookie(mut self, cookie: HeaderValue) -> Self {
        self.headers.append(header::SET_COOKIE, cookie);
        self
    }

    /// Adds the header that makes the browser continue to another address. `refresh` has the form `0; url=...`, as in HTML's
    /// `meta http-equiv="refresh"`.
    pub(super) fn with_refresh(mut self, refresh: HeaderValue) -> Self {
        self.headers.insert(header::REFRESH, refresh);
        self
    }

    /// Adds the header `allow` with the methods that the path supports.
    pub(super) fn with_allow(mut self, methods: &'static str) -> Self {
        self.headers.insert(header::ALLOW, HeaderValue::from_static(methods));
        self
    }

    /// If the connection is encrypted, adds the header that makes the browser use only TLS for a year (RFC 6797). Browsers ignore
    /// this header over plain HTTP.
    pub(super) fn with_transport_security(mut self, way: ConnectionSecurity) -> Self {
        if way == ConnectionSecurity::Encrypted {
            let a_year = HeaderValue::from_static("max-age=31536000");
            self.headers.insert(header::STRICT_TRANSPORT_SECURITY, a_year);
        }
        self
    }

    /// Converts the response to the type of response that the listeners for clients send.
    pub(crate) fn into_response(self) -> PublicResponse {
        PublicResponse {
            status: self.status,
            headers: self.headers,
            body: self.body,
        }
    }

    fn new(status: StatusCode, kind: &'static str, body: Bytes) -> Self {
        let fixed = [
            (header::CONTENT_TYPE, kind),
            (header::CACHE_CONTROL, "no-store"),
            (header::CONTENT_SECURITY_POLICY, CSP),
            (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (header::X_FRAME_OPTIONS, "DENY"),
            // `no-referrer` is not used, because browsers would then send `Origin: null` with the site's own forms (Fetch
            // standard, section 3.2).
            (header::REFERRER_POLICY, "same-origin"),
        ];
        let mut headers = HeaderMap::with_capacity(11);
        for (name, value) in fixed {
            headers.insert(name, HeaderValue::from_static(value));
        }
        let own = HeaderValue::from_static("same-origin");
        headers.insert("cross-origin-opener-policy", own.clone());
        headers.insert("cross-origin-resource-policy", own);
        Self { status, headers, body }
    }
}

/// The style sheet of the console and the portal. It begins with the style sheet that all pages of weir share.
pub(super) const STYLE: &str = concat!(
    include_str!("../stability/public/look/base.css"),
    include_str!("console.css")
);

/// The title and the content of a page, without the layout around them.
#[derive(Debug)]
pub(super) struct HtmlPage {
    /// The heading of the page, and the first part of the document's title.
    pub(super) title: String,
    /// The content below the heading.
    pub(super) content: Markup,
}

/// The layout around the content of a page.
#[derive(Debug)]
pub(super) struct Layout<'a> {
    /// The address of the site's style sheet.
    pub(super) style: &'a str,
    /// The name of the site.
    pub(super) site_name: &'a str,
    /// The address and the name of each page in the navigation.
    pub(super) pages: &'a [(&'a str, &'a str)],
    /// The address of the current page, which is marked in the navigation.
    pub(super) current: &'a str,
    /// The name of the signed-in user, and the button to sign out. Empty if nobody is signed in.
    pub(super) who: Markup,
}

impl Layout<'_> {
    /// Renders the complete document of a page.
    pub(super) fn document(&self, page: &HtmlPage) -> Markup {
        let title = format!("{} \u{b7} {}", page.title, self.site_name);
        let style = html! { link rel="stylesheet" href=(self.style); };
        let body = html! {
            a class="skip" href="#content" { "Skip to the content" }
            header class="bar" {
                strong { (self.site_name) }
                @if !self.pages.is_empty() {
                    nav aria-label="Pages" {
                        @for (address, name) in self.pages {
                            a href=(address) aria-current=[(*address == self.current).then_some("page")] { (name) }
                        }
                    }
                }
                div class="who" { (self.who) }
            }
            main id="content" {
                h1 { bdi { (page.title) } }
                (page.content)
            }
        };
        page::document(&title, &style, &body)
    }
}

/// Renders an amount in USD. `without` is rendered if there is no amount.
pub(super) fn money(amount: Option<Usd>, without: &str) -> Markup {
    match amount {
        Some(amount) => dollars(&amount.to_string()),
        None => html! { span class="none" { (without) } },
    }
}

/// Renders an amount in USD.
pub(super) fn amount(amount: NanoUsd) -> Markup {
    dollars(&amount.to_string())
}

/// Renders an amount with its currency sign. The amount is not rounded.
pub(super) fn dollars(amount: &str) -> Markup {
    let (sign, digits) = amount
        .strip_prefix('-')
        .map_or(("", amount), |digits| ("\u{2212}", digits));
    html! { span class="money" { (sign) "$" (digits) } }
}

/// Renders a count. `without` is rendered if there is no count.
pub(super) fn count_or(count: Option<u64>, without: &str) -> Markup {
    match count {
        Some(count) => html! { (thousands(count)) },
        None => html! { span class="none" { (without) } },
    }
}

/// Formats a number with separators, such as `1,234,567`.
pub(super) fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Renders a time with seconds, in UTC. `without` is rendered if there is no time.
pub(super) fn timestamp(time: Option<Moment>, without: &str) -> Markup {
    timestamp_text(&time.map(|time| time.to_string()).unwrap_or_default(), without)
}

fn timestamp_text(at: &str, without: &str) -> Markup {
    match at.parse::<Timestamp>() {
        Ok(time) => html! { time datetime=(at) { (time.strftime("%Y-%m-%d %H:%M:%S")) } },
        Err(_) => html! { span class="none" { (without) } },
    }
}

/// Renders a name that a user has chosen. The name may contain any characters, including those that change the direction of text.
pub(super) fn name(text: &str) -> Markup {
    html! { bdi { (text) } }
}

/// The lifetime of a link.
const GOOD_FOR: Duration = Duration::from_secs(60);
/// The maximum number of links that have not been opened. When it is reached, the oldest link becomes invalid.
const LINKS_MAX: usize = 64;
/// The number of characters of a link's code. 43 random characters from an alphabet of 62 have 256 bits of entropy.
const CODE_CHARS: usize = 43;

/// The user of a session of the console.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Operator {
    /// The caller of the admin API that requested a sign-in link for this session, or the user who signed in at the OpenID
    /// provider.
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

/// The links that have been issued but not opened yet.
#[derive(Debug)]
pub(crate) struct Links {
    waiting: Mutex<LruCache<[u8; 32], UnopenedLink>>,
    /// The address that links begin with. It is set once, when the listener is created.
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

/// The address of a site. Links to the site begin with this address.
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
    /// Returns the address as a URL, such as `http://127.0.0.1:8082`. `None` until the listener is bound.
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
    /// Sets the address that links begin with. Only the first call has an effect.
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

    /// Redeems the code of a link, which is possible once. Returns the user for whom a session is to be opened. `None` if the
    /// code is not valid.
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

    #[test]
    fn values_are_shown_as_people_read_them() {
        assert_eq!(
            money("-1.500".parse().ok(), "?").into_string(),
            "<span class=\"money\">\u{2212}$1.50</span>"
        );
        assert_eq!(
            money(None, "Unlimited").into_string(),
            "<span class=\"none\">Unlimited</span>"
        );
        assert_eq!(count_or(Some(1_234_567), "?").into_string(), "1,234,567");
        assert_eq!(
            [0, 12, 999, 1000, 100_000].map(thousands),
            ["0", "12", "999", "1,000", "100,000"]
        );
        let shown = "<time datetime=\"2026-11-22T15:30:00.123Z\">2026-11-22 15:30:00</time>";
        assert_eq!(
            timestamp("2026-11-22T15:30:00.123Z".parse().ok(), "never").into_string(),
            shown
        );
        assert_eq!(
            timestamp(None, "never").into_string(),
            "<span class=\"none\">never</span>"
        );
    }

    #[test]
    fn a_name_stays_text_and_turns_nothing_around_it() {
        let shown = name("<b>\u{202e}x").into_string();
        assert_eq!(shown, "<bdi>&lt;b&gt;\u{202e}x</bdi>");
    }

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
