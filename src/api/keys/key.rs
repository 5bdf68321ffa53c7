//! The descriptions of keys in answers of the admin API.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    api::values::{Moment, Percents, Usd},
    domain::{
        Version,
        keys::{KeyId, KeyRecord, KeyState, KeyView, secret::ServiceKey},
        ledger::{KeySpend, OnExhausted, QuotaReset, period::resets_at},
        money::NanoUsd,
    },
};

/// A page of the list of keys.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct KeyList {
    /// The keys of this page, sorted by id.
    pub(crate) keys: Vec<KeyDetails>,
    /// The id of the last key that was searched, if further keys may follow. To get them, send this id as `after`.
    pub(crate) next: Option<KeyId>,
}

/// A key with its limits and its consumption.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct KeyDetails {
    /// The key's id.
    pub(crate) id: KeyId,
    /// The version of the key's properties. It changes with each change of a property.
    pub(crate) version: Version,
    /// The key's display name.
    pub(crate) name: String,
    /// The name of the account that pays for the key's requests.
    pub(crate) account: String,
    /// Whether the key is revoked.
    pub(crate) state: KeyStanding,
    /// The time at which the key was created.
    pub(crate) created_at: Option<Moment>,
    /// The time at which the key expires; null: never.
    pub(crate) expires_at: Option<Moment>,
    /// The time at which the key was revoked; null: it is not revoked.
    pub(crate) revoked_at: Option<Moment>,
    /// The time at which the key was last used; null: never.
    pub(crate) last_used: Option<Moment>,
    /// The models that the key may request; null: all.
    pub(crate) models: Option<Vec<String>>,
    /// The last characters of the key, by which users recognise it.
    pub(crate) hint: String,
    /// The former secret, which a rotation has replaced; null: no former secret is valid.
    pub(crate) former: Option<FormerTextView>,
    /// The key's quota: the maximum amount that it may spend per period, in USD; null: unlimited.
    pub(crate) quota_usd: Option<Usd>,
    /// The key's quota in nano-USD; null: unlimited.
    pub(crate) quota_nano_usd: Option<NanoUsd>,
    /// The period after which the quota resets.
    pub(crate) reset: QuotaReset,
    /// The time of the quota's next reset; null: it never resets.
    pub(crate) resets_at: Option<Moment>,
    /// The amount spent in the current quota period, in USD; null: the ledger could not be read.
    pub(crate) spent_usd: Option<Usd>,
    /// The amount spent in the current quota period, in nano-USD; null: the ledger could not be read.
    pub(crate) spent_nano_usd: Option<NanoUsd>,
    /// The amounts spent today, this week, this month and in total; null: the ledger could not be read.
    pub(crate) spent: Option<PeriodSpend>,
    /// The money that is set aside for the key's running requests, in USD; null: the ledger could not be read.
    pub(crate) held_usd: Option<Usd>,
    /// The money that is set aside for the key's running requests, in nano-USD; null: the ledger could not be read.
    pub(crate) held_nano_usd: Option<NanoUsd>,
    /// The number of the key's running requests; null: the ledger could not be read.
    pub(crate) running: Option<u64>,
    /// The key's maximum number of requests per minute; null: no limit.
    pub(crate) rpm: Option<u64>,
    /// The key's maximum number of tokens per minute, input and output together; null: no limit.
    pub(crate) tpm: Option<u64>,
    /// The key's maximum number of concurrent requests; null: no limit.
    pub(crate) concurrency: Option<u64>,
    /// Whether a running answer may finish (`finish`) or is cut off (`cut`) when the key's quota is used up.
    pub(crate) on_exhausted: OnExhausted,
    /// The maximum cost of an answer that may finish after the quota is used up, as a multiple of the quota; null: no limit.
    pub(crate) finish_factor: Option<u32>,
    /// The percentages of the quota at which notices are sent; null: the account's percentages, or else those in the
    /// configuration.
    pub(crate) notify_percent: Option<Percents>,
    /// The key in clear; left out unless this request has created or rotated the key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<KeyText>,
}

/// Whether a key is revoked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum KeyStanding {
    /// The key is not revoked.
    Active,
    /// The key is revoked.
    Revoked,
}

impl KeyStanding {
    /// Returns the state's name, as it is written in JSON.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Revoked => "revoked",
        }
    }
}

/// A new or rotated key in clear. Only the JSON form contains the key; the output of `Debug` does not.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub(crate) struct KeyText(String);

impl KeyText {
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for KeyText {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str("KeyText(..)")
    }
}

/// The former secret of a rotated key, while this secret is still valid.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct FormerTextView {
    /// The last characters of the former secret, by which users recognise it.
    pub(crate) hint: String,
    /// The time until which the former secret is valid.
    pub(crate) until: Option<Moment>,
}

/// The amounts that a key has spent today, this week, this month and in total, in UTC.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs, reason = "the names say it")]
pub(crate) struct PeriodSpend {
    pub(crate) day_usd: Usd,
    pub(crate) day_nano_usd: NanoUsd,
    pub(crate) week_usd: Usd,
    pub(crate) week_nano_usd: NanoUsd,
    pub(crate) month_usd: Usd,
    pub(crate) month_nano_usd: NanoUsd,
    pub(crate) all_usd: Usd,
    pub(crate) all_nano_usd: NanoUsd,
}

impl From<&KeySpend> for PeriodSpend {
    fn from(spend: &KeySpend) -> Self {
        let KeySpend {
            all, day, week, month, ..
        } = *spend;
        Self {
            day_usd: Usd(day),
            day_nano_usd: day,
            week_usd: Usd(week),
            week_nano_usd: week,
            month_usd: Usd(month),
            month_nano_usd: month,
            all_usd: Usd(all),
            all_nano_usd: all,
        }
    }
}

impl KeyDetails {
    /// Builds the description of a key at the time `now_ms`, in milliseconds since the Unix epoch. `spend` is `None` if the
    /// ledger could not be read.
    pub(crate) fn from_view(view: &KeyView, spend: Option<&KeySpend>, now_ms: i64) -> Self {
        let KeyView { record, last_used, .. } = view;
        let terms = &record.terms;
        let spent = spend.map(|spend| match terms.reset {
            QuotaReset::None => spend.all,
            QuotaReset::Daily => spend.day,
            QuotaReset::Weekly => spend.week,
            QuotaReset::Monthly => spend.month,
        });
        let held = spend.map(|spend| spend.held);
        let (state, revoked_at) = match record.state {
            KeyState::Active => (KeyStanding::Active, None),
            KeyState::Revoked { at } => (KeyStanding::Revoked, Some(at)),
        };
        let time = |seconds: Option<i64>| seconds.and_then(Moment::of_seconds);
        Self {
            id: record.id.clone(),
            version: view.version(),
            name: record.name.clone(),
            account: record.account.to_string(),
            state,
            created_at: Moment::of_seconds(record.created_at),
            expires_at: time(record.expires_at),
            revoked_at: time(revoked_at),
            last_used: time(*last_used),
            models: record.models.clone(),
            hint: record.hint.clone(),
            former: FormerTextView::from_record(record, now_ms.div_euclid(1000)),
            quota_usd: terms.quota.map(Usd),
            quota_nano_usd: terms.quota,
            reset: terms.reset,
            resets_at: time(resets_at(terms.reset, now_ms)),
            spent_usd: spent.map(Usd),
            spent_nano_usd: spent,
            spent: spend.map(PeriodSpend::from),
            held_usd: held.map(Usd),
            held_nano_usd: held,
            running: spend.map(|spend| spend.running),
            rpm: terms.rates.rpm,
            tpm: terms.rates.tpm,
            concurrency: terms.rates.concurrency,
            on_exhausted: terms.on_exhausted,
            finish_factor: terms.finish_factor.get(),
            notify_percent: terms.notify.map(Percents),
            key: None,
        }
    }

    /// Adds the key in clear. Used for a key that has just been created or rotated.
    pub(crate) fn with_text(self, text: &ServiceKey) -> Self {
        let key = Some(KeyText(text.as_str().to_owned()));
        Self { key, ..self }
    }
}

impl FormerTextView {
    /// Returns the former secret of a key; `None` if no former secret is valid at the time `now`, in seconds since the Unix
    /// epoch.
    fn from_record(record: &KeyRecord, now: i64) -> Option<Self> {
        let is_active = record.state == KeyState::Active;
        let former = record
            .former
            .as_ref()
            .filter(|former| is_active && former.is_valid(now))?;
        Some(Self {
            hint: former.hint.clone(),
            until: Moment::of_seconds(former.until),
        })
    }
}

/// The answer to the deletion of a key.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct DeletedKey {
    /// The id of the deleted key.
    pub(crate) id: KeyId,
    /// Always true, because the key was deleted.
    pub(crate) deleted: bool,
}
