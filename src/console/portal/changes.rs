//! What the owner of a key changes in the portal: its limits, its text, the agents that are signed in with it.

use http::{Method, StatusCode};
use serde_json::{Map, Value, json};

use super::{Owner, Portal, ROOT, page};
use crate::{
    console::{
        answer::Answer, ask::Ask, desk::below, fields::Fields, forms::is_changed, key_view, limits, rotation,
        session::Session, view,
    },
    domain::keys::secret::ServiceKey,
    side::admin::{Peer, local::Refused},
};

impl Portal {
    pub(super) async fn change(
        &self,
        session: &Session<Owner>,
        at: &[&str],
        form: &Fields,
        ask: &Ask,
    ) -> Result<Answer, Refused> {
        self.is_by_present_text(session).await?;
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
                .call(peer, Method::POST, &below(&path, "rotate"), Some(&rotation::body(form)))
                .await?;
            return Ok(self.rotated(session, &made, &ask.base()).await);
        }
        if let ["end-overlap"] = at {
            let path = below(&path, "end-overlap");
            self.api.call(peer, Method::POST, &path, Some(&json!({}))).await?;
            return Ok(Answer::see(ROOT));
        }
        let body = Value::Object(lowered(form)?);
        self.api
            .call(peer, Method::POST, &below(&path, "lower"), Some(&body))
            .await?;
        Ok(Answer::see(ROOT))
    }

    /// Whoever has only the text of before looks, and changes nothing: it ends, and gives nothing that would last longer.
    pub(super) async fn is_by_present_text(&self, session: &Session<Owner>) -> Result<(), Refused> {
        let view = self.keys.by_id(&session.who.key).await.map_err(|error| Refused {
            status: StatusCode::SERVICE_UNAVAILABLE,
            message: error.to_string(),
        })?;
        match view.is_some_and(|view| view.digest == session.who.digest) {
            true => Ok(()),
            false => Err(Refused {
                status: StatusCode::FORBIDDEN,
                message: "This session was opened with the key's old text: sign in with the new one to change the key."
                    .to_owned(),
            }),
        }
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
        let models = self.read(session, "/v1/models").await.unwrap_or_default();
        let page = page::rotated(made, &models, base);
        Answer::page(StatusCode::OK, page::framed(Some(session), &page))
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
