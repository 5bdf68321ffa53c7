//! Requests of the admin API about keys, and their answers.

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
    Version,
    keys::{
        KeyId, OVERLAP_MAX_SECONDS,
        change::KeyUpdate,
        terms::{KeyTermsChange, Thresholds},
    },
    ledger::{FinishFactor, OnExhausted, OperationId, QuotaReset},
    money::NanoUsd,
};

/// Declares a request that sets limits of a key. The request's own fields precede the fields of the limits.
macro_rules! question_of_limits {
    ($(#[$about:meta])* $question:ident { $($own:tt)* }) => {
        $(#[$about])*
        #[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub(crate) struct $question {
            $($own)*
            /// The key's quota: the maximum amount that it may spend per period, in USD; null: unlimited.
            #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
            pub(crate) quota_usd: Nullable<Usd>,
            /// The period after which the quota resets.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub(crate) reset: Option<QuotaReset>,
            /// Whether a running answer may finish (`finish`) or is cut off (`cut`) when the key's quota is used up.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub(crate) on_exhausted: Option<OnExhausted>,
            /// The maximum cost of an answer that may finish after the quota is used up, as a multiple of the quota; null: no
            /// limit.
            #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
            pub(crate) finish_factor: Nullable<FactorInput>,
            /// The percentages of the quota at which notices are sent; null: the account's percentages, or else those in the
            /// configuration.
            #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
            pub(crate) notify_percent: Nullable<Percents>,
            /// The key's maximum number of requests per minute; null: no limit.
            #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
            pub(crate) rpm: Nullable<LimitInput>,
            /// The key's maximum number of tokens per minute, input and output together; null: no limit.
            #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
            pub(crate) tpm: Nullable<LimitInput>,
            /// The key's maximum number of concurrent requests; null: no limit.
            #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
            pub(crate) concurrency: Nullable<LimitInput>,
        }

        impl $question {
            /// Returns the change that this request makes to the key's limits.
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
    /// Creates a key. Only this answer contains the key in clear.
    CreateKey {
        /// The name of the account that pays for the key's requests.
        pub(crate) account: AccountId,
        /// The key's display name.
        pub(crate) name: KeyName,
        /// The time at which the key expires; null: never.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub(crate) expires_at: Option<Moment>,
        /// The models that the key may request; null: all.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub(crate) models: Option<ModelNames>,
        /// An id of this operation. A repeated request with the same id creates no second key.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub(crate) operation_id: Option<OperationId>,
        /// A random value. The key in clear is derived from this value and the operation id. A repeated request with the same
        /// value and operation id within two minutes gets the same key.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub(crate) seed: Option<Seed>,
    }
}

question!(CreateKey => KeyDetails: POST "/v1/keys", Operator; const STATUS: u16 = 201;);

impl CreateKey {
    /// Builds the request for a key with this name, without limits and expiry.
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
    /// Changes the given properties of a key. Omitted properties stay as they are.
    UpdateKey {
        /// The key's id.
        pub(crate) id: KeyId,
        /// The key's display name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub(crate) name: Option<KeyName>,
        /// The time at which the key expires; null: never.
        #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
        pub(crate) expires_at: Nullable<Moment>,
        /// The models that the key may request; null: all.
        #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
        pub(crate) models: Nullable<ModelNames>,
    }
}

question!(UpdateKey => KeyDetails: PATCH "/v1/keys/{id}", Operator);

impl UpdateKey {
    /// Builds a request for the key `id` that changes nothing. The caller then sets the properties to change.
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

    /// Returns the change that this request makes to the key.
    pub(crate) fn update(&self) -> KeyUpdate {
        KeyUpdate {
            name: self.name.as_ref().map(|KeyName(name)| name.clone()),
            expires_at: self.expires_at.map(|end| end.map(Moment::seconds)),
            models: self.models.clone().map(|models| models.map(|ModelNames(names)| names)),
            terms: self.terms(),
        }
    }
}

/// Lowers limits of a key. The key's owner is allowed to do that, but can never raise a limit.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LowerKey {
    /// The key's id.
    pub(crate) id: KeyId,
    /// The time at which the key expires.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
    pub(crate) expires_at: Nullable<Moment>,
    /// The key's quota: the maximum amount that it may spend per period, in USD.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
    pub(crate) quota_usd: Nullable<Usd>,
    /// The key's maximum number of requests per minute.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
    pub(crate) rpm: Nullable<LimitInput>,
    /// The key's maximum number of tokens per minute, input and output together.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
    pub(crate) tpm: Nullable<LimitInput>,
    /// The key's maximum number of concurrent requests.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
    pub(crate) concurrency: Nullable<LimitInput>,
}

question!(LowerKey => KeyDetails: POST "/v1/keys/{id}/lower", Operator);

impl LowerKey {
    /// Returns the change that this request makes to the key.
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

/// Gives a key a new secret. Only this answer contains the secret in clear. The former secret remains valid for some time.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RotateKey {
    /// The key's id.
    pub(crate) id: KeyId,
    /// The time for which the former secret remains valid, in seconds: at most 30 days; a day if omitted. With 0, it is invalid
    /// at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) overlap_seconds: Option<OverlapSeconds>,
    /// A random value from which the new secret is derived. A request that is repeated with the same value within two minutes
    /// gets the same secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) seed: Option<Seed>,
}

question!(RotateKey => KeyDetails: POST "/v1/keys/{id}/rotate", Operator);

/// The time for which a key's former secret remains valid in addition to the new one, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(transparent)]
pub(crate) struct OverlapSeconds(pub(crate) u64);

json_value!(OverlapSeconds, OverlapSeconds::expected(), |value| Ok(Self::of(
    value.as_u64()
)));

impl OverlapSeconds {
    fn expected() -> String {
        format!(
            "give a whole number of seconds up to {OVERLAP_MAX_SECONDS} (30 days); with 0 the old secret ends at once"
        )
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

/// Invalidates the former secret of a key at once.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EndOverlap {
    /// The key's id.
    pub(crate) id: KeyId,
}

question!(EndOverlap => KeyDetails: POST "/v1/keys/{id}/end-overlap", Operator);

/// Revokes a key permanently. The key's record stays in the store.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RevokeKey {
    /// The key's id.
    pub(crate) id: KeyId,
}

question!(RevokeKey => KeyDetails: POST "/v1/keys/{id}/revoke", Operator);

/// Deletes a key and its record.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeleteKey {
    /// The key's id.
    pub(crate) id: KeyId,
}

question!(DeleteKey => DeletedKey: DELETE "/v1/keys/{id}", Operator);

/// Returns a key.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ShowKey {
    /// The key's id.
    pub(crate) id: KeyId,
}

question!(ShowKey => KeyDetails: GET "/v1/keys/{id}", Viewer;
    fn version(key: &KeyDetails) -> Option<Version> {
        Some(key.version)
    }
);

/// Lists the keys that match all given filters, sorted by id.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListKeys {
    /// Only keys of the account with this name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) account: Option<AccountId>,
    /// Only keys whose ids sort after this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) after: Option<KeyId>,
    /// The maximum number of keys in the answer; 100 if omitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) limit: Option<u64>,
    /// Only keys whose id equals this text, or whose name, account or hint (the last characters of the key) contains it. Upper
    /// and lower case are not distinguished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) search: Option<String>,
    /// Only keys that were used at this time or later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) used_since: Option<Moment>,
    /// Only keys that were created before this time and were not used at this time or later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) unused_since: Option<Moment>,
    /// Only keys that expire before this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) expires_before: Option<Moment>,
    /// Only keys that have spent at least this amount, in USD, in the current quota period.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) spent_usd: Option<Usd>,
}

question!(ListKeys => KeyList: GET "/v1/keys", Viewer);
