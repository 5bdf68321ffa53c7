//! How an operator comes in: by a link that `weir console open` prints.

use http::StatusCode;
use maud::{Markup, html};

use crate::console::{
    answer::Answer,
    ask::Ask,
    cookie,
    frame::{Frame, Page},
    link::{Links, Operator},
    session::Sessions,
};

/// The page behind a link. It opens nothing by itself: whoever only looks at the link, such as a chat that shows a preview,
/// does not use it up.
pub(super) fn page(ask: &Ask) -> Answer {
    let query = ask.query();
    let Some(code) = query.given("code") else {
        return needed();
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

/// Begins a session.
pub(super) fn open(links: &Links, sessions: &Sessions<Operator>, ask: &Ask) -> Answer {
    if !ask.is_own() {
        let content =
            html! { p class="card" role="alert" { "This form does not come from the console. Nothing was opened." } };
        return Answer::page(StatusCode::FORBIDDEN, framed(&titled("Forbidden", content)));
    }
    let Some(operator) = links.take(ask.form().text("code"), ask.now) else {
        let content =
            html! { p class="card" role="alert" { "This link was used, or its 60 seconds are over." } (how()) };
        return Answer::page(
            StatusCode::FORBIDDEN,
            framed(&titled("The link is not good any more", content)),
        );
    };
    // A session of before is not taken over: the new one has a text of its own.
    if let Some(before) = cookie::CONSOLE.read(&ask.headers, ask.way()) {
        sessions.close(before);
    }
    let (id, _) = sessions.open(operator, ask.now, &mut rand::rng());
    Answer::see("/").with_cookie(cookie::CONSOLE.set(&id, ask.way()))
}

/// What is shown without a session.
pub(super) fn needed() -> Answer {
    let page = titled(
        "Sign in",
        html! { p class="lead" { "Nobody is signed in here, or the session has ended." } (how()) },
    );
    Answer::page(StatusCode::UNAUTHORIZED, framed(&page))
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

fn how() -> Markup {
    html! {
        div class="card" {
            p { "On the machine that weir runs on, as a member of the group of its admin socket:" }
            pre { code { "weir console open" } }
            p { "It prints a link that opens a session once, within 60 seconds. " code { "--role viewer" } " or "
                code { "--role operator" } " opens one that may do less." }
        }
    }
}
