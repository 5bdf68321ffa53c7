//! Accounts in the admin API: create, list, show, credit, adjust. What is added to a balance is a step in the journal; limits and
//! state are the account's record.

mod record;

use serde::Serialize;

pub(super) use self::record::existing;
use self::record::{audit, change_record, changed, put_record};
use super::{Admin, ask::Answered, author::Author};
use crate::{
    api::{
        accounts::{
            Account, Accounts, AdjustAccount, ChangedAccount, CreateAccount, CreditAccount, ListAccounts,
            ResumeAccount, ShowAccount, SuspendAccount, UpdateAccount,
        },
        error::AdminError,
        names::AccountId,
        values::Usd,
    },
    domain::{
        ledger::{AccountRecord, AccountView, Change, OperationId},
        money::NanoUsd,
    },
    money::account_changes::Submitted,
    store::ledger::LIST_ACCOUNTS_MAX,
};

/// Accounts in one answer, unless asked otherwise.
const LIST_DEFAULT: usize = 100;

impl Answered for CreateAccount {
    async fn answer(self, admin: &Admin, author: Author) -> Result<ChangedAccount, AdminError> {
        let (id, balance) = (
            self.id.as_str(),
            self.balance_usd.map_or(NanoUsd::ZERO, |Usd(amount)| amount),
        );
        if balance < NanoUsd::ZERO {
            return Err(AdminError::of_field(
                "balance_usd",
                "an account begins with zero or more",
            ));
        }
        let terms = self.terms();
        let with_limits = |record: &AccountRecord| record.with(terms.apply(record.terms), record.suspended);
        let _turn = admin.changing.lock().await;
        let mut submitted = Submitted::Applied;
        let mut from = AccountRecord::default();
        if let Some(account) = admin.ledger.account(id).await? {
            // The same call again: its answer was lost, and maybe what came behind the account.
            let is_same = match &self.operation_id {
                Some(operation) => admin.ledger.operation(id, operation).await? == Some(balance),
                None => false,
            };
            if !is_same {
                return Err(AdminError::conflict(format!(
                    "there is an account `{id}` already; `weir account credit --id {id}` adds to its balance"
                )));
            }
            from = account.record;
        } else {
            admin.audit(author.peer, "account.create", "", &self).await?;
            let at = admin.ledger.now_ms().await?.div_euclid(1000);
            let operation = self.operation_id.clone();
            let open = Change::Open { balance, at, operation };
            submitted = admin.changes.submit(id, open).await?;
        }
        // Also where they are set already: they may not be in the journal yet.
        let is_unset = from.revision == 0 || with_limits(&from) == from;
        let none = AccountRecord::default();
        if is_unset && with_limits(&none) != none {
            let set = put_record(admin, (&self.id, None), from, with_limits).await;
            set.map_err(|error| error.behind("the account is made, its limits may not be set"))?;
        }
        Ok(changed(admin, id, submitted).await)
    }
}

impl Answered for ListAccounts {
    async fn answer(self, admin: &Admin, _: Author) -> Result<Accounts, AdminError> {
        let limit = self.limit.and_then(|limit| usize::try_from(limit).ok());
        let limit = limit.unwrap_or(LIST_DEFAULT).clamp(1, LIST_ACCOUNTS_MAX);
        let page = admin.ledger.accounts(self.after.as_deref(), limit).await?;
        let last = page.last().filter(|_| page.len() == limit);
        Ok(Accounts {
            accounts: page.iter().map(Account::from).collect(),
            next: last.map(|account| account.id.clone()),
        })
    }
}

impl Answered for ShowAccount {
    async fn answer(self, admin: &Admin, _: Author) -> Result<Account, AdminError> {
        Ok(Account::from(&existing(admin, self.id.as_str()).await?))
    }
}

impl Answered for UpdateAccount {
    async fn answer(self, admin: &Admin, author: Author) -> Result<ChangedAccount, AdminError> {
        let terms = self.terms();
        if terms == Default::default() {
            return Err(AdminError::invalid("nothing to change: name at least one field"));
        }
        change_record(admin, author, (&self.id, "account.update"), &self, |record| {
            record.with(terms.apply(record.terms), record.suspended)
        })
        .await
    }
}

impl Answered for SuspendAccount {
    async fn answer(self, admin: &Admin, author: Author) -> Result<ChangedAccount, AdminError> {
        let suspend = |record: &AccountRecord| record.with(record.terms, true);
        change_record(admin, author, (&self.id, "account.suspend"), &self, suspend).await
    }
}

impl Answered for ResumeAccount {
    async fn answer(self, admin: &Admin, author: Author) -> Result<ChangedAccount, AdminError> {
        let resume = |record: &AccountRecord| record.with(record.terms, false);
        change_record(admin, author, (&self.id, "account.resume"), &self, resume).await
    }
}

impl Answered for CreditAccount {
    async fn answer(self, admin: &Admin, author: Author) -> Result<ChangedAccount, AdminError> {
        let Usd(amount) = self.usd;
        if amount <= NanoUsd::ZERO {
            return Err(AdminError::of_field(
                "usd",
                "a credit is more than zero; `weir account adjust` takes money away",
            ));
        }
        let credit = |amount, at, operation| Change::Credit { amount, at, operation };
        let money = (amount, self.operation_id.clone());
        add(admin, author, (&self.id, "account.credit"), &self, money, credit).await
    }
}

impl Answered for AdjustAccount {
    async fn answer(self, admin: &Admin, author: Author) -> Result<ChangedAccount, AdminError> {
        let Usd(amount) = self.usd;
        if amount == NanoUsd::ZERO {
            return Err(AdminError::of_field("usd", "an adjustment is more or less than zero"));
        }
        let adjust = |amount, at, operation| Change::Adjust { amount, at, operation };
        let money = (amount, self.operation_id.clone());
        add(admin, author, (&self.id, "account.adjust"), &self, money, adjust).await
    }
}

/// Adds to a balance, once for an operation that the account remembers. The same again is answered as the first time was, and
/// is no change; another amount is refused.
async fn add(
    admin: &Admin,
    author: Author,
    (id, name): (&AccountId, &'static str),
    question: &(impl Serialize + Sync),
    (amount, operation): (NanoUsd, Option<OperationId>),
    make: impl FnOnce(NanoUsd, i64, Option<OperationId>) -> Change + Send,
) -> Result<ChangedAccount, AdminError> {
    let id = id.as_str();
    let _turn = admin.changing.lock().await;
    let account = existing(admin, id).await?;
    let is_repeated = is_recorded(admin, id, operation.as_ref(), amount).await?;
    let submitted = if is_repeated {
        Submitted::Applied
    } else {
        stays_countable(&account, amount)?;
        let at = admin.ledger.now_ms().await?.div_euclid(1000);
        audit(admin, author.peer, id, name, question).await?;
        admin.changes.submit(id, make(amount, at, operation.clone())).await?
    };
    // Another node may have been asked for the same with another amount, at this very moment.
    if submitted == Submitted::Applied && !is_repeated {
        is_recorded(admin, id, operation.as_ref(), amount).await?;
    }
    Ok(ChangedAccount {
        repeated: operation.is_some().then_some(is_repeated),
        operation_id: operation,
        ..changed(admin, id, submitted).await
    })
}

/// Whether the account remembers this operation with this amount.
async fn is_recorded(
    admin: &Admin,
    id: &str,
    operation: Option<&OperationId>,
    amount: NanoUsd,
) -> Result<bool, AdminError> {
    let Some(operation) = operation else { return Ok(false) };
    match admin.ledger.operation(id, operation).await? {
        None => Ok(false),
        Some(recorded) if recorded == amount => Ok(true),
        Some(recorded) => Err(AdminError::conflict(format!(
            "operation `{operation}` of account `{id}` is recorded with {recorded} USD, so {amount} USD were not added: another \
             amount needs another operation id"
        ))),
    }
}

/// Whether the balance can be counted exactly after the change.
fn stays_countable(account: &AccountView, amount: NanoUsd) -> Result<(), AdminError> {
    let after = account.balance.saturating_add(amount);
    if after.nanos().unsigned_abs() > NanoUsd::MAX.nanos().unsigned_abs() {
        return Err(AdminError::of_field(
            "usd",
            format!(
                "the balance is {} USD, and a balance is at most {} USD",
                account.balance,
                NanoUsd::MAX
            ),
        ));
    }
    Ok(())
}
