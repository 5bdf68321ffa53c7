//! Keys in answers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    api::values::{Moment, Percents, Usd},
    domain::{
        keys::{
            key::{KeyId, KeyRecord, KeyState, KeyView},
            secret::ServiceKey,
        },
        ledger::{KeySpend, OnExhausted, QuotaReset, period::resets_at},
        money::NanoUsd,
        version::Version,
    },
};

/// A page of keys.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct KeyList {
    /// The keys, in the order of their ids.
    pub(crate) keys: Vec<KeyDetails>,
    /// The last key that was searched, if there may be others after it.
    pub(crate) next: Option<KeyId>,
}

/// A key.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct KeyDetails {
    /// Its id.
    pub(crate) id: KeyId,
    /// The version of its changeable properties.
    pub(crate) version: Version,
    /// Its name for people.
    pub(crate) name: String,
    /// The account that pays.
    pub(crate) account: String,
    /// Whether it is revoked.
    pub(crate) state: KeyStanding,
    /// When it was created.
    pub(crate) created_at: Option<Moment>,
    /// When it expires; null: never.
    pub(crate) expires_at: Option<Moment>,
    /// When it was revoked.
    pub(crate) revoked_at: Option<Moment>,
    /// When it was last used; null: never.
    pub(crate) last_used: Option<Moment>,
    /// The models that it may request; null: all.
    pub(crate) models: Option<Vec<String>>,
    /// The last characters of its text.
    pub(crate) hint: String,
    /// The former text, while it works.
    pub(crate) former: Option<FormerTextView>,
    /// The quota: how much it may spend per period; null: unlimited.
    pub(crate) quota_usd: Option<Usd>,
    /// The same amount in nano-USD.
    pub(crate) quota_nano_usd: Option<NanoUsd>,
    /// When the quota resets.
    pub(crate) reset: QuotaReset,
    /// The time of the next reset.
    pub(crate) resets_at: Option<Moment>,
    /// The amount spent in the current quota period; null: unknown.
    pub(crate) spent_usd: Option<Usd>,
    /// The same amount in nano-USD.
    pub(crate) spent_nano_usd: Option<NanoUsd>,
    /// The amounts spent in each period.
    pub(crate) spent: Option<PeriodSpend>,
    /// The holds of its running requests.
    pub(crate) held_usd: Option<Usd>,
    /// The same amount in nano-USD.
    pub(crate) held_nano_usd: Option<NanoUsd>,
    /// Running requests.
    pub(crate) running: Option<u64>,
    /// Requests per minute; null: no limit.
    pub(crate) rpm: Option<u64>,
    /// Tokens per minute, input and output; null: no limit.
    pub(crate) tpm: Option<u64>,
    /// Concurrent requests; null: no limit.
    pub(crate) concurrency: Option<u64>,
    /// What happens to a running answer when the quota is used up.
    pub(crate) on_exhausted: OnExhausted,
    /// The maximum cost of an answer that may finish, as a multiple of the quota; null: no limit.
    pub(crate) finish_factor: Option<u32>,
    /// The percentages of the quota at which notices are sent; null: as set for the account, or else as configured.
    pub(crate) notify_percent: Option<Percents>,
    /// Its text, if it has just been made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<KeyText>,
}

/// Whether a key is revoked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum KeyStanding {
    /// It is not revoked.
    Active,
    /// It is revoked.
    Revoked,
}

impl KeyStanding {
    /// The name, as in JSON.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Revoked => "revoked",
        }
    }
}

/// The text of a new or rotated key. Only JSON shows it.
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

/// The former text of a key.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct FormerTextView {
    /// Its last characters.
    pub(crate) hint: String,
    /// Until when it works.
    pub(crate) until: Option<Moment>,
}

/// What a key has spent in the current periods.
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
    /// A key with its spending, if that is known. `now_ms` is in milliseconds since the Unix epoch.
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

    /// Adds the text, which has just been made.
    pub(crate) fn with_text(self, text: &ServiceKey) -> Self {
        let key = Some(KeyText(text.as_str().to_owned()));
        Self { key, ..self }
    }
}

impl FormerTextView {
    fn from_record(record: &KeyRecord, now: i64) -> Option<Self> {
        let former = record.former.as_ref().filter(|former| former.is_valid(now))?;
        Some(Self {
            hint: former.hint.clone(),
            until: Moment::of_seconds(former.until),
        })
    }
}

/// A deleted key.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct DeletedKey {
    /// The key.
    pub(crate) id: KeyId,
    /// Always true.
    pub(crate) deleted: bool,
}
