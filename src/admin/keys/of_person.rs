//! The key of a user of the OpenID provider, which is made at their first sign-in.

use serde_json::json;

use super::{create_key, random_text, resolve_models};
use crate::{
    admin::{Admin, accounts, peer::AdminPeer},
    api::error::AdminError,
    domain::keys::template::{KeyTemplate, OidcIdentity},
    edges::clock,
    store::KeyView,
};

/// The person's key, or a new one. Nobody gets its text: the person gets one by rotating the key. If the person signs in at two
/// nodes at the same time, one of them makes the key and both get it.
async fn find_or_create_key(
    admin: &Admin,
    person: &OidcIdentity<'_>,
    template: &KeyTemplate,
) -> Result<KeyView, AdminError> {
    let id = person.key_id();
    if let Some(view) = admin.store.by_id(&id).await? {
        return Ok(view);
    }
    accounts::existing_account(admin, &template.account).await?;
    let text = random_text(admin);
    let mut record = template.record(person, text.hint(), clock::unix_seconds());
    record.models = resolve_models(admin, record.models.take())?;
    let values = json!({ "name": record.name, "account": record.account, "template": true });
    let peer = AdminPeer::Person {
        subject: person.subject.into(),
        name: person.name.into(),
    };
    // The second of two finds the key that the first one made. The audit record then has one line too many.
    match create_key(admin, peer, text.digest(), record, &values).await {
        Ok(view) => Ok(view),
        Err(refused) => {
            let made = admin.store.by_id(&id).await?;
            made.ok_or(refused)
        }
    }
}

impl Admin {
    /// The key of a person who has just signed in by the OpenID provider; it is created if it is missing. Not a question of the
    /// API: only pages of this process may call it.
    ///
    /// # Errors
    /// The key cannot be read or created.
    pub(crate) async fn key_for_person(
        &self,
        person: &OidcIdentity<'_>,
        template: &KeyTemplate,
    ) -> Result<KeyView, AdminError> {
        let _change = self.changes_seen.begin();
        find_or_create_key(self, person, template).await
    }
}
