//! The key of a person whom the OpenID provider vouches for, made when they come first.

use serde_json::json;

use super::{add, fresh, models};
use crate::{
    admin::{Admin, accounts, peer::Peer},
    api::error::AdminError,
    domain::keys::template::{KeyTemplate, PersonOf},
    edges::clock,
    store::KeyView,
};

/// Their key as it stands, or a new one. Its text is nobody's: they get another one by rotating it. Of two that come at the same
/// time, at whichever nodes, one makes it and both get it.
async fn of_person(admin: &Admin, person: &PersonOf<'_>, template: &KeyTemplate) -> Result<KeyView, AdminError> {
    let id = person.key();
    if let Some(view) = admin.store.by_id(&id).await? {
        return Ok(view);
    }
    accounts::existing(admin, &template.account).await?;
    let text = fresh(admin);
    let mut record = template.record(person, text.hint(), clock::unix_seconds());
    record.models = models(admin, record.models.take())?;
    let values = json!({ "name": record.name, "account": record.account, "template": true });
    let peer = Peer::Person {
        subject: person.subject.into(),
        name: person.name.into(),
    };
    // Who came second finds the key that was made in between. The audit record has a line too many then.
    match add(admin, peer, text.digest(), record, &values).await {
        Ok(view) => Ok(view),
        Err(refused) => {
            let made = admin.store.by_id(&id).await?;
            made.ok_or(refused)
        }
    }
}

impl Admin {
    /// The key of a person whom the OpenID provider has just vouched for, made if need be. Only pages of this process can ask.
    ///
    /// # Errors
    /// It cannot be looked up, or not be made.
    pub(crate) async fn key_of(&self, person: &PersonOf<'_>, template: &KeyTemplate) -> Result<KeyView, AdminError> {
        let _change = self.changes_seen.begin();
        of_person(self, person, template).await
    }
}
