//! The sign-in of users at the portal with the OpenID provider, without a key. Each user has one key, which is created at the
//! first sign-in.

use http::{HeaderValue, StatusCode};
use maud::{Markup, html};

use crate::{
    console::{
        layout::{HtmlPage, PageResponse},
        oauth::VERIFICATION,
        openid::{self, OpenId, Person, SignInFailure},
        portal::{KeyOwner, Portal, ROOT, page},
        request::PageRequest,
        session,
    },
    domain::{
        keys::{
            KeyState,
            change::{KeyTemplate, OidcIdentity},
        },
        sign_in::device_request::UserCode,
    },
};

/// The character that separates the two parts of the cookie's value: the random string of the sign-in, and the code of the agent
/// that waits for approval.
const CODE_SEPARATOR: char = '.';

impl Portal {
    /// Sends the browser to the OpenID provider. The answer is a page whose header `refresh` contains the provider's address. A
    /// redirect is not possible, because the user has sent the form of the sign-in page, and the page's content security policy
    /// permits no redirect of a form to another site.
    pub(super) async fn redirect_to_provider(&self, people: &OidcSignIn, request: &PageRequest) -> PageResponse {
        if let Err(refused) = self.admit(request, None) {
            return *refused;
        }
        let begun = match people.openid.begin(&OidcSignIn::return_url(request), request.now).await {
            Ok(begun) => begun,
            Err(failure) => return self.failure_page(&failure),
        };
        let Ok(refresh) = HeaderValue::from_str(&format!("0; url={}", begun.to)) else {
            return self.failure_page(&SignInFailure::Provider(
                "its address cannot be sent in a header".to_owned(),
            ));
        };
        let text = match UserCode::parse(request.form().text("user_code")) {
            Some(code) => format!("{}{CODE_SEPARATOR}{}", begun.text, code.letters()),
            None => begun.text,
        };
        let content = html! {
            p class="card" { "You are being sent to " a href=(begun.to) { (people.openid.name()) } "." }
        };
        let page = page_response(StatusCode::OK, "Sign in", content);
        page.with_refresh(refresh)
            .with_cookie(session::PORTAL_OPENID.set(&text, request.connection_security()))
    }

    /// Renders the page to which the OpenID provider sends the browser back.
    pub(super) fn return_page(request: &PageRequest) -> PageResponse {
        let content = openid::return_form(&request.query(), RETURN, "Open the portal");
        page_response(StatusCode::OK, "Sign in", content)
    }

    /// Finishes a sign-in at the OpenID provider, and opens a session.
    pub(super) async fn finish_oidc_sign_in(&self, people: &OidcSignIn, request: &PageRequest) -> PageResponse {
        if let Err(refused) = self.admit(request, None) {
            return *refused;
        }
        let over = session::PORTAL_OPENID.clear(request.connection_security());
        let kept = session::PORTAL_OPENID.read(&request.headers, request.connection_security());
        let code = kept.and_then(|kept| UserCode::parse(kept.split_once(CODE_SEPARATOR)?.1));
        let text = kept.map(|kept| kept.split_once(CODE_SEPARATOR).map_or(kept, |(text, _)| text));
        let (back, form) = (OidcSignIn::return_url(request), request.form());
        let person = match people.openid.finish(&back, (&form, text), request.now).await {
            Ok(person) => person,
            Err(failure) => return self.failure_page(&failure).with_cookie(over),
        };
        match self.owner_of_person(people, &person).await {
            Ok(owner) => {
                let next = code.map(|code| format!("{VERIFICATION}?user_code={code}"));
                let next = next.as_deref().unwrap_or(ROOT);
                self.begin(&owner, next, request).await.with_cookie(over)
            }
            Err(refused) => refused.with_cookie(over),
        }
    }

    /// Returns the owner of the user's key, and creates the key if it does not exist.
    async fn owner_of_person(&self, people: &OidcSignIn, person: &Person) -> Result<KeyOwner, Box<PageResponse>> {
        let groups = people.template.groups.as_deref();
        if !person.is_in_any(groups) {
            let content = html! {
                div class="card" role="alert" {
                    p { "The provider knows you as " bdi { (person.name) } ", and you are in none of the groups that get a key:" }
                    ul { @for group in groups.unwrap_or_default() { li { bdi { (group) } } } }
                    p { "Ask the administrator of these groups to add you to one, and sign in again." }
                }
            };
            return Err(Box::new(page_response(
                StatusCode::FORBIDDEN,
                "Nobody was signed in",
                content,
            )));
        }
        let known = OidcIdentity {
            issuer: people.openid.issuer(),
            subject: &person.subject,
            name: &person.name,
        };
        let view = self.api.key_for_person(&known, &people.template).await;
        let view = view.map_err(|refused| Box::new(page::refusal(refused.status(), &refused.to_string())))?;
        if view.record.state != KeyState::Active {
            let why = "Your key was revoked. Ask the operator of this service.";
            return Err(Box::new(page::refusal(StatusCode::FORBIDDEN, why)));
        }
        Ok(KeyOwner {
            key: view.record.id,
            digest: view.digest,
        })
    }

    fn failure_page(&self, failure: &SignInFailure) -> PageResponse {
        if let Some(why) = failure.log_text() {
            tracing::warn!(%why, "a sign-in at the portal through the OpenID provider failed");
        }
        let content = html! {
            div class="card" role="alert" { (failure.markup()) }
            p class="pages" { a href=(ROOT) { "To the portal" } }
        };
        page_response(failure.status(), "Nobody was signed in", content)
    }
}

fn page_response(status: StatusCode, title: &str, content: Markup) -> PageResponse {
    let page = HtmlPage {
        title: title.to_owned(),
        content,
    };
    PageResponse::page(status, page::framed::<()>(None, &page))
}

/// The path of the portal to which the OpenID provider sends the browser back.
pub(super) const RETURN: &str = "/portal/openid/return";

/// The OpenID provider with which users sign in, and the template of their keys.
pub(crate) struct OidcSignIn {
    pub(super) openid: OpenId,
    pub(super) template: KeyTemplate,
}

impl OidcSignIn {
    /// Creates the sign-in with `openid`. Keys are created from `template`.
    pub(crate) fn new(openid: OpenId, template: KeyTemplate) -> Self {
        Self { openid, template }
    }

    /// Returns the URL to which the OpenID provider must send this request's browser back.
    pub(super) fn return_url(request: &PageRequest) -> String {
        format!("{}{RETURN}", request.base())
    }
}
