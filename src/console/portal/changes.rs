//! What the owner of a key changes in the portal: its limits, its text, the agents that are signed in with it.

use http::StatusCode;

use super::{Owner, Portal, ROOT, page};
use crate::{
    admin::{Peer, ask::Answered, author::Author},
    api::{
        error::{AdminError, Code},
        keys::{EndOverlap, Key, KeyText, LowerKey},
        providers::ListModels,
        sessions::EndSignIns,
    },
    console::{answer::Answer, ask::Ask, fields::Fields, forms::changed, key_view, limits, rotation, session::Session},
    domain::keys::{
        change::{MadeFrom, NotChanged},
        key::KeyId,
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
            self.ask(session, EndSignIns { id }).await?;
            return Ok(Answer::see(ROOT));
        }
        let key = self.key(session).await?;
        if key_view::has_expired(&key) || key_view::is_used_up(&key) {
            return Err(AdminError::new(
                Code::Forbidden,
                "This key is used up or has expired: it can be looked at, and only an operator can change it.",
            ));
        }
        let id = key.id;
        match at {
            ["rotate"] => {
                let made = self.ask(session, rotation::question(session, id, form)?).await?;
                return Ok(self.rotated(session, &made, &ask.base()).await);
            }
            ["end-overlap"] => self.ask(session, EndOverlap { id }).await?,
            _ => self.ask(session, lowered(id, form)?).await?,
        };
        Ok(Answer::see(ROOT))
    }

    /// Asks for a change of the session's key, as long as the session was opened with its present text.
    pub(super) async fn ask<Q: Answered>(
        &self,
        session: &Session<Owner>,
        question: Q,
    ) -> Result<Q::Answer, AdminError> {
        let Owner { key, digest } = &session.who;
        let author = Author {
            peer: Peer::Owner(key.clone()),
            from: MadeFrom::Text(*digest),
        };
        self.api.ask(author, question).await
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
    async fn rotated(&self, session: &Session<Owner>, made: &Key, base: &str) -> Answer {
        let text = made.key.as_ref().map_or("", KeyText::expose);
        if let Ok(key) = ServiceKey::parse(&self.prefix, text) {
            let owner = Owner {
                digest: key.digest(),
                ..session.who.clone()
            };
            // Where the store is away now, its owner signs in again, with the new text.
            let _ = self.sessions.becomes(session, &owner).await;
        }
        // The key has its new text: whatever cannot be read now, that is shown.
        let listed = self.look(session, ListModels {}).await;
        let page = page::rotated(made, &listed.unwrap_or_default().models, base);
        Answer::page(StatusCode::OK, page::framed(Some(session), &page))
    }
}

/// The limits that were changed.
fn lowered(id: KeyId, form: &Fields) -> Result<LowerKey, AdminError> {
    let [rpm, tpm, concurrency] = limits::changed_rates(form)?;
    Ok(LowerKey {
        id,
        expires_at: changed(form, "expires_at")?,
        quota_usd: changed(form, "quota_usd")?,
        rpm,
        tpm,
        concurrency,
    })
}
