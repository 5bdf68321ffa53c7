//! Calls of the admin API that create, list, show, credit, adjust and change accounts. A change of a balance is a step in the
//! journal. Limits and suspension are fields of the account's record.

use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    admin::{
        Admin, AdminHandler,
        audit::{AdminPeer, Author},
    },
    api::{
        AdminError,
        accounts::{
            AccountDetails, AccountList, AdjustAccount, ChangedAccount, CreateAccount, CreditAccount, ListAccounts,
            ResumeAccount, ShowAccount, SuspendAccount, UpdateAccount,
        },
        values::{AccountId, Usd},
    },
    domain::{
        Version,
        keys::change::ChangePrecondition,
        ledger::{AccountChange, AccountRecord, AccountView, OperationId},
        money::NanoUsd,
    },
    money::account_changes::{AccountChangeError, Submitted},
    store::{
        StoreError,
        ledger::{LIST_ACCOUNTS_MAX, RECORD_CONFLICTS_MAX},
    },
};

/// The default number of accounts in one answer.
const LIST_DEFAULT: usize = 100;

impl AdminHandler for CreateAccount {
    async fn answer(self, admin: &Admin, author: Author) -> Result<ChangedAccount, AdminError> {
        let (id, balance) = (
            self.id.as_str(),
            self.balance_usd.map_or(NanoUsd::ZERO, |Usd(amount)| amount),
        );
        if balance < NanoUsd::ZERO {
            return Err(AdminError::of_field(
                "balance_usd",
                "the opening balance must be zero or more",
            ));
        }
        let terms = self.terms();
        let with_limits = |record: &AccountRecord| record.with_terms(terms.apply(record.terms), record.suspended);
        let _turn = admin.changing.lock().await;
        let mut submitted = Submitted::Applied;
        let mut from = AccountRecord::default();
        if let Some(account) = admin.ledger.account(id).await? {
            // The account exists. If the same call has created it, the caller repeats the call after a lost answer, and the
            // limits may not be set yet.
            let is_same = match &self.operation_id {
                Some(operation) => admin.ledger.operation_amount(id, operation).await? == Some(balance),
                None => false,
            };
            if !is_same {
                return Err(AdminError::conflict(format!(
                    "account `{id}` already exists; `weir account credit --id {id}` adds to its balance"
                )));
            }
            from = account.record;
        } else {
            admin.audit(author.peer, "account.create", "", &self).await?;
            let at = admin.ledger.now_ms().await?.div_euclid(1000);
            let operation = self.operation_id.clone();
            let open = AccountChange::Open { balance, at, operation };
            submitted = admin.changes.submit(id, open).await?;
        }
        // The limits are set even if the record already has them, because they may not be in the journal yet.
        let is_unset = from.revision == 0 || with_limits(&from) == from;
        let none = AccountRecord::default();
        if is_unset && with_limits(&none) != none {
            let set = put_record(admin, (&self.id, None), from, with_limits).await;
            set.map_err(|error| error.with_context("the account was created, but its limits may be missing"))?;
        }
        Ok(changed_account(admin, id, submitted).await)
    }
}

impl AdminHandler for ListAccounts {
    async fn answer(self, admin: &Admin, _: Author) -> Result<AccountList, AdminError> {
        let limit = self.limit.and_then(|limit| usize::try_from(limit).ok());
        let limit = limit.unwrap_or(LIST_DEFAULT).clamp(1, LIST_ACCOUNTS_MAX);
        let page = admin.ledger.accounts(self.after.as_deref(), limit).await?;
        let last = page.last().filter(|_| page.len() == limit);
        Ok(AccountList {
            accounts: page.iter().map(AccountDetails::from).collect(),
            next: last.map(|account| account.id.clone()),
        })
    }
}

impl AdminHandler for ShowAccount {
    async fn answer(self, admin: &Admin, _: Author) -> Result<AccountDetails, AdminError> {
        Ok(AccountDetails::from(&existing_account(admin, self.id.as_str()).await?))
    }
}

impl AdminHandler for UpdateAccount {
    async fn answer(self, admin: &Admin, author: Author) -> Result<ChangedAccount, AdminError> {
        let terms = self.terms();
        if terms == Default::default() {
            return Err(AdminError::invalid("nothing to change: name at least one field"));
        }
        change_record(admin, author, (&self.id, "account.update"), &self, |record| {
            record.with_terms(terms.apply(record.terms), record.suspended)
        })
        .await
    }
}

impl AdminHandler for SuspendAccount {
    async fn answer(self, admin: &Admin, author: Author) -> Result<ChangedAccount, AdminError> {
        let suspend = |record: &AccountRecord| record.with_terms(record.terms, true);
        change_record(admin, author, (&self.id, "account.suspend"), &self, suspend).await
    }
}

impl AdminHandler for ResumeAccount {
    async fn answer(self, admin: &Admin, author: Author) -> Result<ChangedAccount, AdminError> {
        let resume = |record: &AccountRecord| record.with_terms(record.terms, false);
        change_record(admin, author, (&self.id, "account.resume"), &self, resume).await
    }
}

impl AdminHandler for CreditAccount {
    async fn answer(self, admin: &Admin, author: Author) -> Result<ChangedAccount, AdminError> {
        let Usd(amount) = self.usd;
        if amount <= NanoUsd::ZERO {
            return Err(AdminError::of_field(
                "usd",
                "a credit must be more than zero; `weir account adjust` can lower a balance",
            ));
        }
        let credit = |amount, at, operation| AccountChange::Credit { amount, at, operation };
        let money = (amount, self.operation_id.clone());
        add_to_balance(admin, author, (&self.id, "account.credit"), &self, money, credit).await
    }
}

impl AdminHandler for AdjustAccount {
    async fn answer(self, admin: &Admin, author: Author) -> Result<ChangedAccount, AdminError> {
        let Usd(amount) = self.usd;
        if amount == NanoUsd::ZERO {
            return Err(AdminError::of_field("usd", "an adjustment must not be zero"));
        }
        let adjust = |amount, at, operation| AccountChange::Adjust { amount, at, operation };
        let money = (amount, self.operation_id.clone());
        add_to_balance(admin, author, (&self.id, "account.adjust"), &self, money, adjust).await
    }
}

/// Adds an amount to an account's balance. An account stores the ids of its recent operations. If this operation's id is among
/// them, the operation is a repetition and changes nothing. A repetition with the same amount succeeds. A repetition with another
/// amount is refused.
async fn add_to_balance(
    admin: &Admin,
    author: Author,
    (id, name): (&AccountId, &'static str),
    question: &(impl Serialize + Sync),
    (amount, operation): (NanoUsd, Option<OperationId>),
    make: impl FnOnce(NanoUsd, i64, Option<OperationId>) -> AccountChange + Send,
) -> Result<ChangedAccount, AdminError> {
    let id = id.as_str();
    let _turn = admin.changing.lock().await;
    let account = existing_account(admin, id).await?;
    let is_repeated = is_recorded(admin, id, operation.as_ref(), amount).await?;
    let submitted = if is_repeated {
        Submitted::Applied
    } else {
        check_range(&account, amount)?;
        let at = admin.ledger.now_ms().await?.div_euclid(1000);
        audit_account(admin, author.peer, id, name, question).await?;
        admin.changes.submit(id, make(amount, at, operation.clone())).await?
    };
    // The check is repeated, because another node may have received the same operation with another amount at the same time.
    if submitted == Submitted::Applied && !is_repeated {
        is_recorded(admin, id, operation.as_ref(), amount).await?;
    }
    Ok(ChangedAccount {
        repeated: operation.is_some().then_some(is_repeated),
        operation_id: operation,
        ..changed_account(admin, id, submitted).await
    })
}

/// Returns whether this operation's id is among the ids that are stored with the account. Returns an error if the operation is
/// stored with another amount.
async fn is_recorded(
    admin: &Admin,
    id: &str,
    operation: Option<&OperationId>,
    amount: NanoUsd,
) -> Result<bool, AdminError> {
    let Some(operation) = operation else { return Ok(false) };
    match admin.ledger.operation_amount(id, operation).await? {
        None => Ok(false),
        Some(recorded) if recorded == amount => Ok(true),
        Some(recorded) => Err(AdminError::conflict(format!(
            "operation `{operation}` of account `{id}` was made with {recorded} USD before, so {amount} USD were not added: use \
             another operation id for another amount"
        ))),
    }
}

/// Returns an error for a change after which the balance would be too large to be represented exactly.
fn check_range(account: &AccountView, amount: NanoUsd) -> Result<(), AdminError> {
    let after = account.balance.saturating_add(amount);
    if after.nanos().unsigned_abs() > NanoUsd::MAX.nanos().unsigned_abs() {
        return Err(AdminError::of_field(
            "usd",
            format!(
                "the amount is too large: the balance is {} USD, and the maximum is {} USD",
                account.balance,
                NanoUsd::MAX
            ),
        ));
    }
    Ok(())
}

/// Returns the account with this id. Returns an error if it does not exist, so that a mistyped id does not create an account.
pub(in crate::admin) async fn existing_account(admin: &Admin, id: &str) -> Result<AccountView, AdminError> {
    let id: AccountId = id.parse().map_err(|why: String| AdminError::of_field("account", why))?;
    let missing = || {
        AdminError::not_found(format!(
            "account `{id}` does not exist: `weir account list` lists all accounts, `weir account create --id {id}` creates this one"
        ))
    };
    admin.ledger.account(id.as_str()).await?.ok_or_else(missing)
}

/// Replaces an account's record with the result of `decide`. Returns an error if the author's condition requires another version of
/// the record.
async fn change_record(
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

/// Replaces an account's record with the result of `decide`. If another node has changed the record since `from` was read, calls
/// `decide` again with the current record. Thus the other node's change is kept, except in the fields that the caller sets. Then
/// writes the record to the journal. An unchanged record is also written, because the caller may be repeating a change whose
/// write to the journal failed.
async fn put_record(
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
    Err(StoreError::Busy(format!(
        "cannot change account `{id}`, because other calls keep changing it; try again"
    ))
    .into())
}

/// Returns an error if the change requires a version other than the record's current version. A change without an effect is never
/// refused.
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
                "nothing was changed, because account `{id}` now has version {present} and not version {version}; `weir \
                 account show {id}` prints the current values"
            ),
            present,
        )),
    }
}

/// Returns the error for a change that is in the store but not in the journal. A failover of the store could undo such a change.
fn maybe_undone(error: &AccountChangeError) -> AdminError {
    AdminError::failed(format!(
        "the account was changed, but a failover of the store could undo it: {error}; in that case, repeat the change"
    ))
}

/// Writes the fields of a call and the account's id to the audit record. Must be called before the change is made.
async fn audit_account(
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

/// Returns the account after a change. If the store does not answer, the result says only that the change is recorded.
async fn changed_account(admin: &Admin, id: &str, submitted: Submitted) -> ChangedAccount {
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
