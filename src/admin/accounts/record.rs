//! The record of an account, its limits and its state, as the admin API changes it: only one that was made from the present record
//! takes its place.

use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    admin::{Admin, author::Author, peer::Peer},
    api::{
        accounts::{Account, ChangedAccount},
        error::AdminError,
        names::AccountId,
    },
    domain::{
        keys::change::MadeFrom,
        ledger::{AccountRecord, AccountView},
        version::Version,
    },
    money::account_changes::{AccountChangeError, Submitted},
    store::{StoreError, ledger::RECORD_CONFLICTS_MAX},
};

/// An account that is there: a mistyped name must not make one.
pub(in crate::admin) async fn existing(admin: &Admin, id: &str) -> Result<AccountView, AdminError> {
    let id: AccountId = id.parse().map_err(|why: String| AdminError::of_field("account", why))?;
    let missing = || {
        AdminError::not_found(format!(
            "there is no account `{id}`: `weir account list` shows those there are, `weir account create --id {id}` makes it"
        ))
    };
    admin.ledger.account(id.as_str()).await?.ok_or_else(missing)
}

/// Has an account's record become what `decide` makes of it, if it still has the version that the author names, or none is.
pub(super) async fn change_record(
    admin: &Admin,
    author: Author,
    (id, operation): (&AccountId, &'static str),
    question: &(impl Serialize + Sync),
    decide: impl Fn(&AccountRecord) -> AccountRecord + Send,
) -> Result<ChangedAccount, AdminError> {
    let condition = match author.from {
        MadeFrom::Version(version) => Some(version),
        MadeFrom::Anything | MadeFrom::Text(_) => None,
    };
    let _turn = admin.changing.lock().await;
    let from = existing(admin, id.as_str()).await?.record;
    has_version(id, condition, &from, &decide(&from))?;
    audit(admin, author.peer, id.as_str(), operation, question).await?;
    put_record(admin, (id, condition), from, decide).await?;
    Ok(changed(admin, id.as_str(), Submitted::Applied).await)
}

/// Puts what `decide` makes of an account's record in its place, and decides again where another node has changed it meanwhile:
/// so only what a change names is changed. Then writes it into the journal, also where it stood so already: whoever does that
/// again may be unsure of the journal.
pub(super) async fn put_record(
    admin: &Admin,
    (id, condition): (&AccountId, Option<Version>),
    mut from: AccountRecord,
    decide: impl Fn(&AccountRecord) -> AccountRecord + Send,
) -> Result<(), AdminError> {
    for _ in 0..RECORD_CONFLICTS_MAX {
        let to = decide(&from);
        has_version(id, condition, &from, &to)?;
        if admin.ledger.set_terms(id.as_str(), &from, &to).await? {
            let noted = admin.changes.account_changed(id.as_str(), &to).await;
            return noted.map_err(|error| unsure(&error));
        }
        from = existing(admin, id.as_str()).await?.record;
    }
    Err(StoreError::Busy(format!("account `{id}` is changed again and again")).into())
}

/// Refuses a change of another version than the present one. What is so already is no change.
fn has_version(
    id: &AccountId,
    condition: Option<Version>,
    from: &AccountRecord,
    to: &AccountRecord,
) -> Result<(), AdminError> {
    let present = from.version();
    match condition.filter(|version| *version != present && to != from) {
        None => Ok(()),
        Some(version) => Err(AdminError::changed(
            format!(
                "account `{id}` has changed since version {version} and is at {present}: nothing was changed; `weir account show \
                 {id}` shows it"
            ),
            present,
        )),
    }
}

/// The store has made the change, and might yet lose it.
fn unsure(error: &AccountChangeError) -> AdminError {
    AdminError::failed(format!(
        "the account was changed, but a failover of the store could undo it: {error}; then do it again"
    ))
}

/// Records a change in the audit record, before it is made: the question, and the account's name.
pub(super) async fn audit(
    admin: &Admin,
    peer: Peer,
    id: &str,
    operation: &'static str,
    question: &(impl Serialize + Sync),
) -> Result<(), AdminError> {
    let mut values = serde_json::to_value(question).unwrap_or_default();
    if let Value::Object(fields) = &mut values {
        fields.shift_remove("id");
        fields.insert("account".to_owned(), json!(id));
    }
    Ok(admin.audit(peer, operation, "", &values).await?)
}

/// The account after a change. Without an answer of the store only that the change is recorded.
pub(super) async fn changed(admin: &Admin, id: &str, submitted: Submitted) -> ChangedAccount {
    let known = match (submitted, admin.ledger.account(id).await) {
        (Submitted::Applied, Ok(account)) => account,
        _ => None,
    };
    ChangedAccount {
        id: id.to_owned(),
        facts: known.map(|account| Account::from(&account).facts),
        applied: submitted == Submitted::Applied,
        operation_id: None,
        repeated: None,
    }
}
