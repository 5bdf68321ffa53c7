//! Questions about accounts.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    names::{AccountId, Reason},
    question,
    values::{Limit, Moment, Nullable, Percents, Usd, nullable},
};
use crate::domain::{
    ledger::{AccountTermsChange, AccountView, OperationId, ProviderState, RatesChange},
    money::NanoUsd,
    version::Version,
};

/// Declares a question that sets limits of an account: it has them behind its own fields.
macro_rules! question_of_limits {
    ($(#[$about:meta])* $question:ident { $($own:tt)* }) => {
        $(#[$about])*
        #[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub(crate) struct $question {
            $($own)*
            /// At or below this balance it counts as low; null: never.
            #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
            pub(crate) low_balance_usd: Nullable<Usd>,
            /// At which parts of their quotas somebody is told of its keys; null: as the configuration says.
            #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
            pub(crate) notify_percent: Nullable<Percents>,
            /// The state at providers that its requests may name.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub(crate) provider_state: Option<ProviderState>,
            /// Requests per minute; null: no limit.
            #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
            pub(crate) rpm: Nullable<Limit>,
            /// Tokens per minute, input and output; null: no limit.
            #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
            pub(crate) tpm: Nullable<Limit>,
            /// Requests running at one time; null: no limit.
            #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
            pub(crate) concurrency: Nullable<Limit>,
        }

        impl $question {
            /// The limits that it names.
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
    /// Makes an account.
    CreateAccount {
        /// Its name.
        pub(crate) id: AccountId,
        /// The balance that it begins with; zero unless it is named.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub(crate) balance_usd: Option<Usd>,
        /// By this the creation is known again: it counts once.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub(crate) operation_id: Option<OperationId>,
    }
}

question!(CreateAccount => ChangedAccount: POST "/v1/accounts", Owner; const STATUS: u16 = 201;);

impl CreateAccount {
    /// An account of this name, with no balance and no limits.
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

/// Limits of requests, tokens and concurrency.
pub(super) fn rates(limits: [Nullable<Limit>; 3]) -> RatesChange {
    let [rpm, tpm, concurrency] = limits.map(|limit| limit.map(|limit| limit.map(|Limit(number)| number)));
    RatesChange { rpm, tpm, concurrency }
}

question_of_limits! {
    /// Changes the limits of an account that are named.
    UpdateAccount {
        /// Its name.
        pub(crate) id: AccountId,
    }
}

question!(UpdateAccount => ChangedAccount: PATCH "/v1/accounts/{id}", Owner);

impl UpdateAccount {
    /// An update that names nothing yet.
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
    /// By this the credit is known again: it counts once.
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
    /// The amount; below zero it takes money away.
    pub(crate) usd: Usd,
    /// The reason, for the audit record.
    pub(crate) reason: Reason,
    /// By this the adjustment is known again: it counts once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) operation_id: Option<OperationId>,
}

question!(AdjustAccount => ChangedAccount: POST "/v1/accounts/{id}/adjust", Owner);

/// Serves nothing more to the keys of an account; requests that run go on.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SuspendAccount {
    /// Its name.
    pub(crate) id: AccountId,
}

question!(SuspendAccount => ChangedAccount: POST "/v1/accounts/{id}/suspend", Owner);

/// Serves the keys of an account again.
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

question!(ShowAccount => Account: GET "/v1/accounts/{id}", Viewer;
    fn version(account: &Account) -> Option<Version> {
        Some(account.facts.version)
    }
);

/// Lists accounts by their names.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListAccounts {
    /// Those behind this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) after: Option<String>,
    /// So many of them at the most; 100 unless it is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) limit: Option<u64>,
}

question!(ListAccounts => Accounts: GET "/v1/accounts", Viewer);

/// Some accounts.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Accounts {
    /// The accounts, by their names.
    pub(crate) accounts: Vec<Account>,
    /// The last one of them, where there may be others behind it.
    pub(crate) next: Option<String>,
}

/// An account.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Account {
    /// Its name.
    pub(crate) id: String,
    /// All else that is known of it.
    #[serde(flatten)]
    pub(crate) facts: AccountFacts,
}

/// The account after a change. Where the store gives no answer, it tells that the change is recorded.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ChangedAccount {
    /// Its name.
    pub(crate) id: String,
    /// All else that is known of it.
    #[serde(flatten)]
    pub(crate) facts: Option<AccountFacts>,
    /// Whether the change holds; it will as soon as the store answers.
    pub(crate) applied: bool,
    /// By this a change of the balance is known again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) operation_id: Option<OperationId>,
    /// Whether that change was made before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) repeated: Option<bool>,
}

/// Whether the keys of an account are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum AccountState {
    /// They are.
    Active,
    /// They are not.
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

/// Everything that is known of an account, its name apart.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct AccountFacts {
    /// The version of its limits and state.
    pub(crate) version: Version,
    /// Whether its keys are served.
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
    /// At or below this balance it counts as low; null: never.
    pub(crate) low_balance_usd: Option<Usd>,
    /// The same in nano-USD.
    pub(crate) low_balance_nano_usd: Option<NanoUsd>,
    /// Whether the balance is low, or nothing is left of it.
    pub(crate) balance_is_low: bool,
    /// At which parts of their quotas somebody is told of its keys; null: as the configuration says.
    pub(crate) notify_percent: Option<Percents>,
    /// Requests per minute; null: no limit.
    pub(crate) rpm: Option<u64>,
    /// Tokens per minute, input and output; null: no limit.
    pub(crate) tpm: Option<u64>,
    /// Requests running at one time; null: no limit.
    pub(crate) concurrency: Option<u64>,
    /// The state at providers that its requests may name.
    pub(crate) provider_state: ProviderState,
    /// When it was made.
    pub(crate) created_at: Option<Moment>,
}

impl AccountFacts {
    fn of(view: &AccountView) -> Self {
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

impl From<&AccountView> for Account {
    fn from(view: &AccountView) -> Self {
        Self {
            id: view.id.clone(),
            facts: AccountFacts::of(view),
        }
    }
}
