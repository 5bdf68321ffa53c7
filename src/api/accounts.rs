//! Questions about accounts.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    question,
    values::{LimitInput, Moment, Nullable, Percents, Usd, nullable},
};
use crate::api::values::{AccountId, AdjustmentReason};
use crate::domain::{
    ledger::{AccountTermsChange, AccountView, OperationId, ProviderState, RateLimitsChange},
    money::NanoUsd,
    version::Version,
};

/// Declares a question that sets limits of an account. The fields of the limits follow the question's own fields.
macro_rules! question_of_limits {
    ($(#[$about:meta])* $question:ident { $($own:tt)* }) => {
        $(#[$about])*
        #[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub(crate) struct $question {
            $($own)*
            /// The balance at or below which the account's balance counts as low; null: never.
            #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
            pub(crate) low_balance_usd: Nullable<Usd>,
            /// The percentages of its keys' quotas at which notices are sent; null: as configured.
            #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
            pub(crate) notify_percent: Nullable<Percents>,
            /// Which state at providers its requests may name.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub(crate) provider_state: Option<ProviderState>,
            /// Requests per minute; null: no limit.
            #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
            pub(crate) rpm: Nullable<LimitInput>,
            /// Tokens per minute, input and output; null: no limit.
            #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
            pub(crate) tpm: Nullable<LimitInput>,
            /// Concurrent requests; null: no limit.
            #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
            pub(crate) concurrency: Nullable<LimitInput>,
        }

        impl $question {
            /// The limits that are set.
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
        /// Its name.
        pub(crate) id: AccountId,
        /// The opening balance; zero if omitted.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub(crate) balance_usd: Option<Usd>,
        /// Identifies the creation, so that a repeated request creates one account.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub(crate) operation_id: Option<OperationId>,
    }
}

question!(CreateAccount => ChangedAccount: POST "/v1/accounts", Owner; const STATUS: u16 = 201;);

impl CreateAccount {
    /// An account with this name, without balance and limits.
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

/// The limits of requests, tokens and concurrency.
pub(super) fn rates(limits: [Nullable<LimitInput>; 3]) -> RateLimitsChange {
    let [rpm, tpm, concurrency] = limits.map(|limit| limit.map(|limit| limit.map(|LimitInput(number)| number)));
    RateLimitsChange { rpm, tpm, concurrency }
}

question_of_limits! {
    /// Changes the given limits of an account, and nothing else.
    UpdateAccount {
        /// Its name.
        pub(crate) id: AccountId,
    }
}

question!(UpdateAccount => ChangedAccount: PATCH "/v1/accounts/{id}", Owner);

impl UpdateAccount {
    /// An update that changes nothing yet.
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
    /// Its name.
    pub(crate) id: AccountId,
    /// The amount, more than zero.
    pub(crate) usd: Usd,
    /// Identifies the credit, so that a repeated request adds it once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) operation_id: Option<OperationId>,
}

question!(CreditAccount => ChangedAccount: POST "/v1/accounts/{id}/credit", Owner);

/// Corrects the balance of an account, up or down.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AdjustAccount {
    /// Its name.
    pub(crate) id: AccountId,
    /// The amount; below zero it lowers the balance.
    pub(crate) usd: Usd,
    /// The reason, for the audit record.
    pub(crate) reason: AdjustmentReason,
    /// Identifies the adjustment, so that a repeated request makes it once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) operation_id: Option<OperationId>,
}

question!(AdjustAccount => ChangedAccount: POST "/v1/accounts/{id}/adjust", Owner);

/// Admits no further requests of an account's keys. Running requests continue.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SuspendAccount {
    /// Its name.
    pub(crate) id: AccountId,
}

question!(SuspendAccount => ChangedAccount: POST "/v1/accounts/{id}/suspend", Owner);

/// Admits requests of an account's keys again.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ResumeAccount {
    /// Its name.
    pub(crate) id: AccountId,
}

question!(ResumeAccount => ChangedAccount: POST "/v1/accounts/{id}/resume", Owner);

/// Shows an account.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ShowAccount {
    /// Its name.
    pub(crate) id: AccountId,
}

question!(ShowAccount => AccountDetails: GET "/v1/accounts/{id}", Viewer;
    fn version(account: &AccountDetails) -> Option<Version> {
        Some(account.facts.version)
    }
);

/// Lists accounts in the order of their names.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListAccounts {
    /// Only accounts after this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) after: Option<String>,
    /// The maximum number of accounts; 100 if omitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) limit: Option<u64>,
}

question!(ListAccounts => AccountList: GET "/v1/accounts", Viewer);

/// A page of accounts.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct AccountList {
    /// The accounts, in the order of their names.
    pub(crate) accounts: Vec<AccountDetails>,
    /// The last of them, if there may be others after it.
    pub(crate) next: Option<String>,
}

/// An account.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct AccountDetails {
    /// Its name.
    pub(crate) id: String,
    /// Its other properties.
    #[serde(flatten)]
    pub(crate) facts: AccountFacts,
}

/// The account after a change. If the store does not answer, it only says that the change is recorded.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ChangedAccount {
    /// Its name.
    pub(crate) id: String,
    /// Its other properties.
    #[serde(flatten)]
    pub(crate) facts: Option<AccountFacts>,
    /// Whether the change is applied. If not, it will be as soon as the store answers.
    pub(crate) applied: bool,
    /// The operation id of a change of the balance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) operation_id: Option<OperationId>,
    /// Whether that change had been made before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) repeated: Option<bool>,
}

/// Whether requests of an account's keys are admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum AccountState {
    /// They are admitted.
    Active,
    /// They are refused.
    Suspended,
}

impl AccountState {
    /// The name, as in JSON.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Suspended => "suspended",
        }
    }
}

/// The properties of an account, without its name.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct AccountFacts {
    /// The version of its limits and state.
    pub(crate) version: Version,
    /// Whether requests of its keys are admitted.
    pub(crate) state: AccountState,
    /// Its balance.
    pub(crate) balance_usd: Usd,
    /// Its balance.
    pub(crate) balance_nano_usd: NanoUsd,
    /// The holds of running requests.
    pub(crate) held_usd: Usd,
    /// The holds of running requests.
    pub(crate) held_nano_usd: NanoUsd,
    /// The cost of all requests so far.
    pub(crate) spent_usd: Usd,
    /// The cost of all requests so far.
    pub(crate) spent_nano_usd: NanoUsd,
    /// Running requests.
    pub(crate) running: u64,
    /// The balance at or below which the account's balance counts as low; null: never.
    pub(crate) low_balance_usd: Option<Usd>,
    /// The same balance in nano-USD.
    pub(crate) low_balance_nano_usd: Option<NanoUsd>,
    /// Whether the balance is low or used up.
    pub(crate) balance_is_low: bool,
    /// The percentages of its keys' quotas at which notices are sent; null: as configured.
    pub(crate) notify_percent: Option<Percents>,
    /// Requests per minute; null: no limit.
    pub(crate) rpm: Option<u64>,
    /// Tokens per minute, input and output; null: no limit.
    pub(crate) tpm: Option<u64>,
    /// Concurrent requests; null: no limit.
    pub(crate) concurrency: Option<u64>,
    /// Which state at providers its requests may name.
    pub(crate) provider_state: ProviderState,
    /// When it was created.
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
