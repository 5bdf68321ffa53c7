//! The sign-in of operators at the console, with a link that `weir console open` prints or with the OpenID provider.

use std::{sync::Arc, time::Instant};

use http::{HeaderValue, StatusCode};
use ipnet::IpNet;
use maud::{Markup, html};

use crate::{
    admin::Admin,
    console::{
        layout::{HtmlPage, Layout, Links, Operator, PageResponse},
        openid::{self, OpenId, SignInFailure},
        request::PageRequest,
        session::{self, BrowserSessions},
    },
    edges::limiter::{ClientAddress, Limiter, RateAllowance},
};

/// The rate at which one client address can try to sign in.
const SIGN_INS: RateAllowance = RateAllowance {
    per_minute: 10,
    burst: 10,
    clients_max: 100_000,
};

/// The path of the console to which the OpenID provider sends the browser back.
const RETURN: &str = "/openid/return";

/// The ways in which operators sign in to the console.
pub(crate) struct SignInMethods {
    /// The links that were issued on this machine.
    links: Arc<Links>,
    /// The OpenID provider. `None` if none is configured.
    openid: Option<OpenId>,
    sign_ins: Limiter<ClientAddress>,
    trusted: Vec<IpNet>,
}

impl SignInMethods {
    /// Creates the sign-in methods from `links` and, if configured, `openid`. `trusted` are the networks of the proxies in front
    /// of weir. `start` is a time before the first request.
    pub(crate) fn new(links: Arc<Links>, openid: Option<OpenId>, trusted: Vec<IpNet>, start: Instant) -> Self {
        Self {
            links,
            openid,
            sign_ins: Limiter::new(SIGN_INS, start),
            trusted,
        }
    }

    /// Renders the page that a link opens. Only the page's form redeems the link and opens a session, so a preview of the link in
    /// a chat program does no harm.
    pub(super) fn link_page(&self, request: &PageRequest) -> PageResponse {
        let query = request.query();
        let Some(code) = query.non_empty("code") else {
            return self.sign_in_page();
        };
        let content = html! {
            form method="post" action="/open" class="card" autocomplete="off" {
                input type="hidden" name="code" value=(code);
                p { "This link opens one session. It is valid once, for 60 seconds." }
                button autofocus { "Open the console" }
            }
        };
        PageResponse::page(StatusCode::OK, framed(&titled("Sign in", content)))
    }

    /// Redeems a link and opens a session.
    pub(super) async fn open_by_link(&self, sessions: &BrowserSessions, request: &PageRequest) -> PageResponse {
        if let Err(refused) = self.admit(request) {
            return *refused;
        }
        let Some(operator) = self.links.redeem(request.form().text("code"), request.now) else {
            let content = html! {
                p class="card" role="alert" { "This link was used, or is older than 60 seconds." } (self.instructions())
            };
            return PageResponse::page(
                StatusCode::FORBIDDEN,
                framed(&titled("The link is no longer valid", content)),
            );
        };
        begin(sessions, &operator, request).await
    }

    /// Sends the browser to the OpenID provider. The answer is a page whose header `refresh` contains the provider's address. A
    /// redirect is not possible, because the user has sent the form of the sign-in page, and the page's content security policy
    /// permits no redirect of a form to another site.
    pub(super) async fn redirect_to_provider(&self, request: &PageRequest) -> PageResponse {
        let Some(openid) = &self.openid else {
            return self.sign_in_page();
        };
        if let Err(refused) = self.admit(request) {
            return *refused;
        }
        let begun = match self.base() {
            Ok(base) => openid.begin(&format!("{base}{RETURN}"), request.now).await,
            Err(failure) => Err(failure),
        };
        let begun = match begun {
            Ok(begun) => begun,
            Err(failure) => return self.failure_page(&failure),
        };
        let content = html! {
            p class="card" { "You are being sent to " a href=(begun.to) { (openid.name()) } "." }
        };
        let page = PageResponse::page(StatusCode::OK, framed(&titled("Sign in", content)));
        let Ok(refresh) = HeaderValue::from_str(&format!("0; url={}", begun.to)) else {
            return self.failure_page(&SignInFailure::Provider(
                "its address cannot be sent in a header".to_owned(),
            ));
        };
        page.with_refresh(refresh)
            .with_cookie(session::OPENID.set(&begun.text, request.connection_security()))
    }

    /// Renders the page to which the OpenID provider sends the browser back.
    pub(super) fn return_page(&self, request: &PageRequest) -> PageResponse {
        if self.openid.is_none() {
            return self.sign_in_page();
        }
        let content = openid::return_form(&request.query(), RETURN, "Open the console");
        PageResponse::page(StatusCode::OK, framed(&titled("Sign in", content)))
    }

    /// Finishes a sign-in at the OpenID provider, and opens a session.
    pub(super) async fn finish(&self, sessions: &BrowserSessions, api: &Admin, request: &PageRequest) -> PageResponse {
        let Some(openid) = &self.openid else {
            return self.sign_in_page();
        };
        if let Err(refused) = self.admit(request) {
            return *refused;
        }
        let (form, text) = (
            request.form(),
            session::OPENID.read(&request.headers, request.connection_security()),
        );
        let finished = match self.base() {
            Ok(base) => {
                openid
                    .finish(&format!("{base}{RETURN}"), (&form, text), request.now)
                    .await
            }
            Err(failure) => Err(failure),
        };
        let finished = finished.and_then(|person| openid.operator(person));
        let over = session::OPENID.clear(request.connection_security());
        let operator = match finished {
            Ok(operator) => operator,
            Err(failure) => return self.failure_page(&failure).with_cookie(over),
        };
        if let Err(refused) = api.record_sign_in(operator.peer(), operator.role).await {
            let content = html! { p class="card" role="alert" { (refused.message) } };
            return PageResponse::page(refused.status(), framed(&titled("Nobody was signed in", content)));
        }
        begin(sessions, &operator, request).await.with_cookie(over)
    }

    /// Renders the page that is displayed after signing out. The page says that users who signed in at the OpenID provider may
    /// still be signed in there.
    pub(super) fn signed_out_page(&self, operator: &Operator) -> PageResponse {
        let Some(openid) = self.openid.as_ref().filter(|_| operator.came_from_openid()) else {
            return PageResponse::redirect("/open");
        };
        let end = self.base().ok().and_then(|base| openid.sign_out_url(&base));
        let content = html! {
            div class="card" {
                p { "You are signed out of this console. At " (openid.name()) " you may still be signed in." }
                @if let Some(end) = end { p { a href=(end) { "Sign out at " (openid.name()) } } }
                p { a href="/open" { "Sign in again" } }
            }
        };
        PageResponse::page(StatusCode::OK, framed(&titled("Signed out", content)))
    }

    /// Renders the page that is displayed if nobody is signed in.
    pub(super) fn sign_in_page(&self) -> PageResponse {
        let content = html! {
            p class="lead" { "You are not signed in, or your session has ended." } (self.instructions())
        };
        PageResponse::page(StatusCode::UNAUTHORIZED, framed(&titled("Sign in", content)))
    }

    /// Returns a refusal if the form comes from another site, or if the client address has made too many attempts.
    fn admit(&self, request: &PageRequest) -> Result<(), Box<PageResponse>> {
        if !request.is_same_origin() {
            let content = html! { p class="card" role="alert" { "This form does not come from the console. Nothing was opened." } };
            let page = framed(&titled("Forbidden", content));
            return Err(Box::new(PageResponse::page(StatusCode::FORBIDDEN, page)));
        }
        let client = ClientAddress::from_headers(request.peer, &request.headers, &self.trusted);
        self.sign_ins.try_acquire(client, request.now).map_err(|wait| {
            let wait = wait.as_secs() + 1;
            let content = html! {
                p class="card" role="alert" {
                    "Too many attempts from this address: try again in " (wait) " seconds. Nothing was opened."
                }
            };
            let page = framed(&titled("Too many attempts", content));
            Box::new(PageResponse::page(StatusCode::TOO_MANY_REQUESTS, page))
        })
    }

    /// Returns the console's address for browsers.
    fn base(&self) -> Result<String, SignInFailure> {
        self.links.base().ok_or(SignInFailure::Busy)
    }

    fn failure_page(&self, failure: &SignInFailure) -> PageResponse {
        if let Some(why) = failure.log_text() {
            tracing::warn!(%why, "a sign-in at the console through the OpenID provider failed");
        }
        let content = html! { div class="card" role="alert" { (failure.markup()) } (self.instructions()) };
        PageResponse::page(failure.status(), framed(&titled("Nobody was signed in", content)))
    }

    fn instructions(&self) -> Markup {
        html! {
            @if let Some(openid) = &self.openid {
                form method="post" action="/openid" class="card" {
                    button { "Sign in with " (openid.name()) }
                }
            }
            div class="card" {
                p { "On the machine that weir runs on, as a member of the group of its admin socket:" }
                pre { code { "weir console open" } }
                p { "It prints a link that opens a session once, within 60 seconds. " code { "--role viewer" } " or "
                    code { "--role operator" } " opens one with fewer rights." }
            }
        }
    }
}

async fn begin(sessions: &BrowserSessions, operator: &Operator, request: &PageRequest) -> PageResponse {
    // A previous session of the browser is closed, because the cookie of the new session replaces its cookie.
    if let Some(before) = session::CONSOLE.read(&request.headers, request.connection_security()) {
        // If the store cannot be reached, the previous session expires later. Only this browser has the session's cookie.
        let _ = sessions.close(before).await;
    }
    let id = sessions.open(operator, request.now).await;
    PageResponse::redirect("/").with_cookie(session::CONSOLE.set(&id, request.connection_security()))
}

/// Renders a page in the layout for users who are not signed in.
pub(super) fn framed(page: &HtmlPage) -> Markup {
    let frame = Layout {
        style: "/style.css",
        site_name: "weir console",
        pages: &[],
        current: "",
        who: html! {},
    };
    frame.document(page)
}

fn titled(title: &str, content: Markup) -> HtmlPage {
    HtmlPage {
        title: title.to_owned(),
        content,
    }
}
