//! Calls of the admin API that create, show, update, rotate, revoke and delete keys.

pub(super) mod listing;

use serde::Serialize;
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::{
    admin::{
        Admin, AdminHandler, accounts,
        audit::{AdminPeer, Author},
    },
    api::{
        AdminError,
        keys::{
            CreateKey, DeleteKey, DeletedKey, EndOverlap, KeyDetails, LowerKey, OverlapSeconds, RevokeKey, RotateKey,
            ShowKey, UpdateKey,
        },
        values::{KeyName, ModelNames, Moment, Seed},
    },
    domain::{
        keys::{
            KeyId, KeyRecord, KeyState, OVERLAP_DEFAULT_SECONDS, REPEATED_TEXT_SECONDS, Rotation,
            change::{
                ChangeAuthor, ChangePrecondition, KeyChange, KeyChangeError, KeyTemplate, KeyUpdate, OidcIdentity,
            },
            secret::{KeyDigest, ServiceKey},
        },
        ledger::KeyTerms,
        money::NanoUsd,
    },
    edges::clock,
    money::account_changes::AccountChangeError,
    store::{KeyView, StoreError},
};

impl AdminHandler for CreateKey {
    async fn answer(self, admin: &Admin, author: Author) -> Result<KeyDetails, AdminError> {
        let now = clock::unix_seconds();
        accounts::existing_account(admin, self.account.as_str()).await?;
        let terms = self.terms().apply(KeyTerms::default());
        check_quota(terms.quota)?;
        check_end(self.expires_at, now)?;
        if terms.has_reset_without_quota() {
            return Err(KeyChangeError::ResetWithoutQuota.into());
        }
        let text = match (&self.operation_id, &self.seed) {
            (Some(operation), Some(seed)) => derived_text(admin, seed, operation.as_str()),
            (None, Some(_)) => return Err(AdminError::of_field("seed", "a seed requires an operation_id")),
            (_, None) => random_text(admin),
        };
        let id = match &self.operation_id {
            None => KeyId::generate(&mut rand::rng()),
            Some(operation) => KeyId::from_digest(&Sha256::digest(operation.as_str()).into()),
        };
        if self.operation_id.is_some()
            && let Some(view) = admin.store.by_id(&id).await?
        {
            return repeat_text(admin, &view, &text).await;
        }
        let names = self.models.as_ref().map(|ModelNames(names)| names.clone());
        let KeyName(name) = &self.name;
        let record = KeyRecord {
            id,
            name: name.clone(),
            account: self.account.as_str().into(),
            created_at: now,
            expires_at: self.expires_at.map(Moment::seconds),
            models: resolve_models(admin, names)?,
            state: KeyState::Active,
            hint: text.hint(),
            revision: 0,
            terms,
            former: None,
            text_since: None,
        };
        let id = record.id.clone();
        let recorded = Self { seed: None, ..self };
        match create_key(admin, author.peer, text.digest(), record, &recorded).await {
            Ok(view) => Ok(key_details(admin, &view).await.with_text(&text)),
            // Another node may have received the same operation at the same time, and may have created the key first.
            Err(refused) => match admin.store.by_id(&id).await? {
                Some(view) if view.digest == text.digest() => repeat_text(admin, &view, &text).await,
                _ => Err(refused),
            },
        }
    }
}

/// Returns a key that the same operation has already created or rotated, with the key's secret. The first answer may have been
/// lost. Therefore the secret is returned again, but only for [`REPEATED_TEXT_SECONDS`].
async fn repeat_text(admin: &Admin, view: &KeyView, text: &ServiceKey) -> Result<KeyDetails, AdminError> {
    let record = &view.record;
    let since = record.text_since.unwrap_or(record.created_at);
    let is_new = clock::unix_seconds() < since.saturating_add(REPEATED_TEXT_SECONDS);
    if view.digest == text.digest() && is_new {
        return Ok(key_details(admin, view).await.with_text(text));
    }
    Err(AdminError::conflict(format!(
        "this operation was done before, and the secret of key {} was shown only to the first caller: rotate the key to get a new \
         secret, or delete the key",
        record.id
    )))
}

/// Writes the call to the audit record, and creates the key.
async fn create_key(
    admin: &Admin,
    peer: AdminPeer,
    digest: KeyDigest,
    record: KeyRecord,
    values: &(impl Serialize + Sync),
) -> Result<KeyView, AdminError> {
    admin.audit(peer, "key.create", record.id.as_str(), values).await?;
    admin.store.create(&digest, &record).await?;
    if let Err(error) = admin.changes.key_changed(&digest, &record).await {
        // The key is deleted again, because its secret has not been returned to anybody. If this also fails, a key remains that
        // nobody can use.
        let _ = admin.store.delete(&record.id, &ChangePrecondition::Anything).await;
        return Err(error.into());
    }
    Ok(KeyView {
        digest,
        record,
        last_used: None,
    })
}

/// Returns a key with the amounts that it has spent. The amounts are left out if they cannot be read.
async fn key_details(admin: &Admin, view: &KeyView) -> KeyDetails {
    let spend = admin.ledger.key_spend(&view.record.account, &view.record.id).await;
    KeyDetails::from_view(view, spend.ok().as_ref(), clock::unix_millis())
}

/// Writes a change to the audit record, makes the change, and returns the changed key. A change that the key's state does not
/// allow is neither recorded nor made.
async fn apply_change(
    admin: &Admin,
    author: Author,
    key_id: &KeyId,
    change: &KeyChange,
    (operation, values): (&'static str, &(impl Serialize + Sync)),
) -> Result<KeyDetails, AdminError> {
    existing_key(admin, key_id).await?.apply_change(change, &author.from)?;
    admin.audit(author.peer, operation, key_id.as_str(), values).await?;
    let view = admin.store.change(key_id, change, &author.from).await?;
    let noted = admin.changes.key_changed(&view.digest, &view.record).await;
    noted.map_err(|error| maybe_undone(&error))?;
    Ok(key_details(admin, &view).await)
}

/// Returns the error for a change that is in the store but not in the journal. A failover of the store could undo such a change.
fn maybe_undone(error: &AccountChangeError) -> AdminError {
    AdminError::failed(format!(
        "the key was changed, but a failover of the store could undo it: {error}; in that case, repeat the change"
    ))
}

async fn existing_key(admin: &Admin, id: &KeyId) -> Result<KeyView, StoreError> {
    admin.store.by_id(id).await?.ok_or(StoreError::NotFound)
}

impl AdminHandler for ShowKey {
    async fn answer(self, admin: &Admin, _: Author) -> Result<KeyDetails, AdminError> {
        Ok(key_details(admin, &existing_key(admin, &self.id).await?).await)
    }
}

impl AdminHandler for UpdateKey {
    async fn answer(self, admin: &Admin, author: Author) -> Result<KeyDetails, AdminError> {
        let mut update = self.update();
        check_end(self.expires_at.flatten(), clock::unix_seconds())?;
        if let Some(names) = update.models {
            update.models = Some(resolve_models(admin, names)?);
        }
        apply_update(
            admin,
            author,
            &self.id,
            (update, ChangeAuthor::Operator),
            ("key.update", &self),
        )
        .await
    }
}

/// Lowers limits of a key for the key's owner, who can never raise a limit.
impl AdminHandler for LowerKey {
    async fn answer(self, admin: &Admin, author: Author) -> Result<KeyDetails, AdminError> {
        check_end(self.expires_at.flatten(), clock::unix_seconds())?;
        apply_update(
            admin,
            author,
            &self.id,
            (self.update(), ChangeAuthor::Owner),
            ("key.lower", &self),
        )
        .await
    }
}

/// Applies an update of a key's settings.
async fn apply_update(
    admin: &Admin,
    author: Author,
    id: &KeyId,
    (update, by): (KeyUpdate, ChangeAuthor),
    recorded: (&'static str, &(impl Serialize + Sync)),
) -> Result<KeyDetails, AdminError> {
    if update == KeyUpdate::default() {
        return Err(AdminError::invalid("nothing to change: name at least one field"));
    }
    check_quota(update.terms.quota.flatten())?;
    apply_change(admin, author, id, &KeyChange::Update { update, by }, recorded).await
}

/// Returns an error for a negative quota. A quota of zero is allowed; with it, every request is refused.
fn check_quota(quota: Option<NanoUsd>) -> Result<(), AdminError> {
    match quota {
        Some(quota) if quota < NanoUsd::ZERO => Err(AdminError::of_field(
            "quota_usd",
            "must be zero or more, or unlimited (null in JSON)",
        )),
        _ => Ok(()),
    }
}

fn check_end(end: Option<Moment>, now: i64) -> Result<(), AdminError> {
    match end {
        Some(end) if end.seconds() <= now => Err(AdminError::of_field(
            "expires_at",
            "that time is in the past: give a later one, or revoke the key to end it at once",
        )),
        _ => Ok(()),
    }
}

/// The values that the audit record contains for the rotation of a key.
#[derive(Serialize)]
struct AuditedRotation<'a> {
    hint: &'a str,
    old_until: Option<Moment>,
}

impl AdminHandler for RotateKey {
    async fn answer(self, admin: &Admin, author: Author) -> Result<KeyDetails, AdminError> {
        let seconds = self
            .overlap_seconds
            .map_or(OVERLAP_DEFAULT_SECONDS, |OverlapSeconds(seconds)| seconds);
        let text = match &self.seed {
            Some(seed) => derived_text(admin, seed, self.id.as_str()),
            None => random_text(admin),
        };
        let present = existing_key(admin, &self.id).await?;
        if present.digest == text.digest() {
            return repeat_text(admin, &present, &text).await;
        }
        let now = clock::unix_seconds();
        let rotation = Rotation {
            digest: text.digest(),
            hint: text.hint(),
            at: now,
            overlap_until: (seconds > 0).then(|| now.saturating_add_unsigned(seconds)),
        };
        let values = AuditedRotation {
            hint: &text.hint(),
            old_until: rotation.overlap_until.and_then(Moment::of_seconds),
        };
        let change = KeyChange::Rotate(rotation);
        let key = apply_change(admin, author, &self.id, &change, ("key.rotate", &values)).await?;
        Ok(key.with_text(&text))
    }
}

impl AdminHandler for EndOverlap {
    async fn answer(self, admin: &Admin, author: Author) -> Result<KeyDetails, AdminError> {
        apply_change(
            admin,
            author,
            &self.id,
            &KeyChange::EndOverlap,
            ("key.end_overlap", &self),
        )
        .await
    }
}

impl AdminHandler for RevokeKey {
    async fn answer(self, admin: &Admin, author: Author) -> Result<KeyDetails, AdminError> {
        let change = KeyChange::Revoke {
            at: clock::unix_seconds(),
        };
        apply_change(admin, author, &self.id, &change, ("key.revoke", &self)).await
    }
}

impl AdminHandler for DeleteKey {
    async fn answer(self, admin: &Admin, author: Author) -> Result<DeletedKey, AdminError> {
        let id = &self.id;
        if let Some(view) = admin.store.by_id(id).await? {
            view.check_precondition(&author.from)?;
        }
        admin.audit(author.peer, "key.delete", id.as_str(), &self).await?;
        if let Some(view) = admin.store.delete(id, &author.from).await? {
            let gone = admin.changes.key_gone(id, view.record.revision).await;
            gone.map_err(|error| maybe_undone(&error))?;
        }
        Ok(DeletedKey {
            id: self.id,
            deleted: true,
        })
    }
}

/// Converts names and aliases of models to public names, because a key's record contains only public names. Returns an error for
/// an unknown name.
fn resolve_models(admin: &Admin, names: Option<Vec<String>>) -> Result<Option<Vec<String>>, AdminError> {
    let known = |name: String| {
        admin.providers.model_named(&name).map_err(|near| {
            let hint = near.map_or_else(
                || "`weir models` lists the served models".to_owned(),
                |near| format!("did you mean `{near}`?"),
            );
            AdminError::of_field("models", format!("model `{name}` does not exist: {hint}"))
        })
    };
    names
        .map(|names| names.into_iter().map(known).collect::<Result<_, _>>())
        .transpose()
}

/// Creates a random secret for a key.
fn random_text(admin: &Admin) -> ServiceKey {
    ServiceKey::generate(&admin.prefix, &mut rand::rng())
}

/// Derives a key's secret from a seed and a purpose.
fn derived_text(admin: &Admin, seed: &Seed, purpose: &str) -> ServiceKey {
    ServiceKey::from_seed(&admin.prefix, seed.expose().as_bytes(), purpose)
}

/// Returns the key of a user of the OpenID provider, and creates the key if it does not exist. The secret of a new key is not
/// displayed; the user gets a secret by rotating the key. If the user signs in at two nodes at the same time, one node creates
/// the key, and both nodes return it.
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
    // If another node has created the key first, its key is returned. The audit record then contains two lines about the
    // creation.
    match create_key(admin, peer, text.digest(), record, &values).await {
        Ok(view) => Ok(view),
        Err(refused) => {
            let made = admin.store.by_id(&id).await?;
            made.ok_or(refused)
        }
    }
}

impl Admin {
    /// Returns the key of a user who has just signed in through the OpenID provider. Creates the key if it does not exist. This
    /// is not a call of the API. Only the console and the portal of this process use it.
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
