//! How an operator comes in: by a link that `weir console open` prints, or by the OpenID provider.

use std::{sync::Arc, time::Instant};

use http::{HeaderValue, StatusCode};
use ipnet::IpNet;
use maud::{Markup, html};

use crate::{
    admin::Admin,
    console::{
        answer::Answer,
        ask::Ask,
        cookie,
        frame::{Frame, Page},
        link::{Links, Operator},
        openid::{self, Failure, OpenId},
        session::Sessions,
    },
    edges::limiter::{Allowance, Limiter, client::Client},
};

/// How often one address may try to sign in.
const SIGN_INS: Allowance = Allowance {
    per_minute: 10,
    burst: 10,
    clients_max: 100_000,
};

/// Where the provider sends the browser back to.
const RETURN: &str = "/openid/return";

/// The ways into the console.
pub(crate) struct Doors {
    /// The links that were asked for on the machine.
    links: Arc<Links>,
    /// The OpenID provider, if there is one.
    openid: Option<OpenId>,
    sign_ins: Limiter<Client>,
    trusted: Vec<IpNet>,
}

impl Doors {
    /// For those who open one of the links or whom the provider vouches for; `trusted` are proxies in front, and `start` is a
    /// time before the first request.
    pub(crate) fn new(links: Arc<Links>, openid: Option<OpenId>, trusted: Vec<IpNet>, start: Instant) -> Self {
        Self {
            links,
            openid,
            sign_ins: Limiter::new(SIGN_INS, start),
            trusted,
        }
    }

    /// The page behind a link. It opens nothing by itself: whoever only looks at the link, such as a chat that shows a preview,
    /// does not use it up.
    pub(super) fn page(&self, ask: &Ask) -> Answer {
        let query = ask.query();
        let Some(code) = query.given("code") else {
            return self.needed();
        };
        let content = html! {
            form method="post" action="/open" class="card" autocomplete="off" {
                input type="hidden" name="code" value=(code);
                p { "This link opens one session. It is good once, for 60 seconds." }
                button autofocus { "Open the console" }
            }
        };
        Answer::page(StatusCode::OK, framed(&titled("Sign in", content)))
    }

    /// Begins a session by a link.
    pub(super) async fn open(&self, sessions: &Sessions, ask: &Ask) -> Answer {
        if let Err(refused) = self.admit(ask) {
            return *refused;
        }
        let Some(operator) = self.links.take(ask.form().text("code"), ask.now) else {
            let content = html! {
                p class="card" role="alert" { "This link was used, or its 60 seconds are over." } (self.how())
            };
            return Answer::page(
                StatusCode::FORBIDDEN,
                framed(&titled("The link is not good any more", content)),
            );
        };
        begin(sessions, &operator, ask).await
    }

    /// Sends the browser to the provider. It is told so by a page: a form may lead to its own site only, by the page's policy.
    pub(super) async fn ask_provider(&self, ask: &Ask) -> Answer {
        let Some(openid) = &self.openid else {
            return self.needed();
        };
        if let Err(refused) = self.admit(ask) {
            return *refused;
        }
        let begun = match self.base() {
            Ok(base) => openid.begin(&format!("{base}{RETURN}"), ask.now).await,
            Err(failure) => Err(failure),
        };
        let begun = match begun {
            Ok(begun) => begun,
            Err(failure) => return self.failed(&failure),
        };
        let content = html! {
            p class="card" { "You are being sent to " a href=(begun.to) { (openid.name()) } "." }
        };
        let page = Answer::page(StatusCode::OK, framed(&titled("Sign in", content)));
        let Ok(refresh) = HeaderValue::from_str(&format!("0; url={}", begun.to)) else {
            return self.failed(&Failure::Provider("its address cannot be sent to a browser".to_owned()));
        };
        page.going_on(refresh)
            .with_cookie(cookie::OPENID.set(&begun.text, ask.way()))
    }

    /// The page that the provider sends the browser back to.
    pub(super) fn returned(&self, ask: &Ask) -> Answer {
        if self.openid.is_none() {
            return self.needed();
        }
        let content = openid::returned::form(&ask.query(), RETURN, "Open the console");
        Answer::page(StatusCode::OK, framed(&titled("Sign in", content)))
    }

    /// Begins a session by what the provider says.
    pub(super) async fn finish(&self, sessions: &Sessions, api: &Admin, ask: &Ask) -> Answer {
        let Some(openid) = &self.openid else {
            return self.needed();
        };
        if let Err(refused) = self.admit(ask) {
            return *refused;
        }
        let (form, text) = (ask.form(), cookie::OPENID.read(&ask.headers, ask.way()));
        let finished = match self.base() {
            Ok(base) => openid.finish(&format!("{base}{RETURN}"), (&form, text), ask.now).await,
            Err(failure) => Err(failure),
        };
        let finished = finished.and_then(|person| openid.operator(person));
        let over = cookie::OPENID.clear(ask.way());
        let operator = match finished {
            Ok(operator) => operator,
            Err(failure) => return self.failed(&failure).with_cookie(over),
        };
        if let Err(refused) = api.signs_in(operator.peer(), operator.role).await {
            let content = html! { p class="card" role="alert" { (refused.message) } };
            return Answer::page(refused.status(), framed(&titled("Nobody was signed in", content)));
        }
        begin(sessions, &operator, ask).await.with_cookie(over)
    }

    /// What is shown to somebody who has signed out: whom the provider has vouched for is still signed in there.
    pub(super) fn left(&self, operator: &Operator) -> Answer {
        let Some(openid) = self.openid.as_ref().filter(|_| operator.is_vouched_for()) else {
            return Answer::see("/open");
        };
        let end = self.base().ok().and_then(|base| openid.end_of_session(&base));
        let content = html! {
            div class="card" {
                p { "You are signed out of this console. At " (openid.name()) " you may still be signed in." }
                @if let Some(end) = end { p { a href=(end) { "Sign out at " (openid.name()) } } }
                p { a href="/open" { "Sign in again" } }
            }
        };
        Answer::page(StatusCode::OK, framed(&titled("Signed out", content)))
    }

    /// What is shown without a session.
    pub(super) fn needed(&self) -> Answer {
        let content = html! {
            p class="lead" { "Nobody is signed in here, or the session has ended." } (self.how())
        };
        Answer::page(StatusCode::UNAUTHORIZED, framed(&titled("Sign in", content)))
    }

    /// Whether somebody may try to sign in now.
    fn admit(&self, ask: &Ask) -> Result<(), Box<Answer>> {
        if !ask.is_own() {
            let content = html! { p class="card" role="alert" { "This form does not come from the console. Nothing was opened." } };
            let page = framed(&titled("Forbidden", content));
            return Err(Box::new(Answer::page(StatusCode::FORBIDDEN, page)));
        }
        let client = Client::of(ask.peer, &ask.headers, &self.trusted);
        self.sign_ins.try_acquire(client, ask.now).map_err(|wait| {
            let wait = wait.as_secs() + 1;
            let content = html! {
                p class="card" role="alert" {
                    "Too many attempts from this address: try again in " (wait) " seconds. Nothing was opened."
                }
            };
            let page = framed(&titled("Too many attempts", content));
            Box::new(Answer::page(StatusCode::TOO_MANY_REQUESTS, page))
        })
    }

    /// Where browsers reach the console.
    fn base(&self) -> Result<String, Failure> {
        self.links.base().ok_or(Failure::Busy)
    }

    fn failed(&self, failure: &Failure) -> Answer {
        if let Some(why) = failure.told() {
            tracing::warn!(%why, "a sign-in by the OpenID provider has failed");
        }
        let content = html! { div class="card" role="alert" { (failure.page()) } (self.how()) };
        Answer::page(failure.status(), framed(&titled("Nobody was signed in", content)))
    }

    fn how(&self) -> Markup {
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
                    code { "--role operator" } " opens one that may do less." }
            }
        }
    }
}

async fn begin(sessions: &Sessions, operator: &Operator, ask: &Ask) -> Answer {
    // A session of before is not taken over: the new one has a text of its own.
    if let Some(before) = cookie::CONSOLE.read(&ask.headers, ask.way()) {
        // Where the store is away it ends by itself, later: nobody has its text but this browser.
        let _ = sessions.close(before).await;
    }
    let id = sessions.open(operator, ask.now).await;
    Answer::see("/").with_cookie(cookie::CONSOLE.set(&id, ask.way()))
}

/// A document without a session.
pub(super) fn framed(page: &Page) -> Markup {
    let frame = Frame {
        style: "/style.css",
        door: "weir console",
        pages: &[],
        current: "",
        who: html! {},
    };
    frame.document(page)
}

fn titled(title: &str, content: Markup) -> Page {
    Page {
        title: title.to_owned(),
        content,
    }
}
