//! Where the owner of a key lets an agent use it: they compare the code that the agent shows, and approve or refuse.
//!
//! Nothing is approved by opening an address. Whoever sends a victim their own code (RFC 8628, section 5.4) meets the words of
//! this page; codes that are guessed meet a limit for each address and each key.

use http::{Method, StatusCode};
use maud::{Markup, html};

use super::{Owner, Portal, page, unavailable};
use crate::{
    api::{error::AdminError, sessions::DecideSignIn},
    console::{
        answer::Answer,
        ask::Ask,
        forms::{Forms, NOT_GENUINE, is_genuine},
        frame::Page,
        oauth::{OAuth, VERIFICATION},
        session::Session,
        view,
    },
    domain::sign_in::user_code::UserCode,
};

impl Portal {
    /// The page on which a code is typed, or decided on.
    pub(super) async fn device(&self, oauth: &OAuth, ask: &Ask) -> Answer {
        let session = match self.signed_in(ask).await {
            Ok((_, session)) => session,
            Err(refused) => return *refused,
        };
        match ask.method {
            Method::GET => self.ask_for(oauth, &session, ask).await,
            Method::POST => self.decide(&session, ask).await,
            _ => {
                let why = "This page is read with GET, and its form is sent with POST.";
                page::refusal(StatusCode::METHOD_NOT_ALLOWED, why).allowing("GET, HEAD, POST")
            }
        }
    }

    async fn ask_for(&self, oauth: &OAuth, session: &Session<Owner>, ask: &Ask) -> Answer {
        let typed = ask.query();
        let Some(typed) = typed.given("user_code") else {
            return shown(StatusCode::OK, session, &typing(None));
        };
        if let Err(answer) = self.try_code(session, ask) {
            return *answer;
        }
        let waiting = match UserCode::parse(typed) {
            None => Ok(None),
            Some(code) => oauth.sign_ins.waiting(&code).await.map(|found| Some((code, found?))),
        };
        match waiting {
            Err(error) => unavailable(&error),
            Ok(None) => {
                let why = "No agent waits with this code: it has expired, was used, or was mistyped.";
                shown(StatusCode::NOT_FOUND, session, &typing(Some(why)))
            }
            Ok(Some((code, waiting))) => match self.key(session).await {
                Ok(key) => {
                    let asked = Asked {
                        code: &code,
                        seconds: waiting.seconds,
                        name: &key.name,
                        hint: &key.hint,
                    };
                    shown(StatusCode::OK, session, &asked.deciding(&Forms::new(session, None)))
                }
                Err(refused) => page::refusal(refused.status(), &refused.to_string()),
            },
        }
    }

    fn try_code(&self, session: &Session<Owner>, ask: &Ask) -> Result<(), Box<Answer>> {
        let by_key = self.codes_of_keys.try_acquire(session.who.digest, ask.now);
        let tried = self.codes.try_acquire(self.client(ask), ask.now).and(by_key);
        tried.map_err(|wait| {
            let seconds = wait.as_secs() + 1;
            let why = format!("Too many codes were tried: try again in {seconds} seconds.");
            Box::new(page::refusal(StatusCode::TOO_MANY_REQUESTS, &why))
        })
    }

    async fn decide(&self, session: &Session<Owner>, ask: &Ask) -> Answer {
        let form = ask.form();
        if !is_genuine(session, ask, &form) {
            return page::refusal(StatusCode::FORBIDDEN, NOT_GENUINE);
        }
        if let Err(answer) = self.try_code(session, ask) {
            return *answer;
        }
        let is_approved = form.text("decision") == "approve";
        let work = async {
            self.is_by_present_text(session).await?;
            let user_code = form.text("user_code").parse();
            let question = DecideSignIn {
                id: session.who.key.clone(),
                user_code: user_code.map_err(|error: &str| AdminError::of_field("user_code", error))?,
                approve: is_approved,
            };
            self.ask(session, question).await?;
            Ok::<_, AdminError>(shown(StatusCode::OK, session, &decided(is_approved)))
        };
        match work.await {
            Ok(answer) => answer,
            Err(refused) => page::refusal(refused.status(), &refused.to_string()),
        }
    }
}

fn shown(status: StatusCode, session: &Session<Owner>, page: &Page) -> Answer {
    Answer::page(status, page::framed(Some(session), page))
}

/// Where a code is typed. A GET: it changes nothing.
fn typing(why: Option<&str>) -> Page {
    let content = html! {
        @if let Some(why) = why { p class="card refused" role="alert" { (why) } }
        form method="get" action=(VERIFICATION) class="card fields" autocomplete="off" {
            label {
                span { "The code that the agent shows" }
                input type="text" name="user_code" required autofocus autocomplete="off" autocapitalize="characters"
                    spellcheck="false" placeholder="XXXX-XXXX";
            }
            button { "Go on" }
        }
        p class="pages" { a href="/portal" { "Back to the key" } }
    };
    titled("Sign an agent in", content)
}

/// What is decided on.
struct Asked<'a> {
    code: &'a UserCode,
    seconds: i64,
    name: &'a str,
    hint: &'a str,
}

impl Asked<'_> {
    fn deciding(&self, forms: &Forms<'_, Owner>) -> Page {
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
                p { "An agent asks to use your key " strong { (view::name(self.name)) } ", which ends in " code { (self.hint) }
                    ". It began " (self.seconds) " seconds ago and shows this code:" }
                p class="compare" { (code) }
                p { strong { "Approve only if you have started this yourself, just now, and your agent shows the very same code." }
                    " Whoever has sent you a link or a code would use your key." }
                (forms.form(VERIFICATION, "fields", &fields))
            }
        };
        titled("Sign an agent in", content)
    }
}

fn decided(is_approved: bool) -> Page {
    let content: Markup = html! {
        p class="card" role="status" {
            @if is_approved { "The agent is signed in within seconds. Go back to it; this page can be closed." }
            @else { "The agent was refused." }
        }
        p class="pages" { a href="/portal" { "To the key" } }
    };
    titled(if is_approved { "Approved" } else { "Refused" }, content)
}

fn titled(title: &str, content: Markup) -> Page {
    Page {
        title: title.to_owned(),
        content,
    }
}
