//! The portal: the owner of a key signs in with it, sees what it has used and may, lowers its limits and rotates it.
//!
//! A session stands for one key. It is no key itself, and ends with it: each request looks up whether the key is there, not
//! revoked, and the text that it was opened with is still good for it.

mod changes;
mod device;
mod page;
mod people;
mod vouched;

use std::{sync::Arc, time::Instant};

use http::{Method, StatusCode};
use maud::html;
use serde::{Deserialize, Serialize};

pub(crate) use self::people::People;
use super::{
    answer::Answer,
    ask::Ask,
    cookie,
    exchange::Entrance,
    forms::{Again, Forms, NOT_GENUINE, is_genuine},
    frame::{Page, STYLE},
    oauth::{OAuth, VERIFICATION},
    session::{Session, Sessions},
    site::Site,
    usage_table,
};

use crate::{
    admin::{Admin, Peer, ask::Answered, author::Author},
    api::{
        error::AdminError,
        keys::{Key, ShowKey},
        log::ListLatestRows,
        providers::ListModels,
        usage::ShowUsage,
    },
    domain::keys::{
        key::{KeyId, KeyRecord, KeyState},
        secret::{KeyDigest, KeyPrefix, ServiceKey},
    },
    domain::{ledger::usage_report::SplitBy, sign_in::user_code::UserCode},
    edges::{
        clock,
        limiter::{Allowance, Limiter, client::Client},
    },
    store::{KeyStore, KeyView, StoreError, web_sessions::WebSessionStore},
};

/// Where it is.
pub(super) const ROOT: &str = "/portal";
/// How often one address may try to sign in.
const SIGN_INS: Allowance = Allowance {
    per_minute: 10,
    burst: 10,
    clients_max: 100_000,
};

/// How often one address may ask for pages: each may read many rows.
const VISITS: Allowance = Allowance {
    per_minute: 60,
    burst: 60,
    clients_max: 100_000,
};
/// How often one address, and one key's owner, may try codes of agents.
const CODE_TRIES: Allowance = Allowance {
    per_minute: 20,
    burst: 20,
    clients_max: 100_000,
};
/// Rows that the page shows.
const ROWS: usize = 50;
/// The largest form, which strangers may send to the gateway's port.
const FORM_BYTES_MAX: usize = 8 * 1024;

/// The portal. One for all listeners that have it.
pub(crate) struct Portal {
    /// How requests come in.
    pub(crate) entrance: Entrance,
    keys: Arc<dyn KeyStore>,
    api: Admin,
    prefix: KeyPrefix,
    sign_ins: Limiter<Client>,
    visits: Limiter<Client>,
    codes: Limiter<Client>,
    codes_of_keys: Limiter<KeyDigest>,
    /// Where agents sign in; `None`: they cannot.
    oauth: Option<OAuth>,
    /// Who signs in by the OpenID provider; `None`: nobody.
    people: Option<People>,
    sessions: Sessions,
}

/// Who is signed in.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Owner {
    pub(super) key: KeyId,
    /// What the key's text was when its owner showed it, or what they have rotated it to.
    pub(super) digest: KeyDigest,
}

impl std::fmt::Debug for Portal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Portal").finish_non_exhaustive()
    }
}

impl Portal {
    /// The portal to the keys of this prefix, with its sessions, that browsers reach at `site`. `start` is a time before the first
    /// request.
    pub(crate) fn new(
        (keys, sessions): (Arc<dyn KeyStore>, Arc<dyn WebSessionStore>),
        api: Admin,
        prefix: KeyPrefix,
        site: Site,
        start: Instant,
    ) -> Self {
        Self {
            entrance: Entrance {
                site,
                form_bytes_max: FORM_BYTES_MAX,
            },
            keys,
            api,
            prefix,
            sign_ins: Limiter::new(SIGN_INS, start),
            visits: Limiter::new(VISITS, start),
            codes: Limiter::new(CODE_TRIES, start),
            codes_of_keys: Limiter::new(CODE_TRIES, start),
            oauth: None,
            people: None,
            sessions: Sessions::new("portal", sessions),
        }
    }

    /// The same with agents that sign in.
    pub(crate) fn with_agents(self, oauth: Option<OAuth>) -> Self {
        Self { oauth, ..self }
    }

    /// The same with people who sign in by the OpenID provider.
    pub(crate) fn with_people(self, people: Option<People>) -> Self {
        Self { people, ..self }
    }

    /// What the log calls a request for this path; `None`: it is none of the portal's.
    pub(crate) fn has(&self, path: &str) -> Option<&'static str> {
        let below = path.strip_prefix(ROOT);
        let is_page = below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        let is_agents = self.oauth.is_some() && OAuth::has(path);
        is_page.then_some("portal").or(is_agents.then_some("sign_in"))
    }

    /// The answer to a request whose path is the portal's.
    pub(crate) async fn answer(&self, ask: &Ask) -> Answer {
        if let Some(oauth) = self.oauth.as_ref().filter(|_| OAuth::has(&ask.path)) {
            return oauth.answer(ask, &self.entrance.site.trusted).await;
        }
        self.page(ask).await.over(ask.way())
    }

    async fn page(&self, ask: &Ask) -> Answer {
        let segments = ask.segments(ROOT).unwrap_or_default();
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        // No page: it reads nothing, and a page that is refused has it, too.
        if let (&Method::GET, ["style.css"]) = (&ask.method, &*segments) {
            return Answer::style(STYLE);
        }
        if let Err(wait) = self.visits.try_acquire(self.client(ask), ask.now) {
            let why = format!(
                "Too many requests from this address: try again in {} seconds.",
                wait.as_secs() + 1
            );
            return page::refusal(StatusCode::TOO_MANY_REQUESTS, &why);
        }
        if let (Some(oauth), ["device"]) = (&self.oauth, &*segments) {
            return self.device(oauth, ask).await;
        }
        if let (Some(people), ["openid", rest @ ..]) = (&self.people, &*segments) {
            match (&ask.method, rest) {
                (&Method::POST, []) => return self.ask_provider(people, ask).await,
                (&Method::GET, ["return"]) => return Self::returned(ask),
                (&Method::POST, ["return"]) => return self.come_in(people, ask).await,
                _ => {}
            }
        }
        match (&ask.method, &*segments) {
            (&Method::POST, ["sign-in"]) => self.sign_in(ask).await,
            (&Method::GET, []) => match self.signed_in(ask).await {
                Ok((_, session)) => self.show(&session, ask, None).await,
                Err(refused) => *refused,
            },
            (&Method::POST, ["sign-out" | "lower" | "rotate" | "end-overlap" | "agents"]) => {
                match self.signed_in(ask).await {
                    Ok((id, session)) => self.send(&id, &session, &segments, ask).await,
                    Err(refused) => *refused,
                }
            }
            (_, ["sign-in" | "sign-out" | "lower" | "rotate" | "end-overlap" | "agents"]) => {
                let why = "This is done by a form, never by an address.";
                page::refusal(StatusCode::METHOD_NOT_ALLOWED, why).allowing("POST")
            }
            (_, [] | ["style.css"]) => {
                page::refusal(StatusCode::METHOD_NOT_ALLOWED, "This page is read with GET.").allowing("GET")
            }
            _ => page::refusal(StatusCode::NOT_FOUND, "There is no such page."),
        }
    }

    async fn sign_in(&self, ask: &Ask) -> Answer {
        let form = ask.form();
        let code = UserCode::parse(form.text("user_code"));
        if let Err(refused) = self.admit(ask, code.as_ref()) {
            return *refused;
        }
        // The same words for whatever is wrong: whether a key was there once is its owner's to know.
        let unknown = || {
            let why = "This key opens nothing. Is it whole, and not revoked?";
            self.door(StatusCode::FORBIDDEN, Some(why), code.as_ref())
        };
        let Ok(key) = ServiceKey::parse(&self.prefix, form.text("key")) else {
            return unknown();
        };
        let digest = key.digest();
        let record = match self.keys.find(&digest).await {
            Ok(lookup) => lookup.record,
            Err(error) => return unavailable(&error),
        };
        let now = clock::unix_seconds();
        let opens = |record: &KeyRecord| record.state == KeyState::Active && !record.has_replaced(&digest, now);
        let Some(record) = record.filter(opens) else {
            return unknown();
        };
        let owner = Owner { key: record.id, digest };
        let next = code.as_ref().map(|code| format!("{VERIFICATION}?user_code={code}"));
        self.begin(&owner, next.as_deref().unwrap_or(ROOT), ask).await
    }

    /// Whether somebody may try to sign in now.
    fn admit(&self, ask: &Ask, code: Option<&UserCode>) -> Result<(), Box<Answer>> {
        if !ask.is_own() {
            let why = "This form does not come from the portal. Nobody was signed in.";
            return Err(Box::new(page::refusal(StatusCode::FORBIDDEN, why)));
        }
        self.sign_ins.try_acquire(self.client(ask), ask.now).map_err(|wait| {
            let seconds = wait.as_secs() + 1;
            let why = format!("Too many attempts from this address: try again in {seconds} seconds.");
            Box::new(self.door(StatusCode::TOO_MANY_REQUESTS, Some(&why), code))
        })
    }

    /// Begins a session, and goes on to `next`.
    async fn begin(&self, owner: &Owner, next: &str, ask: &Ask) -> Answer {
        if let Some(before) = cookie::PORTAL.read(&ask.headers, ask.way()) {
            // Where the store is away it ends by itself, later: nobody has its text but this browser.
            let _ = self.sessions.close(before).await;
        }
        let id = self.sessions.open(owner, ask.now).await;
        Answer::see(next).with_cookie(cookie::PORTAL.set(&id, ask.way()))
    }

    /// The page on which people sign in.
    fn door(&self, status: StatusCode, why: Option<&str>, code: Option<&UserCode>) -> Answer {
        let provider = self.people.as_ref().map(|people| people.openid.name());
        page::sign_in(status, why, code, provider)
    }

    fn client(&self, ask: &Ask) -> Client {
        Client::of(ask.peer, &ask.headers, &self.entrance.site.trusted)
    }

    /// The session of a request, with its cookie's text, as long as its key is what it was.
    async fn signed_in(&self, ask: &Ask) -> Result<(String, Session<Owner>), Box<Answer>> {
        let nobody = || {
            let code = UserCode::parse(ask.query().text("user_code"));
            Box::new(self.door(StatusCode::UNAUTHORIZED, None, code.as_ref()))
        };
        let away = |error: StoreError| Box::new(unavailable(&error));
        let id = cookie::PORTAL.read(&ask.headers, ask.way()).ok_or_else(nobody)?;
        let found = self.sessions.find::<Owner>(id, ask.now).await;
        let session = found.map_err(away)?.ok_or_else(nobody)?;
        let view = self.keys.by_id(&session.who.key).await.map_err(away)?;
        let is_whole = |view: &KeyView| view.has_text(&session.who.digest, clock::unix_seconds());
        match view {
            Some(view) if view.record.state == KeyState::Active && is_whole(&view) => Ok((id.to_owned(), session)),
            _ => {
                // Whoever comes with it again is looked at again.
                let _ = self.sessions.close(id).await;
                let why = "The session has ended: its key was revoked, deleted or rotated.";
                let ended = self.door(StatusCode::UNAUTHORIZED, Some(why), None);
                Err(Box::new(ended.with_cookie(cookie::PORTAL.clear(ask.way()))))
            }
        }
    }

    /// The owner's page.
    async fn show(&self, session: &Session<Owner>, ask: &Ask, again: Option<&Again>) -> Answer {
        match self.facts(session).await {
            Ok(facts) => {
                let status = again.map_or(StatusCode::OK, |again| again.status);
                let content = page::content(&facts, &Forms::new(session, again), &ask.base());
                Answer::page(status, page::framed(Some(session), &content))
            }
            Err(refused) => page::refusal(refused.status(), &refused.to_string()),
        }
    }

    async fn facts(&self, session: &Session<Owner>) -> Result<page::Facts, AdminError> {
        let key = self.key(session).await?;
        let rows = ListLatestRows {
            account: key
                .account
                .parse()
                .map_err(|why: String| AdminError::of_field("account", why))?,
            key: key.id.clone(),
            limit: Some(ROWS),
            lines: Some(true),
        };
        let rows = self.look(session, rows).await?;
        let models = self.look(session, ListModels {}).await?.models;
        let used = |by| ShowUsage {
            key: Some(key.id.clone()),
            by: Some(by),
            most: Some(usage_table::MOST),
            ..ShowUsage::default()
        };
        let (by_day, by_model) = (used(SplitBy::Day), used(SplitBy::Model));
        let signed_in = match &self.oauth {
            Some(oauth) => Some(oauth.sign_ins.count(&session.who.key).await?),
            None => None,
        };
        Ok(page::Facts {
            by_day: self.look(session, by_day).await?,
            by_model: self.look(session, by_model).await?,
            key,
            rows,
            models,
            signed_in,
        })
    }

    async fn key(&self, session: &Session<Owner>) -> Result<Key, AdminError> {
        let id = session.who.key.clone();
        self.look(session, ShowKey { id }).await
    }

    /// Asks what changes nothing.
    pub(super) async fn look<Q: Answered>(
        &self,
        session: &Session<Owner>,
        question: Q,
    ) -> Result<Q::Answer, AdminError> {
        let peer = Peer::Owner(session.who.key.clone());
        self.api.ask(Author::from(peer), question).await
    }

    /// Takes a form of the owner's page.
    async fn send(&self, id: &str, session: &Session<Owner>, at: &[&str], ask: &Ask) -> Answer {
        let form = ask.form();
        if !is_genuine(session, ask, &form) {
            return page::refusal(StatusCode::FORBIDDEN, NOT_GENUINE);
        }
        if let ["sign-out"] = at {
            if let Err(error) = self.sessions.close(id).await {
                return unavailable(&error);
            }
            return Answer::see(ROOT).with_cookie(cookie::PORTAL.clear(ask.way()));
        }
        match self.change(session, at, &form, ask).await {
            Ok(answer) => answer,
            Err(refused) => {
                let again = Again::new(ask, form, &refused);
                self.show(session, ask, Some(&again)).await
            }
        }
    }
}

fn unavailable(error: &StoreError) -> Answer {
    let page = Page {
        title: "Not now".to_owned(),
        content: html! { p class="card" role="alert" { (error) ". Try again in a moment." } },
    };
    Answer::page(StatusCode::SERVICE_UNAVAILABLE, page::framed::<()>(None, &page))
}
