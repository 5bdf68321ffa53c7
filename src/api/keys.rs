//! Questions about keys.

mod key;

pub(crate) use key::{DeletedKey, FormerText, Key, KeyStanding, KeyText, Keys, PeriodSpend};
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    accounts::rates,
    names::{AccountId, KeyName, ModelNames, Seed},
    question,
    schema::json_value,
    values::{Factor, Limit, Moment, Nullable, Percents, Usd, nullable},
};
use crate::domain::{
    keys::{
        change::KeyUpdate, key::KeyId, rotation::OVERLAP_MAX_SECONDS, terms::KeyTermsChange, thresholds::Thresholds,
    },
    ledger::{FinishFactor, OnExhausted, OperationId, Reset},
    money::NanoUsd,
    version::Version,
};

/// Declares a question that sets limits of a key: it has them behind its own fields.
macro_rules! question_of_limits {
    ($(#[$about:meta])* $question:ident { $($own:tt)* }) => {
        $(#[$about])*
        #[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub(crate) struct $question {
            $($own)*
            /// What it may spend per period; null: unlimited.
            #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
            pub(crate) quota_usd: Nullable<Usd>,
            /// When the quota begins anew.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub(crate) reset: Option<Reset>,
            /// What becomes of a running answer when the quota is used up.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub(crate) on_exhausted: Option<OnExhausted>,
            /// How many times the quota an answer that may finish can cost; null: no bound.
            #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
            pub(crate) finish_factor: Nullable<Factor>,
            /// At which parts of the quota somebody is told; null: as the account says, or else the configuration.
            #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
            pub(crate) notify_percent: Nullable<Percents>,
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
    /// Makes a key. Its text is told with this answer only.
    CreateKey {
        /// The account that pays.
        pub(crate) account: AccountId,
        /// What its owner calls it.
        pub(crate) name: KeyName,
        /// When it ends; null: never.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub(crate) expires_at: Option<Moment>,
        /// The models that it may request; null: all.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub(crate) models: Option<ModelNames>,
        /// By this the creation is known again: it makes one key.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub(crate) operation_id: Option<OperationId>,
        /// The key's text is made of it and of the operation's id: who asks again within two minutes is told the same text.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub(crate) seed: Option<Seed>,
    }
}

question!(CreateKey => Key: POST "/v1/keys", Operator; const STATUS: u16 = 201;);

impl CreateKey {
    /// A key with this name, without limits and end.
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

fn finish_factor(factor: Nullable<Factor>) -> Option<FinishFactor> {
    factor.map(|factor| factor.map_or(FinishFactor::NONE, |Factor(factor)| factor))
}

fn notify(percents: Nullable<Percents>) -> Nullable<Thresholds> {
    percents.map(|some| some.map(|Percents(chosen)| chosen))
}

question_of_limits! {
    /// Changes what is named of a key, and nothing else.
    UpdateKey {
        /// The key.
        pub(crate) id: KeyId,
        /// What its owner calls it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub(crate) name: Option<KeyName>,
        /// When it ends; null: never.
        #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
        pub(crate) expires_at: Nullable<Moment>,
        /// The models that it may request; null: all.
        #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
        pub(crate) models: Nullable<ModelNames>,
    }
}

question!(UpdateKey => Key: PATCH "/v1/keys/{id}", Operator);

impl UpdateKey {
    /// An update that names nothing yet.
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

    /// The values that it names.
    pub(crate) fn update(&self) -> KeyUpdate {
        KeyUpdate {
            name: self.name.as_ref().map(|KeyName(name)| name.clone()),
            expires_at: self.expires_at.map(|end| end.map(Moment::seconds)),
            models: self.models.clone().map(|models| models.map(|ModelNames(names)| names)),
            terms: self.terms(),
        }
    }
}

/// Lowers limits of a key, as its owner may, who can never raise one.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LowerKey {
    /// The key.
    pub(crate) id: KeyId,
    /// When it ends.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
    pub(crate) expires_at: Nullable<Moment>,
    /// What it may spend per period.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
    pub(crate) quota_usd: Nullable<Usd>,
    /// Requests per minute.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
    pub(crate) rpm: Nullable<Limit>,
    /// Tokens per minute, input and output.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
    pub(crate) tpm: Nullable<Limit>,
    /// Requests running at one time.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
    pub(crate) concurrency: Nullable<Limit>,
}

question!(LowerKey => Key: POST "/v1/keys/{id}/lower", Operator);

impl LowerKey {
    /// The limits that it names.
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

/// Gives a key a new text, which is told with this answer only. The one before works on for a while.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RotateKey {
    /// The key.
    pub(crate) id: KeyId,
    /// For how many seconds the text before works on: at most 30 days, a day unless it is named. 0 ends it at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) overlap_seconds: Option<Overlap>,
    /// The new text is made of it: who asks again within two minutes is told the same text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) seed: Option<Seed>,
}

question!(RotateKey => Key: POST "/v1/keys/{id}/rotate", Operator);

/// For how many seconds the text of a key works on beside a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(transparent)]
pub(crate) struct Overlap(pub(crate) u64);

json_value!(Overlap, Overlap::wanted(), |value| Ok(Self::of(value.as_u64())));

impl Overlap {
    fn wanted() -> String {
        format!("a whole number up to {OVERLAP_MAX_SECONDS} (30 days), 0 to end the old text at once")
    }

    fn of(seconds: Option<u64>) -> Option<Self> {
        seconds.filter(|seconds| *seconds <= OVERLAP_MAX_SECONDS).map(Self)
    }
}

impl FromStr for Overlap {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::of(text.parse().ok()).ok_or_else(Self::wanted)
    }
}

/// Ends the text before the present one.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EndOverlap {
    /// The key.
    pub(crate) id: KeyId,
}

question!(EndOverlap => Key: POST "/v1/keys/{id}/end-overlap", Operator);

/// Withdraws a key for good, and keeps its record.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RevokeKey {
    /// The key.
    pub(crate) id: KeyId,
}

question!(RevokeKey => Key: POST "/v1/keys/{id}/revoke", Operator);

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

question!(ShowKey => Key: GET "/v1/keys/{id}", Viewer;
    fn version(key: &Key) -> Option<Version> {
        Some(key.version)
    }
);

/// Lists keys, those that are named by a part of what is known of them, or all.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListKeys {
    /// Those of this account.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) account: Option<AccountId>,
    /// Those behind this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) after: Option<KeyId>,
    /// So many of them at the most; 100 unless it is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) limit: Option<u64>,
    /// Those with this in name, account or hint, in any case, or with this id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) search: Option<String>,
    /// Those used at this time or later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) used_since: Option<Moment>,
    /// Those that are older and were not used from this time on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) unused_since: Option<Moment>,
    /// Those that have expired by this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) expires_before: Option<Moment>,
    /// Those that have spent as much in the period of their quota.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) spent_usd: Option<Usd>,
}

question!(ListKeys => Keys: GET "/v1/keys", Viewer);
