//! The portal. The owner of a key signs in with the key, sees the key's limits and usage, lowers the limits, and rotates the key.
//!
//! A session belongs to one key. When the key is revoked or deleted, the session ends. Each request checks that the key exists
//! and is not revoked, and that the secret with which the session was opened is still valid.

mod device;
mod oidc_users;
mod page;

use std::{sync::Arc, time::Instant};

use http::{Method, StatusCode};
use maud::html;
use serde::{Deserialize, Serialize};

use super::{
    forms::{Forms, NOT_GENUINE, RefusedForm, is_genuine},
    oauth::{OAuth, VERIFICATION},
    session::{BrowserSession, BrowserSessions},
    usage_table,
};
pub(crate) use crate::console::portal::oidc_users::OidcSignIn;
use crate::console::{
    layout::{HtmlPage, PageResponse, STYLE},
    request::{ListenerContext, PageRequest, Site},
    session,
};

use crate::{
    admin::{Admin, AdminHandler, AdminPeer, audit::Author},
    api::{
        AdminError,
        keys::{KeyDetails, ShowKey},
        log::ListLatestRows,
        node::ListModels,
        usage::ShowUsage,
    },
    domain::{
        keys::{
            KeyId, KeyRecord, KeyState,
            secret::{KeyDigest, KeyPrefix, ServiceKey},
        },
        ledger::reports::SplitBy,
        sign_in::device_request::UserCode,
    },
    edges::{
        clock,
        limiter::{ClientAddress, Limiter, RateAllowance},
    },
    store::{KeyStore, KeyView, StoreError, sessions::WebSessionStore},
};

/// The path of the portal on the gateway's listeners.
pub(super) const ROOT: &str = "/portal";
/// The rate at which one client address can try to sign in.
const SIGN_INS: RateAllowance = RateAllowance {
    per_minute: 10,
    burst: 10,
    clients_max: 100_000,
};

/// The rate at which one client address can request pages. It is limited because a page may read many rows.
const VISITS: RateAllowance = RateAllowance {
    per_minute: 60,
    burst: 60,
    clients_max: 100_000,
};
/// The rate at which one client address can try codes of agents. The owner of one key has the same limit.
const CODE_TRIES: RateAllowance = RateAllowance {
    per_minute: 20,
    burst: 20,
    clients_max: 100_000,
};
/// The number of rows of the log that the owner's page displays.
const ROWS: usize = 50;
/// The maximum size of a form, in bytes. It is small, because anybody can send a form to the gateway's port.
const FORM_BYTES_MAX: usize = 8 * 1024;

/// The portal, which all listeners share.
pub(crate) struct Portal {
    /// The settings with which listeners read requests to the portal.
    pub(crate) entrance: ListenerContext,
    keys: Arc<dyn KeyStore>,
    api: Admin,
    prefix: KeyPrefix,
    sign_ins: Limiter<ClientAddress>,
    visits: Limiter<ClientAddress>,
    codes: Limiter<ClientAddress>,
    codes_of_keys: Limiter<KeyDigest>,
    /// The endpoints at which agents sign in. `None` if agents cannot sign in.
    oauth: Option<OAuth>,
    /// Signs users in with the OpenID provider. `None` if no provider is configured.
    oidc: Option<OidcSignIn>,
    sessions: BrowserSessions,
}

/// The owner of a key, who is signed in at the portal.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct KeyOwner {
    pub(super) key: KeyId,
    /// The digest of the secret with which the owner signed in. If the owner has rotated the key in this session, this is the
    /// digest of the new secret.
    pub(super) digest: KeyDigest,
}

impl std::fmt::Debug for Portal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Portal").finish_non_exhaustive()
    }
}

impl Portal {
    /// Creates the portal. `prefix` is the prefix of keys, `site` says how browsers reach the portal, and `start` is a time
    /// before the first request.
    pub(crate) fn new(
        (keys, sessions): (Arc<dyn KeyStore>, Arc<dyn WebSessionStore>),
        api: Admin,
        prefix: KeyPrefix,
        site: Site,
        start: Instant,
    ) -> Self {
        Self {
            entrance: ListenerContext {
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
            oidc: None,
            sessions: BrowserSessions::new("portal", sessions),
        }
    }

    /// Adds the endpoints at which agents sign in.
    pub(crate) fn with_agents(self, oauth: Option<OAuth>) -> Self {
        Self { oauth, ..self }
    }

    /// Adds the sign-in of users with the OpenID provider.
    pub(crate) fn with_people(self, people: Option<OidcSignIn>) -> Self {
        Self { oidc: people, ..self }
    }

    /// Returns the name by which the access log records requests to this path. `None` if the path does not belong to the portal.
    pub(crate) fn route_name(&self, path: &str) -> Option<&'static str> {
        let below = path.strip_prefix(ROOT);
        let is_page = below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        let is_agents = self.oauth.is_some() && OAuth::is_endpoint(path);
        is_page.then_some("portal").or(is_agents.then_some("sign_in"))
    }

    /// Answers a request whose path belongs to the portal.
    pub(crate) async fn answer(&self, request: &PageRequest) -> PageResponse {
        if let Some(oauth) = self.oauth.as_ref().filter(|_| OAuth::is_endpoint(&request.path)) {
            return oauth.answer(request, &self.entrance.site.trusted).await;
        }
        self.page(request)
            .await
            .with_transport_security(request.connection_security())
    }

    async fn page(&self, request: &PageRequest) -> PageResponse {
        let segments = request.segments(ROOT).unwrap_or_default();
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        // The style sheet is not rate-limited: it is cheap to serve, and pages that refuse a request also need it.
        if let (&Method::GET, ["style.css"]) = (&request.method, &*segments) {
            return PageResponse::style_sheet(STYLE);
        }
        if let Err(wait) = self.visits.try_acquire(self.client(request), request.now) {
            let why = format!(
                "Too many requests from this address: try again in {} seconds.",
                wait.as_secs() + 1
            );
            return page::refusal(StatusCode::TOO_MANY_REQUESTS, &why);
        }
        if let (Some(oauth), ["device"]) = (&self.oauth, &*segments) {
            return self.device(oauth, request).await;
        }
        if let (Some(people), ["openid", rest @ ..]) = (&self.oidc, &*segments) {
            match (&request.method, rest) {
                (&Method::POST, []) => return self.redirect_to_provider(people, request).await,
                (&Method::GET, ["return"]) => return Self::return_page(request),
                (&Method::POST, ["return"]) => return self.finish_oidc_sign_in(people, request).await,
                _ => {}
            }
        }
        match (&request.method, &*segments) {
            (&Method::POST, ["sign-in"]) => self.sign_in(request).await,
            (&Method::GET, []) => match self.find_session(request).await {
                Ok((_, session)) => self.show(&session, request, None).await,
                Err(refused) => *refused,
            },
            (&Method::POST, ["sign-out" | "lower" | "rotate" | "end-overlap" | "agents"]) => {
                match self.find_session(request).await {
                    Ok((id, session)) => self.handle_form(&id, &session, &segments, request).await,
                    Err(refused) => *refused,
                }
            }
            (_, ["sign-in" | "sign-out" | "lower" | "rotate" | "end-overlap" | "agents"]) => {
                let why = "This address accepts only the portal's forms.";
                page::refusal(StatusCode::METHOD_NOT_ALLOWED, why).with_allow("POST")
            }
            (_, [] | ["style.css"]) => {
                page::refusal(StatusCode::METHOD_NOT_ALLOWED, "This page supports GET only.").with_allow("GET")
            }
            _ => page::refusal(StatusCode::NOT_FOUND, "This page does not exist."),
        }
    }

    async fn sign_in(&self, request: &PageRequest) -> PageResponse {
        let form = request.form();
        let code = UserCode::parse(form.text("user_code"));
        if let Err(refused) = self.admit(request, code.as_ref()) {
            return *refused;
        }
        // The message is the same for every reason, because only the owner of a key is allowed to learn that the key once
        // existed.
        let unknown = || {
            let why = "This key is not valid. Check that it is complete and was not revoked.";
            self.sign_in_page(StatusCode::FORBIDDEN, Some(why), code.as_ref())
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
        let opens = |record: &KeyRecord| record.state == KeyState::Active && !record.is_ended_text(&digest, now);
        let Some(record) = record.filter(opens) else {
            return unknown();
        };
        let owner = KeyOwner { key: record.id, digest };
        let next = code.as_ref().map(|code| format!("{VERIFICATION}?user_code={code}"));
        self.begin(&owner, next.as_deref().unwrap_or(ROOT), request).await
    }

    /// Returns a refusal if the form comes from another site, or if the client address has made too many attempts.
    fn admit(&self, request: &PageRequest, code: Option<&UserCode>) -> Result<(), Box<PageResponse>> {
        if !request.is_same_origin() {
            let why = "This form does not come from the portal. Nobody was signed in.";
            return Err(Box::new(page::refusal(StatusCode::FORBIDDEN, why)));
        }
        self.sign_ins
            .try_acquire(self.client(request), request.now)
            .map_err(|wait| {
                let seconds = wait.as_secs() + 1;
                let why = format!("Too many attempts from this address: try again in {seconds} seconds.");
                Box::new(self.sign_in_page(StatusCode::TOO_MANY_REQUESTS, Some(&why), code))
            })
    }

    /// Opens a session for the owner, and redirects the browser to `next`.
    async fn begin(&self, owner: &KeyOwner, next: &str, request: &PageRequest) -> PageResponse {
        if let Some(before) = session::PORTAL.read(&request.headers, request.connection_security()) {
            // If the store cannot be reached, the previous session expires later. Only this browser has the session's cookie.
            let _ = self.sessions.close(before).await;
        }
        let id = self.sessions.open(owner, request.now).await;
        PageResponse::redirect(next).with_cookie(session::PORTAL.set(&id, request.connection_security()))
    }

    /// Renders the page for signing in.
    fn sign_in_page(&self, status: StatusCode, why: Option<&str>, code: Option<&UserCode>) -> PageResponse {
        let provider = self.oidc.as_ref().map(|people| people.openid.name());
        page::sign_in_page(status, why, code, provider)
    }

    fn client(&self, request: &PageRequest) -> ClientAddress {
        ClientAddress::from_headers(request.peer, &request.headers, &self.entrance.site.trusted)
    }

    /// Returns the cookie's value and the session if the session's key is still valid. Otherwise returns the sign-in page.
    async fn find_session(
        &self,
        request: &PageRequest,
    ) -> Result<(String, BrowserSession<KeyOwner>), Box<PageResponse>> {
        let nobody = || {
            let code = UserCode::parse(request.query().text("user_code"));
            Box::new(self.sign_in_page(StatusCode::UNAUTHORIZED, None, code.as_ref()))
        };
        let away = |error: StoreError| Box::new(unavailable(&error));
        let id = session::PORTAL
            .read(&request.headers, request.connection_security())
            .ok_or_else(nobody)?;
        let found = self.sessions.find::<KeyOwner>(id, request.now).await;
        let session = found.map_err(away)?.ok_or_else(nobody)?;
        let view = self.keys.by_id(&session.who.key).await.map_err(away)?;
        let is_whole = |view: &KeyView| view.has_text(&session.who.digest, clock::unix_seconds());
        match view {
            Some(view) if view.record.state == KeyState::Active && is_whole(&view) => Ok((id.to_owned(), session)),
            _ => {
                // If this fails, the next request with this session is also refused.
                let _ = self.sessions.close(id).await;
                let why = "The session has ended: its key was revoked, deleted or rotated.";
                let ended = self.sign_in_page(StatusCode::UNAUTHORIZED, Some(why), None);
                Err(Box::new(
                    ended.with_cookie(session::PORTAL.clear(request.connection_security())),
                ))
            }
        }
    }

    /// Renders the owner's page.
    async fn show(
        &self,
        session: &BrowserSession<KeyOwner>,
        request: &PageRequest,
        again: Option<&RefusedForm>,
    ) -> PageResponse {
        match self.facts(session).await {
            Ok(facts) => {
                let status = again.map_or(StatusCode::OK, |again| again.status);
                let content = page::owner_page(&facts, &Forms::new(session, again), &request.base());
                PageResponse::page(status, page::framed(Some(session), &content))
            }
            Err(refused) => page::refusal(refused.status(), &refused.to_string()),
        }
    }

    async fn facts(&self, session: &BrowserSession<KeyOwner>) -> Result<page::PortalFacts, AdminError> {
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
        let rows = self.fetch(session, rows).await?;
        let models = self.fetch(session, ListModels {}).await?.models;
        let used = |by| ShowUsage {
            key: Some(key.id.clone()),
            by: Some(by),
            most: Some(usage_table::LINES_MAX),
            ..ShowUsage::default()
        };
        let (by_day, by_model) = (used(SplitBy::Day), used(SplitBy::Model));
        let signed_in = match &self.oauth {
            Some(oauth) => Some(oauth.sign_ins.count(&session.who.key).await?),
            None => None,
        };
        Ok(page::PortalFacts {
            by_day: self.fetch(session, by_day).await?,
            by_model: self.fetch(session, by_model).await?,
            key,
            rows,
            models,
            signed_in,
        })
    }

    async fn key(&self, session: &BrowserSession<KeyOwner>) -> Result<KeyDetails, AdminError> {
        let id = session.who.key.clone();
        self.fetch(session, ShowKey { id }).await
    }

    /// Makes a call of the admin API that only reads.
    pub(super) async fn fetch<Q: AdminHandler>(
        &self,
        session: &BrowserSession<KeyOwner>,
        question: Q,
    ) -> Result<Q::Answer, AdminError> {
        let peer = AdminPeer::Owner(session.who.key.clone());
        self.api.call(Author::from(peer), question).await
    }

    /// Applies a form of the owner's page.
    async fn handle_form(
        &self,
        id: &str,
        session: &BrowserSession<KeyOwner>,
        at: &[&str],
        request: &PageRequest,
    ) -> PageResponse {
        let form = request.form();
        if !is_genuine(session, request, &form) {
            return page::refusal(StatusCode::FORBIDDEN, NOT_GENUINE);
        }
        if let ["sign-out"] = at {
            if let Err(error) = self.sessions.close(id).await {
                return unavailable(&error);
            }
            return PageResponse::redirect(ROOT).with_cookie(session::PORTAL.clear(request.connection_security()));
        }
        match self.change(session, at, &form, request).await {
            Ok(answer) => answer,
            Err(refused) => {
                let again = RefusedForm::new(request, form, &refused);
                self.show(session, request, Some(&again)).await
            }
        }
    }
}

fn unavailable(error: &StoreError) -> PageResponse {
    let page = HtmlPage {
        title: "Not now".to_owned(),
        content: html! { p class="card" role="alert" { (error) ". Try again in a moment." } },
    };
    PageResponse::page(StatusCode::SERVICE_UNAVAILABLE, page::framed::<()>(None, &page))
}
