//! Keys in the admin API: create, list, show, update, rotate, revoke, delete.

pub(super) mod listing;
mod of_person;

use serde::Serialize;
use sha2::{Digest, Sha256};

use super::{Admin, accounts, ask::Answered, author::Author, peer::Peer};
use crate::{
    api::{
        error::AdminError,
        keys::{
            CreateKey, DeleteKey, DeletedKey, EndOverlap, Key, LowerKey, Overlap, RevokeKey, RotateKey, ShowKey,
            UpdateKey,
        },
        names::{KeyName, ModelNames, Seed},
        values::Moment,
    },
    domain::{
        keys::{
            change::{ChangedBy, KeyChange, KeyUpdate, MadeFrom, NotChanged},
            key::{KeyId, KeyRecord, KeyState},
            rotation::{OVERLAP_DEFAULT_SECONDS, Rotation, TOLD_AGAIN_SECONDS},
            secret::{KeyDigest, ServiceKey},
        },
        ledger::KeyTerms,
        money::NanoUsd,
    },
    edges::clock,
    money::account_changes::AccountChangeError,
    store::{KeyView, StoreError},
};

impl Answered for CreateKey {
    async fn answer(self, admin: &Admin, author: Author) -> Result<Key, AdminError> {
        let now = clock::unix_seconds();
        accounts::existing(admin, self.account.as_str()).await?;
        let terms = self.terms().apply(KeyTerms::default());
        check_quota(terms.quota)?;
        check_end(self.expires_at, now)?;
        if terms.lacks_quota() {
            return Err(NotChanged::ResetWithoutQuota.into());
        }
        let text = match (&self.operation_id, &self.seed) {
            (Some(operation), Some(seed)) => text_of(admin, seed, operation.as_str()),
            (None, Some(_)) => return Err(AdminError::of_field("seed", "it needs an operation_id beside it")),
            (_, None) => fresh(admin),
        };
        let id = match &self.operation_id {
            None => KeyId::generate(&mut rand::rng()),
            Some(operation) => KeyId::of_digest(&Sha256::digest(operation.as_str()).into()),
        };
        if self.operation_id.is_some()
            && let Some(view) = admin.store.by_id(&id).await?
        {
            return show_text_again(admin, &view, &text).await;
        }
        let names = self.models.as_ref().map(|ModelNames(names)| names.clone());
        let KeyName(name) = &self.name;
        let record = KeyRecord {
            id,
            name: name.clone(),
            account: self.account.as_str().into(),
            created_at: now,
            expires_at: self.expires_at.map(Moment::seconds),
            models: models(admin, names)?,
            state: KeyState::Active,
            hint: text.hint(),
            revision: 0,
            terms,
            former: None,
            text_since: None,
        };
        let id = record.id.clone();
        let recorded = Self { seed: None, ..self };
        match add(admin, author.peer, text.digest(), record, &recorded).await {
            Ok(view) => Ok(shown(admin, &view).await.with_text(&text)),
            // Asked for at two nodes at the same time: one has made it.
            Err(refused) => match admin.store.by_id(&id).await? {
                Some(view) if view.digest == text.digest() => show_text_again(admin, &view, &text).await,
                _ => Err(refused),
            },
        }
    }
}

/// A key whose text was made already, with this text if it has it for so short a time that whoever asks again may have lost the
/// answer.
async fn show_text_again(admin: &Admin, view: &KeyView, text: &ServiceKey) -> Result<Key, AdminError> {
    let record = &view.record;
    let since = record.text_since.unwrap_or(record.created_at);
    let is_new = clock::unix_seconds() < since.saturating_add(TOLD_AGAIN_SECONDS);
    if view.digest == text.digest() && is_new {
        return Ok(shown(admin, view).await.with_text(text));
    }
    Err(AdminError::conflict(format!(
        "this operation has made the text of key {} already, and it was told to whoever asked first: rotate the key for a new one, or \
         delete it",
        record.id
    )))
}

/// Makes a key, recorded with what was asked for.
async fn add(
    admin: &Admin,
    peer: Peer,
    digest: KeyDigest,
    record: KeyRecord,
    values: &(impl Serialize + Sync),
) -> Result<KeyView, AdminError> {
    admin.audit(peer, "key.create", record.id.as_str(), values).await?;
    admin.store.create(&digest, &record).await?;
    if let Err(error) = admin.changes.key_changed(&digest, &record).await {
        // Nobody has seen it yet. Where this fails too, a key stays that nobody has.
        let _ = admin.store.delete(&record.id, &MadeFrom::Anything).await;
        return Err(error.into());
    }
    Ok(KeyView {
        digest,
        record,
        last_used: None,
    })
}

/// A key with what it has spent; a store that does not tell leaves that out.
async fn shown(admin: &Admin, view: &KeyView) -> Key {
    let spend = admin.ledger.key_spend(&view.record.account, &view.record.id).await;
    Key::of(view, spend.ok().as_ref(), clock::unix_millis())
}

/// Makes a change, recorded with these values, and shows the key after it. A change that the key as it is refuses is not recorded.
async fn make(
    admin: &Admin,
    author: Author,
    key_id: &KeyId,
    change: &KeyChange,
    (operation, values): (&'static str, &(impl Serialize + Sync)),
) -> Result<Key, AdminError> {
    existing(admin, key_id).await?.after(change, &author.from)?;
    admin.audit(author.peer, operation, key_id.as_str(), values).await?;
    let view = admin.store.change(key_id, change, &author.from).await?;
    let noted = admin.changes.key_changed(&view.digest, &view.record).await;
    noted.map_err(|error| unsure(&error))?;
    Ok(shown(admin, &view).await)
}

/// The store has made the change, and might yet lose it.
fn unsure(error: &AccountChangeError) -> AdminError {
    AdminError::failed(format!(
        "the key was changed, but a failover of the store could undo it: {error}; then do it again"
    ))
}

async fn existing(admin: &Admin, id: &KeyId) -> Result<KeyView, StoreError> {
    admin.store.by_id(id).await?.ok_or(StoreError::NotFound)
}

impl Answered for ShowKey {
    async fn answer(self, admin: &Admin, _: Author) -> Result<Key, AdminError> {
        Ok(shown(admin, &existing(admin, &self.id).await?).await)
    }
}

impl Answered for UpdateKey {
    async fn answer(self, admin: &Admin, author: Author) -> Result<Key, AdminError> {
        let mut update = self.update();
        check_end(self.expires_at.flatten(), clock::unix_seconds())?;
        if let Some(names) = update.models {
            update.models = Some(models(admin, names)?);
        }
        set(
            admin,
            author,
            &self.id,
            (update, ChangedBy::Operator),
            ("key.update", &self),
        )
        .await
    }
}

/// Asked by the owner of a key, who can never raise a limit.
impl Answered for LowerKey {
    async fn answer(self, admin: &Admin, author: Author) -> Result<Key, AdminError> {
        check_end(self.expires_at.flatten(), clock::unix_seconds())?;
        set(
            admin,
            author,
            &self.id,
            (self.update(), ChangedBy::Owner),
            ("key.lower", &self),
        )
        .await
    }
}

/// Sets the values that an update names.
async fn set(
    admin: &Admin,
    author: Author,
    id: &KeyId,
    (update, by): (KeyUpdate, ChangedBy),
    recorded: (&'static str, &(impl Serialize + Sync)),
) -> Result<Key, AdminError> {
    if update == KeyUpdate::default() {
        return Err(AdminError::invalid("nothing to change: name at least one field"));
    }
    check_quota(update.terms.quota.flatten())?;
    make(admin, author, id, &KeyChange::Update { update, by }, recorded).await
}

/// Zero is a quota: the key is there, and nothing is served.
fn check_quota(quota: Option<NanoUsd>) -> Result<(), AdminError> {
    match quota {
        Some(quota) if quota < NanoUsd::ZERO => {
            Err(AdminError::of_field("quota_usd", "zero or more, or null for unlimited"))
        }
        _ => Ok(()),
    }
}

fn check_end(end: Option<Moment>, now: i64) -> Result<(), AdminError> {
    match end {
        Some(end) if end.seconds() <= now => Err(AdminError::of_field(
            "expires_at",
            "that time has passed; to end a key now, revoke it",
        )),
        _ => Ok(()),
    }
}

/// A rotation in the audit record.
#[derive(Serialize)]
struct Rotated<'a> {
    hint: &'a str,
    old_until: Option<Moment>,
}

impl Answered for RotateKey {
    async fn answer(self, admin: &Admin, author: Author) -> Result<Key, AdminError> {
        let seconds = self
            .overlap_seconds
            .map_or(OVERLAP_DEFAULT_SECONDS, |Overlap(seconds)| seconds);
        let text = match &self.seed {
            Some(seed) => text_of(admin, seed, self.id.as_str()),
            None => fresh(admin),
        };
        let present = existing(admin, &self.id).await?;
        if present.digest == text.digest() {
            return show_text_again(admin, &present, &text).await;
        }
        let now = clock::unix_seconds();
        let rotation = Rotation {
            digest: text.digest(),
            hint: text.hint(),
            at: now,
            overlap_until: (seconds > 0).then(|| now.saturating_add_unsigned(seconds)),
        };
        let values = Rotated {
            hint: &text.hint(),
            old_until: rotation.overlap_until.and_then(Moment::of_seconds),
        };
        let change = KeyChange::Rotate(rotation);
        let key = make(admin, author, &self.id, &change, ("key.rotate", &values)).await?;
        Ok(key.with_text(&text))
    }
}

impl Answered for EndOverlap {
    async fn answer(self, admin: &Admin, author: Author) -> Result<Key, AdminError> {
        make(
            admin,
            author,
            &self.id,
            &KeyChange::EndOverlap,
            ("key.end_overlap", &self),
        )
        .await
    }
}

impl Answered for RevokeKey {
    async fn answer(self, admin: &Admin, author: Author) -> Result<Key, AdminError> {
        let change = KeyChange::Revoke {
            at: clock::unix_seconds(),
        };
        make(admin, author, &self.id, &change, ("key.revoke", &self)).await
    }
}

impl Answered for DeleteKey {
    async fn answer(self, admin: &Admin, author: Author) -> Result<DeletedKey, AdminError> {
        let id = &self.id;
        if let Some(view) = admin.store.by_id(id).await? {
            view.check_made_from(&author.from)?;
        }
        admin.audit(author.peer, "key.delete", id.as_str(), &self).await?;
        if let Some(view) = admin.store.delete(id, &author.from).await? {
            let gone = admin.changes.key_gone(id, view.record.revision).await;
            gone.map_err(|error| unsure(&error))?;
        }
        Ok(DeletedKey {
            id: self.id,
            deleted: true,
        })
    }
}

/// Models by the names they are allowed by: a mistyped one would allow nothing, and an alias is none of those.
fn models(admin: &Admin, names: Option<Vec<String>>) -> Result<Option<Vec<String>>, AdminError> {
    let known = |name: String| {
        admin.providers.model_named(&name).map_err(|near| {
            let hint = near.map_or_else(
                || "`weir models` lists those that are served".to_owned(),
                |near| format!("did you mean `{near}`?"),
            );
            AdminError::of_field("models", format!("there is no model `{name}`: {hint}"))
        })
    };
    names
        .map(|names| names.into_iter().map(known).collect::<Result<_, _>>())
        .transpose()
}

/// A text that is drawn.
fn fresh(admin: &Admin) -> ServiceKey {
    ServiceKey::generate(&admin.prefix, &mut rand::rng())
}

/// The text that a seed makes for a purpose.
fn text_of(admin: &Admin, seed: &Seed, purpose: &str) -> ServiceKey {
    ServiceKey::of_seed(&admin.prefix, seed.expose().as_bytes(), purpose)
}
