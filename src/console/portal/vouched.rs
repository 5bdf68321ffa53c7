//! People whom the OpenID provider vouches for sign in without a key: each has one, which is made when they come first.

use http::{HeaderValue, StatusCode};
use maud::{Markup, html};

use super::{
    Owner, Portal, ROOT, page,
    people::{People, RETURN},
};
use crate::{
    console::{
        answer::Answer,
        ask::Ask,
        cookie,
        frame::Page,
        oauth::VERIFICATION,
        openid::{self, Failure, Person},
    },
    domain::{
        keys::{key::KeyState, template::PersonOf},
        sign_in::user_code::UserCode,
    },
};

/// Parts the text of a sign-in from the code of the agent that it is for, in the cookie.
const BEHIND: char = '.';

impl Portal {
    /// Sends the browser to the provider, by a page: a form may lead to its own site only.
    pub(super) async fn ask_provider(&self, people: &People, ask: &Ask) -> Answer {
        if let Err(refused) = self.admit(ask, None) {
            return *refused;
        }
        let begun = match people.openid.begin(&People::back(ask), ask.now).await {
            Ok(begun) => begun,
            Err(failure) => return self.failed(&failure),
        };
        let Ok(refresh) = HeaderValue::from_str(&format!("0; url={}", begun.to)) else {
            return self.failed(&Failure::Provider("its address cannot be sent to a browser".to_owned()));
        };
        let text = match UserCode::parse(ask.form().text("user_code")) {
            Some(code) => format!("{}{BEHIND}{}", begun.text, code.letters()),
            None => begun.text,
        };
        let content = html! {
            p class="card" { "You are being sent to " a href=(begun.to) { (people.openid.name()) } "." }
        };
        let page = shown(StatusCode::OK, "Sign in", content);
        page.going_on(refresh)
            .with_cookie(cookie::PORTAL_OPENID.set(&text, ask.way()))
    }

    /// The page that the provider sends the browser back to.
    pub(super) fn returned(ask: &Ask) -> Answer {
        let content = openid::returned::form(&ask.query(), RETURN, "Open the portal");
        shown(StatusCode::OK, "Sign in", content)
    }

    /// Begins a session by what the provider says.
    pub(super) async fn come_in(&self, people: &People, ask: &Ask) -> Answer {
        if let Err(refused) = self.admit(ask, None) {
            return *refused;
        }
        let over = cookie::PORTAL_OPENID.clear(ask.way());
        let kept = cookie::PORTAL_OPENID.read(&ask.headers, ask.way());
        let code = kept.and_then(|kept| UserCode::parse(kept.split_once(BEHIND)?.1));
        let text = kept.map(|kept| kept.split_once(BEHIND).map_or(kept, |(text, _)| text));
        let (back, form) = (People::back(ask), ask.form());
        let person = match people.openid.finish(&back, (&form, text), ask.now).await {
            Ok(person) => person,
            Err(failure) => return self.failed(&failure).with_cookie(over),
        };
        match self.owner(people, &person).await {
            Ok(owner) => {
                let next = code.map(|code| format!("{VERIFICATION}?user_code={code}"));
                let next = next.as_deref().unwrap_or(ROOT);
                self.begin(&owner, next, ask).await.with_cookie(over)
            }
            Err(refused) => refused.with_cookie(over),
        }
    }

    /// The person as the owner of their key.
    async fn owner(&self, people: &People, person: &Person) -> Result<Owner, Box<Answer>> {
        let groups = people.template.groups.as_deref();
        if !person.is_among(groups) {
            let content = html! {
                div class="card" role="alert" {
                    p { "The provider knows you as " bdi { (person.name) } ", and has you in none of the groups that get a key:" }
                    ul { @for group in groups.unwrap_or_default() { li { bdi { (group) } } } }
                    p { "Ask whoever keeps these groups to put you into one, and sign in again." }
                }
            };
            return Err(Box::new(shown(StatusCode::FORBIDDEN, "Nobody was signed in", content)));
        }
        let known = PersonOf {
            issuer: people.openid.issuer(),
            subject: &person.subject,
            name: &person.name,
        };
        let view = self.api.key_of(&known, &people.template).await;
        let view = view.map_err(|refused| Box::new(page::refusal(refused.status(), &refused.to_string())))?;
        if view.record.state != KeyState::Active {
            let why = "Your key was revoked. Ask whoever runs this service.";
            return Err(Box::new(page::refusal(StatusCode::FORBIDDEN, why)));
        }
        Ok(Owner {
            key: view.record.id,
            digest: view.digest,
        })
    }

    fn failed(&self, failure: &Failure) -> Answer {
        if let Some(why) = failure.told() {
            tracing::warn!(%why, "a sign-in at the portal by the OpenID provider has failed");
        }
        let content = html! {
            div class="card" role="alert" { (failure.page()) }
            p class="pages" { a href=(ROOT) { "To the portal" } }
        };
        shown(failure.status(), "Nobody was signed in", content)
    }
}

fn shown(status: StatusCode, title: &str, content: Markup) -> Answer {
    let page = Page {
        title: title.to_owned(),
        content,
    };
    Answer::page(status, page::framed::<()>(None, &page))
}
