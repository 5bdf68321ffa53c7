//! What the owner of a key changes in the portal: its limits, its text, the agents that are signed in with it.

use http::{Method, StatusCode};
use serde_json::{Map, Value, json};

use super::{Owner, Portal, ROOT, page};
use crate::{
    admin::{Peer, author::Author},
    api::{
        error::{AdminError, Code},
        providers::ListModels,
        sessions::EndSignIns,
    },
    console::{
        answer::Answer, ask::Ask, desk::below, fields::Fields, forms::is_changed, key_view, limits, rotation,
        session::Session, view,
    },
    domain::keys::{
        change::{MadeFrom, NotChanged},
        secret::ServiceKey,
    },
};

impl Portal {
    pub(super) async fn change(
        &self,
        session: &Session<Owner>,
        at: &[&str],
        form: &Fields,
        ask: &Ask,
    ) -> Result<Answer, AdminError> {
        self.is_by_present_text(session).await?;
        if let ["agents"] = at {
            let id = session.who.key.clone();
            self.api.admin().ask(Self::author(session), EndSignIns { id }).await?;
            return Ok(Answer::see(ROOT));
        }
        let key = self.key(session).await?;
        if key_view::has_expired(&key) || key_view::is_used_up(&key) {
            return Err(AdminError::new(
                Code::Forbidden,
                "This key is used up or has expired: it can be looked at, and only an operator can change it.",
            ));
        }
        match at {
            ["rotate"] => {
                let made = self.ask(session, Method::POST, "rotate", &rotation::body(form)).await?;
                return Ok(self.rotated(session, &made, &ask.base()).await);
            }
            ["end-overlap"] => self.ask(session, Method::POST, "end-overlap", &json!({})).await?,
            _ => {
                let body = Value::Object(lowered(form)?);
                self.ask(session, Method::POST, "lower", &body).await?
            }
        };
        Ok(Answer::see(ROOT))
    }

    /// Asks the admin API to change the session's key, as long as the session was opened with its present text.
    pub(super) async fn ask(
        &self,
        session: &Session<Owner>,
        method: Method,
        action: &str,
        body: &Value,
    ) -> Result<Value, AdminError> {
        let path = below(&below("/v1/keys", session.who.key.as_str()), action);
        let Author { peer, from } = Self::author(session);
        self.api.change((peer, from), method, &path, Some(body)).await
    }

    /// The owner of the key, as long as the key has the text that the session was opened with.
    pub(super) fn author(session: &Session<Owner>) -> Author {
        let Owner { key, digest } = &session.who;
        Author {
            peer: Peer::Owner(key.clone()),
            from: MadeFrom::Text(*digest),
        }
    }

    /// Whoever has only the text of before looks, and changes nothing: it ends, and gives nothing that would last longer. Says so
    /// before anything else is looked at; the store decides it again with the change.
    pub(super) async fn is_by_present_text(&self, session: &Session<Owner>) -> Result<(), AdminError> {
        let view = self.keys.by_id(&session.who.key).await?;
        let from = MadeFrom::Text(session.who.digest);
        let present = view.map_or(Err(NotChanged::OldText), |view| view.check_made_from(&from));
        Ok(present?)
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
        // The key has its new text: whatever cannot be read now, that is shown.
        let listed = self.api.admin().ask(Self::author(session), ListModels {}).await;
        let page = page::rotated(made, &listed.unwrap_or_default().models, base);
        Answer::page(StatusCode::OK, page::framed(Some(session), &page))
    }
}

/// The limits that were changed, for the admin API.
fn lowered(form: &Fields) -> Result<Map<String, Value>, AdminError> {
    let mut body = Map::new();
    for field in ["quota_usd", "expires_at"] {
        if is_changed(form, field) {
            body.insert(field.to_owned(), json!(form.given(field)));
        }
    }
    limits::changed_rates(form, &mut body)?;
    Ok(body)
}
