//! The portal: the owner of a key signs in with it, sees what it has used and may, lowers its limits and rotates it.
//!
//! A session stands for one key. It is no key itself, and ends with it: each request looks up whether the key is there, not
//! revoked, and the text that it was opened with is still the key's.

mod device;
mod page;

use std::{sync::Arc, time::Instant};

use http::{Method, StatusCode};
use ipnet::IpNet;
use maud::html;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{
    answer::Answer,
    ask::Ask,
    cookie,
    desk::below,
    exchange::Entrance,
    fields::Fields,
    forms::{Again, Forms, NOT_GENUINE, is_changed, is_genuine},
    frame::{Page, STYLE},
    key_view, limits,
    oauth::{OAuth, VERIFICATION},
    sent::NotAgain,
    session::{Session, Sessions},
    view,
};
use crate::{
    domain::keys::{
        key::{KeyId, KeyState},
        secret::{KeyDigest, KeyPrefix, ServiceKey},
    },
    domain::sign_in::user_code::UserCode,
    edges::limiter::{Allowance, Limiter, client::Client},
    side::admin::{
        Peer,
        local::{LocalApi, Refused},
    },
    store::{KeyStore, StoreError, web_sessions::WebSessionStore},
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
/// The largest form, which strangers may send to the gateway's port.
const FORM_BYTES_MAX: usize = 8 * 1024;

/// The portal. One for all listeners that have it.
pub(crate) struct Portal {
    /// How requests come in.
    pub(crate) entrance: Entrance,
    keys: Arc<dyn KeyStore>,
    api: LocalApi,
    prefix: KeyPrefix,
    sign_ins: Limiter<Client>,
    visits: Limiter<Client>,
    codes: Limiter<Client>,
    codes_of_keys: Limiter<KeyDigest>,
    /// Where agents sign in; `None`: they cannot.
    oauth: Option<OAuth>,
    sessions: Sessions,
}

/// Who is signed in.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Owner {
    key: KeyId,
    /// What the key's text was when its owner showed it, or what they have rotated it to.
    digest: KeyDigest,
}

impl std::fmt::Debug for Portal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Portal").finish_non_exhaustive()
    }
}

impl Portal {
    /// The portal to the keys of this prefix, with its sessions. `(tls, trusted)` says how requests come in, and `start` is a time before the
    /// first one.
    pub(crate) fn new(
        (keys, sessions): (Arc<dyn KeyStore>, Arc<dyn WebSessionStore>),
        api: LocalApi,
        prefix: KeyPrefix,
        (tls, trusted): (bool, Vec<IpNet>),
        start: Instant,
    ) -> Self {
        Self {
            entrance: Entrance {
                tls,
                trusted,
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
            sessions: Sessions::new("portal", sessions),
        }
    }

    /// The same with agents that sign in.
    pub(crate) fn with_agents(self, oauth: Option<OAuth>) -> Self {
        Self { oauth, ..self }
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
            return oauth.answer(ask, &self.entrance.trusted).await;
        }
        let segments = ask.segments(ROOT).unwrap_or_default();
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
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
        match (&ask.method, &*segments) {
            (&Method::GET, ["style.css"]) => Answer::style(STYLE),
            (&Method::POST, ["sign-in"]) => self.sign_in(ask).await,
            (&Method::GET, []) => match self.signed_in(ask).await {
                Ok((_, session)) => self.show(&session, ask, None).await,
                Err(refused) => *refused,
            },
            (&Method::POST, ["sign-out" | "lower" | "rotate" | "agents"]) => match self.signed_in(ask).await {
                Ok((id, session)) => self.send(&id, &session, &segments, ask).await,
                Err(refused) => *refused,
            },
            (_, ["sign-in" | "sign-out" | "lower" | "rotate" | "agents"]) => {
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
        if !ask.is_own() {
            return page::refusal(
                StatusCode::FORBIDDEN,
                "This form does not come from the portal. Nobody was signed in.",
            );
        }
        if let Err(wait) = self.sign_ins.try_acquire(self.client(ask), ask.now) {
            let why = format!(
                "Too many attempts from this address: try again in {} seconds.",
                wait.as_secs() + 1
            );
            return page::sign_in(StatusCode::TOO_MANY_REQUESTS, Some(&why), None);
        }
        let form = ask.form();
        let code = UserCode::parse(form.text("user_code"));
        // The same words for whatever is wrong: whether a key was there once is its owner's to know.
        let unknown = || {
            page::sign_in(
                StatusCode::FORBIDDEN,
                Some("This key opens nothing. Is it whole, and not revoked?"),
                code.as_ref(),
            )
        };
        let Ok(key) = ServiceKey::parse(&self.prefix, form.text("key")) else {
            return unknown();
        };
        let digest = key.digest();
        let record = match self.keys.find(&digest).await {
            Ok(lookup) => lookup.record,
            Err(error) => return unavailable(&error),
        };
        let Some(record) = record.filter(|record| record.state == KeyState::Active) else {
            return unknown();
        };
        let owner = Owner { key: record.id, digest };
        if let Some(before) = cookie::PORTAL.read(&ask.headers, ask.way()) {
            // Where the store is away it ends by itself, later: nobody has its text but this browser.
            let _ = self.sessions.close(before).await;
        }
        let id = self.sessions.open(&owner, ask.now).await;
        let next = code.as_ref().map(|code| format!("{VERIFICATION}?user_code={code}"));
        Answer::see(next.as_deref().unwrap_or(ROOT)).with_cookie(cookie::PORTAL.set(&id, ask.way()))
    }

    fn client(&self, ask: &Ask) -> Client {
        Client::of(ask.peer, &ask.headers, &self.entrance.trusted)
    }

    /// The session of a request, with its cookie's text, as long as its key is what it was.
    async fn signed_in(&self, ask: &Ask) -> Result<(String, Session<Owner>), Box<Answer>> {
        let nobody = || {
            let code = UserCode::parse(ask.query().text("user_code"));
            Box::new(page::sign_in(StatusCode::UNAUTHORIZED, None, code.as_ref()))
        };
        let away = |error: StoreError| Box::new(unavailable(&error));
        let id = cookie::PORTAL.read(&ask.headers, ask.way()).ok_or_else(nobody)?;
        let found = self.sessions.find::<Owner>(id, ask.now).await;
        let session = found.map_err(away)?.ok_or_else(nobody)?;
        let view = self.keys.by_id(&session.who.key).await.map_err(away)?;
        let is_whole = |digest: KeyDigest| digest == session.who.digest;
        match view {
            Some(view) if view.record.state == KeyState::Active && is_whole(view.digest) => {
                Ok((id.to_owned(), session))
            }
            _ => {
                // Whoever comes with it again is looked at again.
                let _ = self.sessions.close(id).await;
                let why = "The session has ended: its key was revoked, deleted or rotated.";
                let ended = page::sign_in(StatusCode::UNAUTHORIZED, Some(why), None);
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
            Err(refused) => page::refusal(refused.status, &refused.message),
        }
    }

    async fn facts(&self, session: &Session<Owner>) -> Result<page::Facts, Refused> {
        let key = self.key(session).await?;
        let log = super::fields::query(&[
            ("account", view::text(&key, "account")),
            ("key", view::text(&key, "id")),
            ("limit", "50"),
        ]);
        let rows = self.read(session, &format!("/v1/log/latest{log}")).await?;
        let models = self.read(session, "/v1/models").await?;
        let used = |by| super::fields::query(&[("key", session.who.key.as_str()), ("by", by)]);
        let signed_in = match &self.oauth {
            Some(oauth) => Some(oauth.sign_ins.count(&session.who.key).await.map_err(|error| Refused {
                status: StatusCode::SERVICE_UNAVAILABLE,
                message: error.to_string(),
            })?),
            None => None,
        };
        Ok(page::Facts {
            by_day: self.read(session, &format!("/v1/usage{}", used("day"))).await?,
            by_model: self.read(session, &format!("/v1/usage{}", used("model"))).await?,
            key,
            rows,
            models,
            signed_in,
        })
    }

    async fn key(&self, session: &Session<Owner>) -> Result<Value, Refused> {
        self.read(session, &below("/v1/keys", session.who.key.as_str())).await
    }

    async fn read(&self, session: &Session<Owner>, path: &str) -> Result<Value, Refused> {
        let peer = Peer::Owner(session.who.key.clone());
        self.api.call(peer, Method::GET, path, None).await
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
        let work = self.change(session, at, &form, ask);
        let done = self.sessions.once(session, form.text("operation"), ask.now, work).await;
        match done {
            Ok(answer) => answer,
            Err(NotAgain::Failed(refused)) => {
                let again = Again::new(ask, form, refused);
                self.show(session, ask, Some(&again)).await
            }
            Err(NotAgain::Refused(refused)) => page::refusal(refused.status(), refused.as_str()),
        }
    }

    async fn change(&self, session: &Session<Owner>, at: &[&str], form: &Fields, ask: &Ask) -> Result<Answer, Refused> {
        let path = below("/v1/keys", session.who.key.as_str());
        let peer = Peer::Owner(session.who.key.clone());
        if let ["agents"] = at {
            let path = below(&path, "sign-ins");
            self.api.call(peer, Method::DELETE, &path, Some(&json!({}))).await?;
            return Ok(Answer::see(ROOT));
        }
        let key = self.key(session).await?;
        if key_view::has_expired(&key) || key_view::is_used_up(&key) {
            return Err(Refused {
                status: StatusCode::FORBIDDEN,
                message: "This key is used up or has expired: it can be looked at, and only an operator can change it."
                    .to_owned(),
            });
        }
        if let ["rotate"] = at {
            let made = self
                .api
                .call(peer, Method::POST, &below(&path, "rotate"), Some(&json!({})))
                .await?;
            return Ok(self.rotated(session, &made, &ask.base()).await);
        }
        let body = Value::Object(lowered(form)?);
        self.api
            .call(peer, Method::POST, &below(&path, "lower"), Some(&body))
            .await?;
        Ok(Answer::see(ROOT))
    }

    /// The session goes on with the new text of its key, which is shown once.
    async fn rotated(&self, session: &Session<Owner>, made: &Value, base: &str) -> Answer {
        let text = view::text(made, "key");
        if let Ok(key) = ServiceKey::parse(&self.prefix, text) {
            let owner = Owner {
                digest: key.digest(),
                ..session.who.clone()
            };
            // Where the store is away now, its owner signs in again, with the new text.
            let _ = self.sessions.becomes(session, &owner).await;
        }
        Answer::page(StatusCode::OK, page::framed(Some(session), &page::rotated(made, base)))
    }
}

/// The limits that were changed, for the admin API.
fn lowered(form: &Fields) -> Result<Map<String, Value>, Refused> {
    let mut body = Map::new();
    for field in ["quota_usd", "expires_at"] {
        if is_changed(form, field) {
            body.insert(field.to_owned(), json!(form.given(field)));
        }
    }
    limits::changed_rates(form, &mut body)?;
    Ok(body)
}

fn unavailable(error: &StoreError) -> Answer {
    let page = Page {
        title: "Not now".to_owned(),
        content: html! { p class="card" role="alert" { (error) ". Try again in a moment." } },
    };
    Answer::page(StatusCode::SERVICE_UNAVAILABLE, page::framed::<()>(None, &page))
}
