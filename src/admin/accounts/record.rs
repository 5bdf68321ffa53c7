//! Changes the record of an account: its limits and its state. A new record replaces only the record that it was made from.

use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    admin::{Admin, author::Author, peer::AdminPeer},
    api::{
        accounts::{AccountDetails, ChangedAccount},
        error::AdminError,
        names::AccountId,
    },
    domain::{
        keys::change::ChangePrecondition,
        ledger::{AccountRecord, AccountView},
        version::Version,
    },
    money::account_changes::{AccountChangeError, Submitted},
    store::{StoreError, ledger::RECORD_CONFLICTS_MAX},
};

/// An existing account: a mistyped name must not create one.
pub(in crate::admin) async fn existing_account(admin: &Admin, id: &str) -> Result<AccountView, AdminError> {
    let id: AccountId = id.parse().map_err(|why: String| AdminError::of_field("account", why))?;
    let missing = || {
        AdminError::not_found(format!(
            "account `{id}` does not exist: `weir account list` shows all accounts, `weir account create --id {id}` creates it"
        ))
    };
    admin.ledger.account(id.as_str()).await?.ok_or_else(missing)
}

/// Changes an account's record by `decide`, if the record still has the version that the author names, if any.
pub(super) async fn change_record(
    admin: &Admin,
    author: Author,
    (id, operation): (&AccountId, &'static str),
    question: &(impl Serialize + Sync),
    decide: impl Fn(&AccountRecord) -> AccountRecord + Send,
) -> Result<ChangedAccount, AdminError> {
    let condition = match author.from {
        ChangePrecondition::Version(version) => Some(version),
        ChangePrecondition::Anything | ChangePrecondition::Text(_) => None,
    };
    let _turn = admin.changing.lock().await;
    let from = existing_account(admin, id.as_str()).await?.record;
    check_version(id, condition, &from, &decide(&from))?;
    audit_account(admin, author.peer, id.as_str(), operation, question).await?;
    put_record(admin, (id, condition), from, decide).await?;
    Ok(changed_account(admin, id.as_str(), Submitted::Applied).await)
}

/// Replaces an account's record by the result of `decide`, and decides again if another node has changed it in the meantime: so
/// only the named fields change. Then writes the record to the journal, even if it was the same before, because the caller may be
/// repeating a change whose write to the journal failed.
pub(super) async fn put_record(
    admin: &Admin,
    (id, condition): (&AccountId, Option<Version>),
    mut from: AccountRecord,
    decide: impl Fn(&AccountRecord) -> AccountRecord + Send,
) -> Result<(), AdminError> {
    for _ in 0..RECORD_CONFLICTS_MAX {
        let to = decide(&from);
        check_version(id, condition, &from, &to)?;
        if admin.ledger.set_terms(id.as_str(), &from, &to).await? {
            let noted = admin.changes.account_changed(id.as_str(), &to).await;
            return noted.map_err(|error| maybe_undone(&error));
        }
        from = existing_account(admin, id.as_str()).await?.record;
    }
    Err(StoreError::Busy(format!("account `{id}` keeps being changed by others")).into())
}

/// Refuses a change of another version than the present one, unless it would change nothing.
fn check_version(
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
                "account `{id}` has changed since version {version} and is at {present}: nothing was changed; `weir account \
                 show {id}` shows it"
            ),
            present,
        )),
    }
}

/// The store has made the change, but may lose it in a failover.
fn maybe_undone(error: &AccountChangeError) -> AdminError {
    AdminError::failed(format!(
        "the account was changed, but a failover of the store could undo it: {error}; in that case, repeat the change"
    ))
}

/// Records a change before it is made: the question and the account's name.
pub(super) async fn audit_account(
    admin: &Admin,
    peer: AdminPeer,
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

/// The account after a change. If the store does not answer, only that the change is recorded.
pub(super) async fn changed_account(admin: &Admin, id: &str, submitted: Submitted) -> ChangedAccount {
    let known = match (submitted, admin.ledger.account(id).await) {
        (Submitted::Applied, Ok(account)) => account,
        _ => None,
    };
    ChangedAccount {
        id: id.to_owned(),
        facts: known.map(|account| AccountDetails::from(&account).facts),
        applied: submitted == Submitted::Applied,
        operation_id: None,
        repeated: None,
    }
}
