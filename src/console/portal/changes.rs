//! The changes that the owner of a key can make in the portal: lower limits, rotate the key, and end the sign-ins of agents.

use http::StatusCode;

use super::{KeyOwner, Portal, ROOT, page};
use crate::{
    admin::{AdminPeer, errors::AdminHandler, peer::Author},
    api::{
        error::{AdminError, AdminErrorCode},
        keys::{EndOverlap, KeyDetails, KeyText, LowerKey},
        node::ListModels,
        sessions::EndSignIns,
    },
    console::{
        forms::changed_value,
        key_page,
        layout::PageResponse,
        request::{FormFields, PageRequest},
        session::BrowserSession,
    },
    domain::keys::{
        change::{ChangePrecondition, KeyChangeError},
        key::KeyId,
        secret::ServiceKey,
    },
};

impl Portal {
    pub(super) async fn change(
        &self,
        session: &BrowserSession<KeyOwner>,
        at: &[&str],
        form: &FormFields,
        request: &PageRequest,
    ) -> Result<PageResponse, AdminError> {
        self.check_present_text(session).await?;
        if let ["agents"] = at {
            let id = session.who.key.clone();
            self.request_change(session, EndSignIns { id }).await?;
            return Ok(PageResponse::redirect(ROOT));
        }
        let key = self.key(session).await?;
        if key_page::has_expired(&key) || key_page::is_used_up(&key) {
            return Err(AdminError::new(
                AdminErrorCode::Forbidden,
                "This key is used up or has expired: only an operator can change it.",
            ));
        }
        let id = key.id;
        match at {
            ["rotate"] => {
                let made = self
                    .request_change(session, key_page::read_rotation(session, id, form)?)
                    .await?;
                return Ok(self.rotated(session, &made, &request.base()).await);
            }
            ["end-overlap"] => self.request_change(session, EndOverlap { id }).await?,
            _ => self.request_change(session, read_lower(id, form)?).await?,
        };
        Ok(PageResponse::redirect(ROOT))
    }

    /// Makes a change of the session's key. It is refused if the session was not opened with the key's current secret.
    pub(super) async fn request_change<Q: AdminHandler>(
        &self,
        session: &BrowserSession<KeyOwner>,
        question: Q,
    ) -> Result<Q::Answer, AdminError> {
        let KeyOwner { key, digest } = &session.who;
        let author = Author {
            peer: AdminPeer::Owner(key.clone()),
            from: ChangePrecondition::Text(*digest),
        };
        self.api.call(author, question).await
    }

    /// Refuses changes by a session that was opened with a former secret of the key. Such a session can only read and sign out.
    /// This is checked first; the store checks it again together with the change.
    pub(super) async fn check_present_text(&self, session: &BrowserSession<KeyOwner>) -> Result<(), AdminError> {
        let view = self.keys.by_id(&session.who.key).await?;
        let from = ChangePrecondition::Text(session.who.digest);
        let present = view.map_or(Err(KeyChangeError::OldText), |view| view.check_precondition(&from));
        Ok(present?)
    }

    /// Moves the session to the key's new secret, and displays the secret once.
    async fn rotated(&self, session: &BrowserSession<KeyOwner>, made: &KeyDetails, base: &str) -> PageResponse {
        let text = made.key.as_ref().map_or("", KeyText::expose);
        if let Ok(key) = ServiceKey::parse(&self.prefix, text) {
            let owner = KeyOwner {
                digest: key.digest(),
                ..session.who.clone()
            };
            // If this fails, the owner has to sign in again with the new secret.
            let _ = self.sessions.set_person(session, &owner).await;
        }
        // The key has its new secret at this point, so it is displayed even if the models cannot be read.
        let listed = self.fetch(session, ListModels {}).await;
        let page = page::rotated_page(made, &listed.unwrap_or_default().models, base);
        PageResponse::page(StatusCode::OK, page::framed(Some(session), &page))
    }
}

/// Returns the call that lowers the limits which the form has changed.
fn read_lower(id: KeyId, form: &FormFields) -> Result<LowerKey, AdminError> {
    let [rpm, tpm, concurrency] = key_page::changed_rates(form)?;
    Ok(LowerKey {
        id,
        expires_at: changed_value(form, "expires_at")?,
        quota_usd: changed_value(form, "quota_usd")?,
        rpm,
        tpm,
        concurrency,
    })
}
