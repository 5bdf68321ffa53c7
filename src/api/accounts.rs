//! Requests of the admin API about accounts, and their answers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    question,
    values::{LimitInput, Moment, Nullable, Percents, Usd, nullable},
};
use crate::api::values::{AccountId, AdjustmentReason};
use crate::domain::{
    Version,
    ledger::{AccountTermsChange, AccountView, OperationId, ProviderState, RateLimitsChange},
    money::NanoUsd,
};

/// Declares a request that sets limits of an account. The request's own fields precede the fields of the limits.
macro_rules! question_of_limits {
    ($(#[$about:meta])* $question:ident { $($own:tt)* }) => {
        $(#[$about])*
        #[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub(crate) struct $question {
            $($own)*
            /// The threshold in USD for a low balance: a balance at or below this amount counts as low; null: no threshold.
            #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
            pub(crate) low_balance_usd: Nullable<Usd>,
            /// The percentages of a key's quota at which notices are sent, for all keys of the account; null: the percentages in
            /// the configuration.
            #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
            pub(crate) notify_percent: Nullable<Percents>,
            /// Which objects at providers (such as earlier responses and files) the account's requests can refer to: only objects
            /// that the account has created (`own`), or any object (`any`).
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub(crate) provider_state: Option<ProviderState>,
            /// The account's maximum number of requests per minute; null: no limit.
            #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
            pub(crate) rpm: Nullable<LimitInput>,
            /// The account's maximum number of tokens per minute, input and output together; null: no limit.
            #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
            pub(crate) tpm: Nullable<LimitInput>,
            /// The account's maximum number of concurrent requests; null: no limit.
            #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
            pub(crate) concurrency: Nullable<LimitInput>,
        }

        impl $question {
            /// Returns the change that this request makes to the account's limits.
            pub(crate) fn terms(&self) -> AccountTermsChange {
                AccountTermsChange {
                    low_balance: self.low_balance_usd.map(|low| low.map(|Usd(amount)| amount)),
                    provider_state: self.provider_state,
                    notify: self.notify_percent.map(|some| some.map(|Percents(chosen)| chosen)),
                    rates: rates([self.rpm, self.tpm, self.concurrency]),
                }
            }
        }
    };
}

question_of_limits! {
    /// Creates an account.
    CreateAccount {
        /// The name of the new account.
        pub(crate) id: AccountId,
        /// The opening balance in USD; zero if omitted.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub(crate) balance_usd: Option<Usd>,
        /// An id of this operation. A repeated request with the same id creates no second account.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub(crate) operation_id: Option<OperationId>,
    }
}

question!(CreateAccount => ChangedAccount: POST "/v1/accounts", Owner; const STATUS: u16 = 201;);

impl CreateAccount {
    /// Builds the request for an account with this name, without balance and limits.
    pub(crate) fn new(id: AccountId) -> Self {
        Self {
            id,
            balance_usd: None,
            operation_id: None,
            low_balance_usd: None,
            notify_percent: None,
            provider_state: None,
            rpm: None,
            tpm: None,
            concurrency: None,
        }
    }
}

/// Returns the change of the rate limits of an account or key. `limits` are the maximums of requests per minute, tokens per
/// minute and concurrent requests.
pub(super) fn rates(limits: [Nullable<LimitInput>; 3]) -> RateLimitsChange {
    let [rpm, tpm, concurrency] = limits.map(|limit| limit.map(|limit| limit.map(|LimitInput(number)| number)));
    RateLimitsChange { rpm, tpm, concurrency }
}

question_of_limits! {
    /// Changes the given limits of an account. Omitted limits stay as they are.
    UpdateAccount {
        /// The account's name.
        pub(crate) id: AccountId,
    }
}

question!(UpdateAccount => ChangedAccount: PATCH "/v1/accounts/{id}", Owner);

impl UpdateAccount {
    /// Builds a request for the account `id` that changes nothing. The caller then sets the limits to change.
    pub(crate) fn new(id: AccountId) -> Self {
        Self {
            id,
            low_balance_usd: None,
            notify_percent: None,
            provider_state: None,
            rpm: None,
            tpm: None,
            concurrency: None,
        }
    }
}

/// Adds money to an account.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CreditAccount {
    /// The account's name.
    pub(crate) id: AccountId,
    /// The amount to add, in USD, more than zero.
    pub(crate) usd: Usd,
    /// An id of this operation. A repeated request with the same id does not add the amount a second time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) operation_id: Option<OperationId>,
}

question!(CreditAccount => ChangedAccount: POST "/v1/accounts/{id}/credit", Owner);

/// Corrects the balance of an account, up or down.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AdjustAccount {
    /// The account's name.
    pub(crate) id: AccountId,
    /// The amount in USD. A negative amount lowers the balance.
    pub(crate) usd: Usd,
    /// The reason for the adjustment, which is written to the audit record.
    pub(crate) reason: AdjustmentReason,
    /// An id of this operation. A repeated request with the same id does not adjust the balance a second time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) operation_id: Option<OperationId>,
}

question!(AdjustAccount => ChangedAccount: POST "/v1/accounts/{id}/adjust", Owner);

/// Suspends an account: further requests of its keys are refused. Running requests continue.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SuspendAccount {
    /// The account's name.
    pub(crate) id: AccountId,
}

question!(SuspendAccount => ChangedAccount: POST "/v1/accounts/{id}/suspend", Owner);

/// Ends the suspension of an account: requests of its keys are admitted again.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ResumeAccount {
    /// The account's name.
    pub(crate) id: AccountId,
}

question!(ResumeAccount => ChangedAccount: POST "/v1/accounts/{id}/resume", Owner);

/// Returns an account.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ShowAccount {
    /// The account's name.
    pub(crate) id: AccountId,
}

question!(ShowAccount => AccountDetails: GET "/v1/accounts/{id}", Viewer;
    fn version(account: &AccountDetails) -> Option<Version> {
        Some(account.facts.version)
    }
);

/// Lists accounts, sorted by name.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListAccounts {
    /// The name of an account. Only accounts whose names sort after it are listed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) after: Option<String>,
    /// The maximum number of accounts in the answer; 100 if omitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) limit: Option<u64>,
}

question!(ListAccounts => AccountList: GET "/v1/accounts", Viewer);

/// A page of the list of accounts.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct AccountList {
    /// The accounts of this page, sorted by name.
    pub(crate) accounts: Vec<AccountDetails>,
    /// The name of the last account of this page, if further accounts may follow. To get them, send this name as `after`.
    pub(crate) next: Option<String>,
}

/// An account with its limits, balance and consumption.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct AccountDetails {
    /// The account's name.
    pub(crate) id: String,
    /// All properties of the account except its name.
    #[serde(flatten)]
    pub(crate) facts: AccountFacts,
}

/// An account after a change. If the store does not answer, the change is only recorded, and the account's properties are left
/// out.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ChangedAccount {
    /// The account's name.
    pub(crate) id: String,
    /// All properties of the account except its name; left out if the store did not answer.
    #[serde(flatten)]
    pub(crate) facts: Option<AccountFacts>,
    /// Whether the store has applied the change. If not, the change will be applied as soon as the store answers.
    pub(crate) applied: bool,
    /// The operation id of a credit or an adjustment; left out for other requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) operation_id: Option<OperationId>,
    /// Whether an earlier request with the same operation id had already changed the balance; left out unless the request is a
    /// credit or an adjustment with an operation id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) repeated: Option<bool>,
}

/// Whether requests of an account's keys are admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum AccountState {
    /// Requests of the account's keys are admitted.
    Active,
    /// Requests of the account's keys are refused.
    Suspended,
}

impl AccountState {
    /// Returns the state's name, as it is written in JSON.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Suspended => "suspended",
        }
    }
}

/// All properties of an account except its name.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct AccountFacts {
    /// The version of the account's limits and state. It changes with each change of the limits or the state.
    pub(crate) version: Version,
    /// Whether requests of the account's keys are admitted.
    pub(crate) state: AccountState,
    /// The account's balance in USD.
    pub(crate) balance_usd: Usd,
    /// The account's balance in nano-USD.
    pub(crate) balance_nano_usd: NanoUsd,
    /// The money that is set aside for running requests, in USD.
    pub(crate) held_usd: Usd,
    /// The money that is set aside for running requests, in nano-USD.
    pub(crate) held_nano_usd: NanoUsd,
    /// The cost of all requests of the account so far, in USD.
    pub(crate) spent_usd: Usd,
    /// The cost of all requests of the account so far, in nano-USD.
    pub(crate) spent_nano_usd: NanoUsd,
    /// The number of running requests of the account.
    pub(crate) running: u64,
    /// The threshold in USD for a low balance: a balance at or below this amount counts as low; null: no threshold.
    pub(crate) low_balance_usd: Option<Usd>,
    /// The threshold in nano-USD for a low balance: a balance at or below this amount counts as low; null: no threshold.
    pub(crate) low_balance_nano_usd: Option<NanoUsd>,
    /// Whether the account's balance is low or used up.
    pub(crate) balance_is_low: bool,
    /// The percentages of a key's quota at which notices are sent, for all keys of the account; null: the percentages in the
    /// configuration.
    pub(crate) notify_percent: Option<Percents>,
    /// The account's maximum number of requests per minute; null: no limit.
    pub(crate) rpm: Option<u64>,
    /// The account's maximum number of tokens per minute, input and output together; null: no limit.
    pub(crate) tpm: Option<u64>,
    /// The account's maximum number of concurrent requests; null: no limit.
    pub(crate) concurrency: Option<u64>,
    /// Which objects at providers (such as earlier responses and files) the account's requests can refer to: only objects that
    /// the account has created (`own`), or any object (`any`).
    pub(crate) provider_state: ProviderState,
    /// The time at which the account was created.
    pub(crate) created_at: Option<Moment>,
}

impl AccountFacts {
    fn from_view(view: &AccountView) -> Self {
        let (record, terms) = (&view.record, &view.record.terms);
        Self {
            version: record.version(),
            state: if record.suspended {
                AccountState::Suspended
            } else {
                AccountState::Active
            },
            balance_usd: Usd(view.balance),
            balance_nano_usd: view.balance,
            held_usd: Usd(view.held),
            held_nano_usd: view.held,
            spent_usd: Usd(view.spent),
            spent_nano_usd: view.spent,
            running: view.running,
            low_balance_usd: terms.low_balance.map(Usd),
            low_balance_nano_usd: terms.low_balance,
            balance_is_low: view.is_low(),
            notify_percent: terms.notify.map(Percents),
            rpm: terms.rates.rpm,
            tpm: terms.rates.tpm,
            concurrency: terms.rates.concurrency,
            provider_state: terms.provider_state,
            created_at: Moment::of_seconds(view.created_at),
        }
    }
}

impl From<&AccountView> for AccountDetails {
    fn from(view: &AccountView) -> Self {
        Self {
            id: view.id.clone(),
            facts: AccountFacts::from_view(view),
        }
    }
}
