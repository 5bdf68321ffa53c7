//! The operators' console: its pages, its forms, and the roles that the forms need.

mod accounts;

mod audit;

mod keys;
mod log;

mod models;
mod overview;

mod rules;
mod sign_in;

use std::sync::Arc;

use http::{Method, StatusCode};
use maud::{Markup, html};

use super::{
    forms::{Forms, NOT_GENUINE, RefusedForm, is_genuine},
    session::{BrowserSession, BrowserSessions},
};
use crate::console::layout::Operator;
use crate::console::{
    ConsoleSource, PageContext,
    layout::{HtmlPage, Layout, PageResponse, STYLE},
    request::{FormFields, PageRequest},
    session,
};
use crate::{
    admin::Admin,
    api::AdminError,
    domain::sign_in::Role,
    store::{StoreError, sessions::WebSessionStore},
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

pub(crate) use self::sign_in::SignInMethods;

/// The operators' console, which all its connections share.
pub(crate) struct Console {
    api: Admin,
    source: Box<dyn ConsoleSource>,
    sign_in_methods: SignInMethods,
    sessions: BrowserSessions,
}

impl Console {
    /// Creates the console, which reads and changes data through the admin API and reads further data from `source`.
    /// `sign_in_methods` are the ways in which operators sign in.
    pub(crate) fn new(
        api: Admin,
        source: Box<dyn ConsoleSource>,
        sign_in_methods: SignInMethods,
        sessions: Arc<dyn WebSessionStore>,
    ) -> Self {
        Self {
            api,
            source,
            sign_in_methods,
            sessions: BrowserSessions::new("console", sessions),
        }
    }

    /// Answers a request to the console.
    pub(crate) async fn answer(&self, request: &PageRequest) -> PageResponse {
        self.page(request)
            .await
            .with_transport_security(request.connection_security())
    }

    async fn page(&self, request: &PageRequest) -> PageResponse {
        let segments = request.segments("").unwrap_or_default();
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        let at = &*segments;
        match (&request.method, at) {
            (&Method::GET, ["style.css"]) => return PageResponse::style_sheet(STYLE),
            (&Method::GET, ["open"]) => return self.sign_in_methods.link_page(request),
            (&Method::POST, ["open"]) => return self.sign_in_methods.open_by_link(&self.sessions, request).await,
            (&Method::POST, ["openid"]) => return self.sign_in_methods.redirect_to_provider(request).await,
            (&Method::GET, ["openid", "return"]) => return self.sign_in_methods.return_page(request),
            (&Method::POST, ["openid", "return"]) => {
                return self.sign_in_methods.finish(&self.sessions, &self.api, request).await;
            }
            (&Method::GET | &Method::POST, _) => {}
            _ => {
                return refusal(StatusCode::METHOD_NOT_ALLOWED, "This page supports GET only.", None)
                    .with_allow("GET, POST");
            }
        }
        let id = session::CONSOLE.read(&request.headers, request.connection_security());
        let Some(id) = id else {
            return self.sign_in_methods.sign_in_page();
        };
        let session = match self.sessions.find(id, request.now).await {
            Ok(Some(session)) => session,
            Ok(None) => return self.sign_in_methods.sign_in_page(),
            Err(error) => return unavailable(&error),
        };
        if request.method == Method::GET {
            return self.show(&session, at, &request.query(), None).await;
        }
        self.handle_form(id, &session, at, request).await
    }

    /// Applies a submitted form if it is genuine and the operator has the role that the form needs.
    async fn handle_form(
        &self,
        id: &str,
        session: &BrowserSession<Operator>,
        at: &[&str],
        request: &PageRequest,
    ) -> PageResponse {
        let form = request.form();
        if !is_genuine(session, request, &form) {
            return refusal(StatusCode::FORBIDDEN, NOT_GENUINE, Some(session));
        }
        if let ["sign-out"] = at {
            if let Err(error) = self.sessions.close(id).await {
                return unavailable(&error);
            }
            let left = self.sign_in_methods.signed_out_page(&session.who);
            return left.with_cookie(session::CONSOLE.clear(request.connection_security()));
        }
        let Some(needed) = required_role(at) else {
            return refusal(
                StatusCode::METHOD_NOT_ALLOWED,
                "There is no form at this address.",
                Some(session),
            )
            .with_allow("GET");
        };
        if session.who.role < needed {
            let why = format!("This change needs the role {}. Nothing was changed.", needed.as_str());
            return refusal(StatusCode::FORBIDDEN, &why, Some(session));
        }
        match self.apply_form(session, at, &form).await {
            Ok(answer) => answer,
            Err(refused) => {
                let again = RefusedForm::new(request, form, &refused);
                let page = page_path(at);
                self.show(session, &page, &FormFields::default(), Some(&again)).await
            }
        }
    }

    /// Renders a page, or the reason why it cannot be rendered.
    async fn show(
        &self,
        session: &BrowserSession<Operator>,
        at: &[&str],
        query: &FormFields,
        again: Option<&RefusedForm>,
    ) -> PageResponse {
        let context = self.page_context(session, query, again);
        if let ["log", "export", form] = at {
            let refused = |refused: AdminError| refusal(refused.status(), &refused.to_string(), Some(session));
            return log::export(&context, form).await.unwrap_or_else(refused);
        }
        let page = match at {
            [] => overview::page(&context).await,
            ["accounts"] => accounts::list(&context).await,
            ["accounts", id] => accounts::show(&context, id).await,
            ["keys"] => keys::list(&context).await,
            ["keys", "new"] => keys::new_key_page(&context).await,
            ["keys", id] => keys::show(&context, id).await,
            ["models"] => models::list(&context).await,
            ["models", name] => models::model_page(&context, name).await,
            ["usage"] => overview::usage_page(&context).await,
            ["log"] => log::page(&context).await,
            ["providers"] => models::page(&context).await,
            ["rules"] => Ok(rules::page(&context)),
            ["audit"] => audit::page(&context).await,
            _ if required_role(at).is_some() => {
                let why = "This address accepts only the console's forms.";
                return refusal(StatusCode::METHOD_NOT_ALLOWED, why, Some(session)).with_allow("POST");
            }
            _ => return refusal(StatusCode::NOT_FOUND, "This page does not exist.", Some(session)),
        };
        let current = at.first().map_or_else(|| "/".to_owned(), |first| format!("/{first}"));
        match page {
            Ok(page) => {
                let status = again.map_or(StatusCode::OK, |again| again.status);
                PageResponse::page(status, framed(session, &current, &page))
            }
            Err(refused) => refusal(refused.status(), &refused.to_string(), Some(session)),
        }
    }

    /// Makes the change that a form describes.
    async fn apply_form(
        &self,
        session: &BrowserSession<Operator>,
        at: &[&str],
        form: &FormFields,
    ) -> Result<PageResponse, AdminError> {
        let query = FormFields::default();
        let context = self.page_context(session, &query, None);
        let shown = |page: &HtmlPage| PageResponse::page(StatusCode::OK, framed(session, "/keys", page));
        match at {
            ["accounts"] => accounts::create(&context, form).await,
            ["accounts", id, verb] => accounts::change(&context, id, verb, form).await,
            ["keys"] => Ok(shown(&keys::create(&context, form).await?)),
            ["keys", id, "rotate"] => Ok(shown(&keys::rotate(&context, id, form).await?)),
            ["keys", id, verb] => keys::change(&context, id, verb, form).await,
            ["providers", name, verb] => models::switch(&context, name, verb).await,
            ["rules"] => {
                let page = rules::explain(&context, form)?;
                Ok(PageResponse::page(StatusCode::OK, framed(session, "/rules", &page)))
            }
            _ => Err(AdminError::not_found("This page does not exist.")),
        }
    }

    fn page_context<'a>(
        &'a self,
        session: &'a BrowserSession<Operator>,
        query: &'a FormFields,
        again: Option<&'a RefusedForm>,
    ) -> PageContext<'a> {
        PageContext {
            api: &self.api,
            source: &*self.source,
            session,
            forms: Forms::new(session, again).with_roles(missing_role),
            query,
        }
    }
}

/// Returns the role that is needed to submit a form to a path. `None` if no form is submitted to this path.
fn required_role(at: &[&str]) -> Option<Role> {
    match at {
        ["rules"] => Some(Role::Viewer),
        ["keys"]
        | ["keys", _, "update" | "rotate" | "end-overlap" | "revoke" | "delete"]
        | ["providers", _, "enable" | "disable"] => Some(Role::Operator),
        ["accounts"] | ["accounts", _, "credit" | "adjust" | "limits" | "suspend" | "resume"] => Some(Role::Owner),
        _ => None,
    }
}

/// Returns the role that is required to submit a form, if the operator does not have this role. `None` if the operator can submit
/// the form.
fn missing_role(operator: &Operator, action: &str) -> Option<Role> {
    let at: Vec<&str> = action.split('/').skip(1).collect();
    required_role(&at).filter(|needed| operator.role < *needed)
}

/// Returns the path of the page that contains the form submitted to the path `at`.
fn page_path<'a>(at: &[&'a str]) -> Vec<&'a str> {
    match at {
        ["keys"] => vec!["keys", "new"],
        ["keys" | "accounts", id, _] => vec![at.first().copied().unwrap_or_default(), id],
        _ => at.first().copied().into_iter().collect(),
    }
}

fn framed(session: &BrowserSession<Operator>, current: &str, page: &HtmlPage) -> Markup {
    let out = Forms::new(session, None).button("/sign-out", "Sign out", "plain");
    let frame = Layout {
        style: "/style.css",
        site_name: "weir console",
        pages: &PAGES,
        current,
        who: html! {
            @if let Some(name) = session.who.name() { bdi { (name) } }
            span { "Role: " (session.who.role.as_str()) } (out)
        },
    };
    frame.document(page)
}

fn unavailable(error: &StoreError) -> PageResponse {
    let why = format!("{error}. Nothing was changed, and you are still signed in. Try again in a moment.");
    refusal(StatusCode::SERVICE_UNAVAILABLE, &why, None)
}

/// Renders a page with the reason for a refusal.
fn refusal(status: StatusCode, why: &str, session: Option<&BrowserSession<Operator>>) -> PageResponse {
    let page = HtmlPage {
        title: status.canonical_reason().unwrap_or("AdminError").to_owned(),
        content: html! { p class="card" role="alert" { (why) } },
    };
    let document = match session {
        Some(session) => framed(session, "", &page),
        None => sign_in::framed(&page),
    };
    PageResponse::page(status, document)
}
