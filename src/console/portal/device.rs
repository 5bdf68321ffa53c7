//! The page on which the owner of a key permits an agent to use the key. The owner compares the agent's code with the code on the
//! page, and approves or refuses the sign-in.
//!
//! Opening a link does not approve a sign-in. The page warns users that an attacker may send them the code of the attacker's own
//! agent (RFC 8628, section 5.4). Attempts are limited for each client address and each key, so that codes cannot be guessed.

use http::{Method, StatusCode};
use maud::{Markup, html};

use super::{KeyOwner, Portal, page, unavailable};
use crate::{
    api::{AdminError, sessions::DecideSignIn},
    console::{
        forms::{Forms, NOT_GENUINE, is_genuine},
        layout::{self, HtmlPage, PageResponse},
        oauth::{OAuth, VERIFICATION},
        request::PageRequest,
        session::BrowserSession,
    },
    domain::sign_in::device_request::UserCode,
};

impl Portal {
    /// Answers requests to the page on which a code is entered, approved or refused.
    pub(super) async fn device(&self, oauth: &OAuth, request: &PageRequest) -> PageResponse {
        let session = match self.find_session(request).await {
            Ok((_, session)) => session,
            Err(refused) => return *refused,
        };
        match request.method {
            Method::GET => self.show_request(oauth, &session, request).await,
            Method::POST => self.decide(&session, request).await,
            _ => {
                let why = "This page supports GET, and POST for its form.";
                page::refusal(StatusCode::METHOD_NOT_ALLOWED, why).with_allow("GET, HEAD, POST")
            }
        }
    }

    async fn show_request(
        &self,
        oauth: &OAuth,
        session: &BrowserSession<KeyOwner>,
        request: &PageRequest,
    ) -> PageResponse {
        let typed = request.query();
        let Some(typed) = typed.non_empty("user_code") else {
            return page_response(StatusCode::OK, session, &code_page(None));
        };
        if let Err(answer) = self.try_code(session, request) {
            return *answer;
        }
        let waiting = match UserCode::parse(typed) {
            None => Ok(None),
            Some(code) => oauth.sign_ins.pending(&code).await.map(|found| Some((code, found?))),
        };
        match waiting {
            Err(error) => unavailable(&error),
            Ok(None) => {
                let why = "No agent is waiting with this code: it has expired, was used, or was mistyped.";
                page_response(StatusCode::NOT_FOUND, session, &code_page(Some(why)))
            }
            Ok(Some((code, waiting))) => match self.key(session).await {
                Ok(key) => {
                    let asked = DevicePrompt {
                        code: &code,
                        seconds: waiting.seconds,
                        name: &key.name,
                        hint: &key.hint,
                    };
                    page_response(StatusCode::OK, session, &asked.page(&Forms::new(session, None)))
                }
                Err(refused) => page::refusal(refused.status(), &refused.to_string()),
            },
        }
    }

    fn try_code(&self, session: &BrowserSession<KeyOwner>, request: &PageRequest) -> Result<(), Box<PageResponse>> {
        let by_key = self.codes_of_keys.try_acquire(session.who.digest, request.now);
        let tried = self.codes.try_acquire(self.client(request), request.now).and(by_key);
        tried.map_err(|wait| {
            let seconds = wait.as_secs() + 1;
            let why = format!("Too many codes were tried: try again in {seconds} seconds.");
            Box::new(page::refusal(StatusCode::TOO_MANY_REQUESTS, &why))
        })
    }

    async fn decide(&self, session: &BrowserSession<KeyOwner>, request: &PageRequest) -> PageResponse {
        let form = request.form();
        if !is_genuine(session, request, &form) {
            return page::refusal(StatusCode::FORBIDDEN, NOT_GENUINE);
        }
        if let Err(answer) = self.try_code(session, request) {
            return *answer;
        }
        let is_approved = form.text("decision") == "approve";
        let work = async {
            self.check_present_text(session).await?;
            let user_code = form.text("user_code").parse();
            let question = DecideSignIn {
                id: session.who.key.clone(),
                user_code: user_code.map_err(|error: &str| AdminError::of_field("user_code", error))?,
                approve: is_approved,
            };
            self.request_change(session, question).await?;
            Ok::<_, AdminError>(page_response(StatusCode::OK, session, &decision_page(is_approved)))
        };
        match work.await {
            Ok(answer) => answer,
            Err(refused) => page::refusal(refused.status(), &refused.to_string()),
        }
    }
}

fn page_response(status: StatusCode, session: &BrowserSession<KeyOwner>, page: &HtmlPage) -> PageResponse {
    PageResponse::page(status, page::framed(Some(session), page))
}

/// Renders the page on which a code is entered. Its form uses GET, because it changes nothing.
fn code_page(why: Option<&str>) -> HtmlPage {
    let content = html! {
        @if let Some(why) = why { p class="card refused" role="alert" { (why) } }
        form method="get" action=(VERIFICATION) class="card fields" autocomplete="off" {
            label {
                span { "The code that the agent shows" }
                input type="text" name="user_code" required autofocus autocomplete="off" autocapitalize="characters"
                    spellcheck="false" placeholder="XXXX-XXXX";
            }
            button { "Continue" }
        }
        p class="pages" { a href="/portal" { "Back to the key" } }
    };
    titled("Sign an agent in", content)
}

/// The data that the page displays about an agent that waits for approval.
struct DevicePrompt<'a> {
    code: &'a UserCode,
    seconds: i64,
    name: &'a str,
    hint: &'a str,
}

impl DevicePrompt<'_> {
    fn page(&self, forms: &Forms<'_, KeyOwner>) -> HtmlPage {
        let code = self.code.to_string();
        let fields = html! {
            input type="hidden" name="user_code" value=(code);
            p {
                button name="decision" value="approve" { "Approve" } " "
                button name="decision" value="refuse" class="danger" { "Refuse" }
            }
        };
        let content = html! {
            section class="card" {
                p { "An agent requests to use your key " strong { (layout::name(self.name)) } ", which ends in " code { (self.hint) }
                    ". It began " (self.seconds) " seconds ago, and shows this code:" }
                p class="compare" { (code) }
                p { strong { "Approve only if you started this yourself, just now, and your agent shows exactly this code." }
                    " If somebody sent you a link or a code, they would be able to use your key." }
                (forms.form(VERIFICATION, "fields", &fields))
            }
        };
        titled("Sign an agent in", content)
    }
}

fn decision_page(is_approved: bool) -> HtmlPage {
    let content: Markup = html! {
        p class="card" role="status" {
            @if is_approved { "The agent will be signed in within seconds. You can go back to it and close this page." }
            @else { "The agent was refused." }
        }
        p class="pages" { a href="/portal" { "To the key" } }
    };
    titled(if is_approved { "Approved" } else { "Refused" }, content)
}

fn titled(title: &str, content: Markup) -> HtmlPage {
    HtmlPage {
        title: title.to_owned(),
        content,
    }
}
