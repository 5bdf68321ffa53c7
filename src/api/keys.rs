//! Questions about keys.

mod key;

pub(crate) use crate::api::keys::key::{
    DeletedKey, FormerTextView, KeyDetails, KeyList, KeyStanding, KeyText, PeriodSpend,
};
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    accounts::rates,
    question,
    values::{FactorInput, LimitInput, Moment, Nullable, Percents, Usd, nullable},
};
use crate::api::{
    json_value,
    values::{AccountId, KeyName, ModelNames, Seed},
};
use crate::domain::{
    keys::{
        change::KeyUpdate,
        key::{KeyId, OVERLAP_MAX_SECONDS},
        terms::{KeyTermsChange, Thresholds},
    },
    ledger::{FinishFactor, OnExhausted, OperationId, QuotaReset},
    money::NanoUsd,
    version::Version,
};

/// Declares a question that sets limits of a key. The fields of the limits follow the question's own fields.
macro_rules! question_of_limits {
    ($(#[$about:meta])* $question:ident { $($own:tt)* }) => {
        $(#[$about])*
        #[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub(crate) struct $question {
            $($own)*
            /// The quota: how much it may spend per period; null: unlimited.
            #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
            pub(crate) quota_usd: Nullable<Usd>,
            /// When the quota resets.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub(crate) reset: Option<QuotaReset>,
            /// What happens to a running answer when the quota is used up.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub(crate) on_exhausted: Option<OnExhausted>,
            /// The maximum cost of an answer that may finish, as a multiple of the quota; null: no limit.
            #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
            pub(crate) finish_factor: Nullable<FactorInput>,
            /// The percentages of the quota at which notices are sent; null: as set for the account, or else as configured.
            #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
            pub(crate) notify_percent: Nullable<Percents>,
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
            pub(crate) fn terms(&self) -> KeyTermsChange {
                KeyTermsChange {
                    quota: quota(self.quota_usd),
                    reset: self.reset,
                    on_exhausted: self.on_exhausted,
                    finish_factor: finish_factor(self.finish_factor),
                    notify: notify(self.notify_percent),
                    rates: rates([self.rpm, self.tpm, self.concurrency]),
                }
            }
        }
    };
}

question_of_limits! {
    /// Creates a key. Only this answer contains its text.
    CreateKey {
        /// The account that pays.
        pub(crate) account: AccountId,
        /// Its name for people.
        pub(crate) name: KeyName,
        /// When it expires; null: never.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub(crate) expires_at: Option<Moment>,
        /// The models that it may request; null: all.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub(crate) models: Option<ModelNames>,
        /// Identifies the creation, so that a repeated request creates one key.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub(crate) operation_id: Option<OperationId>,
        /// The key's text is derived from it and the operation id: a request that is repeated within two minutes gets the same
        /// text.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub(crate) seed: Option<Seed>,
    }
}

question!(CreateKey => KeyDetails: POST "/v1/keys", Operator; const STATUS: u16 = 201;);

impl CreateKey {
    /// A key with this name, without limits and expiry.
    pub(crate) fn new(account: AccountId, name: KeyName) -> Self {
        Self {
            account,
            name,
            expires_at: None,
            models: None,
            operation_id: None,
            seed: None,
            quota_usd: None,
            reset: None,
            on_exhausted: None,
            finish_factor: None,
            notify_percent: None,
            rpm: None,
            tpm: None,
            concurrency: None,
        }
    }
}

fn quota(usd: Nullable<Usd>) -> Nullable<NanoUsd> {
    usd.map(|quota| quota.map(|Usd(amount)| amount))
}

fn finish_factor(factor: Nullable<FactorInput>) -> Option<FinishFactor> {
    factor.map(|factor| factor.map_or(FinishFactor::NONE, |FactorInput(factor)| factor))
}

fn notify(percents: Nullable<Percents>) -> Nullable<Thresholds> {
    percents.map(|some| some.map(|Percents(chosen)| chosen))
}

question_of_limits! {
    /// Changes the given properties of a key, and nothing else.
    UpdateKey {
        /// The key.
        pub(crate) id: KeyId,
        /// Its name for people.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub(crate) name: Option<KeyName>,
        /// When it expires; null: never.
        #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
        pub(crate) expires_at: Nullable<Moment>,
        /// The models that it may request; null: all.
        #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
        pub(crate) models: Nullable<ModelNames>,
    }
}

question!(UpdateKey => KeyDetails: PATCH "/v1/keys/{id}", Operator);

impl UpdateKey {
    /// An update that changes nothing yet.
    pub(crate) fn new(id: KeyId) -> Self {
        Self {
            id,
            name: None,
            expires_at: None,
            models: None,
            quota_usd: None,
            reset: None,
            on_exhausted: None,
            finish_factor: None,
            notify_percent: None,
            rpm: None,
            tpm: None,
            concurrency: None,
        }
    }

    /// The values that are set.
    pub(crate) fn update(&self) -> KeyUpdate {
        KeyUpdate {
            name: self.name.as_ref().map(|KeyName(name)| name.clone()),
            expires_at: self.expires_at.map(|end| end.map(Moment::seconds)),
            models: self.models.clone().map(|models| models.map(|ModelNames(names)| names)),
            terms: self.terms(),
        }
    }
}

/// Lowers limits of a key. Its owner may do that, and can never raise a limit.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LowerKey {
    /// The key.
    pub(crate) id: KeyId,
    /// When it expires.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
    pub(crate) expires_at: Nullable<Moment>,
    /// The quota: how much it may spend per period.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
    pub(crate) quota_usd: Nullable<Usd>,
    /// Requests per minute.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
    pub(crate) rpm: Nullable<LimitInput>,
    /// Tokens per minute, input and output.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
    pub(crate) tpm: Nullable<LimitInput>,
    /// Concurrent requests.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
    pub(crate) concurrency: Nullable<LimitInput>,
}

question!(LowerKey => KeyDetails: POST "/v1/keys/{id}/lower", Operator);

impl LowerKey {
    /// The limits that are set.
    pub(crate) fn update(&self) -> KeyUpdate {
        KeyUpdate {
            expires_at: self.expires_at.map(|end| end.map(Moment::seconds)),
            terms: KeyTermsChange {
                quota: quota(self.quota_usd),
                rates: rates([self.rpm, self.tpm, self.concurrency]),
                ..KeyTermsChange::default()
            },
            ..KeyUpdate::default()
        }
    }
}

/// Gives a key a new text, which only this answer contains. The former text keeps working for a while.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RotateKey {
    /// The key.
    pub(crate) id: KeyId,
    /// How many seconds the former text keeps working: at most 30 days, a day if omitted. 0 ends it at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) overlap_seconds: Option<OverlapSeconds>,
    /// The new text is derived from it: a request that is repeated within two minutes gets the same text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) seed: Option<Seed>,
}

question!(RotateKey => KeyDetails: POST "/v1/keys/{id}/rotate", Operator);

/// How many seconds a key's former text keeps working beside the new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(transparent)]
pub(crate) struct OverlapSeconds(pub(crate) u64);

json_value!(OverlapSeconds, OverlapSeconds::expected(), |value| Ok(Self::of(
    value.as_u64()
)));

impl OverlapSeconds {
    fn expected() -> String {
        format!("a whole number up to {OVERLAP_MAX_SECONDS} (30 days), 0 to end the old text at once")
    }

    fn of(seconds: Option<u64>) -> Option<Self> {
        seconds.filter(|seconds| *seconds <= OVERLAP_MAX_SECONDS).map(Self)
    }
}

impl FromStr for OverlapSeconds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::of(text.parse().ok()).ok_or_else(Self::expected)
    }
}

/// Ends the former text of a key.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EndOverlap {
    /// The key.
    pub(crate) id: KeyId,
}

question!(EndOverlap => KeyDetails: POST "/v1/keys/{id}/end-overlap", Operator);

/// Revokes a key permanently, and keeps its record.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RevokeKey {
    /// The key.
    pub(crate) id: KeyId,
}

question!(RevokeKey => KeyDetails: POST "/v1/keys/{id}/revoke", Operator);

/// Deletes a key and its record.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeleteKey {
    /// The key.
    pub(crate) id: KeyId,
}

question!(DeleteKey => DeletedKey: DELETE "/v1/keys/{id}", Operator);

/// Shows a key.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ShowKey {
    /// The key.
    pub(crate) id: KeyId,
}

question!(ShowKey => KeyDetails: GET "/v1/keys/{id}", Viewer;
    fn version(key: &KeyDetails) -> Option<Version> {
        Some(key.version)
    }
);

/// Lists the keys that match all given filters.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListKeys {
    /// Only keys of this account.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) account: Option<AccountId>,
    /// Only keys after this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) after: Option<KeyId>,
    /// The maximum number of keys; 100 if omitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) limit: Option<u64>,
    /// Only keys with this id, or with this text in their name, account or hint, ignoring case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) search: Option<String>,
    /// Only keys used at this time or later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) used_since: Option<Moment>,
    /// Only keys created before this time and not used since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) unused_since: Option<Moment>,
    /// Only keys that expire before this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) expires_before: Option<Moment>,
    /// Only keys that have spent at least this much in the current quota period.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) spent_usd: Option<Usd>,
}

question!(ListKeys => KeyList: GET "/v1/keys", Viewer);
