//! The operators' console: who may open which page and send which form.

mod accounts;
mod attention;
mod audit;
mod key_form;
mod keys;
mod log;
mod made_key;
mod model;
mod models;
mod overview;
mod providers;
mod rules;
mod sign_in;
mod usage;

use std::sync::Arc;

use http::{Method, StatusCode};
use maud::{Markup, html};

use super::{
    answer::Answer,
    ask::Ask,
    cookie,
    desk::{Desk, Source},
    fields::Fields,
    forms::{Again, Forms, NOT_GENUINE, is_genuine},
    frame::{Frame, Page, STYLE},
    link::Operator,
    session::{Session, Sessions},
};
use crate::{
    admin::Admin,
    api::error::AdminError,
    domain::role::Role,
    store::{StoreError, web_sessions::WebSessionStore},
};

const PAGES: [(&str, &str); 9] = [
    ("/", "Overview"),
    ("/accounts", "Accounts"),
    ("/keys", "Keys"),
    ("/models", "Models"),
    ("/usage", "Usage"),
    ("/log", "Log"),
    ("/providers", "Providers"),
    ("/rules", "Rules"),
    ("/audit", "Audit"),
];

pub(crate) use self::sign_in::Doors;

/// The console. One for all its connections.
pub(crate) struct Console {
    api: Admin,
    source: Box<dyn Source>,
    doors: Doors,
    sessions: Sessions,
}

impl Console {
    /// The console on what it reads and changes, for those who come in by its doors.
    pub(crate) fn new(api: Admin, source: Box<dyn Source>, doors: Doors, sessions: Arc<dyn WebSessionStore>) -> Self {
        Self {
            api,
            source,
            doors,
            sessions: Sessions::new("console", sessions),
        }
    }

    /// The answer to a request.
    pub(crate) async fn answer(&self, ask: &Ask) -> Answer {
        self.page(ask).await.over(ask.way())
    }

    async fn page(&self, ask: &Ask) -> Answer {
        let segments = ask.segments("").unwrap_or_default();
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        let at = &*segments;
        match (&ask.method, at) {
            (&Method::GET, ["style.css"]) => return Answer::style(STYLE),
            (&Method::GET, ["open"]) => return self.doors.page(ask),
            (&Method::POST, ["open"]) => return self.doors.open(&self.sessions, ask).await,
            (&Method::POST, ["openid"]) => return self.doors.ask_provider(ask).await,
            (&Method::GET, ["openid", "return"]) => return self.doors.returned(ask),
            (&Method::POST, ["openid", "return"]) => return self.doors.finish(&self.sessions, &self.api, ask).await,
            (&Method::GET | &Method::POST, _) => {}
            _ => {
                return refusal(StatusCode::METHOD_NOT_ALLOWED, "This page is read with GET.", None)
                    .allowing("GET, POST");
            }
        }
        let id = cookie::CONSOLE.read(&ask.headers, ask.way());
        let Some(id) = id else {
            return self.doors.needed();
        };
        let session = match self.sessions.find(id, ask.now).await {
            Ok(Some(session)) => session,
            Ok(None) => return self.doors.needed(),
            Err(error) => return unavailable(&error),
        };
        if ask.method == Method::GET {
            return self.show(&session, at, &ask.query(), None).await;
        }
        self.take(id, &session, at, ask).await
    }

    /// Takes a form.
    async fn take(&self, id: &str, session: &Session<Operator>, at: &[&str], ask: &Ask) -> Answer {
        let form = ask.form();
        if !is_genuine(session, ask, &form) {
            return refusal(StatusCode::FORBIDDEN, NOT_GENUINE, Some(session));
        }
        if let ["sign-out"] = at {
            if let Err(error) = self.sessions.close(id).await {
                return unavailable(&error);
            }
            let left = self.doors.left(&session.who);
            return left.with_cookie(cookie::CONSOLE.clear(ask.way()));
        }
        let Some(needed) = needed(at) else {
            return refusal(StatusCode::METHOD_NOT_ALLOWED, "Nothing is sent here.", Some(session)).allowing("GET");
        };
        if session.who.role < needed {
            let why = format!("This needs the role {}. Nothing was changed.", needed.as_str());
            return refusal(StatusCode::FORBIDDEN, &why, Some(session));
        }
        match self.send(session, at, &form).await {
            Ok(answer) => answer,
            Err(refused) => {
                let again = Again::new(ask, form, &refused);
                let page = page_of(at);
                self.show(session, &page, &Fields::default(), Some(&again)).await
            }
        }
    }

    /// A page, or why there is none.
    async fn show(&self, session: &Session<Operator>, at: &[&str], query: &Fields, again: Option<&Again>) -> Answer {
        let desk = self.desk(session, query, again);
        if let ["log", "export", form] = at {
            let refused = |refused: AdminError| refusal(refused.status(), &refused.to_string(), Some(session));
            return log::export(&desk, form).await.unwrap_or_else(refused);
        }
        let page = match at {
            [] => overview::page(&desk).await,
            ["accounts"] => accounts::list(&desk).await,
            ["accounts", id] => accounts::one(&desk, id).await,
            ["keys"] => keys::list(&desk).await,
            ["keys", "new"] => key_form::page(&desk).await,
            ["keys", id] => keys::one(&desk, id).await,
            ["models"] => models::page(&desk).await,
            ["models", name] => model::page(&desk, name).await,
            ["usage"] => usage::page(&desk).await,
            ["log"] => log::page(&desk).await,
            ["providers"] => providers::page(&desk).await,
            ["rules"] => Ok(rules::page(&desk)),
            ["audit"] => audit::page(&desk).await,
            _ if needed(at).is_some() => {
                let why = "This is done by a form, never by an address.";
                return refusal(StatusCode::METHOD_NOT_ALLOWED, why, Some(session)).allowing("POST");
            }
            _ => return refusal(StatusCode::NOT_FOUND, "There is no such page.", Some(session)),
        };
        let current = at.first().map_or_else(|| "/".to_owned(), |first| format!("/{first}"));
        match page {
            Ok(page) => {
                let status = again.map_or(StatusCode::OK, |again| again.status);
                Answer::page(status, framed(session, &current, &page))
            }
            Err(refused) => refusal(refused.status(), &refused.to_string(), Some(session)),
        }
    }

    /// Does what a form asks for.
    async fn send(&self, session: &Session<Operator>, at: &[&str], form: &Fields) -> Result<Answer, AdminError> {
        let query = Fields::default();
        let desk = self.desk(session, &query, None);
        let shown = |page: &Page| Answer::page(StatusCode::OK, framed(session, "/keys", page));
        match at {
            ["accounts"] => accounts::create(&desk, form).await,
            ["accounts", id, verb] => accounts::change(&desk, id, verb, form).await,
            ["keys"] => Ok(shown(&key_form::create(&desk, form).await?)),
            ["keys", id, "rotate"] => Ok(shown(&keys::rotate(&desk, id, form).await?)),
            ["keys", id, verb] => keys::change(&desk, id, verb, form).await,
            ["providers", name, verb] => providers::switch(&desk, name, verb).await,
            ["rules"] => {
                let page = rules::explain(&desk, form)?;
                Ok(Answer::page(StatusCode::OK, framed(session, "/rules", &page)))
            }
            _ => Err(AdminError::not_found("There is no such page.")),
        }
    }

    fn desk<'a>(&'a self, session: &'a Session<Operator>, query: &'a Fields, again: Option<&'a Again>) -> Desk<'a> {
        Desk {
            api: &self.api,
            source: &*self.source,
            session,
            forms: Forms::new(session, again).with_roles(lacks),
            query,
        }
    }
}

/// The role that a form needs; `None` where none is sent.
fn needed(at: &[&str]) -> Option<Role> {
    match at {
        ["rules"] => Some(Role::Viewer),
        ["keys"]
        | ["keys", _, "update" | "rotate" | "end-overlap" | "revoke" | "delete"]
        | ["providers", _, "enable" | "disable"] => Some(Role::Operator),
        ["accounts"] | ["accounts", _, "credit" | "adjust" | "limits" | "suspend" | "resume"] => Some(Role::Owner),
        _ => None,
    }
}

/// The role that an operator would need for a form; `None` if they may send it.
fn lacks(operator: &Operator, action: &str) -> Option<Role> {
    let at: Vec<&str> = action.split('/').skip(1).collect();
    needed(&at).filter(|needed| operator.role < *needed)
}

/// The page that a form stands on.
fn page_of<'a>(at: &[&'a str]) -> Vec<&'a str> {
    match at {
        ["keys"] => vec!["keys", "new"],
        ["keys" | "accounts", id, _] => vec![at.first().copied().unwrap_or_default(), id],
        _ => at.first().copied().into_iter().collect(),
    }
}

fn framed(session: &Session<Operator>, current: &str, page: &Page) -> Markup {
    let out = Forms::new(session, None).button("/sign-out", "Sign out", "plain");
    let frame = Frame {
        style: "/style.css",
        door: "weir console",
        pages: &PAGES,
        current,
        who: html! {
            @if let Some(name) = session.who.name() { bdi { (name) } }
            span { "Role: " (session.who.role.as_str()) } (out)
        },
    };
    frame.document(page)
}

fn unavailable(error: &StoreError) -> Answer {
    let why = format!("{error}. Nothing was changed, and nobody was signed out. Try again in a moment.");
    refusal(StatusCode::SERVICE_UNAVAILABLE, &why, None)
}

/// A page that says what was not done and why.
fn refusal(status: StatusCode, why: &str, session: Option<&Session<Operator>>) -> Answer {
    let page = Page {
        title: status.canonical_reason().unwrap_or("AdminError").to_owned(),
        content: html! { p class="card" role="alert" { (why) } },
    };
    let document = match session {
        Some(session) => framed(session, "", &page),
        None => sign_in::framed(&page),
    };
    Answer::page(status, document)
}
