//! A browser's tab without a browser: it keeps a cookie, and sends the forms of pages as they stand there.

use std::net::SocketAddr;
use std::sync::Arc;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use rustls::ClientConfig;

use super::client::{Client, Response};
use super::https;
use super::request::Request;

/// The host that all of these requests name.
pub(crate) const HOST: &str = "weir.test";

/// A tab, at one listener.
#[derive(Clone, Debug)]
pub(crate) struct Tab {
    address: SocketAddr,
    /// `name=value`, once a site has set it.
    pub(crate) cookie: Option<String>,
    /// For whom it speaks, as a proxy in front of its browser says.
    pub(crate) speaks_for: Option<String>,
    /// How it speaks to a listener with TLS.
    tls: Option<Arc<ClientConfig>>,
}

/// What a form carries besides what people enter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Form {
    pub(crate) action: String,
    pub(crate) operation: String,
    pub(crate) token: String,
    /// The version of what the page shows, where the form has one.
    pub(crate) version: Option<String>,
    /// What the text of a key is made of, where the form makes one.
    pub(crate) seed: Option<String>,
}

impl Tab {
    /// An empty tab.
    pub(crate) fn new(address: SocketAddr) -> Tab {
        Tab {
            address,
            cookie: None,
            speaks_for: None,
            tls: None,
        }
    }

    /// An empty tab, at a listener with TLS.
    pub(crate) fn with_tls(address: SocketAddr, tls: Arc<ClientConfig>) -> Tab {
        Tab {
            tls: Some(tls),
            ..Tab::new(address)
        }
    }

    /// The same browser at another listener.
    pub(crate) fn at(&self, address: SocketAddr) -> Tab {
        Tab {
            address,
            ..self.clone()
        }
    }

    /// A request of a page of the same site, with the tab's cookie.
    pub(crate) fn request(&self, method: &str, target: &str) -> Request {
        let mut request = Request::new(method, target);
        if let Some(client) = &self.speaks_for {
            request = request.header("x-forwarded-for", client);
        }
        match &self.cookie {
            Some(cookie) => request.header("cookie", cookie),
            None => request,
        }
    }

    /// Reads a page.
    #[track_caller]
    pub(crate) fn get(&self, target: &str) -> Response {
        self.send(&self.request("GET", target))
    }

    /// Reads a page that has to be there.
    #[track_caller]
    pub(crate) fn page(&self, target: &str) -> String {
        let answer = self.get(target);
        assert_eq!(answer.status, 200, "{target}: {}", answer.text());
        answer.text()
    }

    /// Sends these fields as a form of this site.
    #[track_caller]
    pub(crate) fn post(&mut self, target: &str, fields: &[(&str, &str)]) -> Response {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let origin = format!("{scheme}://{HOST}");
        let request = self.request("POST", target).header("origin", &origin);
        let answer = self.send(&request.body(encoded(fields).as_bytes()));
        if let Some(set) = answer.header("set-cookie") {
            self.cookie = set.split(';').next().map(str::to_owned);
        }
        answer
    }

    /// Sends a form of a page with what is entered.
    #[track_caller]
    pub(crate) fn fill(&mut self, page: &str, action: &str, entered: &[(&str, &str)]) -> Response {
        let form = form(page, action);
        self.send_form(&form, entered)
    }

    /// Sends a form.
    #[track_caller]
    pub(crate) fn send_form(&mut self, form: &Form, entered: &[(&str, &str)]) -> Response {
        let mut carried = vec![("operation", &*form.operation), ("token", &*form.token)];
        carried.extend(form.version.as_deref().map(|version| ("version", version)));
        carried.extend(form.seed.as_deref().map(|seed| ("seed", seed)));
        self.post(&form.action, &[&carried[..], entered].concat())
    }

    /// Sends a request on a connection of its own.
    #[track_caller]
    pub(crate) fn send(&self, request: &Request) -> Response {
        match &self.tls {
            Some(tls) => https::connect(tls, HOST, self.address)
                .unwrap()
                .client
                .exchange(request),
            None => Client::connect(self.address).exchange(request),
        }
    }
}

/// A form's body.
pub(crate) fn encoded(fields: &[(&str, &str)]) -> String {
    let encode = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let pairs = fields
        .iter()
        .map(|(name, value)| format!("{}={}", encode(name), encode(value)));
    pairs.collect::<Vec<_>>().join("&")
}

/// The form of a page that is sent to `action`.
#[track_caller]
pub(crate) fn form(page: &str, action: &str) -> Form {
    let start = format!("action=\"{action}\"");
    let (_, rest) = page
        .split_once(&start)
        .unwrap_or_else(|| panic!("no form to {action} in {page}"));
    let (rest, _) = rest.split_once("</form>").unwrap();
    let value = |name: &str| {
        let (_, rest) = rest.split_once(&format!("name=\"{name}\" value=\""))?;
        rest.split('"').next().map(str::to_owned)
    };
    Form {
        action: action.to_owned(),
        operation: value("operation").unwrap(),
        token: value("token").unwrap(),
        version: value("version"),
        seed: value("seed"),
    }
}
