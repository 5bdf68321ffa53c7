//! The key of a person whom the OpenID provider vouches for, made when they come first.

use serde_json::json;

use super::{add, fresh, models};
use crate::{
    admin::{accounts, peer::Peer, reply::AdminError, state::Admin},
    domain::keys::template::{KeyTemplate, PersonOf},
    edges::clock,
    store::KeyView,
};

/// Their key as it stands, or a new one. Its text is nobody's: they get another one by rotating it. Of two that come at the same
/// time, at whichever nodes, one makes it and both get it.
pub(in crate::admin) async fn of_person(
    state: &Admin,
    person: &PersonOf<'_>,
    template: &KeyTemplate,
) -> Result<KeyView, AdminError> {
    let id = person.key();
    if let Some(view) = state.store.by_id(&id).await? {
        return Ok(view);
    }
    accounts::existing(state, &template.account).await?;
    let (text, _) = fresh(state);
    let mut record = template.record(person, text.hint(), clock::unix_seconds());
    record.models = models(state, record.models.take())?;
    let values = json!({ "name": record.name, "account": record.account, "template": true });
    let peer = Peer::Person {
        subject: person.subject.into(),
        name: person.name.into(),
    };
    // Who came second finds the key that was made in between. The audit record has a line too many then.
    match add(state, peer, text.digest(), record, values).await {
        Ok(view) => Ok(view),
        Err(refused) => {
            let made = state.store.by_id(&id).await?;
            made.ok_or(refused)
        }
    }
}
